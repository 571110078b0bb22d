#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml-debug | debug
# covers: modules/net/sched/*phantom*.rs modules/rust/kernel/net/sched
# A parent peeks at phantom's last packet, which RED chose to drop. If phantom then returned none,
# drr, ets and hfsc would forget their other classes, and qfq would follow a null pointer.
. /selftests/lib.sh

modprobe sch_phantom
echo "43-peek begins" >/dev/kmsg
echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6
ip link add d0 type dummy
ip addr add 10.8.0.1/16 dev d0
ip link set d0 up
for i in 1 2; do ip neigh replace 10.8.1.$i lladdr 02:00:00:00:00:02 dev d0 nud permanent; done

# Packets that left or are queued.
came() {
	tc -s qdisc show dev d0 root | awk '/^ *Sent/ { n += $4 } /^ *backlog/ { n += $3 } END { print n + 0 }'
}
have_come() { [ "$(came)" -ge "$1" ]; }
# A frame of 1042 bytes, to class 1 or 2.
one() {
	next=$(($(came) + 1))
	ping -q -c 1 -W 1 -s 1000 10.8.1.$1 >/dev/null 2>&1 &
	eventually have_come $next
}
idle() { ! tc -s qdisc show dev d0 | grep -q 'backlog [1-9]'; }
sent() { tc -s qdisc show dev d0 root | sed -nE 's/^ *Sent [0-9]+ bytes ([0-9]+) pkt.*/\1/p'; }

for parent in drr ets hfsc qfq; do
	# One frame at once, then one per 4 s.
	tc qdisc add dev d0 root handle 1: tbf rate 2kbit burst 1100 limit 1mb
	case $parent in
	drr)
		tc qdisc add dev d0 parent 1:1 handle 2: drr
		tc class add dev d0 parent 2: classid 2:1 drr quantum 3000
		tc class add dev d0 parent 2: classid 2:2 drr quantum 3000
		;;
	ets) tc qdisc add dev d0 parent 1:1 handle 2: ets bands 2 quanta 3000 3000 ;;
	hfsc)
		tc qdisc add dev d0 parent 1:1 handle 2: hfsc default 2
		tc class add dev d0 parent 2: classid 2:1 hfsc ls m2 2kbit
		tc class add dev d0 parent 2: classid 2:2 hfsc ls m2 2kbit
		;;
	qfq)
		# Different weights, so that they belong to different aggregates.
		tc qdisc add dev d0 parent 1:1 handle 2: qfq
		tc class add dev d0 parent 2: classid 2:1 qfq weight 1 maxpkt 2048
		tc class add dev d0 parent 2: classid 2:2 qfq weight 2 maxpkt 2048
		;;
	esac
	tc filter add dev d0 parent 2: protocol ip prio 1 u32 match ip dst 10.8.1.1 flowid 2:1
	tc filter add dev d0 parent 2: protocol all prio 2 matchall classid 2:2
	# Chooses the second packet and all later ones, which lack ECN.
	check "$parent: add phantom" tc qdisc add dev d0 parent 2:1 handle 10: \
		phantom line-rate 8bit phantom 15kb pmin 10% pmax 10% mark phantom ecn-drop on
	one 2 # takes all tokens
	one 1 # passes; tbf has it
	one 2
	one 1 # chosen, and the last that phantom has
	one 2
	# No further packet is sent, so the queue must drain by itself.
	check "$parent: the queue empties" eventually idle
	check "$parent: nothing was dropped" test "$(sent)" = 5
	tc qdisc del dev d0 root
done
check "the kernel does not report phantom as non-work-conserving" \
	test "$(dmesg | sed '1,/43-peek begins/d' | grep -c non-work-conserving)" = 0
ip link del d0
finish
