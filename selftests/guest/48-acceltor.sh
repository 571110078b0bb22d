#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml
# covers: modules/net/sched/*acceltor*.rs modules/algo/acceltor.rs
# covers: modules/include/uapi/linux/pkt_acceltor.h modules/Documentation/netlink/specs/acceltor.yaml
# covers: userspace-tools/tc-plugin
# sch_acceltor on a bond of two uplinks: options, refusals with their reasons, changes under traffic, and
# conservation of packets at any time. docs/acceltor.md
. "$(dirname "$0")/lib.sh"

modprobe bonding max_bonds=0
modprobe sch_acceltor

# Options

ip link add bond0 type bond mode balance-rr
ip link add d0 type dummy

# acceltor OPTIONS...: adds the qdisc to the bond.
acceltor() { tc qdisc add dev bond0 root handle 1: acceltor "$@"; }
del() { tc qdisc del dev bond0 root; }
# The options as tc prints them.
options() { tc qdisc show dev bond0 | sed -n 's/^qdisc acceltor [^ ]* root refcnt [0-9]* //p'; }

check "add with racks alone" acceltor racks 8
matches "every default is printed with its unit" \
	"^racks 8 rack 0 prefix none day 240us night 20us base-time 0 clockid TAI peers auto ocs-rate 80gbit .* ecn 0b $" \
	"$(options)"
del
full="racks 8 rack 3 prefix 10.0.1.0/24=1,fd00:2::/32=2 day 24ms night 2ms base-time -5 clockid MONOTONIC \
peers 4,5,6,7,0,1,2 ocs-rate 200mbit eps-rate 125mbit rtt 6ms k 4 hp 40kb lp 41kb limit 122kb policy blocking \
detect dscp dscp 8,46 elephants 37 idle 1s sketch-bytes 225000b overflow lp rescue on guard 1us lead 500ns ecn 97500b"
check "add with every option" acceltor $full
# shellcheck disable=SC2046
equal "show prints each of them, in the order of the help" "$full" "$(echo $(options))"
# shellcheck disable=SC2046
for verb in replace change add; do
	typed=$(options)
	[ $verb != add ] || del
	check "$verb accepts show's output" tc qdisc $verb dev bond0 root acceltor $typed
	equal "show prints the same options after $verb" "$typed" "$(options)"
done
check "-j is JSON" eval 'tc -j -s qdisc show dev bond0 | xdc-witness json /0/options/circuit_bytes_per_s /0/packets_in'

before=$(options)
refused() {
	why=$1
	shift
	refuses "refuses $*" "$why" tc qdisc change dev bond0 root acceltor "$@"
}
refused '^Error: racks must be between 2 and 1024' racks 1
refused '^Error: rack must be less than racks' rack 8
refused '^Error: day must be between 1000 and 1000000000 ns' day 2s
refused '^Error: k must be between 1 and 64' k 65
refused '^Error: limit must be between 2000 and 1000000000 bytes' limit 1999b
refused '^Error: ocs-rate must be between 1 ' ocs-rate 0bit
refused '^Error: rtt must be between 1000 ' rtt 999ns
refused '^Error: elephants must be between 0 and 4096' elephants 4097
refused '^Error: guard must be at most half of a day' guard 13ms
refused '^Error: lead must be at most half of a day' lead 12001us
refused '^Error: clockid cannot be changed' clockid tai
refused 'not one of REALTIME, TAI, BOOTTIME, MONOTONIC' clockid CLOCK_MONOTONIC_RAW
refused '^Error: peers must name each other rack once' peers 1,2
refused '^Error: peers must name each other rack once' peers 4,5,6,7,0,1,3
refused '^Error: rack of a prefix must be less than racks' prefix 10.0.0.0/8=8
refused '^Error: prefixes must not overlap' prefix 10.0.0.0/8=1,10.1.0.0/16=2
refused '^Error: prefix must have no bit beyond its length' prefix 10.0.0.1/8=1
refused 'not one of acceltor, blocking, unblocking, packet' policy sometimes
equal "refused requests change nothing" "$before" "$(options)"
del
refuses "add without racks is refused" "^Error: racks must be given" tc qdisc add dev bond0 root acceltor
refuses "1024 racks with 4096 elephants each are refused" "^Error: elephants of all racks must be at most" \
	acceltor racks 1024 elephants 4096
