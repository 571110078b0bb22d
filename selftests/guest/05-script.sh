#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml | x86
# covers: modules/net/ipv4/tcp_*.rs modules/rust/kernel/net/tcp modules/algo/unocc.rs modules/algo/gemini.rs
# covers: modules/algo/window.rs modules/algo/rtt.rs modules/algo/host.rs modules/algo/controller.rs
# covers: modules/algo/echo.rs modules/algo/fixed.rs userspace-tools/testing/script
# Checks each rule of the algorithms with a receiver that is scripted packet by packet
# (userspace-tools/testing/script). Runs first, because kernel threads that clean up after other tests take
# microseconds of virtual time. Creates the device between receiver and kernel, and routes that select a
# flow's first window.
modprobe tcp_unocc
modprobe tcp_gemini

ip tuntap add mode tun dev tun0
# TCP sends single packets, and no queue overflows.
ip link set dev tun0 gso_max_segs 1 txqueuelen 20000 up
# The modules query a device's speed 0.1 s after it comes up.
sleep 0.2
ip addr add 10.7.0.1/32 dev tun0
ip -6 addr add fd07::1/128 dev tun0 nodad
for packets in 10 32 100; do
	ip route add 10.7.$packets.0/24 dev tun0 src 10.7.0.1 initcwnd $packets
	ip -6 route add fd07:0:0:$(printf %x $packets)::/64 dev tun0 src fd07::1 initcwnd $packets
done
for cc in 20:unocc 21:gemini; do
	ip route add 10.7.10.${cc%:*}/32 dev tun0 src 10.7.0.1 initcwnd 10 congctl ${cc#*:}
done
ip route add 10.7.10.22/32 dev tun0 src 10.7.0.1 initcwnd 10 cwnd lock 20
# Connections keep no metrics, send probes only if a case expects them, and use the whole segment for data.
sysctl -qw net.ipv4.tcp_no_metrics_save=1 net.ipv4.tcp_early_retrans=0 net.ipv4.tcp_ecn_option=0

# In real time, run only cases that do not depend on the time.
[ $# -gt 0 ] || grep -q "User Mode Linux" /proc/cpuinfo ||
	set -- "either end connecting" "an ECE per packet" "as receiver" "AccECN's option" "switched to without"
exec xdc-script "$@"
