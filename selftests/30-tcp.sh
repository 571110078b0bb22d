#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Real sockets: transfers arrive whole, ss shows the state, ECN or not.
. /selftests/lib.sh

modprobe tcp_unocc
modprobe tcp_gemini
modprobe sch_phantom
pair
bytes=3000000
dd if=/dev/urandom of=/tmp/sent bs=1000 count=3000 2>/dev/null

# transfer ADDRESS: send /tmp/sent from h1 to h2, compare what arrives.
transfer() {
	rm -f /tmp/received
	in_ns h2 nc -l -p 5001 >/tmp/received &
	server=$!
	sleep 1
	in_ns h1 nc "$1" 5001 </tmp/sent
	wait $server
	cmp /tmp/sent /tmp/received
}

cc_is() {
	for ns in h1 h2; do
		in_ns $ns sysctl -qw net.ipv4.tcp_congestion_control="$1" net.ipv4.tcp_ecn="$2"
	done
}

for cc in unocc gemini; do
	for ecn in 0 1 3; do
		cc_is $cc $ecn
		check "$cc, tcp_ecn=$ecn: $bytes bytes over IPv4" transfer 10.9.0.2
		check "$cc, tcp_ecn=$ecn: $bytes bytes over IPv6" transfer fd09::2
	done

	# A slow marking port, so that there is something to show.
	tc -n h1 qdisc replace dev eth0 root handle 1: htb default 1
	tc -n h1 class add dev eth0 parent 1: classid 1:1 htb rate 8mbit
	tc -n h1 qdisc add dev eth0 parent 1:1 red limit 400000 min 15000 max 30000 avpkt 1500 ecn 2>/dev/null
	for ecn in 1 3; do
		cc_is $cc $ecn
		in_ns h2 nc -l -p 5001 >/dev/null &
		sleep 1
		in_ns h1 nc 10.9.0.2 5001 </tmp/sent &
		sleep 2
		info=$(in_ns h1 ss -tiH dst 10.9.0.2)
		matches "$cc, tcp_ecn=$ecn: ss -ti names it" "(^|[[:space:]])$cc " "$info"
		matches "$cc, tcp_ecn=$ecn: ss -ti shows the DCTCP block" \
			"dctcp:\(ce_state:[0-9]+,alpha:[0-9]+,ab_ecn:[0-9]+,ab_tot:[0-9]+\)" "$info"
		marks=$(echo "$info" | sed -n 's/.*ab_ecn:\([0-9]*\).*/\1/p')
		check "$cc, tcp_ecn=$ecn: marked bytes are counted" test "${marks:-0}" -gt 0
		wait
	done
	cc_is $cc 0
	in_ns h2 nc -l -p 5001 >/dev/null &
	sleep 1
	in_ns h1 nc 10.9.0.2 5001 </tmp/sent &
	sleep 2
	info=$(in_ns h1 ss -tiH dst 10.9.0.2)
	matches "$cc without ECN: falls back to Reno and says so" \
		"dctcp:fallback_mode|(^|[[:space:]])reno " "$info"
	wait
	tc -n h1 qdisc del dev eth0 root
done
unpair
rmmod tcp_unocc tcp_gemini sch_phantom
finish
