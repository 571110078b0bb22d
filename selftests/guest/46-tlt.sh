#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml | debug
# covers: modules/net/tlt/tlt*.rs modules/algo/tlt*.rs modules/net/tlt/netfilter.rs modules/net/tlt/netfilter.c
# covers: modules/net/tlt/conn.rs modules/net/tlt/conn.c modules/net/tlt/flows.rs
# covers: modules/net/tlt/flows.c modules/algo/color.rs
# TLT: packets on the wire, participation, losses without timeouts, and removal under live flows.
. "$(dirname "$0")/lib.sh"

# in_time CASE...: a case that expects no timeout or retransmission, or a full port. In real time a slow host
# has timeouts, reordering between processors, and no full port.
in_time() { ! grep -q "User Mode Linux" /proc/cpuinfo || "$@"; }

# tlt NAME COUNTER: counter in that namespace.
tlt() {
	in_ns "$1" cat /proc/net/tlt_stat | awk -v name="$2" '
		!column { for (i = 2; i <= NF; i++) if ($i == name) column = i; next }
		{ print $column; exit }'
}

timeouts() { snmp "$1" TcpExt TCPTimeouts; }

set_both() { for ns in h1 h2; do in_ns $ns sysctl -qw "$@"; done; }

# count_marks NAME DEV: counts ingress packets by DSCP.
count_marks() {
	tc -n "$1" qdisc replace dev "$2" clsact
	tc -n "$1" filter del dev "$2" ingress 2>/dev/null
	for dscp in 0 7 15 23 31 39 46 47; do
		tc -n "$1" filter add dev "$2" ingress protocol ip prio $((dscp + 1)) \
			u32 match ip dsfield $((dscp * 4)) 0xfc action pass
	done
}

# marked NAME DEV DSCP: number of ingress packets with that DSCP.
marked() {
	tc -n "$1" -s filter show dev "$2" ingress prio $(($3 + 1)) |
		sed -n 's/.* bytes \([0-9]*\) pkt .*/\1/p' | head -1
}

# drop_marked NAME DEV DSCP...: drops ingress packets with these DSCPs.
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

# passed: marked packets from h1 and h2 at r, as "DSCP:PACKETS ...".
passed() {
	for dscp in 0 7 15 23 31 39 46 47; do
		packets=$(marked r "$1" $dscp)
		[ "$packets" = 0 ] || printf '%s:%s ' $dscp "$packets"
	done
}

# sum NAME COUNTER...: sum of counters.
sum() {
	ns=$1 total=0
	shift
	for counter in "$@"; do total=$((total + $(tlt $ns $counter))); done
	echo $total
}

check "modprobe tlt" modprobe tlt
routed
# Disable the other repair of lost tails.
set_both net.ipv4.tcp_early_retrans=0 net.ipv4.tcp_congestion_control=cubic

for param in enabled negotiate dscp_data dscp_echo dscp_clock dscp_clock_echo dscp_control dscp_unimportant \
	fwmark burst_tail clock_mode retry_us max_flows override_dscp; do
	check "net.tlt.$param exists" in_ns h1 test -f /proc/sys/net/tlt/$param
done
refuses "dscp_data refuses 64" "Invalid argument" in_ns h1 sysctl -w net.tlt.dscp_data=64
equal "/proc/net/tlt_stat has netstat's format" "Tlt: Tlt:" "$(in_ns h1 cut -d ' ' -f 1 /proc/net/tlt_stat | tr '\n' ' ' | sed 's/ $//')"
equal "/proc/net/tlt_stat has a number for each name" 1 "$(in_ns h1 awk '{ print NF }' /proc/net/tlt_stat | sort -u | wc -l)"

dd if=/dev/urandom of=/tmp/sent bs=1000 count=300 2>/dev/null

equal "TLT is off by default" 0 "$(in_ns h1 cat /proc/sys/net/tlt/enabled)"
count_marks r eth1
count_marks r eth2
check "TLT off: data arrive" transfer 10.2.0.1
matches "TLT off: no data packet is marked" "^0:[0-9]+ $" "$(passed eth1)"
matches "TLT off: no ACK is marked" "^0:[0-9]+ $" "$(passed eth2)"

