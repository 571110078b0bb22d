#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml
# covers: modules/algo/host.rs modules/algo/rtt.rs modules/net/ipv4/live.rs modules/rust/kernel/net/speeds.rs
# covers: modules/rust/helpers/net/speeds.c modules/oot/host.c modules/rust/helpers/net/netdevice.c
# An unconfigured host detects its link rate and the datacenter's base RTT. With start = 1 the first window
# shows C: it is C x 4 ms.
. "$(dirname "$0")/lib.sh"

modprobe tcp_unocc
modprobe tcp_gemini
pair
allow unocc gemini
check "a path of 4 ms" in_ns h2 tc qdisc add dev eth0 root netem delay 4ms limit 10000
for i in 1 2; do in_ns h$i sysctl -qw net.ipv4.tcp_wmem="4096 16777216 33554432" \
	net.ipv4.tcp_rmem="4096 16777216 33554432"; done

# window ADDRESS: window of a connection without data, in KB; packets carry slightly more than 1 kB.
window() {
	choose h1 unocc 3
	choose h2 unocc 3
	eventually in_ns h1 ping -q -c 1 -W 1 "$1"
	receive h2 /dev/null
	ip netns exec h1 nc "$1" 5001 <&9 >/dev/null 2>&1 &
	sender=$!
	eventually established
	xdc ss --netns h1 --json --dport 5001 | sed -n 's/.*"cwnd_packets":\([0-9]*\).*/\1/p'
	kill $sender $receiver 2>/dev/null
	wait $sender $receiver 2>/dev/null
}
established() { [ -n "$(in_ns h1 ss -tnH state established dport = :5001)" ]; }
# Speeds are queried 0.1 s after the last event.
settle() { sleep 0.5; }

# 10 Gbit/s x 4 ms are 5 MB, 3,453 packets.
settle
in_ns h1 sysctl -qw net.unocc.start=1
within "the first window uses veth's 10 Gbit/s" 3200 3600 "$(window 10.9.0.2)"
in_ns h1 sysctl -qw net.unocc.line_rate_mbps=5000
within "line_rate_mbps overrides the device's speed" 1600 1800 "$(window 10.9.0.2)"
in_ns h1 sysctl -qw net.unocc.line_rate_mbps=0
within "line_rate_mbps 0 uses the device's speed again" 3200 3600 "$(window 10.9.0.2)"
head -c 100000 /dev/zero >/tmp/sent
check "100 kB arrive over 4 ms" transfer 10.9.0.2
equal "unocc: an RTT of 4 ms sets shortest_rtt_us to 500" 500 "$(in_ns h1 cat /proc/sys/net/unocc/shortest_rtt_us)"
equal "gemini: flows of unocc do not set shortest_rtt_us" 0 "$(in_ns h1 cat /proc/sys/net/gemini/shortest_rtt_us)"

# A device that comes up during constant events of others is queried, too.
ip link add churn0 type dummy
churn() { while :; do ip link set churn0 up; sleep 0.05; ip link set churn0 down; done; }
churn & churning=$!
unpair
pair
in_ns h2 tc qdisc add dev eth0 root netem delay 4ms limit 10000
in_ns h1 sysctl -qw net.unocc.start=1
sleep 2
within "the first window uses veth's 10 Gbit/s despite constant device events" 3200 3600 "$(window 10.9.0.2)"
kill $churning
wait $churning 2>/dev/null
ip link del churn0

# A tunnel reports no speed: flows use the kernel's first window, then the delivery rate.
modprobe unorc
for i in 1 2; do
	ip -n h$i link add u0 type unorc local 10.9.0.$i remote 10.9.0.$((3 - i))
	ip -n h$i addr add 10.6.0.$i/24 dev u0
	ip -n h$i link set u0 up
done
settle
equal "a device without a speed gets a first window of 10 packets" 10 "$(window 10.6.0.2)"
in_ns h1 sysctl -qw net.unocc.start=0
head -c 8000000 /dev/zero >/tmp/sent
for cc in unocc gemini; do
	choose h1 $cc 3
	choose h2 $cc 3
	check "$cc: 8 MB arrive through a device without a speed" transfer 10.6.0.2
done

# Early losses, and 100 ms. The measured C is too small then: with it gemini's h takes minutes.
arrived() { in_ns h2 cat /sys/class/net/u0/statistics/rx_bytes; }
# after_losses CC SECONDS: passes if the flow then has 40 Mbit/s.
after_losses() {
	in_ns h2 tc qdisc change dev eth0 root netem delay 100ms limit 10000
	in_ns h1 tc qdisc add dev u0 root netem loss 10% limit 10000
	choose h1 $1 3
	choose h2 $1 3
	receive h2 /dev/null
	ip netns exec h1 nc 10.6.0.2 5001 </dev/zero >/dev/null 2>&1 &
	sender=$!
	sleep 0.8
	in_ns h1 tc qdisc del dev u0 root
	sleep $2
	before=$(arrived)
	sleep 2
	within "$1: after early losses a device without a speed has 40 Mbit/s in $2 s" 10000000 1000000000 $(($(arrived) - before))
	kill $sender $receiver 2>/dev/null
	wait $sender $receiver 2>/dev/null
	in_ns h2 tc qdisc change dev eth0 root netem delay 4ms limit 10000
}
after_losses gemini 24

# A connection of the host with itself must not count as the datacenter's RTT, which is longer.
choose h1 unocc 3
ip netns exec h1 nc -l -p 5002 <&9 >/dev/null &
own=$!
eventually listens h1 5002
ip netns exec h1 sh -c 'head -c 1000000 /dev/zero | nc 127.0.0.1 5002' >/dev/null
kill $own 2>/dev/null
equal "a flow of the host to itself does not set shortest_rtt_us" 500 "$(in_ns h1 cat /proc/sys/net/unocc/shortest_rtt_us)"
unpair

# A path far slower than the device: 100 Mbit/s behind 10 Gbit/s. No flow may stall.
# slow DELAY WORD...: builds a port with that netem delay and these options.
slow() {
	pair
	in_ns h1 sysctl -qw net.ipv4.tcp_wmem="4096 16777216 33554432"
	check "the return path takes $1" in_ns h2 tc qdisc add dev eth0 root netem delay $1 limit 10000
	shift
	check "$1 limits the path to 100 Mbit/s" in_ns h1 "$@"
}
for cc in unocc gemini; do
	slow 2ms xdc qdisc add dev eth0 root phantom limit 200kb rate 100mbit phantom 100kb drain 0.95 pmin 5% pmax 60%
	choose h1 $cc 3
	choose h2 $cc 3
	check "$cc: 8 MB arrive through a port that marks" transfer 10.9.0.2
	equal "$cc: no timeout behind a port that marks" 0 "$(snmp h1 TcpExt TCPTimeouts)"
	unpair
	slow 2ms tc qdisc add dev eth0 root tbf rate 100mbit burst 20kb limit 200kb
	choose h1 $cc 3
	choose h2 $cc 3
	check "$cc: 8 MB arrive through a port that only drops" transfer 10.9.0.2
	within "$cc: few timeouts behind a port that only drops" 0 3 "$(snmp h1 TcpExt TCPTimeouts)"
	unpair
done
finish
