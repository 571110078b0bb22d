#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml
# covers: modules/drivers/net/unorc/unorc.rs modules/algo/unorc*.rs modules/algo/tunnel.rs
# covers: modules/algo/resequence.rs modules/algo/parity_credit.rs modules/algo/paths.rs modules/algo/gf256.rs
# covers: modules/drivers/net/unorc/vector_code.rs modules/rust/kernel/net/netdev.rs modules/oot/netdev.c
# covers: modules/drivers/net/unorc/device.rs modules/drivers/net/unorc/device.c
# covers: modules/rust/helpers/net/softirq.c modules/include/uapi/linux/unorc.h
# covers: modules/Documentation/netlink/specs/unorc.yaml userspace-tools/ip-plugin
# UnoRC, UnoLB and REPS: a tunnel that hides most losses from TCP, its choosers, and its removal under
# traffic. In virtual time: otherwise a slow host's delays exceed a millisecond.
. "$(dirname "$0")/lib.sh"

retransmitted() { snmp "$1" Tcp RetransSegs; }

# tunnel I OPTION...: creates u0 of host I, 10.50.0.I, over eth0.
tunnel() {
	i=$1
	shift
	ip -n h$i link add u0 type unorc local 10.9.0.$i remote 10.9.0.$((3 - i)) "$@" &&
		ip -n h$i addr add 10.50.0.$i/24 dev u0 &&
		ip -n h$i link set u0 up
}

tunnels() { tunnel 1 "$@" && tunnel 2 "$@"; }

untunnel() { for i in 1 2; do ip -n h$i link del u0; done; }

# lossy OPTION...: netem at both ends of the wire, with a rate, because otherwise one burst exceeds a CPU's
# backlog.
lossy() { for i in 1 2; do tc -n h$i qdisc replace dev eth0 root netem limit 100000 rate 1gbit "$@"; done; }

# paced: limits the input of h1's tunnel below the wire's rate, without bursts that queue there.
paced() { tc -n h1 qdisc replace dev u0 root tbf rate 500mbit burst 5kb limit 4mb; }

pings() { in_ns h1 ping -c "$1" -i 0.01 -W 5 10.50.0.2; }

check "modprobe unorc" modprobe unorc
pair
lossy delay 0
dd if=/dev/urandom of=/tmp/sent bs=10000 count=2000 2>/dev/null

refuses "a device needs its ends" "local and remote" ip -n h1 link add u0 type unorc
refuses "that are two" "two hosts" ip -n h1 link add u0 type unorc local 10.9.0.1 remote 10.9.0.1
refuses "a block has 28 packets at most" "1 to 28" \
	ip -n h1 link add u0 type unorc local 10.9.0.1 remote 10.9.0.2 fec 29+2
refuses "and 3 parities" "1 to 28" ip -n h1 link add u0 type unorc local 10.9.0.1 remote 10.9.0.2 fec 8+4
refuses "none is of one packet alone" "1 to 28" \
	ip -n h1 link add u0 type unorc local 10.9.0.1 remote 10.9.0.2 fec 8+0
refuses "a timer is a short time" "out of range|Invalid|range" \
	ip -n h1 link add u0 type unorc local 10.9.0.1 remote 10.9.0.2 timer 40000

refuses "channels are a power of two" "1, 2, 4 or 8" \
	ip -n h1 link add u0 type unorc local 10.9.0.1 remote 10.9.0.2 channels 3
refuses "and so is a window" "64 to 8192" \
	ip -n h1 link add u0 type unorc local 10.9.0.1 remote 10.9.0.2 window 100

check "a tunnel of 8+2" tunnels
shown="unorc local 10.9.0.1 remote 10.9.0.2 port 4796 fec 8+2 paths unolb freeze loss timer auto flush 50 channels 8 window 8192"
matches "ip shows all of it, as it is typed" "$(echo "$shown" | sed s/+/./)" "$(ip -n h1 -d link show u0)"
check "what it shows can be typed" ip -n h2 link add u1 type $(echo "$shown" | sed 's/4796/4797/')
check "and taken away" ip -n h2 link del u1
matches "in JSON, too" '"paths": ?"unolb"' "$(ip -n h1 -d -j link show u0)"
check "pings go through" pings 3
equal "one session" "1 1" "$(tunnel_counter h1 session) $(tunnel_counter h2 session)"
# Slower than the wire, because a queue there would stop the parities.
paced
check "20 MB arrive" transfer 10.50.0.2
equal "without a retransmission" 0 "$(retransmitted h1)"
within "eight data packets have two parities" 20 35 \
	$(($(tunnel_counter h1 tx_parity) * 100 / $(tunnel_counter h1 tx_data)))
