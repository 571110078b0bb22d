#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: none
# covers: modules/tools/testing/selftests/net/bench_*.c
# The part of `xdc bench` with a clock that counts instructions. Output lines: "# callback CC ACKS CALLBACK
# CALLS INSTRUCTIONS", "# qdisc NAME MARKS PACKETS ENQUEUE-INSTRUCTIONS DEQUEUE-INSTRUCTIONS MARKED DROPPED",
# "# hook ROW PACKET CALLS INSTRUCTIONS", "# busy ROW INSTRUCTIONS", "# tunnel ROW PACKETS INSTRUCTIONS" and
# "# code ROW BYTES INSTRUCTIONS". Arguments "ROW CC ECN MODULES SYSCTL=VALUE..." (MODULES with commas, or -),
# each in one word, select four flows of each of these and no other row.
. "$(dirname "$0")/lib.sh"

debug=/sys/kernel/debug/xdc_bench
mountpoint -q /sys/kernel/debug || mount -t debugfs none /sys/kernel/debug
modprobe xdc_bench
modprobe sch_phantom

# Congestion controls: flows from h1 to h2 through the marking port of r.
bottleneck() {
	routed
	in_ns r xdc qdisc add dev eth2 root phantom limit 1mb rate 200mbit \
		phantom 300kb drain 0.95 pmin 5% pmax 60% seed 1
}
bottleneck
dd if=/dev/urandom of=/tmp/sent bs=1000 count=4000 2>/dev/null

# row CC [ROW [ECN]]: counts four flows as ROW. A single flow may be 3 % off.
row() {
	cc=$1 row=${2:-$1} ecn=${3:-3}
	check "$row: counted as b_$row" sh -c "echo $cc $row >$debug/wrap"
	allow $cc b_$row
	choose h1 b_$row $ecn
	# The receiver's callbacks are not counted.
	choose h2 $cc $ecn
	for flow in $(seq 4); do
		receive h2 /tmp/received
		in_ns h1 nc 10.2.0.1 5001 </tmp/sent
		wait $receiver
		check "$row: every byte of flow $flow arrived" cmp /tmp/sent /tmp/received
	done
	choose h1 cubic 0
	choose h2 cubic 0
}
counted() { sed 's/^/# callback /' $debug/callbacks; }
if [ $# -gt 0 ]; then
	for asked; do
		set -- $asked
		row=$1 cc=$2 ecn=$3 modules=$4
		shift 4
		for module in $(echo "$modules" | tr , ' '); do
			[ "$module" = - ] || modprobe "$module"
		done
		allow $cc
		for sysctl; do
			for ns in h1 h2; do check "$row: $sysctl" in_ns $ns sysctl -qw "$sysctl"; done
		done
		row $cc $row $ecn
	done
	counted
	finish
fi
for module in $(ours cc) tcp_dctcp_rs; do modprobe $module; done
for cc in reno cubic bbr dctcp dctcp_rs $(our_ccs); do row $cc; done
# As inside a datacenter with that rate and RTT: an epoch is a round trip.
check "unocc: set link rate and RTT" in_ns h1 sysctl -qw net.unocc.line_rate_mbps=200 net.unocc.intra_rtt_us=1000
row unocc unocc_rtt
counted

# TLT: cost of its hooks per packet, of the work behind them, and of a whole flow with and without the module.
# Bursts are cut to single segments, because the splitting hook also sends them.
ip -n h1 link set eth0 gso_max_segs 1
# counting NAME ADDRESS: runs a flow of cubic; $spent = instructions of the guest without idling.
counting() {
	before=$(cat $debug/busy)
	check "$1: every byte arrives" transfer "$2"
	spent=$(($(cat $debug/busy) - before))
}
busy() {
	counting "$1" 10.2.0.1
	echo "# busy $1 $spent"
}
# hooked ROW ENABLED: as counting, with packets counted as ROW.
hooked() {
	for ns in h1 h2; do
		in_ns $ns sysctl -qw net.tlt.enabled="$2"
		# A namespace has a /sys of its own.
		check "$1: hooks of $ns are counted" in_ns $ns sh -c "echo $1 >/proc/1/root$debug/hooks"
	done
	check "$1: every byte arrives" transfer 10.2.0.1
}
# Fill caches first.
transfer 10.2.0.1
busy tlt-none
modprobe tlt
busy tlt-off
for ns in h1 h2; do in_ns $ns sysctl -qw net.tlt.enabled=1; done
busy tlt-on
hooked tlt-off 0
hooked tlt-on 1
sed 's/^/# hook /' $debug/hooks
for ns in h1 r h2; do ip netns del $ns; done
modprobe -r tlt

# Tunnels: the flow without a tunnel and through each kind, with single segments that fit into each.
bottleneck
# tunneled NAME KIND OPTION...: creates u0 at both hosts; without a kind, uses the hosts' own devices.
tunneled() {
	name=$1
	shift
	address=10.2.0.1
	if [ $# -gt 0 ]; then
		address=10.50.0.2
		for i in 1 2; do
			check "$name: h$i" ip -n h$i link add u0 mtu 1400 type "$@" local 10.$i.0.1 remote 10.$((3 - i)).0.1
			ip -n h$i addr add 10.50.0.$i/24 dev u0
			in_ns h$i ethtool -K u0 tso off gso off gro off >/dev/null
			ip -n h$i link set u0 up
		done
		check "$name: a path" eventually in_ns h1 ping -c 1 -W 2 10.50.0.2
	else
		for i in 1 2; do ip -n h$i link set eth0 mtu 1400; done
	fi
	packets=$(snmp h1 Tcp OutSegs)
	counting "$name" $address
	echo "# tunnel $name $(($(snmp h1 Tcp OutSegs) - packets)) $spent"
	if [ $address = 10.50.0.2 ]; then
		for i in 1 2; do ip -n h$i link del u0; done
	else
		for i in 1 2; do ip -n h$i link set eth0 mtu 1500; done
	fi
}
modprobe vxlan
modprobe unorc
# Fill caches first.
transfer 10.2.0.1
tunneled none
tunneled vxlan vxlan id 1 dstport 4789
tunneled unorc unorc fec off paths ecmp
tunneled unorc-8+2 unorc fec 8+2 paths unolb
for ns in h1 r h2; do ip netns del $ns; done
modprobe -r unorc

# The code of `unorc`: its module counts, and a program measures other implementations.
check "code: xdc_code measures parities" modprobe xdc_code
dmesg | sed -nE 's/^.*xdc_code: (words|vectors|vectors-lent) ([0-9]+ [0-9]+)$/# code \1 \2/p'
check "code: xdc-code measures parities of other libraries" xdc-code
xdc-code | grep '^# code'

# Qdiscs at a held backlog, with thresholds that mark no packet, some, or all.
packets=4096
ip link add d0 type dummy
sysctl_set net.ipv6.conf.d0.disable_ipv6 1
ip link set d0 up

# marked MARKS: passes if the last run marked that many packets and lost none.
marked() {
	want=$1
	set -- $(cat $debug/qdisc)
	echo "$*"
	[ "$1" = $packets ] && [ "$5" = 0 ] || return
	case $want in
	none) [ "$4" = 0 ] ;;
	some) [ "$4" -gt $((packets / 20)) ] && [ "$4" -lt $((packets / 2)) ] ;;
	all) [ "$4" = $packets ] ;;
	esac
}

