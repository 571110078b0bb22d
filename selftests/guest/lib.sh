# SPDX-License-Identifier: GPL-2.0
# Sourced by the guest's selftests (POSIX sh, busybox): KTAP 1 on stdout, one
# line a case. A test file sources this, runs its cases, ends with `finish`.

n=0
failed=0
echo "KTAP version 1"

result() {
	n=$((n + 1))
	if [ "$1" -eq 0 ]; then
		echo "ok $n $2"
	else
		failed=$((failed + 1))
		echo "not ok $n $2"
	fi
}

# check DESCRIPTION CMD...: passes if CMD succeeds; shows its output if not.
check() {
	what=$1
	shift
	out=$("$@" 2>&1)
	rc=$?
	result $rc "$what"
	[ $rc -eq 0 ] || echo "$out" | sed "s/^/# [$(echo "$*" | tr / :)] /"
}

# refuses DESCRIPTION PATTERN CMD...: passes if CMD fails and its output matches the extended regular
# expression. A missing CMD, or one ended by a signal, does not pass.
refuses() {
	what=$1 pattern=$2
	shift 2
	out=$("$@" 2>&1)
	rc=$?
	if [ $rc -ne 0 ] && [ $rc -lt 126 ] && echo "$out" | grep -qE -- "$pattern"; then
		result 0 "$what"
	else
		result 1 "$what"
		echo "# '$*' exited with $rc, without a match of /$pattern/: $out"
	fi
}

# equal DESCRIPTION WANT GOT
equal() {
	if [ "$2" = "$3" ]; then
		result 0 "$1"
	else
		result 1 "$1"
		echo "# want '$2', got '$3'"
	fi
}

# matches DESCRIPTION PATTERN TEXT: extended regular expression.
matches() {
	if echo "$3" | grep -qE -- "$2"; then
		result 0 "$1"
	else
		result 1 "$1"
		echo "# no match of /$2/ in:"
		echo "$3" | sed 's/^/#   /'
	fi
}

# within DESCRIPTION LOW HIGH GOT: integers, bounds included.
within() {
	if [ "${4:-x}" -ge "$2" ] 2>/dev/null && [ "$4" -le "$3" ]; then
		result 0 "$1"
	else
		result 1 "$1"
		echo "# want $2 to $3, got '$4'"
	fi
}

# eventually CMD...: waits until CMD succeeds, 60 s at most.
eventually() {
	tries=300
	until "$@" >/dev/null 2>&1; do
		tries=$((tries - 1))
		[ $tries -gt 0 ] || return 1
		sleep 0.2
	done
}

# ours KIND: names of that kind's modules that `make install` installs.
ours() {
	sed -nE "/^ +$1 .*;\$/ { /\"\.\.\/(tools|\.\.)\//d; s/^ +[a-z]+ +([a-z0-9_]+) .*/\1/p }" /selftests/list.rs
}
our_ccs() { ours cc | sed 's/^tcp_//'; }

# is_available CC. A module loaded while RTNL was held is usable a little later
# (modules/rust/kernel/net/deferred.rs).
is_available() { sysctl_get net.ipv4.tcp_available_congestion_control | grep -qw "$1"; }
# load CC...: loads the modules.
load() {
	for cc in "$@"; do modprobe "tcp_$cc" && eventually is_available "$cc" || return; done
}

# unload MODULE...: one at a time, because busybox's rmmod stops at the first missing one.
unload() {
	for module in "$@"; do check "rmmod $module" eventually rmmod "$module"; done
}

sysctl_get() { cat "/proc/sys/$(echo "$1" | tr . /)"; }
sysctl_set() { echo "$2" >"/proc/sys/$(echo "$1" | tr . /)"; }

# pair: two hosts h1 and h2 with 10.9.0.1 and 10.9.0.2, fd09::1 and fd09::2.
pair() {
	ip netns add h1 && ip netns add h2
	ip link add eth0 netns h1 type veth peer name eth0 netns h2
	for i in 1 2; do
		ip -n h$i addr add 10.9.0.$i/24 dev eth0
		ip -n h$i addr add fd09::$i/64 dev eth0 nodad
		ip -n h$i link set lo up
		ip -n h$i link set eth0 up
		ip netns exec h$i ethtool -K eth0 tso off gso off gro off >/dev/null
	done
}

unpair() {
	# Packets in flight would hold their socket and its module for an RTO.
	for ns in h1 h2; do in_ns $ns ss -KatnH >/dev/null; done
	ip netns del h1
	ip netns del h2
}