refuses "a device with one transmit queue is refused" "3 transmit queues" tc qdisc add dev d0 root acceltor racks 8
tc qdisc add dev bond0 root handle 1: prio
refuses "acceltor below a parent is refused" "must be the root" tc qdisc add dev bond0 parent 1:1 acceltor racks 8
del
for racks in 2 3 72 128 1024; do
	check "add with $racks racks" acceltor racks $racks elephants 80
	del
done
ip link del bond0
ip link del d0

# Traffic: h1 has the bond, and h2 plays all other racks.

racks

# 26 ms a slot, four racks: a week of 78 ms.
slow="racks 4 rack 0 prefix 10.9.1.0/24=1,10.9.2.0/24=2,10.9.3.0/24=3 day 24ms night 2ms ocs-rate 80mbit eps-rate 40mbit \
rtt 6ms k 2 hp 150kb lp 150kb limit 60kb detect filter"
check "add acceltor to the bond" tc -n h1 qdisc add dev bond0 root handle 1: acceltor $slow clockid tai
tc -n h1 filter add dev bond0 parent 1: protocol ip u32 match ip dst 10.9.1.2/32 classid 1:2

# Packets neither sent, queued nor dropped, from tc -s on standard input.
missing() {
	awk '
		/^  [a-z_]+ [0-9]/ { for (i = 1; i < NF; i += 2) v[$i] = $(i + 1) }
		END {
			for (name in v) if (name ~ /^(packets_|drops_)/ && name != "packets_in") out += v[name]
			print v["packets_in"] - out
		}'
}
unaccounted() { tc -n h1 -s qdisc show dev bond0 | missing; }
# accounted DESCRIPTION: packets are conserved at any time, so it checks often.
accounted() {
	odd=0
	for _ in 1 2 3 4 5 6; do
		[ "$(unaccounted)" = 0 ] || odd=$((odd + 1))
		sleep 0.013
	done
	equal "$1: each packet is accounted for" 0 $odd
}

dd if=/dev/urandom of=/tmp/piece bs=1000 count=200 2>/dev/null
touch /tmp/busy
senders=
in_ns h1 sysctl -qw net.ipv4.tcp_frto=0 net.ipv4.tcp_early_retrans=0
# Mice come first: without pauses they would leave no capacity for acceleration.
flow_to 1 0.001 200000
flow_to 2 0.2 200000
check "an elephant takes the circuit" moves packets_circuit
check "an elephant is accelerated before its day" moves packets_low
check "a mouse takes the packet network" moves packets_high
check "packets that come too early are dropped" moves drops_blocked
accounted "with an elephant and a mouse"
left=$(in_ns h1 cat /sys/class/net/ocs/statistics/tx_packets)
sent=$(rack_stat packets_circuit)
within "packets_circuit is near the packets of the circuit's slave" "$left" "$((left + 60))" "$sent"

change() { tc -n h1 qdisc change dev bond0 root acceltor "$@"; }
for new in "k 1" "k 3" "limit 30kb" "day 10ms" "night 1ms" "base-time 12345" "peers 3,2,1" "peers auto" "rack 3" "rack 0" \
	"policy blocking" "policy unblocking" "policy packet" "policy acceltor" "rescue on" "overflow lp" "ecn 20kb" \
	"eps-rate 0bit" "eps-rate 20mbit" "ocs-rate 40mbit" "racks 8" "elephants 5" "detect sketch" "detect filter" "lead 1ms" "guard 1ms"; do
	# shellcheck disable=SC2086
	check "change under traffic: $new" change $new
	accounted "$new"
done
change $slow clockid tai
check "after the changes the elephant takes the circuit" moves packets_circuit