# count NAME MARKS: counts the qdisc of d0.
count() {
	check "$1: counted" sh -c "echo d0 64 $packets 2 >$debug/qdisc"
	check "$1: marks $2" marked $2
	echo "# qdisc $1 $2 $(cat $debug/qdisc)"
	tc qdisc del dev d0 root
}
q() { check "tc $*" tc qdisc add dev d0 "$@"; }
x() { check "xdc $*" xdc qdisc add dev d0 root phantom limit 1mb seed 1 "$@"; }

q root pfifo && count pfifo none
q root fq && count fq none

# red and phantom WHERE...: adds one, with thresholds around 64 packets of 1514 bytes.
red() {
	name=$1
	shift
	"$@" limit 1000000 min 300000 max 900000 avpkt 1500 burst 400 ecn && count $name none
	"$@" limit 1000000 min 20000 max 200000 avpkt 1500 burst 60 probability 0.5 ecn && count $name some
	"$@" limit 1000000 min 10000 max 30000 avpkt 1500 burst 20 ecn && count $name all
}
shaped_red() {
	q root handle 1: tbf rate 100gbit burst 1mb limit 1mb
	q parent 1: red "$@"
}
red red q root red
red tbf+red shaped_red

q root fq_codel target 100ms && count fq_codel none
q root fq_codel target 5us interval 300us && count fq_codel some
q root fq_codel ce_threshold 1us && count fq_codel all

# This version of tc has no options of dualpi2, whose default thresholds far exceed the delay in this queue.
q root dualpi2 && count dualpi2 none

by_phantom() {
	name=$1
	shift
	x phantom 4gb pmin 100% pmax 100% "$@" && count $name none
	x phantom 40mb pmin 0% pmax 100% "$@" && count $name some
	x phantom 40mb pmin 0% pmax 0% "$@" && count $name all
}
by_physical() {
	name=$1
	shift
	x min 50% max 75% "$@" && count $name none
	x min 5% max 30% "$@" && count $name some
	x min 0% max 1% "$@" && count $name all
}
by_phantom phantom line-rate 1mbit
by_phantom phantom-shaped rate 100gbit line-rate 1mbit
by_physical phantom-physical mark physical
by_physical phantom-physical-enqueue mark physical at enqueue
by_physical phantom-either mark either line-rate 1mbit phantom 4gb pmin 100% pmax 100%

ip link del d0

# A rack's switch, beside other qdiscs with priorities or schedules. They need transmit queues, and taprio a
# device with a speed.
modprobe sch_acceltor
ip link add d0 numtxqueues 4 type veth peer name d1
for device in d0 d1; do
	sysctl_set net.ipv6.conf.$device.disable_ipv6 1
	ip link set $device up
done
q root ets strict 3 && count ets none
q root taprio num_tc 2 map 0 1 queues 1@0 1@1 base-time 0 sched-entry S 03 1000000000 clockid CLOCK_TAI &&
	count taprio none
# rack NAME OPTION VALUE...: counts the day of rack 1, which has begun and outlasts the measurement; then that
# of rack 2.
rack() {
	name=$1
	shift
	read -r seconds _ </proc/uptime
	base_ns=$(($(echo "$seconds" | tr -d .) * 10000000 - 100000000))
	q root acceltor racks 3 day 1s night 0ns clockid monotonic base-time $base_ns ocs-rate 8000tbit "$@" && count "$name" none
}
rack acceltor-mouse prefix 10.9.0.2/32=1 detect dscp dscp 46
rack acceltor-accelerated prefix 10.9.0.2/32=2 detect dscp dscp 0
rack acceltor-circuit prefix 10.9.0.2/32=1 detect dscp dscp 0
rack acceltor-sketch prefix 10.9.0.2/32=1 detect sketch sketch-bytes 1b

ip link del d0
finish
