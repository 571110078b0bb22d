#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml | x86
# covers: userspace-tools/xdc/src/live/observe userspace-tools/netlink userspace-tools/tcpinfo
# covers: modules/net/ipv4/tcp_diag.rs modules/include/uapi/linux/xdc_diag.h
# Live flows as users see them: `xdc ss` shows plausible state of unocc and gemini, filters flows, samples at
# 1 kHz, and leaves `ss -ti` unchanged; `xdc watch` agrees with the queue's counters.
. "$(dirname "$0")/lib.sh"

modprobe tcp_unocc
modprobe tcp_gemini
modprobe sch_phantom
pair
allow unocc gemini
rtt_us=20000
# Marks some packets, with a short queue.
check "a marking port" in_ns h1 xdc qdisc add dev eth0 \
	root phantom limit 400kb rate 20mbit phantom 50kb drain 0.9 pmin 10% pmax 90% mark phantom
check "a link of 20 ms" in_ns h2 tc qdisc add dev eth0 root netem delay ${rtt_us}us limit 10000

# A SYN that waits for address resolution has no RTT of the path.
for address in "-4 10.9.0.2" "-6 fd09::2"; do
	check "ping $address" eventually in_ns h1 ping $address -q -c 1 -W 1
done

# flow CC PORT ADDRESS: sends from /tmp/go until the end of the test. No flow sends during another's
# handshake, so base RTTs have no queueing delay.
rm -f /tmp/go
started() { [ -e /tmp/go ]; }
flow() {
	choose h1 "$1" 3
	choose h2 "$1" 3
	receive h2 /dev/null "$2"
	{ eventually started; cat /dev/zero; } | ip netns exec h1 nc "$3" "$2" >/dev/null 2>&1 &
	# The next flow changes the congestion control of the same hosts.
	eventually connected "$2"
}
connected() { [ -n "$(in_ns h1 ss -tnH state established dport = :"$1")" ]; }
in_ns h1 sysctl -qw net.unocc.line_rate_mbps=20 net.gemini.line_rate_mbps=20
flow unocc 5001 10.9.0.2
flow gemini 5002 10.9.0.2
flow unocc 5003 fd09::2
touch /tmp/go

# seen OPTION...: JSON lines of the sending ends.
seen() { xdc ss --netns h1 --json "$@"; }
# value KEY LINE: last value of KEY; inner objects come last.
value() { echo "$2" | sed -n "s/.*\"$1\":\"\{0,1\}\([^,\"}]*\).*/\1/p"; }
# scaled KEY LINE FACTOR: a decimal number, for a shell that has integers only.
scaled() { value "$1" "$2" | awk -v factor="$3" '{ printf "%d", $1 * factor }'; }
lines() { echo "$1" | grep -c .; }
# grown KEY OPTION...: passes if the number exceeds 20.
grown() {
	key=$1
	shift
	[ "$(value "$key" "$(seen "$@")")" -gt 20 ]
}

eventually grown epochs --dport 5001
eventually grown rounds --dport 5002
eventually grown epochs --dport 5003
for port in 5001 5003; do
	one=$(seen --dport $port)
	equal "port $port selects one flow" 1 "$(lines "$one")"
	equal "unocc, port $port: name" unocc "$(value cc "$one")"
	equal "unocc, port $port: profile" paper "$(value profile "$one")"
	equal "unocc, port $port: a changed parameter is reported" true "$(value profile_modified "$one")"
	within "unocc, port $port: E in millionths" 0 1000000 "$(scaled e "$one" 1000000)"
	within "unocc, port $port: base RTT within 5 %" 19000 21000 "$(value base_rtt_us "$one")"
	before=$(value epochs "$one")
	has_more() { [ "$(value epochs "$(seen --dport $port)")" -gt "$before" ]; }
	check "unocc, port $port: the number of epochs grows" eventually has_more
done
one=$(seen --dport 5002)
equal "gemini: name" gemini "$(value cc "$one")"
within "gemini: alpha in millionths" 0 1000000 "$(scaled alpha "$one" 1000000)"
within "gemini: base RTT within 5 %" 19000 21000 "$(value base_rtt_us "$one")"
within "gemini: F in millionths" 1 4000000 "$(scaled f "$one" 1000000)"
within "gemini: H in hundredths of a packet" 9 500 "$(scaled h_packets_per_rtt "$one" 100)"
equal "gemini: no state of unocc" "" "$(value epochs "$one")"

# Filters select exactly the matching flows.
equal "without a filter: three senders" 3 "$(lines "$(seen)")"
equal "--cc with one name: two flows" 2 "$(lines "$(seen --cc unocc)")"
equal "--cc with two names: three flows" 3 "$(lines "$(seen --cc unocc,gemini)")"
equal "--cc without a match: no flow" 0 "$(lines "$(seen --cc cubic)")"
equal "--dst with a prefix: two flows" 2 "$(lines "$(seen --dst 10.9.0.0/24)")"
equal "--dst with an IPv6 address: one flow" 1 "$(lines "$(seen --dst fd09::2)")"
equal "--src without a match: no flow" 0 "$(lines "$(seen --src 10.9.0.2)")"
sport=$(value sport "$one")
equal "--sport selects the flow" gemini "$(value cc "$(seen --sport "$sport")")"
equal "--netns shows the receivers" 3 "$(lines "$(xdc ss --netns h2 --json)")"
equal "--netns accepts a path" 3 "$(lines "$(xdc ss --netns /run/netns/h2 --json)")"
equal "--netns all shows both ends" 6 "$(lines "$(xdc ss --netns all --json)")"
equal "the current namespace has no flow" 0 "$(lines "$(xdc ss --json)")"
equal "--netns all names the namespaces" 3 "$(xdc ss --netns all --json | grep -c '"netns":"h2"')"
refuses "a missing namespace is refused" "no network namespace .nowhere." xdc ss --netns nowhere