# The clock is set in both directions.
# shellcheck disable=SC2034
for by in 1 -1 3600 -3600 31536000 -31536000; do
	jumps=$(rack_stat clock_jumps)
	date -s "@$(($(date +%s) + by))" >/dev/null
	check "the clock is set by $by s: the elephant takes the circuit" moves packets_circuit
	[ $by -gt 0 ] || within "the clock is set by $by s: clock_jumps counts it" $((jumps + 1)) $((jumps + 1000)) "$(rack_stat clock_jumps)"
	accounted "the clock is set by $by s"
done

# A slave is down: the bond uses the other one.
ip -n h1 link set ocs down
accounted "the slave to the circuit switch is down"
check "the circuit's slave is down: the elephant takes the other one" moves packets_circuit
ip -n h1 link set ocs up

# Down and up: queued packets are dropped and counted.
ip -n h1 link set bond0 down
equal "bond down: each packet is accounted for" 0 "$(unaccounted)"
equal "bond down: no packet is queued" 0 "$(rack_stat packets_queued)"
ip -n h1 link set bond0 up
for rack in 1 2 3; do ip -n h1 neigh replace 10.9.$rack.2 lladdr 02:00:00:00:00:02 dev bond0; done
check "bond up: the mouse takes the packet network" moves packets_high
check "del under traffic" tc -n h1 qdisc del dev bond0 root
for racks in 4 128; do
	# shellcheck disable=SC2086
	check "$racks racks under traffic" tc -n h1 qdisc replace dev bond0 root handle 1: acceltor $slow racks $racks detect sketch \
		sketch-bytes 20kb
	check "$racks racks under traffic: packets pass" moves packets_high
	accounted "$racks racks"
done
check "the sketch finds an elephant" eventually has_more promoted 0
rm -f /tmp/busy
# shellcheck disable=SC2086
kill $senders 2>/dev/null
wait $senders 2>/dev/null
ip netns del h1
ip netns del h2

# On a device without a network: which connectionless packets leave, and when.

modprobe xdc_nic
nic() { echo "$2" >"/sys/module/xdc_nic/parameters/$1"; }
sysctl -qw net.ipv6.conf.default.disable_ipv6=1
ip link add nic0 numtxqueues 4 type xdc_nic
ip addr add 10.9.0.1/16 dev nic0
ip link set nic0 up
for rack in 1 2; do ip neigh replace 10.9.$rack.2 lladdr 02:00:00:00:00:02 dev nic0; done
# port OPTIONS...: a new qdisc for three racks.
port() {
	tc qdisc del dev nic0 root 2>/dev/null
	tc qdisc add dev nic0 root handle 1: acceltor racks 3 prefix 10.9.1.0/24=1,10.9.2.0/24=2 clockid monotonic detect dscp dscp 0 \
		limit 500kb "$@"
}
port_change() { tc qdisc change dev nic0 root acceltor "$@"; }
nic_stat() { tc -s qdisc show dev nic0 | counter "$1"; }
# elephants|mice COUNT [BYTES [INTERVAL_US]]: packets for rack 1, with BYTES after 54 of headers.
elephants() { xdc-witness packets tcp 10.9.1.2 "${2:-960}" "$1" "${3:-0}"; }
mice() { xdc-witness packets udp 10.9.1.2 "${2:-960}" "$1" "${3:-0}"; }
# at WEEK PHASE: waits until PHASE ms of a week of WEEK ms have passed.
at() { until awk -v week="$1" -v phase="$2" '{ left = $1 * 1000 % week - phase; exit !(left >= 0 && left < 25) }' /proc/uptime; do sleep 0.005; done; }