# Rule 17.
in_ns h1 sysctl -qw net.tlt.enabled=1
count_marks r eth1
count_marks r eth2
check "peer without TLT: data arrive" transfer 10.2.0.1
matches "peer without TLT: only the SYN is marked" "^0:[0-9]+ 15:1 $" "$(passed eth1)"
matches "peer without TLT: no ACK is marked" "^0:[0-9]+ $" "$(passed eth2)"
equal "peer without TLT: PeerPlain counts it" 1 "$(tlt h1 PeerPlain)"
equal "peer without TLT: no flow takes part" 0 "$(tlt h1 Flows)"

in_ns h1 sysctl -qw net.tlt.enabled=0
in_ns h2 sysctl -qw net.tlt.enabled=1
count_marks r eth1
count_marks r eth2
check "sender without TLT: data arrive" transfer 10.2.0.1
matches "sender without TLT: no ACK is marked" "^0:[0-9]+ $" "$(passed eth2)"
equal "sender without TLT: PeerPlain counts it" 1 "$(tlt h2 PeerPlain)"

in_ns h1 sysctl -qw net.tlt.enabled=1
count_marks r eth1
count_marks r eth2
check "TLT at both ends: data arrive" transfer 10.2.0.1
matches "TLT at both ends: data packets have DSCPs 7, 15, 31 and 47" "^7:[0-9]+ 15:[0-9]+ (31:[0-9]+ )?47:[0-9]+ $" "$(passed eth1)"
matches "TLT at both ends: ACKs have DSCPs 23, 39 and 47" "^23:[0-9]+ (39:[0-9]+ )?47:[0-9]+ $" "$(passed eth2)"
# Rule 5. The SYN is echoed, too, and the last echoes may come after the connection's end.
within "each important packet is echoed" $(($(marked r eth1 15) - 1)) "$(marked r eth1 15)" "$(marked r eth2 23)"
within "each clock byte is echoed" $(($(marked r eth1 31) - 1)) "$(marked r eth1 31)" "$(marked r eth2 39)"
# Rule 8: nc cannot write before the ACK that frees space is handled.
within "a clock byte is sent if no other data may be sent" 1 1000 "$(marked r eth1 31)"
# Rule 14.
in_time equal "no D-SACK of a clock byte reaches the sender" 0 "$(snmp h1 TcpExt TCPDSACKRecv)"
in_time equal "TLT at both ends: no retransmission" 0 "$(snmp h1 Tcp RetransSegs)"
in_time equal "TLT at both ends: no misplaced mark" 0 "$(($(sum h1 BadMark LateEcho) + $(sum h2 BadMark LateEcho)))"

# offloads WORD: segmentation on the way to h2, on or off.
offloads() {
	in_ns h1 ethtool -K eth0 tso "$1" gso "$1"
	in_ns r ethtool -K eth2 tso "$1" gso "$1"
} >/dev/null
offloads on
sent=$(tlt h1 TxUnimportant) got=$(tlt h2 RxUnimportant)
check "bursts: data arrive" transfer 10.2.0.1
equal "bursts: the receiver counts each packet" $(($(tlt h1 TxUnimportant) - sent)) $(($(tlt h2 RxUnimportant) - got))
offloads off

# A sender without SACK cannot tell losses apart.
excluded=$(tlt h2 Excluded) plain=$(tlt h1 PeerPlain)
in_ns h1 sysctl -qw net.ipv4.tcp_sack=0
check "sender without SACK: data arrive" transfer 10.2.0.1
equal "sender without SACK: the receiver excludes the connection" $((excluded + 1)) "$(tlt h2 Excluded)"
equal "sender without SACK: PeerPlain counts the receiver" $((plain + 1)) "$(tlt h1 PeerPlain)"
in_ns h1 sysctl -qw net.ipv4.tcp_sack=1

# If two marks share a DSCP, the first applies, so these packets are no answers.
plain=$(tlt h1 PeerPlain)
set_both net.tlt.dscp_echo=15
check "equal DSCPs: data arrive" transfer 10.2.0.1
equal "equal DSCPs: the connection does not use TLT" $((plain + 1)) "$(tlt h1 PeerPlain)"
set_both net.tlt.dscp_echo=23

