#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml | x86
# covers: userspace-tools/tc-plugin userspace-tools/netlink modules/net/sched/phantom_options.rs
# covers: modules/include/uapi
# Stock tc with q_phantom.so: its options, output and errors; each value equals that of `xdc qdisc` and the
# kernel. docs/man/tc-phantom.8
. "$(dirname "$0")/lib.sh"

modprobe sch_phantom
ip link add d0 type dummy
ip link set d0 up
phantom="tc qdisc add dev d0 root phantom"

matches "tc is the distribution's" "^tc utility, iproute2-" "$(tc -V)"
help=$(tc qdisc add phantom help 2>&1)
matches "help without a device" "^Usage: \.\.\. phantom \[ OPTION VALUE \]" "$help"
equal "help with a device" "$help" "$($phantom help 2>&1)"

# shellcheck disable=SC2120 # Most callers have no argument for tc.
# options: the options as tc prints them, without the qdisc's place.
options() { tc "$@" qdisc show dev d0 | sed -n 's/^qdisc phantom [^ ]* root refcnt [0-9]* //p'; }
# shellcheck disable=SC2120
values() { tc "$@" -j qdisc show dev d0; }

check "add with defaults" $phantom
matches "every default is printed with its unit" \
	"^limit [0-9.]+[kmg]?b rate 0bit overhead 0 mpu 0 line-rate 0bit phantom .* pool-alpha [0-9.]+ seed [0-9]+ $" "$(options)"
refuses "add of a second root is refused" "Exclusivity flag on" $phantom
check "del" tc qdisc del dev d0 root

full="limit 1mb rate 1gbit overhead 24 mpu 64 line-rate 10gbit phantom 22400kb drain 90% pmin 2% pmax 60% \
mark either at enqueue min 25% max 75% ecn-drop on count-acks off red-limit 400kb yellow-limit 600kb \
color-total on color dscp red-dscp 8 yellow-dscp 10 gso split pool tor pool-limit 4mb pool-alpha 0.5 seed 18446744073709551615"
check "add with every option" $phantom $full
# shellcheck disable=SC2046
equal "show prints each of them, in the order of the help" "$full" "$(echo $(options))"
equal "xdc qdisc shows the same options" "$full" "$(xdc qdisc show dev d0 | sed -n 's/^qdisc phantom [^ ]* dev d0 root //p')"

# The output of show is valid input for replace, for change, and after del.
# shellcheck disable=SC2046
for verb in replace change add; do
	typed=$(options)
	[ $verb != add ] || tc qdisc del dev d0 root
	check "$verb accepts show's output" tc qdisc $verb dev d0 root phantom $typed
	equal "show prints the same options after $verb" "$typed" "$(options)"
done
check "change of one value" tc qdisc change dev d0 root phantom pmax 50%
equal "a change of one value keeps the others" "$(echo "$full" | sed 's/pmax 60%/pmax 50%/')" "$(echo $(options))"
# tc -oneline ends such a line with a backslash, and no line with a newline.
equal "-oneline prints one line" 0 "$(tc -o -s qdisc show dev d0 | wc -l)"

json=$(values)
at=
for word in kind '"phantom"' root true options/limit_bytes 1048576 options/rate_bytes_per_s 125000000 \
	options/overhead_bytes 24 options/drain_ppm 900000 options/pmax_ppm 500000 options/mark '"either"' \
	options/ecn_drop true options/count_acks false options/dscp_red '"8"' options/dscp_yellow '"10"' \
	options/pool '"tor"' options/pool_alpha_ppm 500000 options/seed 18446744073709551615; do
	[ -n "$at" ] || { at=$word; continue; }
	equal "-j has $at" "$word" "$(echo "$json" | xdc-witness json "/0/$at")"
	at=
done
equal "-j has the options that xdc qdisc --json has" \
	"$(xdc qdisc show dev d0 --json | xdc-witness json /0/options)" \
	"$(echo "$json" | xdc-witness json /0/options)"
check "a negative overhead is accepted" tc qdisc change dev d0 root phantom overhead -14
equal "a negative overhead is negative in JSON" -14 "$(values | xdc-witness json /0/options/overhead_bytes)"
check "-j -p prints JSON" eval 'values -p | xdc-witness json /0/options/limit_bytes'
check "-j -s prints JSON" eval 'values -s | xdc-witness json /0/drops_limit'
tc qdisc del dev d0 root