# The schedule's clock is set back by an hour, and no packet arrives after that.
port day 24ms night 2ms eps-rate 800kbit clockid tai
mice 20
within "mice wait for their port" 15 20 "$(nic_stat packets_queued)"
date -s "@$(($(date +%s) - 3600))" >/dev/null
sleep 1
equal "the clock is set back: waiting mice leave" "0 20" "$(nic_stat packets_queued) $(nic_stat packets_high)"
date -s "@$(($(date +%s) + 3600))" >/dev/null
port day 240ms night 20ms rtt 1s k 4 ocs-rate 80kbit clockid tai
elephants 10
within "elephants wait for their day" 5 10 "$(nic_stat packets_queued)"
date -s "@$(($(date +%s) - 3600))" >/dev/null
sleep 2
equal "the clock is set back: waiting elephants leave" 0 "$(nic_stat packets_queued)"
date -s "@$(($(date +%s) + 3600))" >/dev/null

# A base time of 35 days: the time of day is after it, and the time since the boot before it.
for clock in "REALTIME 5 0" "TAI 5 0" "BOOTTIME 0 5" "MONOTONIC 0 5"; do
	port day 24ms night 2ms rtt 1s k 64 base-time 3000000000000000 clockid ${clock%% *}
	elephants 5
	sleep 0.3
	equal "${clock%% *} is the clock of the schedule" "${clock#* }" "$(nic_stat packets_circuit) $(nic_stat packets_low)"
done

# 1 ms a packet of 1000 bytes.
port racks 2 prefix 10.9.1.0/24=1 day 1ms night 0ns ocs-rate 8mbit policy blocking
elephants 1 1300
elephants 20 60
sleep 1
equal "blocking: a packet longer than a day does not block others" "20 1 0" \
	"$(nic_stat packets_circuit) $(nic_stat drops_stale) $(nic_stat packets_queued)"
# 135 ms and 11 ms a packet, in a day of 100 ms.
port racks 2 prefix 10.9.1.0/24=1 day 100ms night 0ns ocs-rate 80kbit policy unblocking
at 100 0
elephants 1 1300
elephants 3 60
sleep 1
equal "unblocking: a packet longer than a day takes the packet network" "3 1 0" \
	"$(nic_stat packets_circuit) $(nic_stat packets_high) $(nic_stat drops_stale)"

# 200 ms a packet, in a day of 300 ms.
port racks 2 prefix 10.9.1.0/24=1 day 300ms night 300ms ocs-rate 40560bit policy blocking
at 600 150
elephants 1
at 600 550
equal "blocking: missed_days counts a day in which waiting packets were not sent" "1 0" "$(nic_stat missed_days) $(nic_stat packets_circuit)"
at 600 250
equal "blocking: missed_days does not count a day in which waiting packets were sent" "1 1" "$(nic_stat missed_days) $(nic_stat packets_circuit)"

# 100 ms a packet on the circuit, 1 ms on the packet network.
port racks 2 prefix 10.9.1.0/24=1 day 300ms night 300ms ocs-rate 81120bit eps-rate 8112kbit policy unblocking
at 600 0
elephants 60
at 600 320
within "unblocking: packets that missed their day leave at eps-rate" 15 50 "$(nic_stat packets_high)"
at 600 450
equal "unblocking: all packets that missed their day leave" 60 $(($(nic_stat packets_high) + $(nic_stat packets_circuit)))

# Each transmit queue of the device takes 1 ms per packet, though ocs-rate implies 100 ns.
port racks 2 prefix 10.9.1.0/24=1 day 1s night 0ns ocs-rate 80gbit
nic slow_us 1000
at 1000 0
elephants 400 &
senders=$!
sleep 0.05
mice 50 960 5000
within "circuit slower than ocs-rate: mice do not wait for its queue" 45 50 "$(nic_stat packets_high)"
within "circuit slower than ocs-rate: elephants leave" 150 320 "$(nic_stat packets_circuit)"
matches "circuit slower than ocs-rate: elephants wait" "^[1-9]" "$(nic_stat backlog_today)"
wait $senders
nic slow_us 0
equal "circuit slower than ocs-rate: each packet is accounted for" 0 "$(tc -s qdisc show dev nic0 | missing)"