# DSCPs of others stay: h2 answers with the DSCP of the SYN, which is not one of its own.
in_ns h1 sysctl -qw net.tlt.dscp_data=46
in_ns h2 sysctl -qw net.ipv4.tcp_reflect_tos=1 net.tlt.negotiate=0
for override in 0 1; do
	in_ns h2 sysctl -qw net.tlt.override_dscp=$override
	count_marks r eth2
	check "override_dscp $override: data arrive" transfer 10.2.0.1
	marks=$(passed eth2)
	case $override in
	0) matches "override_dscp 0 keeps a DSCP that others set" "^46:[0-9]+ $" "$marks" ;;
	1) matches "override_dscp 1 replaces a DSCP that others set" "^23:[0-9]+ (39:[0-9]+ )?47:[0-9]+ $" "$marks" ;;
	esac
done
in_ns h1 sysctl -qw net.tlt.dscp_data=15
in_ns h2 sysctl -qw net.ipv4.tcp_reflect_tos=0 net.tlt.negotiate=1 net.tlt.override_dscp=0

# An agreeing host must echo, so a host at its limit does not agree.
plain=$(tlt h1 PeerPlain) refused=$(tlt h2 TooMany)
in_ns h2 sysctl -qw net.tlt.max_flows=0
drop_marked r eth1 7
before=$(timeouts h1)
check "receiver at max_flows: data arrive" transfer 10.2.0.1
in_time equal "receiver at max_flows: no timeout" "$before" "$(timeouts h1)"
equal "receiver at max_flows: PeerPlain counts it" $((plain + 1)) "$(tlt h1 PeerPlain)"
equal "receiver at max_flows: TooMany counts the connection" $((refused + 1)) "$(tlt h2 TooMany)"
# Concurrent handshakes all get room, and the agreement is kept.
in_ns h2 sysctl -qw net.tlt.max_flows=1
given_up=$(tlt h1 Fallback)
receivers='' senders=''
for port in 5101 5102 5103 5104 5105 5106; do
	receive h2 /tmp/received.$port $port
	receivers="$receivers $receiver"
done
for port in 5101 5102 5103 5104 5105 5106; do
	ip netns exec h1 nc 10.2.0.1 $port </tmp/sent >/dev/null &
	senders="$senders $!"
done
# shellcheck disable=SC2086
wait $senders $receivers
for port in 5101 5102 5103 5104 5105 5106; do
	check "six concurrent connections, port $port: data arrive" cmp /tmp/sent /tmp/received.$port
done
in_time equal "six concurrent connections: no timeout" "$before" "$(timeouts h1)"
in_time equal "six concurrent connections: none abandons TLT" "$given_up" "$(tlt h1 Fallback)"
tc -n r filter del dev eth1 ingress
in_ns h2 sysctl -qw net.tlt.max_flows=65536

# In a VRF each packet passes the hook twice: for the VRF's device, whose queue may hold it, and for its
# egress device. The listener, which is in no VRF, sends.
check "modprobe vrf" modprobe vrf
ip -n h1 link add red type vrf table 10
ip -n h1 link set red up
ip -n h1 link set eth0 master red
ip -n h1 route add default via 10.1.0.2 table 10
in_ns h1 sysctl -qw net.ipv4.tcp_l3mdev_accept=1
same() { cmp -s /tmp/sent /tmp/received; }
for queue in noqueue netem; do
	[ $queue = noqueue ] || check "the VRF's device has a queue" tc -n h1 qdisc add dev red root $queue limit 1000
	count_marks r eth1
	count_marks r eth2
	ip netns exec h1 nc -l -p 5003 </tmp/sent >/dev/null &
	listener=$!
	eventually listens h1 5003
	in_ns h2 nc 10.1.0.1 5003 <&9 >/tmp/received &
	reader=$!
	check "$queue: data of a host in a VRF arrive" eventually same
	kill $reader $listener 2>/dev/null
	wait $reader $listener 2>/dev/null
	within "$queue: packets and clock bytes of a host in a VRF are important" 2 1000 $(($(marked r eth1 15) + $(marked r eth1 31)))
	within "$queue: each important packet of a host in a VRF is echoed" $(($(marked r eth1 15) - 1)) $(($(marked r eth1 15) + 1)) "$(marked r eth2 23)"
done

