#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: x86
# covers: modules/include/trace modules/rust/kernel/net/trace.rs userspace-tools/ebpf
# covers: userspace-tools/xdc/src/live/trace
# Tracepoints: fields, events in the right places as often as the port counted them, and equal results of
# tracefs and `xdc trace`.
. "$(dirname "$0")/lib.sh"

tracefs=/sys/kernel/tracing
[ -d $tracefs/events ] || mount -t tracefs none $tracefs
xdc_events=$tracefs/events/xdc
events="unocc_epoch unocc_qa gemini_round phantom_mark phantom_drop"

# Earlier tests may have left them loaded, held by a socket for a while.
for module in tcp_unocc tcp_gemini sch_phantom sch_acceltor tlt unorc; do
	grep -q "^$module " /proc/modules && eventually rmmod $module
done
refuses "xdc trace without the modules is refused" "module" xdc trace --seconds 1
matches "xdc trace suggests modprobe" "modprobe tcp_unocc" "$(xdc trace --seconds 1 2>&1)"
refuses "an unknown event is refused" "unocc" xdc trace --event unocc
for module in tcp_unocc tcp_gemini sch_phantom; do modprobe $module; done

# Prints an event's fields in order, with their sizes, as documented in docs/tracing.md.
fields() {
	sed -n 's/^\tfield:.*[ *]\([a-z_]*\)\(\[[^;]*\)*;.*size:\([0-9]*\);.*/\1:\3/p' \
		$xdc_events/"$1"/format | grep -v '^common_' | tr '\n' ' '
}
sock="skaddr:8 saddr:28 daddr:28 family:2 sport:2 dport:2 netns:4 snd_cwnd:4 mss_bytes:4 srtt_us:4"
packet="skbaddr:8 dev:16 ifindex:4 netns:4 handle:4 parent:4 queue_bytes:8 phantom_bytes:8 \
len_bytes:4 protocol:2 dscp:1 ecn:1 color:1"
equal "unocc_epoch: fields" "$sock rtt_us:4 base_rtt_us:4 cwnd_before_bytes:8 cwnd_bytes:8 \
period_ns:8 acked_bytes:4 marked_bytes:4 e_ppm:4 md_ppm:4 gentle:1 action:1 " "$(fields unocc_epoch)"
equal "unocc_qa: fields" "$sock base_rtt_us:4 cwnd_before_bytes:8 cwnd_bytes:8 delivered_bytes:8 \
promised_bytes:8 adapted:1 " "$(fields unocc_qa)"
equal "gemini_round: fields" "$sock min_rtt_us:4 base_rtt_us:4 cwnd_bytes:8 acked_bytes:8 \
marked_bytes:8 increase_bytes:8 alpha_ppm:4 dcn_cut_ppm:4 wan_congested:1 reduced:1 " \
	"$(fields gemini_round)"
equal "phantom_mark: fields" "$packet cause:1 " "$(fields phantom_mark)"
equal "phantom_drop: fields" "$packet reason:1 " "$(fields phantom_drop)"

# The port is at r.
routed
allow unocc gemini
check "unocc: set link rate and RTT" in_ns h1 sysctl -qw net.unocc.line_rate_mbps=100000 net.unocc.intra_rtt_us=14
dd if=/dev/urandom of=/tmp/sent bs=1000 count=3000 2>/dev/null

# port WORDS...: a new port at r, with counters at 0.
port() {
	in_ns r xdc qdisc del dev eth2 root 2>/dev/null
	in_ns r xdc qdisc add dev eth2 root handle 10: phantom limit 1mb rate 200mbit "$@"
}
# of_port NAME: counter of the port.
of_port() { in_ns r xdc qdisc show -s dev eth2 | sed -n "s/^ *$1 \([0-9]*\)$/\1/p"; }
marks() { echo $(($(of_port marked_phantom) + $(of_port marked_physical) + $(of_port marked_both))); }
drops() { in_ns r xdc qdisc show -s dev eth2 | sed -n 's/.*(dropped \([0-9]*\),.*/\1/p'; }

