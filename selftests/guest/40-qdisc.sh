#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml-debug x86 | debug
# covers: modules/net/sched/*phantom*.rs modules/rust/kernel/net/sched
# covers: modules/rust/helpers/net/sched.c modules/rust/kernel/net/netlink.rs modules/algo/phantom.rs
# covers: modules/rust/helpers/net/skb.c modules/rust/helpers/net/netlink.c
# covers: userspace-tools/xdc/src/live/qdisc.rs
# sch_phantom: options, refusals with their reasons, change and delete under
# traffic, packets conserved.
. "$(dirname "$0")/lib.sh"

modprobe sch_phantom
pair

# x: xdc in h1
x() { ip netns exec h1 xdc qdisc "$@"; }

check "add with defaults" x add dev eth0 root phantom
matches "show prints limits with units" "limit [0-9.]+[kmg]?b " "$(x show dev eth0)"
check "del" x del dev eth0 root

full="limit 1mb rate 1gbit phantom 22400kb drain 0.9 pmin 2% pmax 60% mark either at enqueue
	min 25% max 75% red-limit 400kb yellow-limit 600kb red-dscp 8"
check "add with every option of the manual" x add dev eth0 root phantom $full
shown=$(x show dev eth0)
for want in "rate 1gbit" "mark either" "at enqueue" "pmin 2%" "pmax 60%" "min 25%" "max 75%"; do
	matches "show has '$want'" "$want" "$shown"
done
# The output of show is valid input.
args=$(echo "$shown" | sed -n 's/^qdisc phantom [^ ]* dev [^ ]* root //p' | head -1)
check "show's output is valid input" x replace dev eth0 root phantom $args
equal "show prints the same line after replace" "$args" \
	"$(x show dev eth0 | sed -n 's/^qdisc phantom [^ ]* dev [^ ]* root //p' | head -1)"

refused() {
	why=$1
	shift
	refuses "refuses $*" "$why" x change dev eth0 root phantom "$@"
}
refused 'drain must be between' drain 0
refused '1.5. is not a fraction' drain 1.5
refused 'pmin must not exceed pmax' pmin 70% pmax 60%
refused 'min must not exceed max' min 80% max 20%
refused 'limit must be' limit 0
refused 'none, phantom, physical, either' mark sometimes
refused 'nonsense' nonsense 1
equal "refused requests change nothing" "$args" \
	"$(x show dev eth0 | sed -n 's/^qdisc phantom [^ ]* dev [^ ]* root //p' | head -1)"

x del dev eth0 root
dd if=/dev/urandom of=/tmp/piece bs=1000 count=100 2>/dev/null

# Packets in all queues of h1, and packets that left them.
queued() { tc -n h1 -s -j qdisc show dev eth0 | grep -o '"qlen":[0-9]*' | cut -d : -f 2 | sort -n | tail -1; }
left() { in_ns h1 cat /sys/class/net/eth0/statistics/tx_packets; }
has_queue() { [ "$(queued)" -gt 0 ]; }
has_sent_more_than() { [ "$(left)" -gt "$1" ]; }
moves() { eventually has_sent_more_than "$(left)"; }

has_dropped() { x show -s dev eth0 | grep -q "drops_limit [1-9]"; }
# busy WHERE...: sends through a slow phantom until `arrived`.
busy() {
	check "$*: a slow port" x add dev eth0 "$@" phantom limit 60kb rate 5mbit mark none
	receive h2 /tmp/received
	touch /tmp/busy
	while [ -e /tmp/busy ]; do cat /tmp/piece; done | tee /tmp/sent | in_ns h1 nc 10.9.0.2 5001 &
	sender=$!
	check "$*: the port has a queue" eventually has_queue
}
arrived() {
	rm /tmp/busy
	wait $sender $receiver
	check "$1: every byte arrived" cmp /tmp/sent /tmp/received
	check "$1: the queue is empty" eventually eval '! has_queue'
}

