#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml
# covers: modules/drivers/net/unorc/*.c modules/drivers/net/unorc/*.rs modules/drivers/net/unorc/*.h
# covers: modules/include/uapi/linux/unorc.h modules/Documentation/netlink/specs/unorc.yaml
# covers: userspace-tools/ip-plugin
# Outer packets of a tunnel: length, route, ECN and loops.
. "$(dirname "$0")/lib.sh"

# tunnel I OPTION...: creates u0 of host I, 10.50.0.I and fd50::I, to the other host.
tunnel() {
	i=$1
	shift
	ip -n h$i link add u0 type unorc local 10.$i.0.1 remote 10.$((3 - i)).0.1 "$@" &&
		ip -n h$i addr add 10.50.0.$i/24 dev u0 &&
		ip -n h$i addr add fd50::$i/64 dev u0 nodad &&
		ip -n h$i link set u0 up
}
tunnels() { tunnel 1 "$@" && tunnel 2 "$@"; }
untunnel() { for i in 1 2; do ip -n h$i link del u0; done; }
pings() { in_ns h1 ping -c 3 -i 0.05 -W 2 "$@"; }

# send NAME ADDRESS: sends /tmp/sent from NAME to ADDRESS of h2 within 20 s. Fails unless it arrives whole.
send() {
	receive h2 /tmp/received
	in_ns "$1" timeout 20 nc "$2" 5001 </tmp/sent
	kill $receiver 2>/dev/null
	wait $receiver 2>/dev/null
	cmp /tmp/sent /tmp/received
}
# inside NAME: MTU of NAME's route to h2 in the tunnel.
inside() { ip -n "$1" route get 10.50.0.2 | sed -n 's/.* mtu \([0-9]*\).*/\1/p'; }
# hop MTU: sets the MTU of the link between r and h2.
hop() { ip -n r link set eth2 mtu "$1" && ip -n h2 link set eth0 mtu "$1"; }
# forget: clears the learned MTUs of the hosts.
forget() { for ns in c h1 h2; do ip -n $ns route flush cache && ip -n $ns -6 route flush cache; done; }
# forged MTU: sends an ICMP error about another flow of the same hosts, as any host can.
forged() {
	ip -n r route add 10.2.0.0/24 dev eth2 mtu "$1" table 7
	ip -n r rule add ipproto 17 dport 33434-33500 lookup 7
	in_ns h1 traceroute -n -F -q 1 -f 2 -m 3 -w 1 10.2.0.1 1400 >/dev/null 2>&1
	ip -n r rule del ipproto 17 dport 33434-33500 lookup 7
	ip -n r route flush table 7
}

check "modprobe unorc" modprobe unorc
routed
# c is a host behind h1.
ip netns add c
ip link add eth0 netns c type veth peer name eth1 netns h1
ip -n c addr add 10.3.0.1/24 dev eth0
ip -n h1 addr add 10.3.0.2/24 dev eth1
ip -n c link set eth0 up
ip -n h1 link set eth1 up
ip -n c route add default via 10.3.0.2
in_ns c ethtool -K eth0 tso off gso off gro off >/dev/null
in_ns h1 sysctl -qw net.ipv4.ip_forward=1
dd if=/dev/urandom of=/tmp/sent bs=10000 count=100 2>/dev/null

# A hop with a smaller MTU than the device's link.
tunnels
ip -n h2 route add 10.3.0.0/24 dev u0
check "a tunnel over IPv4" pings 10.50.0.2
equal "the inner route has the MTU of the tunnel" "" "$(inside h1)"
check "a hop gets MTU 1400" hop 1400
check "hop of MTU 1400: 1 MB arrives" send h1 10.50.0.2
equal "hop of MTU 1400: the MTU of the inner route follows" 1354 "$(inside h1)"
check "hop of MTU 1400: 1 MB of a host behind the tunnel arrives" send c 10.50.0.2
equal "hop of MTU 1400: the host behind the tunnel learns the MTU" 1354 "$(inside c)"
check "hop of MTU 1400: 1 MB over IPv6 arrives" send h1 fd50::2
check "a hop gets MTU 1000" hop 1000
forget
check "hop of MTU 1000: 1 MB over IPv6 arrives in fragments" send h1 fd50::2
check "hop of MTU 1000: 1 MB over IPv4 arrives" send h1 10.50.0.2
equal "hop of MTU 1000: IPv4 is not fragmented" 954 "$(inside h1)"
hop 1500
forget