# Statistics after traffic.
pair
check "a port with traffic" tc -n h1 qdisc add dev eth0 root phantom limit 20kb rate 10mbit
in_ns h1 ping -q -c 40 -i 0.01 -s 1400 10.9.0.2 >/dev/null
# Hosts may still resolve neighbors: compare only values that are equal before and after.
for try in 1 2 3 4 5 6 7 8 9 10; do
	text=$(tc -n h1 -s qdisc show dev eth0)
	json=$(tc -n h1 -s -j qdisc show dev eth0)
	ours=$(in_ns h1 xdc qdisc show -s dev eth0 --json)
	[ "$text" != "$(tc -n h1 -s qdisc show dev eth0)" ] || break
	sleep "0.$try"
done
matches "-s prints tc's counters" "Sent [1-9][0-9]* bytes [1-9][0-9]* pkt" "$text"
matches "-s prints phantom's counters, a line for each group" "^  drops_limit 0 drops_pool 0 drops_ecn 0$" "$text"
matches "-s counts bytes by color" "bytes_green [1-9][0-9]+ bytes_yellow 0 bytes_red 0" "$text"
for name in bytes_green busy_ns backlog_max_bytes; do
	want=$(echo "$ours" | xdc-witness json /0/xstats/$name)
	matches "$name is not 0" "^[1-9]" "$want"
	equal "-s -j has $name as xdc has it" "$want" "$(echo "$json" | xdc-witness json /0/$name)"
	matches "-s has $name as xdc has it" "(^| )$name $want( |$)" "$text"
done
equal "text has rates in bits" "phantom_drain 9mbit" "$(echo "$text" | grep -o 'phantom_drain [^ ]*')"
equal "JSON has rates in bytes" 1125000 "$(echo "$json" | xdc-witness json /0/phantom_drain_bytes_per_s)"
# Input for an independent reader: selftests/host/ynl has the kernel's tool read this on the host, and
# compares. There are qdiscs of other kinds, too.
check "every option can be set after traffic" tc -n h1 qdisc change dev eth0 root phantom $full
ip -n h1 link add d1 up type dummy
check "a device with another qdisc" tc -n h1 qdisc add dev d1 root fq_codel
echo "# ynl dump: $(in_ns h1 xdc-witness raw dump)"
echo "# ynl expects: $(in_ns h1 xdc qdisc show -s dev eth0 --json | tr -d '\n ')"
# Beside a qdisc of another kind, with tc's own plugin.
tc -n h1 qdisc replace dev eth0 root handle 1: prio
check "phantom can be a child" tc -n h1 qdisc add dev eth0 parent 1:1 handle 10: phantom rate 10mbit limit 30kb
matches "tc shows the child" "qdisc phantom 10: parent 1:1 limit 30kb" "$(tc -n h1 qdisc show dev eth0)"
check "tc -j shows the child" eval 'tc -n h1 -s -j qdisc show dev eth0 | xdc-witness json /1/options/limit_bytes'
printf 'qdisc change dev eth0 parent 1:1 phantom limit %s\n' 40kb 50kb >/tmp/batch
check "tc -batch changes options" tc -n h1 -b /tmp/batch
matches "the last line of a batch applies" "limit 50kb" "$(tc -n h1 qdisc show dev eth0)"
unpair

# Errors: the texts of the plugin, and the kernel's through tc.
says() {
	want=$1
	shift
	refuses "refuses: $*" "$want" $phantom "$@"
}
says '^Error: argument "big" is wrong: limit: .big. is not a size' limit big
says '^Error: argument "1.5" is wrong: drain: .1.5. is not a fraction' drain 1.5
says '^Command line is not complete: "rate" has no value' rate
says '^What is "speed"\?$' speed 1gbit
says 'not one of none, phantom, physical, either, both' mark sometimes
says '^Error: pmin must not exceed pmax\.$' rate 1gbit pmin 70% pmax 60%
says '^Error: pool must be a name of at most 15 bytes\.$' rate 1gbit pool abcdefghijklmnop pool-limit 1mb
equal "refused requests attach nothing" "" "$(options)"

ip link del d0
check "rmmod sch_phantom" eventually rmmod sch_phantom
finish