matches "ip has the counters, too" "session 1 " "$(ip -n h1 -s -d link show u0)"
matches "in JSON, as numbers" '"session": ?1,' "$(ip -n h1 -s -d -j link show u0)"
check "paths and times change while it is up" \
	ip -n h1 link change u0 type unorc paths reps freeze timeout timer 100 flush 20
matches "ip shows it" "paths reps freeze timeout timer 100 flush 20 " "$(ip -n h1 -d link show u0)"
check "20 MB arrive by other paths" transfer 10.50.0.2
equal "in the same session" "1 1" "$(tunnel_counter h1 session) $(tunnel_counter h2 session)"
ip -n h1 link set u0 down
ip -n h1 link set u0 up
check "a device that was down has a session again" eventually pings 1
refuses "what both ends agreed on stays" "only paths" ip -n h1 link change u0 type unorc fec off
refuses "and so does the peer" "only paths" ip -n h1 link change u0 type unorc remote 10.9.0.3
refuses "its MTU stays below that which it went up with" "busy" ip -n h1 link set u0 mtu 1500
untunnel

for paths in ecmp rps ops plb unolb reps reps-paper bitmap; do
	tunnels paths $paths fec off
	check "20 MB by $paths, without code" transfer 10.50.0.2
	untunnel
	# Before the tunnel exists: a delay that grows later counts as a queue, which stops the parities.
	lossy delay 1ms loss 1%
	tunnels paths $paths
	paced
	before=$(retransmitted h1)
	check "20 MB by $paths through a loss of 1 %" transfer 10.50.0.2
	within "of which most is decoded" 100 1000000 "$(tunnel_counter h2 recovered)"
	# 145 of 14,500 packets are lost. ACKs have no code, and three losses in a block exceed it.
	within "and TCP retransmits little" 0 30 $(($(retransmitted h1) - before))
	lossy delay 0
	untunnel
done

for harm in "loss 5%" "reorder 30% 50%" "duplicate 5%" "corrupt 2%" "loss 3% duplicate 3% reorder 10%"; do
	for fec in 8+2 off 28+3 1+1; do
		tunnels fec $fec
		# shellcheck disable=SC2086
		lossy delay 500us $harm
		check "20 MB with fec $fec through $harm" transfer 10.50.0.2
		lossy delay 0
		untunnel
	done
done

# An outage that lasts longer than a channel's memory of blocks.
tunnels window 64
check "a tunnel of a small window" pings 3
lossy loss 100%
refuses "nothing goes through an outage" "100% packet loss" pings 40
lossy delay 0
check "a channel lives after it" pings 20
untunnel

# Order at the highest packet rate.
for i in 1 2; do tc -n h$i qdisc del dev eth0 root; done
backlog=$(in_first_ns sysctl -n net.core.netdev_max_backlog)
in_first_ns sysctl -qw net.core.netdev_max_backlog=100000
tunnels
check "a tunnel over a wire without a rate" pings 3
before=$(snmp h2 TcpExt TCPOFOQueue)
check "20 MB arrive" transfer 10.50.0.2
equal "in order" "$before" "$(snmp h2 TcpExt TCPOFOQueue)"
in_first_ns sysctl -qw net.core.netdev_max_backlog="$backlog"
untunnel

# Up to 5 MB wait for one packet here.
for i in 1 2; do
	in_ns h$i sysctl -qw net.ipv4.tcp_rmem="4096 60000000 60000000" net.ipv4.tcp_wmem="4096 60000000 60000000"
done
in_first_ns sysctl -qw net.core.rmem_max=60000000 net.core.wmem_max=60000000
tunnels
tc -n h1 qdisc replace dev eth0 root netem limit 100000 delay 50ms rate 1gbit loss 3%
tc -n h2 qdisc replace dev eth0 root netem limit 100000 delay 50ms
check "pings over 100 ms" pings 3
check "20 MB through a loss of 3 % over 100 ms" transfer 10.50.0.2
equal "the tunnel drops none of the packets that waited" 0 "$(in_ns h2 cat /sys/class/net/u0/statistics/rx_dropped)"
untunnel
for i in 1 2; do
	in_ns h$i sysctl -qw net.ipv4.tcp_rmem="4096 131072 6291456" net.ipv4.tcp_wmem="4096 16384 4194304"
done

# An RTT above the initial guess.
tunnels channels 1 window 64
lossy delay 10ms
check "pings over 20 ms" in_ns h1 ping -c 100 -i 0.05 -W 5 10.50.0.2
# All block slots were used.
in_ns h2 sysctl -qw net.ipv6.conf.u0.disable_ipv6=1
ip -n h2 link set u0 down
ip -n h2 link set u0 up
check "an end that began anew is heard of" in_ns h1 ping -c 20 -i 0.2 -W 1 10.50.0.2
equal "and what ends a session is no dropped packet" 0 "$(in_ns h2 cat /sys/class/net/u0/statistics/tx_dropped)"
untunnel
lossy delay 0