# Another VRF has the same addresses, as with tenants, and h3 the address of h2.
ip netns add h3
ip -n h1 link add blue type vrf table 11
ip -n h1 link set blue up
ip link add eth3 netns h1 type veth peer name eth0 netns h3
ip -n h1 link set eth3 master blue
ip -n h1 addr add 10.1.0.1/24 dev eth3
ip -n h1 link set eth3 up
ip -n h1 route add default via 10.1.0.2 dev eth3 table 11
ip -n h3 link set lo up
ip -n h3 addr add 10.1.0.2/24 dev eth0
ip -n h3 addr add 10.2.0.1/32 dev lo
ip -n h3 link set eth0 up
ip -n h3 route add 10.1.0.1/32 dev eth0 src 10.2.0.1
in_ns h3 sysctl -qw net.tlt.enabled=1
readers=''
for host in h2 h3; do
	in_ns $host sysctl -qw net.ipv4.ip_local_port_range="4000 4000"
	ip netns exec h1 nc -l -p 5004 </tmp/sent >/dev/null &
	readers="$readers $!"
	eventually listens h1 5004
	in_ns $host nc 10.1.0.1 5004 <&9 >/tmp/received.$host &
	readers="$readers $!"
	check "$host: data arrive in its VRF" eventually cmp /tmp/sent /tmp/received.$host
done
equal "connections of the same ports in two VRFs have separate flows" 2 \
	"$(in_ns h1 grep -c '^10.1.0.1:5004 10.2.0.1:4000 ' /proc/net/tlt)"
# shellcheck disable=SC2086
kill $readers 2>/dev/null
# shellcheck disable=SC2086
wait $readers 2>/dev/null
in_ns h2 sysctl -qw net.ipv4.ip_local_port_range="32768 60999"
ip -n h1 link del blue
ip netns del h3
in_ns h1 sysctl -qw net.ipv4.tcp_l3mdev_accept=0
ip -n h1 link set eth0 nomaster
ip -n h1 link del red
ip -n h1 route add default via 10.1.0.2

# A queue of the host drops all data for a while. TCP must learn that a burst was not sent, even one that was
# split.
tc -n r qdisc add dev eth2 root netem rate 5mbit limit 1000
before=$(snmp h1 Tcp RetransSegs)
receive h2 /tmp/received
in_ns h1 nc 10.2.0.1 5001 </tmp/sent &
sender=$!
sleep 0.1
tc -n h1 qdisc add dev eth0 clsact
tc -n h1 filter add dev eth0 egress protocol ip prio 1 u32 match u16 0 0xff00 at 2 action pass
split=$(tlt h1 GsoSplit)
tc -n h1 filter add dev eth0 egress protocol ip prio 2 u32 match u32 0 0 action drop
sleep 0.4
within "drops by the host: split bursts are dropped" $((split + 1)) 1000000 "$(tlt h1 GsoSplit)"
tc -n h1 qdisc del dev eth0 clsact
wait $sender $receiver
check "drops by the host: data arrive" cmp /tmp/sent /tmp/received
in_time equal "drops by the host: no retransmission" "$before" "$(snmp h1 Tcp RetransSegs)"
tc -n r qdisc del dev eth2 root

# All droppable packets are dropped: only important packets arrive, one per RTT.
dd if=/dev/urandom of=/tmp/sent bs=1000 count=60 2>/dev/null
drop_marked r eth1 7
before=$(timeouts h1)
check "loss of all unimportant packets: data arrive" transfer 10.2.0.1
in_time equal "loss of all unimportant packets: no timeout" "$before" "$(timeouts h1)"
in_time within "loss of all unimportant packets: retransmissions are lost" 1 100000 "$(snmp h1 TcpExt TCPLostRetransmit)"
within "the last segment of a burst is sent separately" 1 100000 "$(tlt h1 GsoSplit)"
tc -n r filter del dev eth1 ingress