busy root
for limit in 3kb 200kb 60kb; do
	check "change limit to $limit under traffic" x change dev eth0 root phantom limit $limit
	matches "limit is $limit" " limit $limit (.* )?rate 5mbit " "$(x show dev eth0)"
	check "limit $limit: packets pass" moves
	# The flow continues until it overflows the smallest limit.
	[ $limit != 3kb ] || check "limit $limit: packets are dropped" eventually has_dropped
done
arrived root
stats=$(x show -s dev eth0)
matches "statistics have the phantom counters" "phantom_max_bytes [1-9]" "$stats"
matches "the smaller limits dropped packets" "drops_limit [1-9]" "$stats"
matches "an idle port is empty" "backlog 0b 0p" "$stats"
x del dev eth0 root

busy root
check "replace by another qdisc under traffic" tc -n h1 qdisc replace dev eth0 root pfifo
arrived pfifo

for parent in htb prio; do
	case $parent in
	htb)
		tc -n h1 qdisc replace dev eth0 root handle 1: htb default 1
		tc -n h1 class add dev eth0 parent 1: classid 1:1 htb rate 200mbit
		;;
	prio) tc -n h1 qdisc replace dev eth0 root handle 1: prio priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 ;;
	esac
	echo "# as a child of $parent"
	busy parent 1:1
	# Each change drops packets that the parent has counted, too.
	check "$parent: change limit under traffic" x change dev eth0 parent 1:1 phantom limit 3kb
	check "$parent: packets pass after the change" moves
	check "$parent: delete under traffic" x del dev eth0 parent 1:1
	check "$parent: add under traffic" x add dev eth0 parent 1:1 phantom limit 60kb
	arrived $parent
	check "$parent: delete the parent with the child" tc -n h1 qdisc del dev eth0 root
done

# sfb stores the bucket of each packet in it, and phantom the color.
modprobe sch_sfb
tc -n h1 qdisc add dev eth0 root handle 1: sfb
check "below sfb: add" tc -n h1 qdisc add dev eth0 parent 1:1 handle 10: phantom color filter
tc -n h1 filter add dev eth0 parent 10: matchall classid 10:3
in_ns h1 ping -q -c 20 -i 0.01 10.9.0.2 >/dev/null
below=$(tc -n h1 -s qdisc show dev eth0)
matches "below sfb: packets are red" "bytes_red [1-9]" "$below"
matches "below sfb: no bucket counts packets that left" "maxqlen 0 " "$below"
tc -n h1 qdisc del dev eth0 root

# A device with a settable speed, which notifies its ports when its link comes up.
if [ -c /dev/net/tun ] && ip -n h1 tuntap add tap0 mode tap 2>/dev/null; then
	speed() {
		in_ns h1 ethtool -s tap0 speed "$1" duplex full autoneg off
		ip -n h1 link set tap0 down
		ip -n h1 link set tap0 up
	}
	drains() { matches "$1" "phantom_drain[a-z_]* $2( |\$)" "$(x show -s dev tap0)"; }
	speed 1000
	check "tap: a port" x add dev tap0 root phantom
	drains "tap: the phantom queue drains at 0.9 of the device's 1 Gbit/s" 112500000
	speed 100
	drains "tap: the phantom queue drains at 0.9 of the device's 100 Mbit/s" 11250000
	speed 0
	drains "tap: the phantom queue keeps the last known speed" 11250000
	check "tap: change limit while the device has no speed" x change dev tap0 root phantom limit 2mb
	drains "tap: a change of limit keeps the last known speed" 11250000
	ip -n h1 link del tap0
fi

for i in $(seq 20); do
	x replace dev eth0 root phantom limit ${i}kb rate 1gbit || break
	in_ns h1 ping -c 1 -q 10.9.0.2 >/dev/null || break
	[ $((i % 2)) = 0 ] || x del dev eth0 root || break
done
equal "20 rounds of replacing and deleting" 20 "$i"
unpair
check "rmmod sch_phantom" eventually rmmod sch_phantom
finish