# fq holds 100 packets of a socket, and would drop the others of a window.
tc -n h1 qdisc replace dev eth0 root fq
tc -n h2 qdisc replace dev eth0 root netem limit 100000 rate 1gbit delay 10ms
for fec in off 8+2; do
	tunnels fec $fec
	before=$(retransmitted h1)
	check "20 MB above fq, fec $fec" transfer 10.50.0.2
	equal "without a retransmission" 0 $(($(retransmitted h1) - before))
	untunnel
done
lossy delay 0

# A tunnel in a tunnel, and routes that put each into the other.
tunnels
for i in 1 2; do
	ip -n h$i link add u1 mtu 1400 type unorc local 10.50.0.$i remote 10.50.0.$((3 - i)) port 5000
	ip -n h$i addr add 10.51.0.$i/24 dev u1
	ip -n h$i link set u1 up
done
check "a tunnel in a tunnel" in_ns h1 ping -c 3 -i 0.05 -W 2 10.51.0.2
check "each is in the other" in_ns h1 ip route add 10.9.0.2/32 dev u1
refuses "nothing arrives" "100% packet loss" in_ns h1 ping -c 10 -i 0.01 -W 1 10.51.0.2
sleep 5
before=$(tunnel_counter h1 tx_data)
sleep 5
# A self-feeding loop sends millions.
within "and a loop does not feed itself" 0 50000 $(($(tunnel_counter h1 tx_data) - before))
in_ns h1 ip route del 10.9.0.2/32 dev u1
check "they go on when it is over" eventually in_ns h1 ping -c 1 -W 1 10.51.0.2
for i in 1 2; do ip -n h$i link del u1; done
untunnel

# ECN.
tunnels
in_ns h1 sysctl -qw net.ipv4.tcp_ecn=1
lossy delay 100us loss 0.1% ecn
check "marks do not break what is decoded" transfer 10.50.0.2
lossy delay 0
in_ns h1 sysctl -qw net.ipv4.tcp_ecn=2

# Either end restarts without data to send; the other end finds out when it sends.
for i in 1 2; do
	in_ns h$i sysctl -qw net.ipv6.conf.u0.disable_ipv6=1
	ip -n h$i link set u0 down
	ip -n h$i link set u0 up
	# Answers to an unknown sender are limited to one per second.
	check "an end that began anew is known again" \
		in_ns h$((3 - i)) ping -c 30 -i 0.2 -W 1 10.50.0.$i
	check "20 MB arrive" transfer 10.50.0.2
done

# Packets of other senders.
before=$(tunnel_counter h1 session)
ip -n h2 addr add 10.9.0.3/24 dev eth0
check "another host asks" ip -n h2 link add u1 type unorc local 10.9.0.3 remote 10.9.0.1
ip -n h2 addr add 10.51.0.3/24 dev u1
ip -n h2 link set u1 up
refuses "and gets no answer" "100% packet loss" in_ns h2 ping -c 2 -i 0.01 -W 1 10.51.0.1
errors=$(in_ns h1 cat /sys/class/net/u0/statistics/rx_errors)
within "what it sent is counted" 1 100 "$errors"
check "the tunnel goes on" pings 3
equal "in the same session" "$before" "$(tunnel_counter h1 session)"
ip -n h2 link del u1
# A peer with another code.
ip -n h2 link del u0
check "an end of another code" tunnel 2 fec 4+1
refuses "has no session" "100% packet loss" in_ns h1 ping -c 2 -i 0.01 -W 1 10.50.0.2
within "and is counted" 1 100 "$(($(tunnel_counter h1 mismatch) + $(tunnel_counter h2 mismatch)))"
ip -n h2 link del u0
check "an end of the same code" tunnel 2
check "has one" eventually pings 1

# Removal under traffic.
flood() { in_ns h1 ping -q -f -c 20000 -W 1 10.50.0.2 >/dev/null 2>&1 & }
flood
check "a device goes under traffic" ip -n h1 link del u0
wait $!
check "and its peer stays" ip -n h2 link show u0
check "a new one speaks with it" tunnel 1
check "again" eventually pings 1
flood
check "its namespace changes" ip -n h1 link set u0 netns h2 name u9
check "the socket stays where it was" in_ns h2 ip link set u9 up
check "it goes with the namespace of its socket" ip netns del h1
wait $!
gone() { ! ip -n h2 link show u9; }
check "wherever it is" eventually gone
unpair 2>/dev/null
ip netns del h2 2>/dev/null
pair
lossy delay 0
tunnels
flood
check "the module goes under traffic" rmmod unorc
wait $!
refuses "and its devices" "does not exist" ip -n h1 link show u0
check "it comes back" modprobe unorc
unpair
finish
