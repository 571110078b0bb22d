#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml
# covers: modules/drivers/net/unorc/unorc.rs modules/algo/unorc*.rs modules/algo/tunnel.rs
# covers: modules/algo/resequence.rs modules/algo/parity_credit.rs modules/algo/paths.rs modules/algo/gf256.rs
# covers: modules/drivers/net/unorc/vector_code.rs modules/rust/kernel/net/netdev.rs modules/oot/unorc.c
# covers: modules/drivers/net/unorc/*.rs modules/drivers/net/unorc/*.c modules/drivers/net/unorc/*.h
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

refuses "a device without a local address is refused" "local must be given" ip -n h1 link add u0 type unorc
refuses "a device with equal ends is refused" "two hosts" ip -n h1 link add u0 type unorc local 10.9.0.1 remote 10.9.0.1
refuses "a block of 29 packets is refused" "1 to 28" \
	ip -n h1 link add u0 type unorc local 10.9.0.1 remote 10.9.0.2 fec 29+2
refuses "a block with 4 parities is refused" "1 to 28" ip -n h1 link add u0 type unorc local 10.9.0.1 remote 10.9.0.2 fec 8+4
refuses "a block without parities is refused" "1 to 28" \
	ip -n h1 link add u0 type unorc local 10.9.0.1 remote 10.9.0.2 fec 8+0
refuses "a timer of 40 ms is refused" "out of range|Invalid|range" \
	ip -n h1 link add u0 type unorc local 10.9.0.1 remote 10.9.0.2 timer 40000

refuses "3 channels are refused" "1, 2, 4 or 8" \
	ip -n h1 link add u0 type unorc local 10.9.0.1 remote 10.9.0.2 channels 3
refuses "a window of 100 is refused" "64 to 8192" \
	ip -n h1 link add u0 type unorc local 10.9.0.1 remote 10.9.0.2 window 100

check "a tunnel with fec 8+2" tunnels
shown="unorc local 10.9.0.1 remote 10.9.0.2 port 4796 fec 8+2 paths unolb freeze loss timer auto flush 50 channels 8 window 8192"
matches "ip shows every option in its input form" "$(echo "$shown" | sed s/+/./)" "$(ip -n h1 -d link show u0)"
check "ip's output is valid input" ip -n h2 link add u1 type $(echo "$shown" | sed 's/4796/4797/')
check "the second tunnel is deleted" ip -n h2 link del u1
matches "ip -j shows the options" '"paths": ?"unolb"' "$(ip -n h1 -d -j link show u0)"
check "fec 8+2: pings pass" pings 3
equal "fec 8+2: one session" "1 1" "$(tunnel_counter h1 session) $(tunnel_counter h2 session)"
# Slower than the wire, because a queue there would stop the parities.
paced
check "fec 8+2: 20 MB arrive" transfer 10.50.0.2
equal "fec 8+2: no retransmission" 0 "$(retransmitted h1)"
within "eight data packets have two parities" 20 35 \
	$(($(tunnel_counter h1 tx_parity) * 100 / $(tunnel_counter h1 tx_data)))
matches "ip -s shows the counters" "session 1 " "$(ip -n h1 -s -d link show u0)"
matches "ip -s -j shows the counters as numbers" '"session": ?1,' "$(ip -n h1 -s -d -j link show u0)"
check "paths and times can be changed while the device is up" \
	ip -n h1 link change u0 type unorc paths reps freeze timeout timer 100 flush 20
matches "ip shows the changed options" "paths reps freeze timeout timer 100 flush 20 " "$(ip -n h1 -d link show u0)"
check "20 MB arrive after the change" transfer 10.50.0.2
equal "the change keeps the session" "1 1" "$(tunnel_counter h1 session) $(tunnel_counter h2 session)"
ip -n h1 link set u0 down
ip -n h1 link set u0 up
check "a device that was down gets a session again" eventually pings 1
refuses "fec of a device cannot be changed" "only paths" ip -n h1 link change u0 type unorc fec off
refuses "the remote end of a device cannot be changed" "only paths" ip -n h1 link change u0 type unorc remote 10.9.0.3
refuses "the MTU cannot exceed its first value" "busy" ip -n h1 link set u0 mtu 1500
untunnel

for paths in ecmp rps ops plb unolb reps reps-paper bitmap; do
	tunnels paths $paths fec off
	check "20 MB by $paths, without parities" transfer 10.50.0.2
	untunnel
	# Before the tunnel exists: a delay that grows later counts as a queue, which stops the parities.
	lossy delay 1ms loss 1%
	tunnels paths $paths
	paced
	before=$(retransmitted h1)
	check "20 MB by $paths through a loss of 1 %" transfer 10.50.0.2
	within "most lost packets are decoded by $paths" 100 1000000 "$(tunnel_counter h2 recovered)"
	# 145 of 14,500 packets are lost. ACKs have no code, and three losses in a block exceed it.
	within "TCP retransmits little by $paths" 0 30 $(($(retransmitted h1) - before))
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
check "a tunnel with window 64" pings 3
lossy loss 100%
refuses "no packet passes an outage" "100% packet loss" pings 40
lossy delay 0
check "a channel works after an outage" pings 20
untunnel

