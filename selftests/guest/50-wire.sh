#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml-debug | x86 debug
# covers: modules/net/sched/*phantom*.rs modules/rust/kernel/net/sched modules/rust/helpers/net/sched.c
# covers: modules/algo/phantom.rs
# sch_phantom as seen by the IP stack's counters: no CE without ECT, no packet lost from the counts, no
# reordering.
. "$(dirname "$0")/lib.sh"

modprobe sch_phantom

one_cpu() { in_ns "$1" sh -c "echo 1 >/sys/class/net/$2/queues/rx-0/rps_cpus"; }

# h1 - r - h2. With fixed neighbors and no IPv6, the port of r towards h2 gets forwarded packets only.
for ns in h1 r h2; do
	ip netns add $ns
	in_ns $ns sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1
done
for i in 1 2; do
	ip link add eth0 address 02:00:00:00:0$i:01 netns h$i type veth \
		peer name eth$i address 02:00:00:00:0$i:02 netns r
	ip -n h$i addr add 10.$i.0.1/24 dev eth0
	ip -n r addr add 10.$i.0.2/24 dev eth$i
	ip -n h$i link set eth0 up
	ip -n r link set eth$i up
	ip -n h$i neigh add 10.$i.0.2 lladdr 02:00:00:00:0$i:02 dev eth0
	ip -n r neigh add 10.$i.0.1 lladdr 02:00:00:00:0$i:01 dev eth$i
	ip -n h$i route add default via 10.$i.0.2
	in_ns h$i ethtool -K eth0 tso off gso off gro off >/dev/null
	in_ns r ethtool -K eth$i tso off gso off gro off >/dev/null
	# veth receives on the sending CPU, and packets of two CPUs are reordered.
	one_cpu h$i eth0
	one_cpu r eth$i
done
in_ns r sysctl -qw net.ipv4.ip_forward=1

# forwarded: packets towards h2 alone; r also forwards the answers.
forwarded() { echo $(($(snmp r Ip ForwDatagrams) - $(snmp h1 Ip InReceives))); }
port() { in_ns r xdc qdisc show -s dev eth2; }
counter() { port | sed -n "s/^ *$1 //p"; }
passed() { port | sed -n 's/^ *Sent [0-9]* bytes \([0-9]*\) pkt.*/\1/p'; }
dropped() { port | sed -n 's/.*(dropped \([0-9]*\),.*/\1/p'; }

# nc ends before the last ACKs and copies of FINs have crossed. A dropped FIN is retransmitted later.
seen() { echo "$(snmp r Ip InReceives) $(snmp h1 Ip InReceives) $(snmp h2 Ip InReceives)"; }
still() {
	before=$(seen)
	sleep 1
	[ "$(seen)" = "$before" ] && port | grep -q "backlog 0b 0p" &&
		[ -z "$(in_ns h1 ss -tnH; in_ns h2 ss -tnH)" ]
}

# Two concurrent flows fill the queue; arguments are the port's options.
dd if=/dev/urandom of=/tmp/sent bs=1000 count=400 2>/dev/null
run() {
	in_ns r xdc qdisc add dev eth2 root phantom rate 5mbit "$@"
	offered=$(forwarded)
	arrived=$(snmp h2 Ip InReceives)
	ce=$(snmp h2 IpExt InCEPkts)
	late=$(snmp h2 TcpExt TCPOFOQueue)
	for flow in 1 2; do
		receive h2 /tmp/received$flow 500$flow
		in_ns h1 nc 10.2.0.1 500$flow </tmp/sent &
	done
	wait
	for flow in 1 2; do
		check "$case: flow $flow arrived complete" cmp /tmp/sent /tmp/received$flow
	done
	check "$case: no packet is in flight" eventually still
	offered=$(($(forwarded) - offered))
	arrived=$(($(snmp h2 Ip InReceives) - arrived))
	ce=$(($(snmp h2 IpExt InCEPkts) - ce))
	late=$(($(snmp h2 TcpExt TCPOFOQueue) - late))
	within "$case: packets offered" 540 3000 "$offered"
	matches "$case: no packet is queued" "backlog 0b 0p" "$(port)"
	equal "$case: in = out + dropped" "$offered" "$(($(passed) + $(dropped)))"
	equal "$case: out = arrived" "$(passed)" "$arrived"
	marked=$(($(counter marked_phantom) + $(counter marked_physical) + $(counter marked_both)))
	equal "$case: CE packets that arrived" "$marked" "$ce"
	chosen=$(counter would_mark)
	lost=$(dropped)
	in_ns r xdc qdisc del dev eth2 root
}
ecn() {
	for ns in h1 h2; do in_ns $ns sysctl -qw net.ipv4.tcp_ecn="$1"; done
}

# Phantom queues drain so slowly that the slowest guest, which the shaper does not limit, fills them.
often="limit 1mb min 1% max 10% phantom 1mb drain 0.001 pmin 1% pmax 10% mark either"
ecn 0
case="Not-ECT"
run $often
within "$case: packets chosen" 100 3000 "$chosen"
equal "$case: packets marked" 0 "$marked"
equal "$case: packets reordered" 0 "$late"

case="Not-ECT, ecn-drop"
# The first windows alone fill the queue. The number of drops depends on the guest's speed.
run $often ecn-drop on phantom 300kb drain 0.2 pmax 100%
within "$case: packets dropped" 1 3000 "$lost"
equal "$case: packets marked" 0 "$marked"

ecn 1
for at in enqueue dequeue; do
	case="ECT, at $at"
	run $often at $at
	within "$case: packets marked" 50 3000 "$marked"
	equal "$case: packets reordered" 0 "$late"
done

case="ECT, a queue that is too short"
# Only loss slows the flows here, so there must be some.
run limit 8kb mark none
within "$case: packets dropped" 1 3000 "$lost"

for ns in h1 r h2; do ip netns del $ns; done
check "rmmod sch_phantom" eventually rmmod sch_phantom
finish