# A port that drops the tail of each window. First without TLT: all packets are red.
port() { in_ns r xdc qdisc replace dev eth2 root phantom limit 1mb rate 100mbit mark none red-limit 6kb red-dscp "$1" gso split; }
# drops COLOR: packets dropped by the port.
drops() { in_ns r xdc qdisc show -s dev eth2 | awk -v name="drops_$1" '$1 == name { print $2 }'; }
modprobe sch_phantom
dd if=/dev/urandom of=/tmp/sent bs=1000 count=14 2>/dev/null
check "a port that drops unimportant packets" port 0,7
set_both net.tlt.enabled=0
before=$(timeouts h1)
check "tail drops without TLT: data arrive" transfer 10.2.0.1
in_time within "tail drops without TLT: timeouts" $((before + 1)) 100000 "$(timeouts h1)"
set_both net.tlt.enabled=1
before=$(timeouts h1)
for i in 1 2 3 4 5; do transfer 10.2.0.1 || break; done
equal "tail drops with TLT: data arrive, five times" 5 $i
in_time equal "tail drops with TLT: no timeout" "$before" "$(timeouts h1)"
tc -n r qdisc del dev eth2 root

# A router takes the priority of a packet from its DSCP. The first connection does not use TLT.
tc -n r qdisc add dev eth2 root handle 1: htb default 1
tc -n r class add dev eth2 parent 1: classid 1:1 htb rate 50mbit burst 15k quantum 1514
tc -n r qdisc add dev eth2 parent 1:1 pfifo_fast
for i in 0 1; do
	in_ns h2 sysctl -qw net.tlt.enabled=$i
	receive h2 /tmp/received.$i 510$i
	in_ns h1 timeout 4 nc 10.2.0.1 510$i </dev/zero &
	sleep 0.2
done
sleep 3
plain=$(wc -c </tmp/received.0)
in_time within "pfifo_fast of a router: TLT gets a share" $((plain / 4)) $((plain * 4)) "$(wc -c </tmp/received.1)"
wait
tc -n r qdisc del dev eth2 root

for i in 1 2; do
	ip -n h$i addr add fd0$i::1/64 dev eth0 nodad
	ip -n r addr add fd0$i::2/64 dev eth$i nodad
	ip -n h$i -6 route add default via fd0$i::2
done
in_ns r sysctl -qw net.ipv6.conf.all.forwarding=1
before=$(sum h2 RxData RxClockData)
dd if=/dev/urandom of=/tmp/sent bs=1000 count=300 2>/dev/null
check "data arrive over IPv6" eventually transfer fd02::1
within "data over IPv6 are marked" $((before + 1)) 100000 "$(sum h2 RxData RxClockData)"

# /proc/net/tlt, and `xdc ss`, which joins it with the sockets. Data are delayed until both were read.
rm -f /tmp/go
started() { [ -e /tmp/go ]; }
paused() {
	rm -f /tmp/received
	# Earlier connections have expired.
	eventually alone h1
	eventually alone h2
	receive h2 /tmp/received
	{ head -c 1000 /tmp/sent; eventually started; tail -c +1001 /tmp/sent; } | in_ns h1 nc "$1" 5001 &
	sender=$!
	eventually shows "$2" "$3"
}
# line_of LOCAL REMOTE: line of a connection of h1.
line_of() { in_ns h1 cat /proc/net/tlt | grep -E "^$1 $2 "; }
shows() { line_of "$1" "$2" | grep -q ' pending '; }
alone() { [ "$(in_ns "$1" cat /proc/net/tlt | wc -l)" = 1 ]; }
paused 10.2.0.1 "10\\.1\\.0\\.1:[0-9]+" "10\\.2\\.0\\.1:5001"
equal "/proc/net/tlt names its columns" "local remote sender age_us owes echoes replaced" \
	"$(in_ns h1 head -n 1 /proc/net/tlt)"
matches "a connection that pauses is pending" "^10.1.0.1:[0-9]+ 10.2.0.1:5001 pending 0 none 1 0$" \
	"$(line_of 10.1.0.1:[0-9]+ 10.2.0.1:5001)"
matches "the receiver of a connection that pauses owes no echo" "^10.2.0.1:5001 10.1.0.1:[0-9]+ first 0 none 0 0$" \
	"$(in_ns h2 cat /proc/net/tlt | grep '^10.2.0.1:5001 ')"
