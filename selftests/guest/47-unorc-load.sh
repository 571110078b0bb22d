#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml
# covers: modules/drivers/net/unorc/unorc.rs modules/algo/unorc_sender.rs modules/algo/parity_credit.rs
# covers: modules/algo/resequence.rs
# The cost of a tunnel at a full port, and the value of parities under loss. In virtual time.
. "$(dirname "$0")/lib.sh"

# tunnels OPTION...: creates u0 at both hosts, 10.50.0.1 and 10.50.0.2.
tunnels() {
	for i in 1 2; do
		ip -n h$i link add u0 type unorc local 10.$i.0.1 remote 10.$((3 - i)).0.1 "$@"
		ip -n h$i addr add 10.50.0.$i/24 dev u0
		ip -n h$i link set u0 up
	done
	# Probe the path, as if the tunnel had been up for a while.
	in_ns h1 ping -q -c "${pings:-5}" -i 0.05 10.50.0.2 >/dev/null
}
untunnel() { for i in 1 2; do ip -n h$i link del u0; done; }
# percent PART WHOLE
percent() { echo $(($1 * 100 / $2)); }
# timed CMD...: runs CMD; $took = its time in ms.
now_ms() { awk '{ print int($1 * 1000) }' /proc/uptime; }
timed() {
	begin=$(now_ms)
	"$@"
	took=$(($(now_ms) - begin))
}

modprobe unorc
routed
tc -n r qdisc replace dev eth1 root netem limit 10000 delay 2ms
tc -n r qdisc replace dev eth2 root netem limit 200 rate 100mbit delay 2ms

# blast ADDRESS DEVICE: sends 6,000 packets of 1,200 bytes at 98 Mbit/s; $arrived = received packets.
blast() {
	before=$(snmp h2 Udp InErrors)
	tc -n h1 qdisc replace dev "$2" root tbf rate 100400kbit burst 4kb limit 1mb
	in_ns h1 xdc-witness packets udp "$1" 1188 6000
	sleep 0.5
	arrived=$(($(snmp h2 Udp InErrors) - before))
	tc -n h1 qdisc del dev "$2" root
}
in_ns h1 ping -q -c 5 -i 0.05 10.2.0.1 >/dev/null
blast 10.2.0.1 eth0
plain=$arrived
echo "# 6,000 packets at 98 of 100 Mbit/s: $plain arrive"
within "without a tunnel nearly all packets arrive" 5900 6000 "$plain"
for fec in off 8+2; do
	tunnels fec $fec
	blast 10.50.0.2 u0
	echo "# in a tunnel, fec $fec: $arrived, $(tunnel_counter h1 tx_parity) parities"
	# The header takes 3.5 %, and some round trips detect congestion.
	within "a tunnel with fec $fec carries 95 % of a full port" 95 100 "$(percent "$arrived" "$plain")"
	untunnel
done

# TCP alone, and in a tunnel.
dd if=/dev/urandom of=/tmp/sent bs=10000 count=1500 2>/dev/null
timed check "15 MB of TCP through the port" transfer 10.2.0.1
plain=$took
least=95
for fec in off 8+2; do
	tunnels fec $fec
	timed check "15 MB of TCP in a tunnel, fec $fec" transfer 10.50.0.2
	echo "# TCP: $plain ms, in a tunnel of $fec $took ms, $(tunnel_counter h1 tx_parity) parities"
	# While the queue is short, a fifth of the packets are parities.
	within "TCP in a tunnel is 95 % as fast, less the parities, fec $fec" "$least" 130 "$(percent "$plain" "$took")"
	least=90
	untunnel
done

# beside ADDRESS: sends 35 Mbit/s of packets to it; $tcp = bytes of TCP through the port in 3 s meanwhile.
head -c 60000000 /dev/zero >/tmp/sent
beside() {
	receive h2 /tmp/received
	in_ns h1 timeout 3 nc 10.2.0.1 5001 </tmp/sent &
	sender=$!
	sleep 0.2
	in_ns h1 xdc-witness packets udp "$1" 1188 9000 230
	wait $sender
	kill $receiver 2>/dev/null
	wait $receiver 2>/dev/null
	tcp=$(wc -c </tmp/received)
}
beside 10.2.0.1
plain=$tcp
tunnels
beside 10.50.0.2
echo "# TCP beside 35 Mbit/s: $plain bytes, if those are in a tunnel $tcp"
within "a flow beside a tunnel keeps 90 % of its rate" 90 120 "$(percent "$tcp" "$plain")"
untunnel

# The value of parities: twenty transfers of 1 MB at 200 Mbit/s in new tunnels, over 4 ms and a large port
# that loses packets, because tunnel paths and losses are random. Received data are compared.
dd if=/dev/urandom of=/tmp/sent bs=10000 count=100 2>/dev/null
# twenty FEC: total ms, TCP's retransmissions, and decoded packets.
twenty() {
	took_all=0 again=$(snmp h1 Tcp RetransSegs) decoded=0 equal=0
	for _ in $(seq 20); do
		pings=1 tunnels fec "$1"
		tc -n h1 qdisc replace dev u0 root tbf rate 200mbit burst 10kb limit 4mb
		begin=$(now_ms)
		transfer 10.50.0.2 && equal=$((equal + 1))
		took_all=$((took_all + $(now_ms) - begin))
		decoded=$((decoded + $(tunnel_counter h2 recovered)))
		untunnel
	done
	took=$took_all
	again=$(($(snmp h1 Tcp RetransSegs) - again))
}
# compare LOSSES PERCENT [sooner]: with parities TCP retransmits less than that share of the number without.
compare() {
	for fec in 8+2 off; do
		twenty $fec
		equal "20 transfers arrive unchanged, fec $fec, $1" 20 $equal
		echo "# $1, fec $fec: $took ms, $again retransmitted, $decoded decoded"
		case $fec in
		8+2) coded_ms=$took coded_again=$again ;;
		*)
			check "parities reduce TCP's retransmissions, $1" test $((coded_again * 100)) -lt $((again * $2))
			[ "$3" != sooner ] || check "parities shorten the transfers, $1" test "$coded_ms" -lt "$took"
			;;
		esac
	done
}
tc -n r qdisc replace dev eth2 root netem limit 10000 rate 1gbit delay 2ms loss gemodel 0.5% 70%
# A lost tail costs 200 ms, by chance; Figure 13B has times of such losses (`xdc paper uno`).
compare "losses of one, two and three packets" 67
tc -n r qdisc replace dev eth2 root netem limit 10000 rate 1gbit delay 2ms
# Port numbers select one of eight paths by their last three bits.
tc -n r qdisc add dev eth1 clsact
tc -n r filter add dev eth1 ingress protocol ip u32 match ip protocol 17 0xff match ip sport 3 7 action drop
compare "one dead path of eight" 100 sooner
for ns in h1 r h2; do ip netns del $ns; done
finish