# transfer_by CC ECN: transfers with that congestion control.
transfer_by() {
	choose h1 "$1" "$2"
	choose h2 "$1" "$2"
	transfer 10.2.0.1
}

# Two listeners: tracefs, and `xdc trace` to a file.
recording=/tmp/trace.jsonl
# Options of `xdc trace`.
listen=
echo 16384 >$tracefs/buffer_size_kb
begin() {
	echo >$tracefs/trace
	for event in $events; do echo 1 >$xdc_events/$event/enable; done
	xdc trace $listen -o $recording 2>/tmp/trace.log &
	tracer=$!
	eventually grep -q "listening to" /tmp/trace.log
}
idle() { in_ns r xdc qdisc show -s dev eth2 | grep -q "backlog 0b 0p"; }
end() {
	# One listener might miss packets that are still queued.
	eventually idle
	kill -TERM $tracer
	wait $tracer
	traced=$?
	echo 0 >$tracefs/events/xdc/enable
}
by_tracefs() { grep -c " $1: " $tracefs/trace; }
by_xdc() { grep -c "\"event\":\"$1\"" $recording; }
# values EVENT FIELD: the field's value in each event.
values() { sed -n "/\"event\":\"$1\"/s/.*\"$2\":\"*\([^,\"}]*\).*/\1/p" $recording; }
# distinct EVENT FIELD: the distinct values, in one line.
distinct() { values "$1" "$2" | sort -u | tr '\n' ' '; }
lowest() { values "$1" "$2" | sort -n | head -n 1; }
highest() { values "$1" "$2" | sort -n | tail -n 1; }
# agree WHAT: neither listener lost events, and both saw the same ones.
agree() {
	equal "$1: xdc trace exits with 0" 0 $traced
	equal "$1: xdc trace misses no event" 0 "$(sed -n 's/.*"missed":\([0-9]*\)}/\1/p' $recording)"
	equal "$1: tracefs loses no event" "0" "$(cat $tracefs/per_cpu/cpu*/stats |
		awk '/^(overrun|dropped events):/ { n += $NF } END { print n }')"
	for event in $events; do
		equal "$1: $event: xdc trace has as many as tracefs" "$(by_tracefs $event)" "$(by_xdc $event)"
	done
}

marking="phantom 300kb drain 0.95 pmin 5% pmax 60%"

# Off
port $marking
echo >$tracefs/trace
check "off: every byte arrives" transfer_by unocc 3
within "off: the port marks" 1 1000000 "$(marks)"
equal "off: nothing is recorded" "0" "$(grep -cv '^#' $tracefs/trace)"

# Marks
port $marking
begin
check "unocc, marked: every byte arrives" transfer_by unocc 3
end
agree "unocc"
equal "unocc: as many phantom_mark as the port counts" "$(marks)" "$(by_tracefs phantom_mark)"
equal "unocc: as many phantom_drop as the port counts" "$(drops)" "$(by_tracefs phantom_drop)"
equal "unocc: no gemini_round" 0 "$(by_xdc gemini_round)"
equal "phantom_mark: port" "eth2 10: root " \
	"$(distinct phantom_mark dev)$(distinct phantom_mark handle)$(distinct phantom_mark parent)"
equal "phantom_mark: ifindex" "$(in_ns r cat /sys/class/net/eth2/ifindex) " "$(distinct phantom_mark ifindex)"
equal "phantom_mark: cause" "phantom " "$(distinct phantom_mark cause)"
equal "phantom_mark: ECN before the mark" "ect0 " "$(distinct phantom_mark ecn)"
equal "phantom_mark: IPv4, green" "2048 green " "$(distinct phantom_mark protocol)$(distinct phantom_mark color)"
within "phantom_mark: phantom queue, at least pmin of 300 kB" 15000 300000 "$(lowest phantom_mark phantom_bytes)"
within "phantom_mark: phantom queue, at most its limit" 15000 "$(of_port phantom_max_bytes)" \
	"$(highest phantom_mark phantom_bytes)"