# A manual MTU.
check "the tunnel's MTU can be lowered while it is up" ip -n h1 link set u0 mtu 1300
check "tunnel of MTU 1300: 1 MB arrives" send h1 10.50.0.2
check "the tunnel's MTU can be raised to its first value" ip -n h1 link set u0 mtu 1454
refuses "the tunnel's MTU cannot exceed its first value" busy ip -n h1 link set u0 mtu 1455

# A forged ICMP error.
forged 600
matches "a forged error lowers the MTU of the outer route" " mtu 600" "$(ip -n h1 route get 10.2.0.1)"
check "forged error of MTU 600: 1 MB arrives" send h1 10.50.0.2
within "forged error of MTU 600: packets have at least IPv4's minimum MTU" 576 600 "$(inside h1)"
check "forged error of MTU 600: longer IPv6 packets pass" pings -s 1200 fd50::2
forget
forged 68
check "forged error of MTU 68: 1 MB arrives" send h1 10.50.0.2
within "forged error of MTU 68: packets have at least IPv4's minimum MTU" 576 600 "$(inside h1)"
forget
in_ns h1 sysctl -qw net.ipv4.ip_no_pmtu_disc=3
forged 600
check "forged error is ignored: 1 MB arrives" send h1 10.50.0.2
equal "forged error is ignored: packets have full length" "" "$(inside h1)"
in_ns h1 sysctl -qw net.ipv4.ip_no_pmtu_disc=0
forget
untunnel

# The outer route. tc marks inner packets, as a container's SO_MARK does.
marked() { tc -n h1 qdisc add dev u0 clsact && tc -n h1 filter add dev u0 egress matchall action skbedit mark "$1"; }
tunnels
check "a tunnel for marked packets" pings 10.50.0.2
ip -n h1 route add blackhole default table 100
ip -n h1 rule add fwmark 7 lookup 100
marked 7
check "a mark inside selects no outer route" pings 10.50.0.2
ip -n h1 link change u0 type unorc fwmark 7
refuses "the device's fwmark selects the outer route" "100% packet loss" pings 10.50.0.2
matches "ip shows the fwmark" " fwmark 0x7 " "$(ip -n h1 -d link show u0)"
ip -n h1 link change u0 type unorc fwmark 9
# As in wg-quick: all packets but the tunnel's own use the tunnel.
ip -n h1 rule del fwmark 7 lookup 100
ip -n h1 route replace default dev u0 table 100
ip -n h1 rule add not fwmark 9 lookup 100
ip -n h2 addr add 10.60.0.2/32 dev lo
ip -n h2 link set lo up
check "a default route through the tunnel" pings -I 10.50.0.1 10.60.0.2
ip -n h1 rule del not fwmark 9 lookup 100
untunnel

# Outer fields, as r sees them. An inner probe has any TOS, and DF.
outside() {
	tc -n r qdisc add dev eth2 clsact
	tc -n r filter add dev eth2 egress protocol ip flower ip_proto udp dst_port 4796 "$@" action pass
}
# seen: number of matching packets.
seen() {
	tc -n r -s filter show dev eth2 egress | sed -n 's/.* \([0-9]*\) pkt .*/\1/p' | head -n 1
	tc -n r qdisc del dev eth2 clsact
}
probe() { in_ns h1 traceroute -n -q 3 -m 1 -w 1 "$@" >/dev/null 2>&1; }
tunnels fec off
check "a tunnel without parities" pings 10.50.0.2
outside ip_tos 1/3
probe -t 1 10.50.0.2
within "ECT(1) inside is ECT(1) outside" 3 3 "$(seen)"
outside ip_tos 2/3
probe -t 3 10.50.0.2
within "CE inside is ECT(0) outside" 3 3 "$(seen)"
outside ip_tos 0x01/0xff
probe -t 33 10.50.0.2
within "a DSCP inside stays inside" 3 3 "$(seen)"
check "tos inherit" ip -n h1 link change u0 type unorc tos inherit
outside ip_tos 0x21/0xff
probe -t 33 10.50.0.2
within "with tos inherit the outer packet has the DSCP and ECN inside" 3 3 "$(seen)"
ip -n h1 link change u0 type unorc tos 0x40 ttl 9
outside ip_tos 0x41/0xff ip_ttl 8
probe -t 33 10.50.0.2
within "tos and ttl of the device set the outer fields" 3 3 "$(seen)"
matches "ip shows tos and ttl" " tos 0x40 ttl 9 df set" "$(ip -n h1 -d link show u0)"
refuses "a tos with ECN bits is refused" "out of range|Invalid|reserved|mask" ip -n h1 link change u0 type unorc tos 0x42
check "a hop gets MTU 1400, df unset" hop 1400
ip -n h1 link change u0 type unorc ttl auto df unset
fragments=$(snmp r Ip FragCreates)
check "1 MB arrives without DF" send h1 10.50.0.2
within "without DF routers fragment packets" 100 10000 $(($(snmp r Ip FragCreates) - fragments))
equal "without DF packets have full length" "" "$(inside h1)"
ip -n h1 link change u0 type unorc df set
check "1 MB arrives with DF" send h1 10.50.0.2
equal "with DF the MTU of the inner route follows" 1354 "$(inside h1)"
hop 1500
forget

