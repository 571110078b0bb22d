#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml
# covers: modules/net/sched/*acceltor*.rs modules/algo/acceltor.rs modules/algo/acceltor_plan.rs
# Eight racks with AccelToR, a packet network and an optical circuit switch, which witnesses lost packets and
# the use of a circuit's days. The paper's network, 100 times slower, with a quarter of its rates and flows.
# In virtual time: otherwise a slow host's timers are measured. docs/acceltor.md
. "$(dirname "$0")/lib.sh"

modprobe bonding max_bonds=0
modprobe sch_acceltor

racks=8
last=$((racks - 1))
day_ns=24000000 night_ns=2000000
# MAC address of all ports into racks.
fabric=02:00:00:00:00:01

for ns in h0 t0 eps ocs; do ip netns add $ns; done
quiet() { in_ns "$1" sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0 net.ipv6.conf.all.disable_ipv6=1; }
for ns in h0 t0 eps ocs; do quiet $ns; done
plain() { in_ns "$1" ethtool -K "$2" tso off gso off gro off >/dev/null; }

# Rack 0: a host and its switch, whose bond has both uplinks.
ip link add eth0 netns h0 type veth peer name host netns t0
ip -n t0 link add bond0 type bond mode balance-rr
for way in eps ocs; do
	ip link add $way netns t0 type veth peer name p0 netns $way
	plain t0 $way
	plain $way p0
	ip -n t0 link set $way master bond0
	ip -n $way link set p0 address $fabric up
done
in_ns t0 sh -c 'echo eps:1 >/sys/class/net/bond0/bonding/queue_id; echo ocs:2 >/sys/class/net/bond0/bonding/queue_id'
ip -n h0 addr add 10.0.0.1/24 dev eth0
ip -n h0 link set eth0 up
ip -n t0 addr add 10.0.0.254/24 dev host
ip -n t0 link set host up
ip -n t0 link set bond0 up
plain h0 eth0
plain t0 host
for ns in t0 eps; do in_ns $ns sysctl -qw net.ipv4.ip_forward=1; done
# Without any address a namespace takes each gateway for a broadcast address.
ip -n eps addr add 10.255.0.3/32 dev lo
ip -n eps link set lo up
ip -n h0 route add default via 10.0.0.254 initcwnd 1
ip -n t0 neigh add 10.255.0.1 lladdr $fabric dev bond0
ip -n t0 route add 10.0.0.0/8 via 10.255.0.1 dev bond0 onlink
ip -n eps neigh add 10.255.0.2 lladdr "$(in_ns t0 cat /sys/class/net/bond0/address)" dev p0
ip -n eps route add 10.0.0.0/16 via 10.255.0.2 dev p0 onlink

# Each other rack is one host. Circuits take 2.5 ms one way, the packet network 3 ms.
prefixes=10.0.0.0/16=0
ports=p0
rack=1
while [ $rack -le $last ]; do
	ip netns add r$rack
	quiet r$rack
	for way in eps ocs; do
		ip link add $way netns r$rack type veth peer name p$rack netns $way
		plain r$rack $way
		plain $way p$rack
		ip -n r$rack link set $way address $fabric up
		ip -n $way link set p$rack address $fabric up
	done
	ip -n r$rack addr add 10.$rack.0.1/32 dev eps
	ip -n r$rack neigh add 10.255.0.3 lladdr $fabric dev eps
	ip -n r$rack route add default via 10.255.0.3 dev eps onlink quickack 1
	ip -n eps neigh add 10.255.1.$rack lladdr $fabric dev p$rack
	ip -n eps route add 10.$rack.0.0/16 via 10.255.1.$rack dev p$rack onlink
	tc -n eps qdisc add dev p$rack root netem delay 3ms limit 100000
	tc -n ocs qdisc add dev p$rack root netem delay 2.5ms limit 100000
	prefixes=$prefixes,10.$rack.0.0/16=$rack
	ports="$ports p$rack"
	ip netns exec r$rack xdc-witness sink 5001 &
	rack=$((rack + 1))
