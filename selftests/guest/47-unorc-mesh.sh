#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml
# covers: modules/drivers/net/unorc/peers.c modules/include/uapi/linux/unorc.h
# covers: modules/Documentation/netlink/specs/unorc-peer.yaml userspace-tools/netlink/src/unorc
# Three hosts with one device each: peers, their inner addresses, and keys.
. "$(dirname "$0")/lib.sh"

mesh() {
	ip netns add r
	in_ns r sysctl -qw net.ipv4.ip_forward=1
	for i in 1 2 3; do
		ip netns add h$i
		ip link add eth0 netns h$i type veth peer name eth$i netns r
		ip -n h$i addr add 10.$i.0.1/24 dev eth0
		ip -n r addr add 10.$i.0.2/24 dev eth$i
		ip -n h$i link set eth0 up
		ip -n r link set eth$i up
		ip -n h$i link set lo up
		ip -n h$i route add default via 10.$i.0.2
		in_ns h$i ethtool -K eth0 tso off gso off gro off >/dev/null
		in_ns r ethtool -K eth$i tso off gso off gro off >/dev/null
		tc -n r qdisc add dev eth$i root netem limit 100000 rate 1gbit delay 1ms loss 0.2%
	done
}

peers() { i=$1; shift; in_ns h$i xdc unorc peer "$@"; }

# device I: creates u0 of host I, with both other hosts as peers.
device() {
	ip -n h$1 link add u0 type unorc local 10.$1.0.1 &&
		ip -n h$1 addr add 10.50.0.$1/24 dev u0 &&
		ip -n h$1 addr add fd50::$1/64 dev u0 nodad &&
		ip -n h$1 link set u0 up || return
	for j in 1 2 3; do
		[ $j = $1 ] || peers $1 add u0 10.$j.0.1 --allowed 10.50.0.$j/32,fd50::$j/128 || return
	done
}

pings() { i=$1; shift; in_ns h$i ping -c 5 -i 0.05 -W 2 "$@"; }
sessions() { peers $1 show u0 --json | grep -o '"session": *"up"' | wc -l; }

# bulk I J: sends /tmp/sent from host I to host J.
bulk() {
	ip netns exec h$2 timeout 60 nc -l -p 500$1 <&9 >/tmp/got$1$2 &
	server=$!
	eventually listens h$2 500$1 && in_ns h$1 timeout 30 nc 10.50.0.$2 500$1 </tmp/sent
	kill $server 2>/dev/null
	wait $server
	cmp /tmp/sent /tmp/got$1$2
}

check "modprobe unorc" modprobe unorc
mesh
dd if=/dev/urandom of=/tmp/sent bs=10000 count=300 2>/dev/null
for i in 1 2 3; do check "host $i has a device with two peers" device $i; done
for i in 1 2 3; do
	for j in 1 2 3; do
		[ $i = $j ] && continue
		check "host $i reaches host $j" pings $i 10.50.0.$j
		check "host $i reaches host $j over IPv6" pings $i fd50::$j
	done
done
for i in 1 2 3; do equal "host $i has two sessions" 2 "$(sessions $i)"; done
bulk 1 2 & one=$!
bulk 2 3 & two=$!
bulk 3 1 & three=$!
for flow in $one $two $three; do
	wait $flow
	result $? "a flow around the mesh is complete"
done

# Inner addresses.
refuses "an address of no peer is unreachable" "100% packet loss" pings 1 10.50.0.9
equal "its sender gets an ICMP error for each packet" 5 "$(snmp h1 Icmp InDestUnreachs)"
ip -n h3 addr add 10.50.0.2/32 dev lo
errors() { ip -n h1 -s -j link show u0 | grep -o '"rx":{[^}]*"errors":[0-9]*' | grep -o '[0-9]*$'; }
before=$(errors)
refuses "a peer cannot use another peer's address" "100% packet loss" pings 3 -I 10.50.0.2 10.50.0.1
equal "packets with another peer's address count as errors" 5 "$(($(errors) - before))"
ip -n h3 addr del 10.50.0.2/32 dev lo
check "a peer gets a prefix" peers 1 set u0 10.2.0.1 --allowed 10.50.0.2/32,fd50::2/128,10.60.0.0/16
check "another peer gets a longer prefix within it" \
	peers 1 set u0 10.3.0.1 --allowed 10.50.0.3/32,fd50::3/128,10.60.1.0/24
