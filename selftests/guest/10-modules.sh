#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml-debug x86 | debug
# covers: modules/oot selftests/guest/lib.sh modules/net/ipv4/tcp_*.rs
# covers: modules/net/sched/settings.rs modules/net/sched/sch_*.rs modules/rust
# covers: modules/tools/testing/selftests/net
# Loading, autoloading, refusal to unload while in use, clean unloading.
. "$(dirname "$0")/lib.sh"

available() { sysctl_get net.ipv4.tcp_available_congestion_control; }
default_cc() { in_first_ns sysctl -qw net.ipv4.tcp_congestion_control="$1"; }

check "the list has congestion controls" test -n "$(our_ccs)"
for cc in $(our_ccs); do
	check "modprobe tcp_$cc" modprobe tcp_$cc
	check "$cc is available" eventually is_available $cc
	check "rmmod tcp_$cc" rmmod tcp_$cc
	equal "$cc is gone" "" "$(available | tr ' ' '\n' | grep -x $cc)"
	equal "net.$cc is gone" "no" "$([ -e /proc/sys/net/$cc ] && echo yes || echo no)"
	check "choosing $cc loads its module" default_cc $cc
	matches "tcp_$cc was autoloaded" "^tcp_$cc " "$(cat /proc/modules)"
	refuses "rmmod tcp_$cc while a namespace has chosen it" "temporarily unavailable" rmmod tcp_$cc
	default_cc cubic
	check "rmmod tcp_$cc after autoload" rmmod tcp_$cc
done

check "modprobe sch_phantom" modprobe sch_phantom
check "rmmod sch_phantom" rmmod sch_phantom
ip link add d0 type dummy
ip link set d0 up
check "tc loads sch_phantom by its alias" tc qdisc add dev d0 root phantom
matches "sch_phantom was autoloaded" "^sch_phantom " "$(cat /proc/modules)"
refuses "rmmod sch_phantom while a device uses it" "temporarily unavailable" rmmod sch_phantom
check "tc qdisc del" tc qdisc del dev d0 root
# The qdisc's memory, and with it the module reference, is freed after an RCU grace period.
check "rmmod sch_phantom when unused" eventually rmmod sch_phantom
ip link del d0

connected() { in_ns h1 ss -tinH state established | grep -qw $cc; }

pair
for cc in $(our_ccs); do
	load $cc
	allow $cc
	choose h1 $cc 3
	choose h2 $cc 3
	receive h2 /dev/null
	mkfifo held
	in_ns h1 nc 10.9.0.2 5001 <held &
	exec 3>held
	check "a socket uses $cc" eventually connected
	# Now only the sockets hold it.
	choose h1 cubic 3
	choose h2 cubic 3
	refuses "rmmod tcp_$cc while a socket uses it" "temporarily unavailable" rmmod tcp_$cc
	exec 3>&-
	wait
	rm held
	check "rmmod tcp_$cc after the socket closed" eventually rmmod tcp_$cc
done
unpair

i=0
while [ $i -lt 20 ]; do
	modprobe tcp_unocc && modprobe tcp_gemini && modprobe sch_phantom &&
		rmmod tcp_unocc && rmmod tcp_gemini && rmmod sch_phantom || break
	i=$((i + 1))
done
equal "20 rounds of loading and unloading" 20 $i
finish