# A table for people, without escape sequences unless on a terminal.
table=$(xdc ss --netns h1 --dport 5001)
matches "the table has a header" "^CC +LOCAL +PEER +CWND_PKT" "$table"
matches "the table has the state" "profile paper\* +base RTT (19|20)[0-9]{3} us +intra RTT [0-9]+ us +E [01]\.[0-9]{4}" "$table"
equal "no escape sequence in a pipe" "" "$(echo "$table" | tr -dc '\033')"
within "lines have at most 100 characters" 1 100 "$(echo "$table" | awk '{ if (length > n) n = length } END { print n }')"

# Unusual states cause no error: a listener, an unanswered SYN, closed sockets.
in_ns h1 ip route add 10.9.99.0/24 dev eth0
# An unused address. Without a neighbor entry a SYN would fail after three seconds.
in_ns h1 ip neigh add 10.9.99.1 lladdr 02:00:00:00:00:99 dev eth0
ip netns exec h1 nc 10.9.99.1 80 <&9 >/dev/null 2>&1 &
receive h1 /dev/null 5009
in_ns h2 sh -c 'nc 10.9.0.1 5009 </dev/null >/dev/null'
wait $receiver
receive h1 /dev/null 5009
check "--state time-wait shows a socket" eventually sh -c \
	'xdc ss --netns all --state time-wait --json | grep -q time-wait'
check "--state syn-sent shows a socket" eventually sh -c \
	'xdc ss --netns h1 --state syn-sent --json | grep -q syn-sent'
check "--state all accepts every state" xdc ss --netns all --state all --json
matches "--state listen shows a listener" '"state":"listen"' "$(seen --state listen)"

# 1,000 samples at 1 ms, with all flows active.
check "1,000 samples at 1 ms" sh -c \
	'xdc ss --netns h1 --dport 5001 --interval 1ms --count 1000 --json >/tmp/samples'
equal "each sample has the flow" 1000 "$(grep -c '"cc":"unocc"' /tmp/samples)"
equal "each sample has the state of the flow" 1000 "$(grep -c '"epochs":' /tmp/samples)"
equal "each sample has its own number" 1000 \
	"$(sed 's/.*"sample":\([0-9]*\).*/\1/' /tmp/samples | sort -u | wc -l)"
sed 's/.*"epochs":\([0-9]*\).*/\1/' /tmp/samples >/tmp/epochs
check "epochs never fall" sort -nc /tmp/epochs
# A slow host may need longer than the samples.
passed() { [ "$(value epochs "$(seen --dport 5001)")" -gt "$(head -n 1 /tmp/epochs)" ]; }
check "the number of epochs grows after the first sample" eventually passed

# Stock ss sends its usual request and gets the usual answer.
stock=$(in_ns h1 ss -tiH dport = :5001)
matches "ss -ti shows DCTCP's block of unocc" \
	"unocc .*dctcp:\(ce_state:[01],alpha:[0-9]+,ab_ecn:[0-9]+,ab_tot:[0-9]+\)" "$stock"
stock=$(in_ns h1 ss -tiH dport = :5002)
matches "ss -ti shows DCTCP's block of gemini" "gemini .*dctcp:\(ce_state:" "$stock"

# xdc watch: rates of this queue.
lines_of_watch=$(xdc watch dev eth0 --netns h1 --interval 200ms --count 5 --json)
equal "xdc watch: --count limits the lines" 5 "$(lines "$lines_of_watch")"
mean=$(echo "$lines_of_watch" |
	sed 's/.*"bits_per_s":\([0-9.]*\).*/\1/' | awk '{ s += $1 } END { printf "%d", s / NR / 1000 }')
within "xdc watch: kbit/s through a port of 20 Mbit/s" 1000 21000 "$mean"
within "xdc watch: marks" 1 1000000 "$(in_ns h1 xdc qdisc show -s dev eth0 | sed -n 's/^ *marked_phantom //p')"
matches "xdc watch: a line of text" "^ +[0-9.]+ +[0-9]+ +[0-9]+ +[0-9]+ +[0-9]+" \
	"$(xdc watch dev eth0 handle "$(value handle "$lines_of_watch" | head -n 1)" --netns h1 --interval 100ms --count 1 | tail -n 1)"
refuses "xdc watch refuses a device without a phantom queue" "no phantom" xdc watch dev eth0 --netns h2 --count 1
refuses "xdc watch refuses a missing device" "eth9" xdc watch dev eth9 --netns h1 --count 1

# xdc top refuses to run without a terminal.
refuses "xdc top refuses to run without a terminal" "terminal" xdc top --netns all
matches "xdc top suggests xdc ss" "xdc ss" "$(xdc top 2>&1)"

# Without ECN the flow is Reno, without a block of ours.
choose h1 unocc 0
choose h2 cubic 0
receive h2 /dev/null 5004
ip netns exec h1 nc 10.9.0.2 5004 </dev/zero >/dev/null 2>&1 &
eventually sh -c 'xdc ss --netns h1 --dport 5004 --json | grep -q unocc-reno'
one=$(seen --dport 5004)
equal "without ECN: name" unocc-reno "$(value cc "$one")"
equal "without ECN: no state of unocc" "" "$(value epochs "$one")"

for pid in $(pidof nc); do kill "$pid"; done
unpair
allow
unload tcp_unocc tcp_gemini sch_phantom
finish
