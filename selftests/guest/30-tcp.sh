#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml-debug x86 | debug
# covers: modules/net/ipv4/tcp_*.rs modules/rust/kernel/net/tcp modules/rust/helpers/net/tcp.c
# covers: modules/algo/echo.rs modules/algo/dctcp.rs
# Real sockets: transfers arrive complete for any ECN setting of the ends, marks are counted as in the queue,
# and ss shows the state.
. "$(dirname "$0")/lib.sh"

load unocc gemini toll
modprobe sch_phantom
pair
# A paused guest must cause no loss: a retransmitted packet is marked twice.
for i in 1 2; do
	ip -n h$i route replace 10.9.0.0/24 dev eth0 proto kernel scope link src 10.9.0.$i rto_min 5s
	in_ns h$i sysctl -qw net.ipv4.tcp_early_retrans=0
done
sent_bytes=600000
dd if=/dev/urandom of=/tmp/sent bs=1000 count=$((sent_bytes / 1000)) 2>/dev/null
mkfifo /tmp/feed

for cc in unocc gemini toll; do
	refuses "$cc: a namespace cannot choose it before the first one allows it" "not permitted" \
		in_ns h1 sysctl -qw net.ipv4.tcp_congestion_control=$cc
done
check "the first namespace allows the algorithms" allow unocc gemini toll dctcp

# open, close: a connection that stays open after /tmp/sent was transferred. Not through check, whose subshell
# would close a copy.
open() {
	receive h2 /tmp/received
	ip netns exec h1 nc 10.9.0.2 5001 </tmp/feed &
	sender=$!
	exec 8>/tmp/feed
	cat /tmp/sent >&8
}
close() {
	exec 8>&-
	wait $sender $receiver
}

info() { in_ns h1 ss -tioH dst 10.9.0.2; }
# field NAME INFO: a number of ss, which omits zeros.
field() { echo "$2" | sed -n "s/.*[ (,]$1:\([0-9]*\).*/\1/p" | grep . || echo 0; }
all_acked() { [ "$(field bytes_acked "$(info)")" -ge $sent_bytes ]; }
# counter NAME: counter of the qdisc at h1.
counter() { in_ns h1 xdc qdisc show -s dev eth0 | sed -n "s/^ *$1 //p"; }

for cc in unocc gemini toll; do
	for ecn in 0 3; do
		choose h1 $cc $ecn
		choose h2 $cc $ecn
		check "$cc, tcp_ecn=$ecn: transfer over IPv4" transfer 10.9.0.2
		check "$cc, tcp_ecn=$ecn: transfer over IPv6" transfer fd09::2
	done
	choose h2 cubic 1
	check "$cc: transfer to a receiver of RFC 3168" transfer 10.9.0.2
done

# A port that soon marks every packet: its phantom queue drains slower than the minimum window fills it, even
# on the slowest guest or during a pause.
port="root phantom limit 400kb rate 10mbit phantom 200kb drain 0.01 pmin 2.5% pmax 5% mark phantom"

# marks SENDER RECEIVER TOLERANCE_PERCENT: compares the sender's count with the port's.
marks() {
	case="$1 to $2"
	choose h1 "$1" 1
	choose h2 "$2" 1
	check "$case: a marking port" in_ns h1 xdc qdisc add dev eth0 $port
	open
	check "$case: all data are acknowledged" eventually all_acked
	seen=$(info)
	matches "$case: ss shows its name and ECN" " ecn (.* )?$1 " "$seen"
	matches "$case: ss shows the DCTCP block" \
		"dctcp:\(ce_state:[01],alpha:[0-9]+,ab_ecn:[0-9]+,ab_tot:[0-9]+\)" "$seen"
	within "$case: alpha, in 1/1024" 800 1024 "$(field alpha "$seen")"
	marked=$(counter marked_phantom)
	within "$case: packets marked" 300 900 "$marked"
	slack=$((marked * $3 / 100))
	within "$case: delivered_ce is near the port's marks" $((marked - slack)) $((marked + slack)) "$(field delivered_ce "$seen")"
	close
	check "$case: every byte arrived" cmp /tmp/sent /tmp/received
	in_ns h1 xdc qdisc del dev eth0 root
}

for cc in unocc gemini toll; do
	# AccECN is exact; RFC 3168 with an ECE per packet misses the handshake and the last ACKs.
	marks $cc $cc 1
	marks $cc dctcp 10
	marks dctcp $cc 10

	choose h1 $cc 0
	choose h2 cubic 0
	open
	check "$cc without ECN: all data are acknowledged" eventually all_acked
	matches "$cc without ECN: ss shows Reno" "[[:space:]]$cc-reno .*dctcp:fallback_mode" "$(info)"
	close
	check "$cc without ECN: every byte arrived" cmp /tmp/sent /tmp/received
done
unpair
allow
unload tcp_unocc tcp_gemini tcp_toll sch_phantom
finish