within "phantom_mark: length of a data packet" 1000 1514 "$(highest phantom_mark len_bytes)"
within "unocc_epoch: number of events" 100 1000000 "$(by_xdc unocc_epoch)"
equal "unocc_epoch: the connection" "10.1.0.1 10.2.0.1 5001 " \
	"$(distinct unocc_epoch saddr)$(distinct unocc_epoch daddr)$(distinct unocc_epoch dport)"
inode=$(in_ns h1 readlink /proc/self/ns/net | tr -dc 0-9)
equal "unocc_epoch: the namespace" "$inode " "$(distinct unocc_epoch netns)"
within "unocc_epoch: E" 1 1000000 "$(highest unocc_epoch e_ppm)"
within "unocc_epoch: base RTT, above the delay of 1 ms" 1000 20000 "$(highest unocc_epoch base_rtt_us)"
within "unocc_epoch: windows have two packets at least" 2000 10000000 "$(lowest unocc_epoch cwnd_bytes)"

# rule EVENT EXPRESSION: awk expression that must hold for each event; fields are in f.
rule() {
	awk -v event="\"event\":\"$1\"" '
	index($0, event) {
		gsub(/[{}"]/, "")
		n = split($0, pair, ",")
		for (i = 1; i <= n; i++) {
			colon = index(pair[i], ":")
			value = substr(pair[i], colon + 1)
			f[substr(pair[i], 1, colon - 1)] = value ~ /^[0-9]+$/ ? value + 0 : value
		}
		seen++
		if (!('"$2"') && ++bad <= 5) print
	}
	END { exit !seen || bad }' $recording
}
check "unocc_epoch: marked bytes do not exceed acknowledged bytes" rule unocc_epoch 'f["marked_bytes"] <= f["acked_bytes"]'
check "unocc_epoch: a decrease takes md_ppm of the window, down to the floor" rule unocc_epoch \
	'f["action"] != "decreased" || f["marked_bytes"] > 0 && f["cwnd_bytes"] <= f["cwnd_before_bytes"] && (f["cwnd_bytes"] <= 2 * f["mss_bytes"] || f["cwnd_bytes"] <= f["cwnd_before_bytes"] * (1 - f["md_ppm"] / 1e6) + 2)'
check "unocc_epoch: an epoch with action none has no marks" rule unocc_epoch 'f["action"] != "none" || f["marked_bytes"] == 0'
check "unocc_epoch: no RTT is below the base" rule unocc_epoch 'f["rtt_us"] >= f["base_rtt_us"]'
check "unocc_epoch: the period is the RTT scaled down to 14 us" rule unocc_epoch \
	'f["period_ns"] >= 14000 && f["period_ns"] - f["rtt_us"] * 14000 / f["base_rtt_us"] < 2'
# On a slow machine no epoch may decrease, and Quick Adapt may look at no round trip.
grep -E '"event":"unocc_qa"|"action":"decreased"' $recording >/tmp/marked.jsonl

# Quick Adapt: the rate drops to a twentieth.
port $marking
begin
{ sleep 0.05; in_ns r xdc qdisc change dev eth2 root phantom rate 10mbit; } &
slower=$!
check "unocc, slower: every byte arrives" transfer_by unocc 3
wait $slower
end
agree "slower"
check "unocc_qa: Quick Adapt acts" grep -q '"event":"unocc_qa".*"adapted":1' $recording
cat /tmp/marked.jsonl >>$recording
check "unocc_epoch: some epochs decrease" grep -q '"action":"decreased"' $recording
check "unocc_qa: Quick Adapt acts if a segment less than promised is delivered" rule unocc_qa \
	'(f["adapted"] == 1) == (f["delivered_bytes"] < f["promised_bytes"] - f["mss_bytes"])'
check "unocc_qa: Quick Adapt lowers the window" rule unocc_qa 'f["adapted"] == 0 || f["cwnd_bytes"] < f["cwnd_before_bytes"]'

# gemini
port $marking
begin
check "gemini, marked: every byte arrives" transfer_by gemini 3
end
agree "gemini"
equal "gemini: as many phantom_mark as the port counts" "$(marks)" "$(by_tracefs phantom_mark)"
equal "gemini: no unocc_epoch" 0 "$(by_xdc unocc_epoch)"
within "gemini_round: number of events" 5 100000 "$(by_xdc gemini_round)"
check "gemini_round: marked bytes do not exceed acknowledged bytes" rule gemini_round 'f["marked_bytes"] <= f["acked_bytes"]'
check "gemini_round: alpha is at most one, and a cut at most a half" rule gemini_round \
	'f["alpha_ppm"] <= 1000000 && f["dcn_cut_ppm"] <= 500000'
check "gemini_round: some rounds reduce the window" grep -q '"event":"gemini_round".*"reduced":1' $recording

# Drops
port limit 20kb mark none
begin
check "cubic, dropped: every byte arrives" transfer_by cubic 0
end
agree "limit"
within "limit: packets are dropped" 1 1000000 "$(drops)"
equal "limit: as many phantom_drop as the port counts" "$(drops)" "$(by_tracefs phantom_drop)"
equal "limit: drop reason" "limit " "$(distinct phantom_drop reason)"
equal "limit: dropped packets are Not-ECT" "not_ect " "$(distinct phantom_drop ecn)"
within "limit: the queue is full" 18000 20000 "$(lowest phantom_drop queue_bytes)"
port $marking ecn-drop on
begin
check "cubic, dropped without ECN: every byte arrives" transfer_by cubic 0
end
agree "ecn-drop"
within "ecn-drop: packets are dropped" 1 1000000 "$(drops)"
equal "ecn-drop: as many phantom_drop as the port counts" "$(drops)" "$(by_tracefs phantom_drop)"
equal "ecn-drop: drop reason" "ecn " "$(distinct phantom_drop reason)"
equal "ecn-drop: nothing is marked" "0 0" "$(marks) $(by_xdc phantom_mark)"

# TLT: its tracepoints agree with its counters.
modprobe tlt
events="$events tlt_send tlt_echo tlt_clock tlt_state"
equal "tlt_send: fields" "$sock end_seq:4 segs:4 important:1 again:1 " "$(fields tlt_send)"
equal "tlt_echo: fields" "$sock ack:4 echo_us:4 clock:1 seen:1 " "$(fields tlt_echo)"
equal "tlt_clock: fields" "$sock una:4 segment:1 " "$(fields tlt_clock)"
equal "tlt_state: fields" "$sock from:1 to:1 " "$(fields tlt_state)"
# of_tlt NAME COUNTER...: sum of counters.
of_tlt() {
	ns=$1 total=0
	shift
	for counter in "$@"; do
		total=$((total + $(in_ns $ns cat /proc/net/tlt_stat | awk -v name="$counter" '
			!column { for (i = 2; i <= NF; i++) if ($i == name) column = i; next }
			{ print $column; exit }')))
	done
	echo $total
}
for ns in h1 h2; do in_ns $ns sysctl -qw net.tlt.enabled=1 net.ipv4.tcp_reordering=1; done
# Drops unimportant packets, so that lost segments leave beyond the window.
port mark none red-limit 20kb red-dscp 7 gso split
begin
check "tlt: every byte arrives" transfer_by cubic 0
end
agree "tlt"
# The SYN is marked, too, but carries no data.
equal "tlt_send: one event per data packet, at both ends" \
	"$(($(of_tlt h1 TxData TxUnimportant) + $(of_tlt h2 TxData TxUnimportant) - 1))" \
	"$(values tlt_send segs | awk '{ n += $1 } END { print n }')"
equal "tlt_send: one important event per important packet, at both ends" "$(($(of_tlt h1 TxData) + $(of_tlt h2 TxData) - 1))" \
	"$(grep -c '"event":"tlt_send".*"important":1' $recording)"
check "tlt_send: some data are retransmitted" grep -q '"event":"tlt_send".*"again":1' $recording
check "tlt_echo: only awaited echoes have a delay" rule tlt_echo \
	'f["seen"] == "awaited" || f["echo_us"] == 0'
within "tlt_echo: highest delay" 500 100000 "$(highest tlt_echo echo_us)"
equal "tlt_clock: one event per forced retransmission, at both ends" \
	"$(($(of_tlt h1 ForcedRetrans) + $(of_tlt h2 ForcedRetrans)))" "$(grep -c '"event":"tlt_clock".*"segment":1' $recording)"
check "tlt_state: the state changes" rule tlt_state 'f["from"] != f["to"]'
check "tlt_state: a flow begins" grep -q '"event":"tlt_state".*"from":"none","to":"first"' $recording

# unorc, as for TLT; the port drops when full.
for ns in h1 h2; do in_ns $ns sysctl -qw net.tlt.enabled=0; done
modprobe unorc
events="$events unorc_decoded unorc_nack unorc_reroute unorc_freeze unorc_session"
tunnel="dev:16 ifindex:4 netns:4"
equal "unorc_decoded: fields" "$tunnel channel:2 block:4 have:4 k:1 " "$(fields unorc_decoded)"
equal "unorc_nack: fields" "$tunnel channel:2 block:4 lost:4 sent:1 " "$(fields unorc_nack)"
equal "unorc_reroute: fields" "$tunnel channel:2 entropy:2 paths:4 cause:1 " "$(fields unorc_reroute)"
equal "unorc_freeze: fields" "$tunnel channel:2 entropy:2 until_us:8 cause:1 " "$(fields unorc_freeze)"
equal "unorc_session: fields" "$tunnel from:1 to:1 " "$(fields unorc_session)"
# of_tunnels COUNTER: sum of both ends.
of_tunnels() {
	for ns in h1 h2; do in_ns $ns ethtool -S u0; done | awk -v name="$1:" '$1 == name { n += $2 } END { print n + 0 }'
}
# events_of EVENT PATTERN: number of events.
events_of() { grep "\"event\":\"$1\"" $recording | grep -c -- "$2"; }
for paths in unolb reps; do
	port limit 20kb mark none
	begin
	for i in 1 2; do
		ip -n h$i link add u0 type unorc local 10.$i.0.1 remote 10.$((3 - i)).0.1 paths $paths
		ip -n h$i addr add 10.50.0.$i/24 dev u0
		ip -n h$i link set u0 up
	done
	check "$paths: every byte arrives" transfer 10.50.0.2
	# Packets in flight are counted by only one listener.
	for i in 1 2; do ip -n h$i link set u0 down; done
	end
	agree "$paths"
	equal "unorc_decoded: as many packets as recovered counts" "$(of_tunnels recovered)" "$(
		sed -n '/"event":"unorc_decoded"/s/.*"have":\([0-9]*\),"k":\([0-9]*\).*/\1 \2/p' $recording |
			awk '{ for (i = 0; i < $2; i++) { n += ($1 + 1) % 2; $1 = int($1 / 2) } } END { print n + 0 }')"
	# A block passed over twice is counted once.
	within "unorc_nack: at least one sent event per abandoned block" "$(of_tunnels given_up)" 1000000 "$(events_of unorc_nack '"sent":1')"
	equal "unorc_nack: one event per received NACK" "$(of_tunnels nack_received)" "$(events_of unorc_nack '"sent":0')"
	equal "unorc_reroute: as many paths as reroute counts" "$(of_tunnels reroute)" \
		"$(values unorc_reroute paths | awk '{ n += $1 } END { print n + 0 }')"
	equal "unorc_freeze: one event per freeze" "$(of_tunnels freeze)" "$(by_xdc unorc_freeze)"
	equal "unorc_session: one event per session" "$(of_tunnels session)" "$(events_of unorc_session '"to":"up"')"
	check "unorc_session: an end asks first" grep -q '"event":"unorc_session".*"from":"down","to":"asked"' $recording
	equal "unorc_session: device" "u0 " "$(distinct unorc_session dev)"
	case $paths in
	unolb) within "unorc_reroute: number of events" 1 100000 "$(by_xdc unorc_reroute)" ;;
	reps) within "unorc_freeze: number of events" 1 100000 "$(by_xdc unorc_freeze)" ;;
	esac
	within "unorc_decoded: number of events" 1 100000 "$(by_xdc unorc_decoded)"
	for i in 1 2; do ip -n h$i link del u0; done
done

for ns in h1 r h2; do ip netns del $ns; done

# acceltor: its tracepoints agree with its counters. A week of 78 ms.
modprobe bonding max_bonds=0
modprobe sch_acceltor
racks
of_ports=$recording recording=/tmp/racks.jsonl
events="acceltor_day acceltor_accelerate acceltor_elephant acceltor_drop"
# On an emulated processor, disabling each event of each module takes longer than a signal's timeout.
listen="--event $(echo $events | tr ' ' ,)"
queue="dev:16 ifindex:4 netns:4 handle:4"
equal "acceltor_day: fields" "$queue label:8 queued_bytes:8 sent_bytes:8 since_ns:8 begins:1 " "$(fields acceltor_day)"
equal "acceltor_accelerate: fields" "skbaddr:8 $queue label:8 left_ns:8 queue_bytes:8 len_bytes:4 cause:1 " \
	"$(fields acceltor_accelerate)"
equal "acceltor_elephant: fields" "skbaddr:8 $queue sent_bytes:8 elephants:8 rack:2 " "$(fields acceltor_elephant)"
equal "acceltor_drop: fields" "skbaddr:8 $queue label:8 high_bytes:8 low_bytes:8 later_bytes:8 len_bytes:4 reason:1 " \
	"$(fields acceltor_drop)"
idle() { [ "$(rack_stat packets_queued)" = 0 ]; }
in_ns h1 sysctl -qw net.ipv4.tcp_frto=0 net.ipv4.tcp_early_retrans=0
# The kernel sends IPv6 packets unasked, and each may see another day.
in_ns h1 sysctl -qw net.ipv6.conf.all.disable_ipv6=1
# Command after the flow of rack_transfer.
then=
# Sixty packets at once, often enough to hit each part of the week: otherwise a flow's packets may all leave
# on days of their rack.
bursts() {
	for _ in 1 2 3 4 5 6 7 8 9 10 11 12; do
		in_ns h1 xdc-witness packets tcp 10.9.1.2 960 60 0
		sleep 0.03
	done
}
# rack_transfer OPTION VALUE...: sends a flow to rack 1 through a new qdisc, and more packets after its last
# day.
rack_transfer() {
	tc -n h1 qdisc del dev bond0 root 2>/dev/null
	tc -n h1 qdisc add dev bond0 root handle 1: acceltor racks 4 rack 0 prefix 10.9.1.0/24=1 day 24ms night 2ms \
		ocs-rate 80mbit eps-rate 40mbit rtt 6ms k 2 hp 150kb lp 150kb limit 60kb
	check "change: $*" tc -n h1 qdisc change dev bond0 root acceltor "$@"
	begin
	check "$*: every byte arrives" transfer 10.9.1.2
	$then
	eventually idle
	sleep 0.1
	in_ns h1 ping -c 1 10.9.2.2 >/dev/null
	end
	agree "$*"
	equal "acceltor_accelerate: one event per accelerated packet" "$(rack_stat packets_low)" "$(by_xdc acceltor_accelerate)"
	equal "acceltor_accelerate: one rescue event per rescued packet" "$(rack_stat rescued)" \
		"$(events_of acceltor_accelerate '"cause":"rescue"')"
	equal "acceltor_elephant: one event per new elephant" "$(rack_stat promoted)" "$(by_xdc acceltor_elephant)"
	equal "acceltor_drop: as many as tc counts" "$(tc -n h1 -s qdisc show dev bond0 | sed -n 's/.*(dropped \([0-9]*\),.*/\1/p')" \
		"$(by_xdc acceltor_drop)"
	for reason in high low queue blocked stale reschedule filter; do
		equal "acceltor_drop: $reason" "$(rack_stat drops_$reason)" "$(events_of acceltor_drop "\"reason\":\"$reason\"")"
	done
	equal "acceltor_day: as many bytes as the circuit's counter" "$(rack_stat bytes_circuit)" \
		"$(values acceltor_day sent_bytes | awk '{ n += $1 } END { print n + 0 }')"
	equal "acceltor_day: each day begins once" "$(events_of acceltor_day '"begins":1')" \
		"$(grep '"event":"acceltor_day".*"begins":1' $recording | sed 's/.*"label":\([0-9]*\),.*/\1/' | sort -u | wc -l)"
	[ "$(by_xdc acceltor_day)" != 0 ] || return 0
	check "acceltor_day: a day ends after 24 ms" rule acceltor_day 'f["begins"] == 1 || f["since_ns"] >= 24000000'
	check "acceltor_day: a day begins with no sent bytes" rule acceltor_day 'f["begins"] == 0 || f["sent_bytes"] == 0'
	equal "acceltor_day: device and handle" "bond0 1: " "$(distinct acceltor_day dev)$(distinct acceltor_day handle)"
}
then=bursts
rack_transfer detect sketch sketch-bytes 20kb
# On a slow host the elephant expires meanwhile and is found again.
within "acceltor_elephant: number of events" 1 100 "$(by_xdc acceltor_elephant)"
equal "acceltor_elephant: rack" "1 " "$(distinct acceltor_elephant rack)"
check "acceltor_elephant: the flow has sent sketch-bytes" rule acceltor_elephant 'f["sent_bytes"] >= 20480 && f["elephants"] >= 1'
equal "acceltor_accelerate: cause before the day" "early " "$(distinct acceltor_accelerate cause)"
check "acceltor_accelerate: one RTT to two days are left" rule acceltor_accelerate \
	'f["left_ns"] >= 6000000 && f["left_ns"] <= 54000000'
within "acceltor_day: number of events" 2 100000 "$(by_xdc acceltor_day)"
# With this rtt the packets of the previous day are queued for rack 1's, and a burst exceeds the limit on a
# host of any speed.
rack_transfer detect dscp dscp 0 overflow lp limit 5kb rtt 26ms k 3
then=
check "acceltor_accelerate: some packets exceed the limit" grep -q '"event":"acceltor_accelerate".*"cause":"full"' $recording
# The day of rack 1 was the first; the next is two minutes away.
rack_transfer detect dscp dscp 0 rescue on racks 64 k 1 day 1s night 1s base-time $((($(date +%s) - 3) * 1000000000))
equal "acceltor_accelerate: cause of a flow that had no day" "rescue " "$(distinct acceltor_accelerate cause)"
rack_transfer detect dscp dscp 0 base-time 9000000000000000000
equal "acceltor_accelerate: cause before the base time" "base " "$(distinct acceltor_accelerate cause)"
equal "acceltor_day: no event before the base time" 0 "$(by_xdc acceltor_day)"
for ns in h1 h2; do ip netns del $ns; done
recording=$of_ports

# The plot and its command
check "xdc trace plot draws a recording" xdc trace plot $recording -o /tmp/trace.svg
check "the plot shows the drops" grep -q "eth2 10: dropped" /tmp/trace.svg
refuses "xdc trace plot refuses a file that is no recording" "recording" xdc trace plot /selftests/lib.sh -o /tmp/x.svg
check "xdc trace -- COMMAND ends with it" xdc trace --event phantom_drop -o $recording -- true
refuses "xdc trace -- COMMAND fails with it" "" xdc trace --event phantom_drop -o $recording -- false
equal "no tracepoint stays enabled" "0" "$(cat $xdc_events/enable)"
check "modprobe -r tcp_gemini" modprobe -r tcp_gemini
finish
