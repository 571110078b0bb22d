#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml-debug | debug
# covers: modules/tools/testing/selftests/net/xdc_nic.c modules/net/sched/phantom_shared.rs
# covers: modules/net/sched/phantom_pool.rs modules/algo/shared_phantom.rs modules/rust/kernel/net/speeds.rs
# sch_phantom on a device that is sometimes busy, changes its speed and has unused transmit queues
# (modules/tools/testing/selftests/net/xdc_nic.c): requeued packets are counted once, and every
# port learns the speed. Then the phantom queue shared by ports below mq, and packets with other references.
. "$(dirname "$0")/lib.sh"

modprobe sch_phantom
modprobe xdc_nic
set_nic() { echo "$2" >"/sys/module/xdc_nic/parameters/$1"; }

# Only packets of this test.
sysctl -qw net.ipv6.conf.default.disable_ipv6=1

# 40 neighbors that never answer.
neighbours() {
	for i in $(seq 40); do echo neigh replace 10.8.1.$i lladdr 02:00:00:00:00:02 dev nic0; done | ip -batch -
}

nic() {
	ip link add nic0 numtxqueues 4 type xdc_nic
	ip addr add 10.8.0.1/16 dev nic0
	ip link set nic0 up
	neighbours
}

# flows N PACKETS: sends PACKETS to each of N neighbors.
flows() {
	pids=
	for i in $(seq "$1"); do
		ping -q -c "$2" -i 0.001 -s 1000 -W 1 10.8.1.$i >/dev/null &
		pids="$pids $!"
	done
	wait $pids
}

transmitted() { ip -s link show nic0 | awk '/TX:/ { getline; print $2; exit }'; }
# Packets sent by the phantoms.
sent() { tc -s qdisc show dev nic0 | grep -A 2 '^qdisc phantom' | awk '/^ Sent/ { n += $4 } END { print n + 0 }'; }
idle() { [ "$(tc -s qdisc show dev nic0 | grep -c 'backlog 0b 0p')" -eq "$(tc qdisc show dev nic0 | wc -l)" ]; }

# has_counted: passes if the phantoms' count equals the device's since $before.
has_counted() { [ "$(sent)" = "$(($(transmitted) - before))" ]; }

# root BUSY OPTIONS...: makes a phantom the root of a new device.
root() {
	nic
	set_nic busy "$1"
	shift
	check "root phantom $*: add" tc qdisc add dev nic0 root handle 1: phantom "$@"
	before=$(transmitted)
	flows 4 50
	eventually idle
	check "root phantom: each packet is counted once despite requeues" eventually has_counted
	matches "root phantom: the device requeues packets" "requeues [1-9]" "$(tc -s qdisc show dev nic0)"
	check "root phantom: the queue empties" eventually idle
	flows 4 20 &
	sleep 0.01
	ip link del nic0
	wait
}
root 2 mark none
root 3 mark none rate 20mbit
root 7 mark physical at enqueue limit 20kb rate 20mbit ecn-drop on gso split

nic
set_nic busy 2
tc qdisc add dev nic0 root handle 1: mq
for i in 1 2 3 4; do
	check "mq, queue $i: add" tc qdisc add dev nic0 parent 1:$i phantom rate 10mbit
done
before=$(transmitted)
flows 10 10
eventually idle
check "mq: each packet is counted once despite requeues" eventually has_counted
check "mq: the queues empty" eventually idle
ip link del nic0
set_nic busy 0

# mq from net.core.default_qdisc, with ports. Three queues are unused when the device reports its speed.
in_first_ns sysctl -qw net.core.default_qdisc=phantom
set_nic speed 0
nic
equal "mq creates four default ports" 4 "$(tc qdisc show dev nic0 | grep -c '^qdisc phantom 0:')"
check "ethtool disables three queues" ethtool -L nic0 tx 1
equal "mq has one default port" 1 "$(tc qdisc show dev nic0 | grep -c '^qdisc phantom 0:')"
set_nic speed 1000
ip link set nic0 down
ip link set nic0 up
check "ethtool enables the queues again" ethtool -L nic0 tx 4
neighbours
flows 20 2
all=$(tc -s qdisc show dev nic0 | awk '/^qdisc phantom/ { port = $0 } /^ Sent/ { sent = $4 } /phantom_max_bytes/ { if (port != "" && sent > 0) print sent, $0 }')
within "number of queues in use" 3 4 "$(echo "$all" | wc -l)"
equal "every port in use knows the speed" "" "$(echo "$all" | grep 'phantom_max_bytes 0')"
in_first_ns sysctl -qw net.core.default_qdisc=pfifo_fast
ip link del nic0

# Below mq a change applies to the shared phantom queue, limited to the options of the request.
nic
tc qdisc add dev nic0 root handle 1: mq
for i in 1 2 3 4; do tc qdisc add dev nic0 parent 1:$i handle 1$i: phantom line-rate 1gbit; done
drains() { tc -s -j qdisc show dev nic0 | grep -o '"phantom_drain_bytes_per_s":[0-9]*' | sort | uniq -c | tr -s ' ' | tr '\n' ';'; }
equal "all ports below mq drain at the same rate" ' 4 "phantom_drain_bytes_per_s":112500000;' "$(drains)"
tc qdisc change dev nic0 parent 1:1 handle 11: phantom line-rate 100mbit
equal "a line rate set at one port applies to all" ' 4 "phantom_drain_bytes_per_s":11250000;' "$(drains)"
tc qdisc change dev nic0 parent 1:2 handle 12: phantom red-limit 5kb
equal "another option set at one port keeps the line rate" ' 4 "phantom_drain_bytes_per_s":11250000;' "$(drains)"
tc qdisc replace dev nic0 parent 1:3 handle 23: phantom mark none
equal "a new port without a line rate keeps that of the others" ' 4 "phantom_drain_bytes_per_s":11250000;' "$(drains)"
ip link del nic0

# A packet with another reference and a clone is chosen, but cannot be marked.
nic
tc qdisc add dev nic0 root phantom line-rate 1mbit phantom 10kb pmin 0% pmax 1% mark phantom at enqueue
before=$(transmitted)
for i in $(seq 20); do set_nic send_shared nic0; done
equal "packets with another reference are sent" 20 "$(($(transmitted) - before))"
ip link del nic0

check "rmmod sch_phantom" eventually rmmod sch_phantom
rmmod xdc_nic
finish
