#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# sch_phantom: options, refusals with their reasons, change and delete under
# traffic, packets conserved.
. /selftests/lib.sh

modprobe sch_phantom
pair

# xdc in h1
x() { ip netns exec h1 xdc qdisc "$@"; }

check "add with defaults" x add dev eth0 root phantom
matches "show prints limits with units" "limit [0-9.]+[kmg]?b " "$(x show dev eth0)"
check "del" x del dev eth0 root

full="limit 1mb rate 1gbit phantom 22400kb drain 0.9 pmin 2% pmax 60% mark either at enqueue
	min 25% max 75% red-limit 400kb yellow-limit 600kb dscp-color 8:red,10:green"
check "add with every option of the manual" x add dev eth0 root phantom $full
shown=$(x show dev eth0)
for want in "rate 1gbit" "mark either" "at enqueue" "pmin 2%" "pmax 60%" "min 25%" "max 75%"; do
	matches "show has '$want'" "$want" "$shown"
done
# What show prints can be typed back.
args=$(echo "$shown" | sed -n 's/^qdisc phantom [^ ]* dev [^ ]* root //p' | head -1)
check "show's line can be typed back" x replace dev eth0 root phantom $args
equal "and gives the same line" "$args" \
	"$(x show dev eth0 | sed -n 's/^qdisc phantom [^ ]* dev [^ ]* root //p' | head -1)"

refused() {
	refuses "refuses $*" x change dev eth0 root phantom "$@"
}
refused drain 0
refused drain 1.5
refused pmin 70% pmax 60%
refused min 80% max 20%
refused limit 0
refused mark sometimes
refused nonsense 1
equal "refusals changed nothing" "$args" \
	"$(x show dev eth0 | sed -n 's/^qdisc phantom [^ ]* dev [^ ]* root //p' | head -1)"

x del dev eth0 root
check "a slow port" x add dev eth0 root phantom limit 60kb rate 80mbit mark none
dd if=/dev/zero of=/tmp/zeros bs=1000 count=20000 2>/dev/null
in_ns h2 nc -l -p 5001 >/tmp/received &
sleep 1
in_ns h1 nc 10.9.0.2 5001 </tmp/zeros &
for limit in 30kb 200kb 60kb; do
	check "change limit to $limit under traffic" x change dev eth0 root phantom limit $limit
	sleep 0.2
done
wait
check "every byte arrived" cmp /tmp/zeros /tmp/received
stats=$(x show -s dev eth0)
matches "statistics have the phantom counters" "phantom" "$stats"
matches "an idle port is empty" "backlog 0b 0p" "$stats"

in_ns h2 nc -l -p 5002 >/dev/null &
sleep 1
in_ns h1 nc 10.9.0.2 5002 </tmp/zeros &
sleep 0.5
check "replace by another qdisc under traffic" tc -n h1 qdisc replace dev eth0 root pfifo
wait
for parent in "htb" "prio"; do
	case $parent in
	htb)
		tc -n h1 qdisc replace dev eth0 root handle 1: htb default 1
		tc -n h1 class add dev eth0 parent 1: classid 1:1 htb rate 200mbit
		;;
	prio) tc -n h1 qdisc replace dev eth0 root handle 1: prio ;;
	esac
	check "as a child of $parent" x add dev eth0 parent 1:1 phantom limit 100kb
	check "ping through it" in_ns h1 ping -c 3 -A -q 10.9.0.2
	check "delete the parent with the child" tc -n h1 qdisc del dev eth0 root
done
unpair
sleep 1
check "rmmod" rmmod sch_phantom
finish
