#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: none
# covers: modules/tools/testing/selftests/net/bench_qdisc.c
# The part of `xdc bench` on four processors, with a clock that counts the instructions of all: packets
# through one, two and four transmit queues, one processor and one qdisc each. Output lines: "# queues QDISC
# QUEUES PACKETS NS".
. "$(dirname "$0")/lib.sh"

modprobe sch_phantom
modprobe xdc_nic
sysctl_set net.ipv6.conf.default.disable_ipv6 1
packets=20000

# each NAME QDISC...: counts that qdisc.
each() {
	name=$1
	shift
	ip link add nic0 numtxqueues 4 type xdc_nic
	ip link set nic0 up
	tc qdisc add dev nic0 root handle 1: mq
	for i in 1 2 3 4; do check "$name, queue $i" tc qdisc add dev nic0 parent 1:$i handle 1$i: "$@"; done
	# Fill the allocator's caches first.
	echo "nic0 4 1000" >/sys/module/xdc_nic/parameters/flood
	for queues in 1 2 4; do
		count=$((packets / queues))
		check "$name, $queues queues" sh -c "echo nic0 $queues $count >/sys/module/xdc_nic/parameters/flood"
		echo "# queues $name $queues $((count * queues)) $(cat /sys/module/xdc_nic/parameters/flood)"
	done
	used=$(tc -s qdisc show dev nic0 | awk '/^qdisc/ { name = $2 } /^ Sent/ && name != "mq" && $4 > 0 { n++ } END { print n + 0 }')
	check "$name: every queue was used" test "$used" = 4
	ip link del nic0
}
each pfifo pfifo
each red red limit 1000000 min 300000 max 900000 avpkt 1500 burst 400 ecn
each phantom phantom line-rate 100gbit seed 1
finish
