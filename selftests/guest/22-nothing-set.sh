#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: x86 uml debug
# A host with nothing set finds out the rate of its link and the base RTT of its datacenter. The first
# window tells what C is: initial_cwnd_bdp, a thirty-second, of C x 20 ms.
. "$(dirname "$0")/lib.sh"

modprobe tcp_unocc
modprobe tcp_gemini
pair
allow unocc gemini
check "a path of 20 ms" in_ns h2 tc qdisc add dev eth0 root netem delay 20ms limit 10000
for i in 1 2; do in_ns h$i sysctl -qw net.ipv4.tcp_wmem="4096 16777216 33554432" \
	net.ipv4.tcp_rmem="4096 16777216 33554432"; done

# window ADDRESS: of a connection that has sent nothing, in KB; its packets are of 1 kB and some.
window() {
	choose h1 unocc 3
	choose h2 unocc 3
	eventually in_ns h1 ping -q -c 1 -W 1 "$1"
	receive h2 /dev/null
	ip netns exec h1 nc "$1" 5001 <&9 >/dev/null 2>&1 &
	sender=$!
	eventually established
	xdc ss --netns h1 --json --dport 5001 | sed -n 's/.*"cwnd_packets":\([0-9]*\).*/\1/p'
	kill $sender $receiver 2>/dev/null
	wait $sender $receiver 2>/dev/null
}
established() { [ -n "$(in_ns h1 ss -tnH state established dport = :5001)" ]; }
# within_ms: the speeds are asked for a tenth of a second after the last event.
settle() { sleep 0.5; }

# 10 Gbit/s x 20 ms / 32 are 781 kB, 540 packets.
settle
within "veth says 10 Gbit/s" 500 560 "$(window 10.9.0.2)"
within "the host has learned its RTT" 19000 23000 "$(in_ns h1 cat /proc/sys/net/unocc/shortest_rtt_us)"
equal "which is gemini's alone for gemini" 0 "$(in_ns h1 cat /proc/sys/net/gemini/shortest_rtt_us)"
in_ns h1 sysctl -qw net.unocc.line_rate_mbps=1000
within "what is set by hand wins" 50 56 "$(window 10.9.0.2)"
in_ns h1 sysctl -qw net.unocc.line_rate_mbps=0
within "until it is not" 500 560 "$(window 10.9.0.2)"

# Devices that are made of others say what they say. h2 has the same, that packets fit.
for i in 1 2; do
	ip -n h$i link add link eth0 name v7 type vlan id 7
	ip -n h$i addr add 10.7.0.$i/24 dev v7
	ip -n h$i link set v7 up
done
settle
within "a VLAN says what is below" 500 560 "$(window 10.7.0.2)"
ip -n h1 link del v7
ip -n h2 link del v7

for i in 1 2; do
	ip -n h$i link add br0 type bridge
	ip -n h$i addr flush dev eth0
	ip -n h$i link set eth0 master br0
	ip -n h$i addr add 10.9.0.$i/24 dev br0
	ip -n h$i link set br0 up
done
settle
within "a bridge says that of its port" 500 560 "$(window 10.9.0.2)"
for i in 1 2; do ip -n h$i link del br0; done

# A bond of two, over a second pair; it says 10 Gbit/s more when that comes, and no event is its own.
ip link add eth9 netns h1 type veth peer name eth9 netns h2
for i in 1 2; do
	ip -n h$i link add bond0 type bond mode balance-xor miimon 50
	ip -n h$i link set eth0 down
	ip -n h$i link set eth0 master bond0
	ip -n h$i addr add 10.9.0.$i/24 dev bond0
	ip -n h$i link set bond0 up
	ip -n h$i link set eth0 up
	ip netns exec h$i ethtool -K bond0 tso off gso off gro off >/dev/null
done
settle
within "a bond of one" 500 560 "$(window 10.9.0.2)"
for i in 1 2; do ip -n h$i link set eth9 master bond0; done
for i in 1 2; do ip -n h$i link set eth9 up; done
tc -n h2 qdisc add dev eth9 root netem delay 20ms limit 10000
two_ports() { [ "$(window 10.9.0.2)" -gt 1000 ]; }
check "a bond of two has twice that" eventually two_ports

# A tunnel says nothing: the kernel's first window, and then what is delivered.
for i in 1 2; do
	ip -n h$i link add vx type vxlan id 5 dstport 4789 remote 10.9.0.$((3 - i)) dev bond0
	ip -n h$i addr add 10.6.0.$i/24 dev vx
	ip -n h$i link set vx up
done
settle
equal "a device that is silent" 10 "$(window 10.6.0.2)"
head -c 20000000 /dev/zero >/tmp/sent
for cc in unocc gemini; do
	choose h1 $cc 3
	choose h2 $cc 3
	check "$cc: every byte arrives by it" transfer 10.6.0.2
done
ip netns exec h1 nc -l -p 5002 <&9 >/dev/null &
equal "flows to the host itself are no datacenter" "$(in_ns h1 cat /proc/sys/net/unocc/shortest_rtt_us)" \
	"$(in_ns h1 sh -c 'echo | nc -w 1 127.0.0.1 5002 >/dev/null; cat /proc/sys/net/unocc/shortest_rtt_us')"
unpair

# A path far slower than the device says: 100 Mbit/s behind 10 Gbit/s. Nothing stalls.
slow() {
	pair
	in_ns h1 sysctl -qw net.ipv4.tcp_wmem="4096 16777216 33554432"
	check "a path of 2 ms back" in_ns h2 tc qdisc add dev eth0 root netem delay 2ms limit 10000
	check "$1: at 100 Mbit/s" in_ns h1 "$@"
}
for cc in unocc gemini; do
	slow xdc qdisc add dev eth0 root phantom limit 200kb rate 100mbit phantom 100kb drain 0.95 pmin 5% pmax 60%
	choose h1 $cc 3
	choose h2 $cc 3
	check "$cc: every byte arrives by marks" transfer 10.9.0.2
	equal "$cc: without a timeout" 0 "$(snmp h1 TcpExt TCPTimeouts)"
	unpair
	slow tc qdisc add dev eth0 root tbf rate 100mbit burst 20kb limit 200kb
	choose h1 $cc 3
	choose h2 $cc 3
	check "$cc: every byte arrives by losses" transfer 10.9.0.2
	within "$cc: with few timeouts" 0 3 "$(snmp h1 TcpExt TCPTimeouts)"
	unpair
done
finish
