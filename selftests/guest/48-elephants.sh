#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml | x86 debug
# covers: userspace-tools/xdc/src/live/elephants.rs userspace-tools/bpf userspace-tools/ebpf
# `xdc acceltor elephants`: an eBPF classifier finds the elephants of sch_acceltor. docs/acceltor.md
. "$(dirname "$0")/lib.sh"

modprobe bonding max_bonds=0
modprobe sch_acceltor
ip link add d0 type dummy
refuses "a device without an acceltor is refused" "d0 has no acceltor" xdc acceltor elephants d0
refuses "a missing device is refused" "no device" xdc acceltor elephants d9
ip link del d0

racks
# Slots of 26 ms and four racks: a week of 78 ms.
acceltor="acceltor racks 4 rack 0 prefix 10.9.1.0/24=1,10.9.2.0/24=2,10.9.3.0/24=3 day 24ms night 2ms \
ocs-rate 80mbit eps-rate 40mbit rtt 6ms k 2 hp 150kb lp 150kb limit 60kb"
# shellcheck disable=SC2086
tc -n h1 qdisc add dev bond0 root handle 1: $acceltor
refuses "an acceltor without detect filter is refused" "uses no filter" in_ns h1 xdc acceltor elephants bond0
matches "the error suggests detect filter" "detect filter" "$(in_ns h1 xdc acceltor elephants bond0 2>&1)"
refuses "--every 0ms is refused" "between 1ms and 10s" in_ns h1 xdc acceltor elephants bond0 --every 0ms
tc -n h1 qdisc change dev bond0 root acceltor detect filter
refuses "--idle of less than three looks is refused" "at least three times --every" in_ns h1 xdc acceltor elephants bond0 --idle 100ms

# Each piece alone makes an elephant: on a slow guest the pause between two exceeds the idle time.
dd if=/dev/urandom of=/tmp/piece bs=1000 count=1000 2>/dev/null
touch /tmp/busy
senders=
# find_elephants OPTION...: runs in the background, with its output in /tmp/said.
find_elephants() {
	rm -f /tmp/said /tmp/errors
	ip netns exec h1 xdc acceltor elephants bond0 --every 20ms "$@" >/tmp/said 2>/tmp/errors &
	finder=$!
	eventually grep -q elephants /tmp/errors
}
# said EVENT ADDRESS: passes if it reported EVENT for a flow to ADDRESS.
said() { grep "\"destination\":\"$2:" /tmp/said | grep -q "\"event\":\"$1\""; }
filter() { tc -n h1 filter show dev bond0 parent 1:; }
# ends DESCRIPTION: passes if a signal ends it and its filter. A shell has its jobs ignore Ctrl-C.
ends() {
	kill $finder
	wait $finder
	# If cleanup takes more than 0.8 s, another thread of xdc finishes it and exits with the signal's
	# code.
	matches "$1: xdc ends after a signal" '^(0|143)$' $?
	equal "$1: xdc removes its filter" "" "$(filter)"
}

in_ns h1 sysctl -qw net.ipv4.tcp_frto=0 net.ipv4.tcp_early_retrans=0
find_elephants --json --bytes 300kB
refuses "a second classifier is refused" "another .xdc acceltor elephants. is running" in_ns h1 xdc acceltor elephants bond0
matches "xdc prints its threshold" "flows of 300kB or more are elephants on bond0" "$(cat /tmp/errors)"
flow_to 1 0.001 1000000
flow_to 2 0.3 10000
matches "the filter has its name and is the last" "pref 65535 bpf .*xdc-elephants" "$(filter | tr '\n' ' ')"
check "a long flow becomes an elephant" eventually said elephant 10.9.1.2
check "an elephant takes the circuit" moves packets_circuit
check "an elephant is accelerated before its day" moves packets_low
mice=$(rack_stat packets_high)
sleep 10
equal "a flow of 400 kB with pauses is no elephant" no "$(said elephant 10.9.2.2 && echo yes || echo no)"
check "a flow with pauses takes the packet network" eventually has_more packets_high $((mice + 99))
matches "each line is JSON with its units" '^[0-9]+$' "$(grep '"elephant"' /tmp/said | head -n 1 | xdc-witness json /bytes)"
ends "two flows"

# Without the classifier no further packet is an elephant's, once the queue is empty.
rests() {
	circuit=$(rack_stat packets_circuit)
	sleep 2
	[ "$(rack_stat packets_circuit)" = "$circuit" ]
}
check "without the classifier no packet takes the circuit" eventually rests

# A killed process cannot remove its filter, which then classifies no packet.
find_elephants --json --bytes 300kB
check "the long flow becomes an elephant again" eventually said elephant 10.9.1.2
kill -KILL $finder
wait $finder
matches "killed classifier: its filter stays" xdc-elephants "$(filter)"
sleep 30
circuit=$(rack_stat packets_circuit)
sleep 1
equal "killed classifier: its filter classifies no packet" "$circuit" "$(rack_stat packets_circuit)"
tc -n h1 filter del dev bond0 parent 1:

# A reader that does not read cannot stop it.
mkfifo /tmp/unread
exec 3<>/tmp/unread
ip netns exec h1 xdc acceltor elephants bond0 --every 20ms --bytes 300kB >/tmp/unread 2>/tmp/errors &
finder=$!
check "unread output: an elephant takes the circuit" moves packets_circuit
ends "unread output"
exec 3<&-

# Another program replaces its filter.
find_elephants --json --bytes 300kB
tc -n h1 filter del dev bond0 parent 1:
tc -n h1 filter add dev bond0 parent 1: handle 1 pref 65535 protocol all bpf bytecode '1,6 0 0 0,'
wait $finder
equal "replaced filter: xdc ends with 1" 1 $?
matches "replaced filter: xdc names the cause" "the classifier was removed" "$(cat /tmp/errors)"
matches "replaced filter: the new filter stays" bytecode "$(filter)"
tc -n h1 filter del dev bond0 parent 1:

find_elephants --json --bytes 50kB --top 1 --idle 5s
flow_to 3 0.05 2000
check "--top 1: the larger flow becomes an elephant" eventually said elephant 10.9.1.2
sleep 2
equal "--top 1: the smaller flow is no elephant" no "$(said elephant 10.9.3.2 && echo yes || echo no)"
rm /tmp/busy
check "an elephant that ended is idle" eventually said idle 10.9.1.2
# shellcheck disable=SC2086
tc -n h1 qdisc del dev bond0 root
wait $finder
equal "deleted qdisc: xdc ends with 1" 1 $?
matches "deleted qdisc: xdc names the cause" "bond0 has no acceltor" "$(cat /tmp/errors)"

# shellcheck disable=SC2086
kill $senders 2>/dev/null
# shellcheck disable=SC2086
wait $senders 2>/dev/null
ip netns del h1
ip netns del h2
rmmod sch_acceltor
finish