# racks: h1 with bond0 of two uplinks, eps and ocs, like a rack's switch; h2 plays all other racks,
# 10.9.RACK.2.
racks() {
	ip netns add h1 && ip netns add h2
	ip -n h1 link add bond0 type bond mode balance-rr
	for way in eps ocs; do
		ip link add $way netns h1 type veth peer name $way netns h2
		ip -n h2 link set $way address 02:00:00:00:00:02 up
		ip -n h1 link set $way master bond0
		for host in h1 h2; do
			in_ns $host ethtool -K $way tso off gso off gro off >/dev/null
			in_ns $host sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.$way.rp_filter=0
		done
	done
	in_ns h1 sh -c 'echo eps:1 >/sys/class/net/bond0/bonding/queue_id; echo ocs:2 >/sys/class/net/bond0/bonding/queue_id'
	ip -n h1 addr add 10.9.0.1/16 dev bond0
	ip -n h1 link set bond0 up
	mac=$(in_ns h1 cat /sys/class/net/bond0/address)
	ip -n h2 neigh add 10.9.0.1 lladdr "$mac" dev eps
	ip -n h2 addr add 10.9.255.2/16 dev eps
	for rack in 1 2 3; do
		ip -n h2 addr add 10.9.$rack.2/32 dev lo
		ip -n h1 neigh add 10.9.$rack.2 lladdr 02:00:00:00:00:02 dev bond0
	done
	ip -n h2 link set lo up
}
# counter NAME: counter of the acceltor in tc -s's output on standard input.
counter() {
	awk -v name="$1" '/^  [a-z_]+ [0-9]/ { for (i = 1; i < NF; i += 2) if ($i == name) print $(i + 1) }'
}
# tunnel_counter NS NAME: counter of the tunnel in NS.
tunnel_counter() {
	in_ns "$1" ethtool -S u0 | awk -v name="$2:" '$1 == name { print $2 }'
}
# rack_stat NAME: counter of bond0's acceltor.
rack_stat() { tc -n h1 -s qdisc show dev bond0 | counter "$1"; }
has_more() { [ "$(rack_stat "$1")" -gt "$2" ]; }
# moves COUNTER: waits until it grows.
moves() { eventually has_more "$1" "$(rack_stat "$1")"; }
# flow_to RACK PAUSE BYTES: sends BYTES of /tmp/piece to RACK after each pause, while /tmp/busy exists. Adds
# its processes to $senders. Without a pause virtual time stops unless a rate is limited.
flow_to() {
	ip netns exec h2 nc -l -p 500$1 <&9 >/dev/null &
	senders="$senders $!"
	eventually listens h2 500$1
	while [ -e /tmp/busy ]; do sleep "$2"; head -c "$3" /tmp/piece; done | in_ns h1 nc 10.9.$1.2 500$1 &
	senders="$senders $!"
}

# routed: h1 (10.1.0.1) and h2 (10.2.0.1) with r between them, whose eth1 and eth2 lead to them. The way to h1
# takes 1 ms.
routed() {
	for ns in h1 r h2; do ip netns add $ns; done
	for i in 1 2; do
		ip link add eth0 netns h$i type veth peer name eth$i netns r
		ip -n h$i addr add 10.$i.0.1/24 dev eth0
		ip -n r addr add 10.$i.0.2/24 dev eth$i
		ip -n h$i link set eth0 up
		ip -n r link set eth$i up
		ip -n h$i route add default via 10.$i.0.2
		in_ns h$i ethtool -K eth0 tso off gso off gro off >/dev/null
		in_ns r ethtool -K eth$i tso off gso off gro off >/dev/null
	done
	in_ns r sysctl -qw net.ipv4.ip_forward=1
	tc -n r qdisc add dev eth1 root netem delay 1ms limit 10000
}

# in_ns NAME CMD...
in_ns() {
	ns=$1
	shift
	ip netns exec "$ns" "$@"
}

# in_first_ns CMD...: a test has its own namespace; kernel threads stay in the first one.
in_first_ns() { nsenter --net=/proc/2/ns/net "$@"; }

# snmp NAME GROUP COUNTER: value from /proc/net/snmp or netstat, which have a line of names before each line
# of values.
snmp() {
	in_ns "$1" cat /proc/net/snmp /proc/net/netstat | awk -v group="$2:" -v name="$3" '
		$1 != group { next }
		!column { for (i = 2; i <= NF; i++) if ($i == name) column = i; next }
		{ print $column; exit }'
}

# allow CC...: like dctcp, ours must be allowed for other namespaces in the first one.
allow() {
	in_first_ns sysctl -qw "net.ipv4.tcp_allowed_congestion_control=reno cubic $*"
}

# choose NAME CC ECN: settings of a namespace's new sockets.
choose() {
	in_ns "$1" sysctl -qw net.ipv4.tcp_congestion_control="$2" net.ipv4.tcp_ecn="$3"
}

# nc half-closes its connection when its input ends. This input never ends.
silence=/tmp/silence
[ -p $silence ] || mkfifo $silence
exec 9<>$silence

listens() { [ -n "$(in_ns "$1" ss -ltnH sport = :"$2")" ]; }

# receive NAME FILE [PORT]: writes the next connection to PORT, else 5001, to FILE, which is complete when
# `wait $receiver` returns.
receive() {
	ip netns exec "$1" nc -l -p "${3:-5001}" <&9 >"$2" &
	receiver=$!
	eventually listens "$1" "${3:-5001}"
}

# transfer ADDRESS: sends /tmp/sent from h1 to h2.
transfer() {
	receive h2 /tmp/received
	in_ns h1 nc "$1" 5001 </tmp/sent
	wait $receiver
	cmp /tmp/sent /tmp/received
}

finish() {
	echo "1..$n"
	[ "$failed" -eq 0 ]
	exit
}