done
tc -n eps qdisc add dev p0 root netem delay 3ms limit 100000
in_ns h0 sysctl -qw net.ipv4.tcp_congestion_control=reno net.ipv4.tcp_early_retrans=0 net.ipv4.tcp_frto=0 \
	net.ipv4.tcp_no_metrics_save=1
# Values of `xdc acceltor plan --racks 8 --scale 100 --queue 125kB --elephants 20 ...`.
in_ns h0 sysctl -qw net.ipv4.tcp_rto_min_us=120000
k=4

options="racks $racks rack 0 prefix $prefixes day ${day_ns}ns night ${night_ns}ns clockid monotonic ocs-rate 200mbit \
eps-rate 125mbit rtt 6ms k $k hp 37500b lp 37500b limit 125000b detect dscp dscp 8"

# stat NAME: counter of the qdisc.
stat() { tc -n t0 -s qdisc show dev bond0 | counter "$1"; }
# lost COUNTER: the witness's losses of one kind, over all ports.
lost() { awk -v name="$1" '{ for (i = 1; i < NF; i++) if ($i == name) s += $(i + 1) } END { print s + 0 }' /tmp/witness; }

# run OPTIONS...: twelve weeks of 20 elephants to each rack. The last eight weeks count: /tmp/witness and use,
# the permille of the days' bytes that used the circuits.
run() {
	tc -n t0 qdisc replace dev bond0 root handle 1: acceltor $options "$@"
	all=$(stat packets_circuit)
	rm -f /tmp/hold && mkfifo /tmp/hold
	ip netns exec ocs xdc-witness circuits monotonic 0 $day_ns $night_ns 25000000 $ports </tmp/hold >/tmp/witness &
	witness=$!
	exec 8>/tmp/hold
	eventually grep -q ready /tmp/witness
	to=
	for rack in $(seq 1 $last); do to="$to 10.$rack.0.1:5001"; done
	# shellcheck disable=SC2086
	ip netns exec h0 xdc-witness send 8 20 $to >/tmp/sender &
	sender=$!
	eventually grep -q ready /tmp/sender
	sleep 0.73
	bytes=$(stat bytes_circuit) days=$(stat days)
	sleep 1.456
	days=$(($(stat days) - days)) bytes=$(($(stat bytes_circuit) - bytes))
	use=$((bytes * 1000 / (days * 600000)))
	echo "# $*: $days days, use $use permille, accelerated $(stat packets_low), late $(stat late_max_ns) ns, drops" \
		"low $(stat drops_low) queue $(stat drops_queue) blocked $(stat drops_blocked) stale $(stat drops_stale)"
	kill $sender
	wait $sender 2>/dev/null
	exec 8>&-
	wait $witness
	for port in $ports; do tc -n ocs qdisc del dev $port clsact; done
	within "$*: the witness saw the packets sent, except the latest" $(($(stat packets_circuit) - all - 500)) $(($(stat packets_circuit) - all)) \
		$(($(lost packets) + $(lost night) + $(lost cut) + $(lost misdirected)))
}

run policy acceltor
within "policy acceltor uses 90 % of its days" 900 1000 $use
equal "policy acceltor: no loss at the witness: night" 0 "$(lost night)"
equal "policy acceltor: no loss at the witness: cut" 0 "$(lost cut)"
equal "policy acceltor: no loss at the witness: misdirected" 0 "$(lost misdirected)"
accelerated=$use

for policy in blocking unblocking; do
	run policy $policy limit 375kb
	for counter in night cut misdirected; do equal "policy $policy: no loss at the witness: $counter" 0 "$(lost $counter)"; done
	within "policy $policy uses less of its days" 0 $accelerated $use
done

# A clock half a slot late is detected.
run policy acceltor base-time 13000000
within "a late clock sends at night" 1 1000000 "$(lost night)"
within "a late clock sends to other racks" 1 1000000 "$(lost misdirected)"

kill $(jobs -p) 2>/dev/null
ip netns list | while read -r ns _; do ip netns del "$ns"; done
check "rmmod sch_acceltor" eventually rmmod sch_acceltor
rmmod bonding
finish
