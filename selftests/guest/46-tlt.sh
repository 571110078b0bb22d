#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# TLT: what is on the wire, who takes part, losses without timeouts, and going while flows live.
. "$(dirname "$0")/lib.sh"

# tlt NAME COUNTER
tlt() {
	in_ns "$1" cat /proc/net/tlt_stat | awk -v name="$2" '
		!column { for (i = 2; i <= NF; i++) if ($i == name) column = i; next }
		{ print $column; exit }'
}

timeouts() { snmp "$1" TcpExt TCPTimeouts; }

set_both() { for ns in h1 h2; do in_ns $ns sysctl -qw "$@"; done; }

# count_marks NAME DEV: counters of what comes in there, by DSCP.
count_marks() {
	tc -n "$1" qdisc replace dev "$2" clsact
	tc -n "$1" filter del dev "$2" ingress 2>/dev/null
	for dscp in 0 8 10 12 18 20 26; do
		tc -n "$1" filter add dev "$2" ingress protocol ip prio $((dscp + 1)) \
			u32 match ip dsfield $((dscp * 4)) 0xfc action pass
	done
}

# marked NAME DEV DSCP: packets of that DSCP that came in.
marked() {
	tc -n "$1" -s filter show dev "$2" ingress prio $(($3 + 1)) |
		sed -n 's/.* bytes \([0-9]*\) pkt .*/\1/p' | head -1
}

# drop_marked NAME DEV DSCP...: packets of these are lost.
drop_marked() {
	ns=$1 dev=$2
	shift 2
	tc -n $ns qdisc replace dev $dev clsact
	tc -n $ns filter del dev $dev ingress 2>/dev/null
	for dscp in "$@"; do
		tc -n $ns filter add dev $dev ingress protocol ip prio $((dscp + 1)) \
			u32 match ip dsfield $((dscp * 4)) 0xfc action drop
	done
}

check "modprobe tlt" modprobe tlt
routed
in_ns h1 sysctl -qw net.ipv4.tcp_early_retrans=0
show() { for ns in h1 h2; do echo "# $ns"; in_ns $ns cat /proc/net/tlt_stat | sed 's/^/# /'; done; echo "# timeouts $(timeouts h1)"; }
dd if=/dev/urandom of=/tmp/sent bs=1000 count=300 2>/dev/null
equal "it is off" 0 "$(in_ns h1 cat /proc/sys/net/tlt/enabled)"
count_marks r eth1
count_marks r eth2
transfer 10.2.0.1
equal "while it is off nothing is marked" "0 0 0 0 0 0" "$(for d in 8 10 12 18 20 26; do marked r eth1 $d; done | tr '\n' ' ' | sed 's/ $//')"
set_both net.tlt.enabled=1
check "transfer" transfer 10.2.0.1
show
for d in 0 8 10 12 18 20 26; do echo "# $d: $(marked r eth1 $d) $(marked r eth2 $d)"; done
before=$(timeouts h1)
tc -n r filter del dev eth2 ingress
dd if=/dev/urandom of=/tmp/sent bs=1000 count=50 2>/dev/null
drop_marked r eth1 8
check "only important" timeout 60 ip netns exec h1 sh -c : 
check "transfer with all unimportant packets lost" transfer 10.2.0.1
equal "without timeout" "$before" "$(timeouts h1)"
show
check "rmmod" rmmod tlt
dmesg | grep -v -i kunit | tail -5 | sed 's/^/# /'
finish