# Packets of the tunnel return to it, through a queue and another namespace.
for ns in c h1; do in_ns $ns sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.all.accept_local=1 net.ipv4.conf.all.send_redirects=0; done
tc -n h1 qdisc add dev eth1 root netem limit 100000 delay 1ms
ip -n h1 route add default via 10.3.0.1 dev eth1 table 8
ip -n h1 route add default dev u0 table 9
ip -n h1 rule add iif lo to 10.2.0.1 lookup 8
ip -n h1 rule add iif eth1 to 10.2.0.1 lookup 9
sent() { in_ns "$1" cat /sys/class/net/eth1/statistics/tx_packets; }
before=$(sent h1)
refuses "no packet arrives through a routing loop" "100% packet loss" pings 10.50.0.2
sleep 2
within "a routing loop stops" 3 1000 $(($(sent h1) - before))
within "packets of a routing loop count as collisions" 3 1000 "$(in_ns h1 cat /sys/class/net/u0/statistics/collisions)"
ip -n h1 rule del iif lo to 10.2.0.1 lookup 8
ip -n h1 rule del iif eth1 to 10.2.0.1 lookup 9
check "the tunnel works after the routing loop" eventually pings 10.50.0.2

# Two tunnels, each inside the other, with a queue between.
for i in 1 2; do
	ip -n h$i link add u1 mtu 1400 type unorc local 10.50.0.$i remote 10.50.0.$((3 - i)) port 5000
	ip -n h$i addr add 10.51.0.$i/24 dev u1
	ip -n h$i link set u1 up
done
check "a tunnel in a tunnel" pings 10.51.0.2
tc -n h1 qdisc add dev u1 root netem limit 100000 delay 1ms
ip -n h1 route add 10.2.0.1 dev u1
refuses "a loop of tunnels delivers no packet" "100% packet loss" pings 10.51.0.2
sleep 2
before=$(tunnel_counter h1 tx_data)
sleep 5
within "a loop of tunnels stops" 0 1000 $(($(tunnel_counter h1 tx_data) - before))
ip -n h1 route del 10.2.0.1 dev u1
check "both tunnels work after the loop of tunnels" eventually in_ns h1 ping -c 1 -W 1 10.51.0.2
for i in 1 2; do ip -n h$i link del u1; done
untunnel

# After a loss, 30 ms of packets at 1 Gbit/s are delivered at once.
for i in 1 2; do
	in_ns h$i sysctl -qw net.ipv4.tcp_rmem="4096 60000000 60000000" net.ipv4.tcp_wmem="4096 60000000 60000000"
done
in_first_ns sysctl -qw net.core.rmem_max=60000000 net.core.wmem_max=60000000
dd if=/dev/urandom of=/tmp/sent bs=10000 count=4000 2>/dev/null
tunnels fec off timer 30000
check "a tunnel with a timer of 30 ms" pings 10.50.0.2
tc -n h1 qdisc add dev eth0 root netem limit 100000 rate 1gbit delay 1ms loss 0.1%
check "40 MB arrive through a loss of 0.1 %" send h1 10.50.0.2
equal "the tunnel drops no packet that waited" 0 "$(in_ns h2 cat /sys/class/net/u0/statistics/rx_dropped)"
tc -n h1 qdisc del dev eth0 root
dd if=/dev/urandom of=/tmp/sent bs=10000 count=100 2>/dev/null
untunnel

