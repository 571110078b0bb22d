# SPDX-License-Identifier: GPL-2.0
# Sourced by the guest's selftests (busybox sh): KTAP 1 on stdout, one line a
# case. A test file sources this, runs its cases, ends with `finish`.

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
	[ $rc -eq 0 ] || echo "$out" | sed "s/^/# [$*] /"
}

# refuses DESCRIPTION CMD...: passes if CMD fails.
refuses() {
	what=$1
	shift
	if out=$("$@" 2>&1); then
		result 1 "$what"
		echo "# '$*' succeeded: $out"
	else
		result 0 "$what"
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
		echo "# no /$2/ in:"
		echo "$3" | sed 's/^/#   /'
	fi
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

unpair() { ip netns del h1; ip netns del h2; }

# in_ns NAME CMD...
in_ns() {
	ns=$1
	shift
	ip netns exec "$ns" "$@"
}

finish() {
	echo "1..$n"
	[ "$failed" -eq 0 ]
	exit
}
