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
check "the first namespace allows tcp_example" allow example
for host in h1 h2; do choose $host example 1; done

tc1() { tc -n h1 "$@"; }
marks() { snmp h2 IpExt InCEPkts; }
dropped() { tc1 -s -j qdisc show dev eth0 | grep -o '"kind":"example".*' | grep -o '"drops":[0-9]*' | cut -d : -f 2; }

check "2 MB arrive with tcp_example" transfer 10.9.0.2
equal "no marks before the qdisc" 0 "$(marks)"

# The rate limit makes the queue; the window grows past 100 kB in it.
check "a port with htb" tc1 qdisc add dev eth0 root handle 1: htb default 1
check "a class of 20 Mbit/s" tc1 class add dev eth0 parent 1: classid 1:1 htb rate 20mbit
check "tc attaches sch_example" tc1 qdisc add dev eth0 parent 1:1 handle 2: example
matches "tc shows sch_example" "^qdisc example 2: parent 1:1" "$(tc1 qdisc show dev eth0)"
check "2 MB arrive through sch_example" transfer 10.9.0.2
within "sch_example marks packets" 1 1500 "$(marks)"
equal "sch_example drops no packet" 0 "$(dropped)"

for host in h1 h2; do choose $host example 0; done
before=$(marks)
check "2 MB arrive through sch_example without ECN" transfer 10.9.0.2
equal "sch_example marks no Not-ECT packet" "$before" "$(marks)"

# Features from three files and a line: sysctls, marks by AccECN, state, tracepoint.
check "modprobe tcp_aimd" modprobe tcp_aimd
allow example aimd
equal "aimd: a parameter has its default" 512 "$(sysctl_get net.aimd.decrease)"
refuses "aimd: a parameter out of range is refused" "Invalid argument|I/O error" sysctl_set net.aimd.decrease 0
for host in h1 h2; do choose $host aimd 3; done
check "aimd: 2 MB arrive through sch_example" transfer 10.9.0.2
tracefs=/sys/kernel/tracing
[ -d $tracefs/events ] || mount -t tracefs none $tracefs 2>/dev/null
receive h2 /dev/null
{ echo; exec cat /dev/zero; } | ip netns exec h1 nc 10.9.0.2 5001 >/dev/null 2>&1 &
sender=$!
state() { xdc ss --netns h1 --cc aimd --json | sed -n "s/.*\"$1\":\([^,}]*\).*/\1/p"; }
marked() { [ "$(state rounds)" -gt 20 ] && [ "$(state marked)" != 0.0 ]; }
check "aimd: xdc ss shows its round trips and marks" eventually marked
if [ -d $tracefs/events ]; then
	check "aimd: its tracepoint exists" test -d $tracefs/events/xdc/aimd_round
	check "aimd: xdc trace records its tracepoint" xdc trace --event aimd_round --seconds 1 -o /tmp/trace.jsonl
	check "aimd: its tracepoint has the window" grep -q '"event":"aimd_round".*"cwnd_bytes":[1-9]' /tmp/trace.jsonl
fi

kill $sender $receiver

unpair
check "rmmod tcp_aimd" eventually rmmod tcp_aimd
check "rmmod tcp_example" eventually rmmod tcp_example
check "rmmod sch_example" eventually rmmod sch_example
finish