# IPv6 outer headers.
in_ns r sysctl -qw net.ipv6.conf.all.forwarding=1
for i in 1 2; do
	ip -n h$i addr add fd0$i::1/64 dev eth0 nodad
	ip -n r addr add fd0$i::2/64 dev eth$i nodad
	ip -n h$i route add default via fd0$i::2
done
# tunnel6 I OPTION...: creates u0 of host I, with IPv6 outer headers.
tunnel6() {
	i=$1
	shift
	ip -n h$i link add u0 type unorc local fd0$i::1 remote fd0$((3 - i))::1 "$@" &&
		ip -n h$i addr add 10.50.0.$i/24 dev u0 &&
		ip -n h$i addr add fd50::$i/64 dev u0 nodad &&
		ip -n h$i link set u0 up
}
refuses "ends of two address families are refused" "one family" ip -n h1 link add u0 type unorc local fd01::1 remote 10.2.0.1
refuses "link-local ends are refused" "two hosts" ip -n h1 link add u0 type unorc local fe80::1 remote fe80::2
check "a tunnel over IPv6 at h1" tunnel6 1
check "a tunnel over IPv6 at h2" tunnel6 2
ip -n h2 route add 10.3.0.0/24 dev u0
matches "ip shows the IPv6 ends" " mtu 1434 .* local fd01::1 remote fd02::1 port 4796 " "$(ip -n h1 -d link show u0 | tr -d '\n')"
check "outer IPv6: pings pass" pings 10.50.0.2
check "outer IPv6: 1 MB arrives" send h1 10.50.0.2
check "outer IPv6: 1 MB over IPv6 arrives" send h1 fd50::2
check "outer IPv6: 1 MB of a host behind the tunnel arrives" send c 10.50.0.2
tc -n r qdisc add dev eth2 clsact
tc -n r filter add dev eth2 egress protocol ipv6 flower ip_proto udp dst_port 4796 ip_tos 0x41/0xff ip_ttl 8 action pass
ip -n h1 link change u0 type unorc tos 0x40 ttl 9
probe -t 33 10.50.0.2
within "outer IPv6: tos and ttl are the device's, ECN is that inside" 3 100 "$(seen)"
ip -n h1 link change u0 type unorc tos 0 ttl auto
check "outer IPv6: a hop gets MTU 1400" hop 1400
check "outer IPv6, hop of MTU 1400: 1 MB arrives" send h1 10.50.0.2
equal "outer IPv6, hop of MTU 1400: the MTU of the inner route follows" 1334 "$(inside h1)"
check "outer IPv6, hop of MTU 1400: 1 MB of a host behind the tunnel arrives" send c 10.50.0.2
forget
check "outer IPv6: a hop gets IPv6's minimum MTU" hop 1280
check "outer IPv6, hop of minimum MTU: 1 MB over IPv6 arrives in fragments" send h1 fd50::2
hop 1500
forget
ip -n h1 route add blackhole default table 100
ip -n h1 -6 route add blackhole default table 100
ip -n h1 -6 rule add fwmark 7 lookup 100
marked 7
check "outer IPv6: a mark inside selects no outer route" pings 10.50.0.2
ip -n h1 link change u0 type unorc fwmark 7
refuses "outer IPv6: the device's fwmark selects the outer route" "100% packet loss" pings 10.50.0.2
ip -n h1 -6 rule del fwmark 7 lookup 100
check "outer IPv6: the tunnel works after the rule is deleted" eventually pings 10.50.0.2
in_ns h1 sysctl -qw net.ipv6.conf.all.forwarding=1
ip -n h1 -6 route add fd02::1 dev u0 metric 1
refuses "outer IPv6: no packet arrives if the outer route leads into the tunnel" "100% packet loss" pings 10.50.0.2
within "outer IPv6: an outer route into the tunnel counts as a carrier error" 1 100000 "$(in_ns h1 cat /sys/class/net/u0/statistics/tx_carrier_errors)"
untunnel
for ns in c h1 r h2; do ip netns del $ns; done
finish