ip -n h1 route add 10.60.0.0/16 dev u0
ip -n h2 addr add 10.60.0.1/32 dev lo
ip -n h2 addr add 10.60.1.1/32 dev lo
ip -n h3 addr add 10.60.1.1/32 dev lo
check "the shorter prefix leads to its peer" pings 1 10.60.0.1
before=$(in_ns h3 cat /proc/net/snmp | awk '/^Icmp: [0-9]/ { print $2 }')
check "the longer prefix leads to its peer" pings 1 10.60.1.1
equal "packets to the longer prefix arrive at its peer" 5 \
	"$(($(in_ns h3 cat /proc/net/snmp | awk '/^Icmp: [0-9]/ { print $2 }') - before))"
check "a range moves to another peer" peers 1 set u0 10.2.0.1 --allowed 10.50.0.2/32,fd50::2/128,10.50.0.3/32
matches "the former peer has lost the range" '10.3.0.1.*fd50::3/128,10.60.1.0/24|10.3.0.1.* fd50::3' "$(peers 1 show u0)"
refuses "packets to a moved range go to its new peer" "100% packet loss" pings 1 10.50.0.3
check "the range moves back" peers 1 set u0 10.3.0.1 --allowed 10.50.0.3/32,fd50::3/128
check "host 1 reaches host 3 again" pings 1 10.50.0.3
refuses "a wrong range changes nothing" "range|prefix|length" peers 1 set u0 10.3.0.1 --allowed 10.50.0.3/33
check "after a wrong range host 1 reaches host 3" pings 1 10.50.0.3
refuses "this host is no peer" "remote must be" peers 1 add u0 10.1.0.1 --allowed 10.50.0.8/32
refuses "an IPv6 peer of an IPv4 device is refused" "remote must be" peers 1 add u0 fd09::7 --allowed 10.50.0.8/32
refuses "a missing peer is named" "no peer" peers 1 del u0 10.7.0.1

# Removal and return.
check "a peer is removed" peers 1 del u0 10.3.0.1
refuses "a removed peer is unreachable" "100% packet loss" pings 1 10.50.0.3
check "without a peer the others stay" pings 1 10.50.0.2
check "the peer returns" peers 1 add u0 10.3.0.1 --allowed 10.50.0.3/32,fd50::3/128
check "host 1 reaches the returned peer" pings 1 10.50.0.3
check "the device goes down" ip -n h1 link set u0 down
check "the device goes up" ip -n h1 link set u0 up
for j in 2 3; do check "after down and up host 1 reaches host $j" pings 1 10.50.0.$j; done

# Keys.
in_ns h1 xdc unorc key >/tmp/key
in_ns h1 xdc unorc key >/tmp/other
chmod 600 /tmp/key /tmp/other
matches "a key has 32 hex digits" '^[0-9a-f]{32}$' "$(cat /tmp/key)"
check "host 1 has a key" peers 1 set u0 10.2.0.1 --key /tmp/key
refuses "without the peer's key packets are dropped" "100% packet loss" pings 1 10.50.0.2
check "host 2 has the same key" peers 2 set u0 10.1.0.1 --key /tmp/key
check "with equal keys host 1 reaches host 2" pings 1 10.50.0.2
check "with equal keys a flow is complete" bulk 1 2
matches "show tells which peer has a key" '10.2.0.1 .*yes' "$(peers 1 show u0)"
check "host 2 has another key" peers 2 set u0 10.1.0.1 --key /tmp/other
before=$(tunnel_counter h1 bad_tag)
refuses "with different keys packets are dropped" "100% packet loss" pings 1 10.50.0.2
check "packets of another key are counted" [ "$(tunnel_counter h1 bad_tag)" -gt "$before" -o "$(tunnel_counter h2 bad_tag)" -gt 0 ]
check "a peer without a key is not affected" pings 1 10.50.0.3
for i in 1 2; do check "host $i has no key" peers $i set u0 10.$((3 - i)).0.1 --key none; done
check "without keys host 1 reaches host 2" pings 1 10.50.0.2

# The end.
bulk 1 2 >/dev/null 2>&1 &
sleep 0.1
check "a peer is removed under traffic" peers 1 del u0 10.2.0.1
check "a device with peers is removed" ip -n h2 link del u0
wait
for ns in h1 h2 h3 r; do ip netns del $ns; done
unload unorc

finish
