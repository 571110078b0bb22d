#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml
# covers: modules/kernel/shim_udp_tunnel.c modules/kernel/udp_tunnel.rs modules/uapi/unorc.*
# covers: userspace-tools/ip-plugin
# The packets outside a tunnel: their length, route, ECN and loops.
. "$(dirname "$0")/lib.sh"

# tunnel I OPTION...: u0 of host I, 10.50.0.I and fd50::I, to the other host.
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

# send NAME ADDRESS: /tmp/sent to h2, or no longer than 20 s.
send() {
	receive h2 /tmp/received
	in_ns "$1" timeout 20 nc "$2" 5001 </tmp/sent
	kill $receiver 2>/dev/null
	wait $receiver 2>/dev/null
	cmp /tmp/sent /tmp/received
}
# inside NAME: MTU of the route to h2 in the tunnel, as NAME has learned it.
inside() { ip -n "$1" route get 10.50.0.2 | sed -n 's/.* mtu \([0-9]*\).*/\1/p'; }
# hop MTU: the link between r and h2 carries that much.
hop() { ip -n r link set eth2 mtu "$1" && ip -n h2 link set eth0 mtu "$1"; }
# forget: what the hosts have learned.
forget() { for ns in c h1 h2; do ip -n $ns route flush cache && ip -n $ns -6 route flush cache; done; }
# forged MTU: an error about another flow of the same hosts, as any host can send it.
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

# A hop that is shorter than the device's own link.
tunnels
ip -n h2 route add 10.3.0.0/24 dev u0
check "a tunnel" pings 10.50.0.2
equal "has the MTU of its device" "" "$(inside h1)"
check "a hop gets shorter" hop 1400
check "1 MB arrives" send h1 10.50.0.2
equal "the route inside follows" 1354 "$(inside h1)"
check "1 MB of a host behind arrives" send c 10.50.0.2
equal "which learns it" 1354 "$(inside c)"
check "1 MB over IPv6 arrives" send h1 fd50::2
check "a hop gets too short for IPv6" hop 1000
forget
check "1 MB over IPv6 arrives in fragments" send h1 fd50::2
check "1 MB over IPv4 arrives" send h1 10.50.0.2
equal "without fragments" 954 "$(inside h1)"
hop 1500
forget

# An MTU by hand.
check "its MTU can be lowered while it is up" ip -n h1 link set u0 mtu 1300
check "1 MB arrives" send h1 10.50.0.2
check "and raised again" ip -n h1 link set u0 mtu 1454
refuses "not beyond what it went up with" busy ip -n h1 link set u0 mtu 1455

# An error that any host can send.
forged 600
matches "shortens the route outside" " mtu 600" "$(ip -n h1 route get 10.2.0.1)"
check "1 MB arrives all the same" send h1 10.50.0.2
within "in packets no shorter than IPv4 allows" 576 600 "$(inside h1)"
check "and packets that may not be shorter" pings -s 1200 fd50::2
forget
forged 68
check "1 MB arrives after an error of 68 bytes" send h1 10.50.0.2
within "in packets no shorter than IPv4 allows" 576 600 "$(inside h1)"
forget
in_ns h1 sysctl -qw net.ipv4.ip_no_pmtu_disc=3
forged 600
check "1 MB arrives where such errors are ignored" send h1 10.50.0.2
equal "in packets of full length" "" "$(inside h1)"
in_ns h1 sysctl -qw net.ipv4.ip_no_pmtu_disc=0
forget
untunnel
finish