# Order at the highest packet rate.
for i in 1 2; do tc -n h$i qdisc del dev eth0 root; done
backlog=$(in_first_ns sysctl -n net.core.netdev_max_backlog)
in_first_ns sysctl -qw net.core.netdev_max_backlog=100000
tunnels
check "a tunnel over a wire without a rate" pings 3
before=$(snmp h2 TcpExt TCPOFOQueue)
check "20 MB arrive over a wire without a rate" transfer 10.50.0.2
equal "20 MB arrive in order" "$before" "$(snmp h2 TcpExt TCPOFOQueue)"
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
equal "the tunnel drops no packet that waited" 0 "$(in_ns h2 cat /sys/class/net/u0/statistics/rx_dropped)"
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
check "pings over 20 ms pass after a restart" in_ns h1 ping -c 20 -i 0.2 -W 1 10.50.0.2
equal "the end of a session drops no packet" 0 "$(in_ns h2 cat /sys/class/net/u0/statistics/tx_dropped)"
untunnel
lossy delay 0

# fq holds 100 packets of a socket, and would drop the others of a window.
tc -n h1 qdisc replace dev eth0 root fq
tc -n h2 qdisc replace dev eth0 root netem limit 100000 rate 1gbit delay 10ms
for fec in off 8+2; do
	tunnels fec $fec
	before=$(retransmitted h1)
	check "20 MB above fq, fec $fec" transfer 10.50.0.2
	equal "no retransmission above fq, fec $fec" 0 $(($(retransmitted h1) - before))
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
check "each tunnel's route leads into the other" in_ns h1 ip route add 10.9.0.2/32 dev u1
refuses "a loop of tunnels delivers no packet" "100% packet loss" in_ns h1 ping -c 10 -i 0.01 -W 1 10.51.0.2
sleep 5
before=$(tunnel_counter h1 tx_data)
sleep 5
# A self-feeding loop sends millions.
within "a loop of tunnels stops" 0 50000 $(($(tunnel_counter h1 tx_data) - before))
in_ns h1 ip route del 10.9.0.2/32 dev u1
check "both tunnels work after the loop of tunnels" eventually in_ns h1 ping -c 1 -W 1 10.51.0.2
for i in 1 2; do ip -n h$i link del u1; done
untunnel

# ECN.
tunnels
in_ns h1 sysctl -qw net.ipv4.tcp_ecn=1
lossy delay 100us loss 0.1% ecn
check "CE marks do not disturb decoding" transfer 10.50.0.2
lossy delay 0
in_ns h1 sysctl -qw net.ipv4.tcp_ecn=2

# Either end restarts without data to send; the other end finds out when it sends.
for i in 1 2; do
	in_ns h$i sysctl -qw net.ipv6.conf.u0.disable_ipv6=1
	ip -n h$i link set u0 down
	ip -n h$i link set u0 up
	# Answers to an unknown sender are limited to one per second.
	check "an end that restarts gets a new session" \
		in_ns h$((3 - i)) ping -c 30 -i 0.2 -W 1 10.50.0.$i
	check "20 MB arrive after a restart" transfer 10.50.0.2
done

# Packets of other senders.
before=$(tunnel_counter h1 session)
ip -n h2 addr add 10.9.0.3/24 dev eth0
check "a third host creates a tunnel" ip -n h2 link add u1 type unorc local 10.9.0.3 remote 10.9.0.1
ip -n h2 addr add 10.51.0.3/24 dev u1
ip -n h2 link set u1 up
refuses "a third host gets no answer" "100% packet loss" in_ns h2 ping -c 2 -i 0.01 -W 1 10.51.0.1
errors=$(in_ns h1 cat /sys/class/net/u0/statistics/rx_errors)
within "packets of a third host count as errors" 1 100 "$errors"
check "the tunnel works beside a third host" pings 3
equal "the session survives a third host" "$before" "$(tunnel_counter h1 session)"
ip -n h2 link del u1
# A peer with another code.
ip -n h2 link del u0
check "an end with another fec" tunnel 2 fec 4+1
refuses "ends with different fec have no session" "100% packet loss" in_ns h1 ping -c 2 -i 0.01 -W 1 10.50.0.2
within "mismatch counts packets of a different fec" 1 100 "$(($(tunnel_counter h1 mismatch) + $(tunnel_counter h2 mismatch)))"
ip -n h2 link del u0
check "an end with the same fec" tunnel 2
check "ends with the same fec have a session" eventually pings 1

# Removal under traffic.
flood() { in_ns h1 ping -q -f -c 20000 -W 1 10.50.0.2 >/dev/null 2>&1 & }
flood
check "a device is deleted under traffic" ip -n h1 link del u0
wait $!
check "the peer of a deleted device stays" ip -n h2 link show u0
check "a deleted device is created again" tunnel 1
check "a device created again gets a session" eventually pings 1
flood
check "a device moves to another namespace under traffic" ip -n h1 link set u0 netns h2 name u9
check "a device in another namespace comes up" in_ns h2 ip link set u9 up
check "the namespace of the device's socket is deleted" ip netns del h1
wait $!
gone() { ! ip -n h2 link show u9; }
check "a device ends with the namespace of its socket" eventually gone
unpair 2>/dev/null
ip netns del h2 2>/dev/null
pair
lossy delay 0
tunnels
flood
check "rmmod unorc under traffic" rmmod unorc
wait $!
refuses "rmmod unorc deletes its devices" "does not exist" ip -n h1 link show u0
check "modprobe unorc again" modprobe unorc
unpair
finish