# Each transmit queue takes 400 ms per packet.
nic slow_us 400000
port racks 2 prefix 10.9.1.0/24=1 day 1s night 0ns ocs-rate 80gbit
mice 1
sleep 0.65
elephants 3
sleep 0.05
mice 1
sleep 0.1
equal "circuit's queue busy: mice leave" 2 "$(nic_stat packets_high)"
sleep 2
mice 3
sleep 0.05
before=$(nic_stat packets_circuit)
elephants 1
sleep 0.1
equal "packet network's queue busy: elephants leave" $((before + 1)) "$(nic_stat packets_circuit)"
nic slow_us 0
sleep 2

# Each transmit queue takes 100 ms per packet, in a day of 300 ms. The kernel requests several packets at a
# time.
nic slow_us 100000
left() { ip -s link show nic0 | awk '/TX:/ { getline; print $2; exit }'; }
port racks 2 prefix 10.9.1.0/24=1 day 300ms night 300ms ocs-rate 80gbit policy blocking
at 600 400
start=$(left)
elephants 10
at 600 320
before=$(left)
within "elephants leave by day" 2 4 $((before - start))
at 600 580
equal "packets that the circuit's queue did not take by day do not leave by night" "$before" "$(left)"
sleep 2
equal "packets that the circuit's queue did not take leave on the next day" 10 "$(nic_stat packets_circuit)"
nic slow_us 0

# Days without nights.
port day 100ms night 0ns rtt 1s k 2
at 200 110
elephants 5
sleep 0.3
matches "no night: late_max_ns counts late packets" "^[1-9]" "$(nic_stat late_max_ns)"

# Another rack's day.
port day 200ms night 100ms rtt 1s k 2
at 600 420
elephants 5
equal "elephants wait for the day of their rack" 5 "$(nic_stat packets_queued)"
port_change racks 3 day 200ms night 100ms k 2 prefix 10.9.1.0/24=1,10.9.2.0/24=2
equal "unchanged options keep the queued packets" "5 0" "$(nic_stat packets_queued) $(nic_stat drops_reschedule)"
port_change prefix 10.9.1.0/24=2,10.9.2.0/24=1
sleep 0.3
equal "changed prefixes drop the queued packets of the other rack" "0 5" "$(nic_stat packets_circuit) $(nic_stat drops_reschedule)"

# The last packet left long ago, so no delay remains.
port day 24ms night 2ms eps-rate 8gbit
mice 1
sleep 5
port_change eps-rate 800bit
mice 1 1
equal "a new eps-rate does not count packets that left" 0 "$(nic_stat packets_queued)"

# The device has fewer queues than at the qdisc's creation.
port day 24ms night 2ms
ethtool -L nic0 tx 1
lost() { ip -s link show nic0 | awk '/TX:/ { getline; print $4; exit }'; }
before=$(lost)
elephants 5
mice 5
sleep 0.2
equal "one transmit queue: packets leave by it" "0 10" \
	"$(($(lost) - before)) $(($(nic_stat packets_high) + $(nic_stat packets_circuit) + $(nic_stat packets_low) + $(nic_stat drops_blocked)))"
ethtool -L nic0 tx 4

# Queue 0 was used, so that its byte limit allows batches.
tc qdisc del dev nic0 root
tc qdisc add dev nic0 clsact
tc filter add dev nic0 egress matchall action skbedit queue_mapping 0
mice 50 1400
tc qdisc del dev nic0 clsact
left() { ip -s link show nic0 | awk '/TX:/ { getline; print $2; exit }'; }
nic slow_us 100000
port racks 2 prefix 10.9.1.0/24=1 day 300ms night 300ms ocs-rate 80gbit policy blocking
at 600 400
before=$(left)
elephants 10 60
at 600 320
within "queue 0 was used: elephants leave by day" 2 4 "$(($(left) - before))"
equal "queue 0 was used: packets_circuit counts packets that left" "$(($(left) - before))" "$(nic_stat packets_circuit)"
before=$(left)
at 600 580
equal "queue 0 was used: none leaves by night" "$before" "$(left)"
nic slow_us 0
ip link del nic0
rmmod xdc_nic
check "rmmod sch_acceltor" eventually rmmod sch_acceltor
finish
