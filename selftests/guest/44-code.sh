#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: x86 | debug
# covers: modules/drivers/net/unorc/vector_code.rs modules/drivers/net/unorc/vectors.rs
# covers: modules/drivers/net/unorc/gf256_x86.c modules/algo/gf256.rs
# covers: modules/tools/testing/selftests/net/xdc_code.rs userspace-tools/testing/code
# The loaded module compares parities by the processor's vector registers with those by words, and a tunnel
# that uses the registers restores lost packets.
. "$(dirname "$0")/lib.sh"

rmmod xdc_code 2>/dev/null
check "vectors and words compute the same parities" modprobe xdc_code
log=$(dmesg | sed -n 's/^.*xdc_code: //p' | tail -4)
matches "xdc_code makes all comparisons" "20000 comparisons" "$log"
check "rmmod xdc_code" rmmod xdc_code

check "modprobe unorc" modprobe unorc
pair
for i in 1 2; do
	ip -n h$i link add u0 type unorc local 10.9.0.$i remote 10.9.0.$((3 - i)) fec 8+3 timer 30000
	ip -n h$i addr add 10.50.0.$i/24 dev u0
	ip -n h$i link set u0 up
	tc -n h$i qdisc replace dev eth0 root netem limit 100000 rate 100mbit delay 5ms loss 2%
done
# A queue at the wire counts as congestion, under which no parities are sent.
tc -n h1 qdisc replace dev u0 root tbf rate 50mbit burst 5kb limit 4mb
dd if=/dev/urandom of=/tmp/sent bs=10000 count=300 2>/dev/null
check "pings pass the tunnel" in_ns h1 ping -c 3 -i 0.1 -W 5 10.50.0.2
check "3 MB arrive unchanged" transfer 10.50.0.2
recovered=$(tunnel_counter h2 recovered)
check "lost packets were decoded: $recovered" test "$recovered" -gt 10
equal "no packet was decoded wrongly" 0 "$(tunnel_counter h2 bad_decode)"
unpair
check "rmmod unorc" rmmod unorc
finish