equal "another namespace does not show the connection" 1 "$(in_ns r cat /proc/net/tlt | wc -l)"
ss=$(in_ns h1 xdc ss --dport 5001 --json)
matches "xdc ss --json shows TLT's state with the socket" '"tlt":\{"sender":"pending","age_us":0,"owes":"none","echoes":1,"replaced":0\}' "$ss"
matches "xdc ss shows TLT's state as text" "TLT pending, 1 echoes" "$(in_ns h1 xdc ss --dport 5001)"
matches "xdc ss --netns shows TLT's state" '"netns":"h1".*"tlt":' "$(xdc ss --netns h1 --dport 5001 --json)"
touch /tmp/go
wait $sender $receiver
check "paused data arrive over IPv4" cmp /tmp/sent /tmp/received
rm -f /tmp/go
paused fd02::1 "\\[fd01::1\\]:[0-9]+" "\\[fd02::1\\]:5001"
matches "xdc ss shows TLT's state of an IPv6 connection" '"tlt":' "$(in_ns h1 xdc ss --dport 5001 --json)"
touch /tmp/go
wait $sender $receiver
check "paused data arrive over IPv6" cmp /tmp/sent /tmp/received

# A peer that stops echoing: droppable packets are always dropped, until the sender ends TLT.
rm -f /tmp/go
paused 10.2.0.1 "10\\.1\\.0\\.1:[0-9]+" "10\\.2\\.0\\.1:5001"
in_ns h2 sysctl -qw net.tlt.enabled=0
drop_marked r eth1 7
before=$(timeouts h1) given_up=$(tlt h1 Fallback)
touch /tmp/go
wait $sender $receiver
check "peer that stops echoing: data arrive" cmp /tmp/sent /tmp/received
equal "peer that stops echoing: the sender abandons TLT" $((given_up + 1)) "$(tlt h1 Fallback)"
in_time within "peer that stops echoing: eight timeouts pass" $((before + 8)) $((before + 9)) "$(timeouts h1)"
tc -n r filter del dev eth1 ingress
in_ns h2 sysctl -qw net.tlt.enabled=1

equal "no connection lacks memory" 0 "$(($(tlt h1 NoMem) + $(tlt h2 NoMem)))"

# start_flows N: opens N connections with data in flight.
start_flows() {
	pids=
	for i in $(seq "$1"); do
		receive h2 /tmp/received.$i $((6000 + i))
		pids="$pids $receiver"
		in_ns h1 nc 10.2.0.1 $((6000 + i)) </tmp/sent &
		pids="$pids $!"
	done
}
all_arrived() {
	for i in $(seq "$1"); do cmp /tmp/sent /tmp/received.$i || return 1; done
}

in_ns r xdc qdisc add dev eth2 root phantom limit 300kb rate 50mbit mark none red-limit 60kb red-dscp 7 gso split
start_flows 30
in_time within "30 flows: many take part" 5 100 "$(tlt h1 Flows)"
check "30 flows: rmmod tlt" rmmod tlt
wait $pids
check "30 flows: data arrive after rmmod" all_arrived 30
check "modprobe tlt again" modprobe tlt
set_both net.tlt.enabled=1
before=$(timeouts h1)
# Without the module all packets were green.
green=$(drops green)
start_flows 30
wait $pids
check "30 flows: data arrive" all_arrived 30
in_time equal "30 flows: no timeout" "$before" "$(timeouts h1)"
in_time within "30 flows: unimportant packets are dropped" 1 100000 "$(drops red)"
in_time equal "30 flows: no important packet is dropped" "$green" "$(drops green)"
closed() { [ "$(tlt h1 Flows)$(tlt h2 Flows)" = 00 ]; }
# Rule 9, and the retries of sockets in use.
in_time within "30 flows: lost segments are retransmitted beyond cwnd" 1 100000 "$(tlt h1 ForcedRetrans)"
within "30 flows: sockets in use are retried" 1 100000 "$(sum h1 OwnedRetry)"
in_time equal "30 flows: no unexpected echo" 0 "$(sum h1 BadMark LateEcho)"
check "30 flows: closed connections are forgotten" eventually closed
start_flows 30
for ns in h1 h2 r; do ip netns del $ns; done
kill $pids 2>/dev/null
wait
check "rmmod tlt after the namespaces ended" rmmod tlt
matches "the kernel log has no warning" "^$" "$(dmesg | grep -E 'WARNING|BUG|unregister_netdevice' | head -3)"
finish
