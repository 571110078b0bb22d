#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml | x86
# covers: examples modules/algo/controller.rs modules/algo/mod.rs modules/oot/kernel_api.rs docs/writing.md
# The examples of docs/writing.md (examples/) build, load and work.
. "$(dirname "$0")/lib.sh"

check "modprobe tcp_example" modprobe tcp_example
check "modprobe sch_example" modprobe sch_example
pair
dd if=/dev/urandom of=/tmp/sent bs=1000 count=2000 2>/dev/null
check "the first namespace allows it" allow example
for host in h1 h2; do choose $host example 1; done

tc1() { tc -n h1 "$@"; }
marks() { snmp h2 IpExt InCEPkts; }
dropped() { tc1 -s -j qdisc show dev eth0 | grep -o '"kind":"example".*' | grep -o '"drops":[0-9]*' | cut -d : -f 2; }

check "2 MB under it" transfer 10.9.0.2
equal "no marks before the qdisc" 0 "$(marks)"

# The rate limit makes the queue; the window grows past 100 kB in it.
check "a slow link" tc1 qdisc add dev eth0 root handle 1: htb default 1
check "of 20 Mbit/s" tc1 class add dev eth0 parent 1: classid 1:1 htb rate 20mbit
check "tc attaches it" tc1 qdisc add dev eth0 parent 1:1 handle 2: example
matches "tc shows it" "^qdisc example 2: parent 1:1" "$(tc1 qdisc show dev eth0)"
check "2 MB through it" transfer 10.9.0.2
within "it marked" 1 1500 "$(marks)"
equal "and dropped nothing" 0 "$(dropped)"

for host in h1 h2; do choose $host example 0; done
before=$(marks)
check "2 MB through it without ECN" transfer 10.9.0.2
equal "nothing that is not ECT was marked" "$before" "$(marks)"

# Features from three files and a line: sysctls, marks by AccECN, state, tracepoint.
check "modprobe tcp_aimd" modprobe tcp_aimd
allow example aimd
equal "aimd: a parameter has its default" 512 "$(sysctl_get net.aimd.decrease)"
refuses "aimd: and its bounds" "Invalid argument|I/O error" sysctl_set net.aimd.decrease 0
for host in h1 h2; do choose $host aimd 3; done
check "aimd: 2 MB through it" transfer 10.9.0.2
tracefs=/sys/kernel/tracing
[ -d $tracefs/events ] || mount -t tracefs none $tracefs 2>/dev/null
receive h2 /dev/null
{ echo; exec cat /dev/zero; } | ip netns exec h1 nc 10.9.0.2 5001 >/dev/null 2>&1 &
sender=$!
state() { xdc ss --netns h1 --cc aimd --json | sed -n "s/.*\"$1\":\([^,}]*\).*/\1/p"; }
marked() { [ "$(state rounds)" -gt 20 ] && [ "$(state marked)" != 0.0 ]; }
check "aimd: xdc ss shows its round trips and marks" eventually marked
if [ -d $tracefs/events ]; then
	check "aimd: its tracepoint is there" test -d $tracefs/events/xdc/aimd_round
	check "aimd: xdc trace records it" xdc trace --event aimd_round --seconds 1 -o /tmp/trace.jsonl
	check "aimd: with the window" grep -q '"event":"aimd_round".*"cwnd_bytes":[1-9]' /tmp/trace.jsonl
fi

kill $sender $receiver

unpair
check "rmmod tcp_aimd" eventually rmmod tcp_aimd
check "rmmod tcp_example" eventually rmmod tcp_example
check "rmmod sch_example" eventually rmmod sch_example
finish
