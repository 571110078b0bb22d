#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# suite: the TCP programs of the kernel's selftests/net
# kernels: uml x86 debug
# variants: cubic dctcp | unocc gemini
"""Each program with each congestion control as the one of every new socket.

A program in the kernel's test harness is as many cases as it says; any other
one is a case that passes if it ends with 0. The fast form runs some of them with
ours, and with the kernel's own those that fail.
"""

import os
import socket
import struct

import ktap

# Ours first, so that an interrupted run has results for them.
VARIANTS = ["gemini", "unocc", "cubic", "dctcp"]
OURS = ["unocc", "gemini"]
MEASURE = "cubic"
HOME = "/kselftest/tools/testing/selftests/net"
# Name, shell command, whether it is in the fast form.
PROGRAMS = [
    ("msg_zerocopy, IPv4", "./msg_zerocopy.sh 4 tcp -t 1", False),
    ("msg_zerocopy, IPv6", "./msg_zerocopy.sh 6 tcp -t 1", False),
    ("msg_zerocopy -z, IPv4", "./msg_zerocopy.sh 4 tcp -z -t 1", False),
    ("tcp_mmap", "xdc_mmap", False),
    ("tcp_mmap, zero copy, integrity", "xdc_mmap -z -i", True),
    ("tcp_inq", "./in_netns.sh ./tcp_inq -4 && ./in_netns.sh ./tcp_inq -6", True),
    ("tcp_fastopen_backup_key", "./tcp_fastopen_backup_key.sh", False),
    ("tfo_passive", "./in_netns.sh ./tfo_passive.sh", True),
    ("txtimestamp, TCP, IPv4", "xdc_txtimestamp -4 -L 127.0.0.1", True),
    ("txtimestamp, TCP, IPv6", "xdc_txtimestamp -6 -L ::1", True),
    ("txtimestamp, TCP, cmsg", "xdc_txtimestamp -4 -L 127.0.0.1 -C", False),
    ("txtimestamp, TCP, without data", "xdc_txtimestamp -4 -L 127.0.0.1 -n", False),
    ("rxtimestamp", "./in_netns.sh ./rxtimestamp --tcp", True),
    ("reuseaddr_conflict", "./in_netns.sh ./reuseaddr_conflict", True),
    ("reuseaddr_ports_exhausted", "./reuseaddr_ports_exhausted.sh", True),
    ("reuseport_addr_any", "./reuseport_addr_any.sh", True),
    ("reuseport_bpf", "./in_netns.sh ./reuseport_bpf", True),
    ("reuseport_bpf_cpu", "./in_netns.sh ./reuseport_bpf_cpu", True),
    ("reuseport_dualstack", "./in_netns.sh ./reuseport_dualstack", True),
    ("stress_reuseport_listen", "./stress_reuseport_listen.sh", False),
    ("bind_wildcard", "./in_netns.sh ./bind_wildcard", False),
    ("bind_timewait", "./in_netns.sh ./bind_timewait", True),
    ("tcp_port_share", "./in_netns.sh ./tcp_port_share", True),
    ("sk_connect_zero_addr", "./in_netns.sh ./sk_connect_zero_addr", True),
    ("sk_bind_sendto_listen", "./in_netns.sh ./sk_bind_sendto_listen", True),
    ("so_incoming_cpu", "./in_netns.sh ./so_incoming_cpu", False),
    ("so_rcv_listener", "./test_so_rcv.sh", False),
    ("socket", "./socket", False),
    ("fin_ack_lat", "./in_netns.sh ./fin_ack_lat.sh", False),
]
# Replacements for the tree's scripts around these two, for one of their programs each.
FUNCTIONS = r"""
xdc_txtimestamp() {
	./in_netns.sh bash -ec '
		tc qdisc add dev lo root netem delay 10ms
		ip link add ifb_netem0 type ifb
		ip link set dev ifb_netem0 up
		tc qdisc add dev ifb_netem0 root netem delay 20ms
		tc qdisc add dev lo handle ffff: ingress
		tc filter add dev lo parent ffff: u32 match mark 0 0xffff \
			action mirred egress redirect dev ifb_netem0
		./txtimestamp -v 10000 -V 60000 -t 8000 -S 80000 "$@"' sh "$@"
}
xdc_mmap() {
	./in_netns.sh bash -ec '
		ip link set dev lo mtu 61512
		# It accepts for ever, so what it says has to be out before it is killed.
		stdbuf -oL ./tcp_mmap -6 -s "$@" >/tmp/mmap.log &
		sleep 1
		./tcp_mmap -6 -H ::1 "$@"
		for _ in {1..100}; do ! grep -q "rcv_mss" /tmp/mmap.log || break; sleep 0.2; done
		kill $!
		cat /tmp/mmap.log
		grep -q "^received 256 MB" /tmp/mmap.log
		[[ " $* " != *" -i "* ]] || grep -q "^SHA256 is correct" /tmp/mmap.log' sh "$@"
}
# Nothing names devices in a guest but the kernel.
udevadm() { :; }
export -f udevadm
"""
# For tls: number of a cipher, size of its TLS_TX argument, and options for it alone.
CIPHERS = {
    "aes_ccm": (53, 40, "-V 12_aes_ccm -V 13_aes_ccm -F zero_len"
                " -T tls_12_tx_max_payload_len -T tls_12_tx_max_payload_len_open_rec"),
    "chacha": (54, 56, "-V 12_chacha -V 13_chacha"),
    "sm4_gcm": (55, 40, "-V 13_sm4_gcm"),
    "sm4_ccm": (56, 40, "-V 13_sm4_ccm"),
    "aria_gcm": (57, 40, "-V 12_aria_gcm"),
    "aria_gcm_256": (58, 56, "-V 12_aria_gcm_256"),
}
# In virtual time, mostly waiting.
PATIENCE_S = 300
TCP_ULP = 31
SOL_TLS = 282
TLS_TX = 1
TLS_1_2 = 0x0303


def has_cipher(number, size):
    """Whether a connection takes it."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        try:
            client.setsockopt(socket.IPPROTO_TCP, TCP_ULP, b"tls")
            client.setsockopt(SOL_TLS, TLS_TX, struct.pack("=HH", TLS_1_2, number).ljust(size, b"\0"))
        except FileNotFoundError:
            return False
        return True


def tls(report, cc, long):
    """The cases of every cipher that the kernel has; in the fast form of one, and those that are of none."""
    filters = []
    for cipher, (number, size, cases) in CIPHERS.items():
        if not has_cipher(number, size):
            filters.append(cases)
            report.result("skipped", cc, f"tls: {cipher}", ["the guest's kernel has no such cipher"])
    if not long:
        filters.append("-f global -f tls_basic -v 12_aes_gcm")
    return ktap.program(report, cc, "tls", f"./in_netns.sh ./tls {' '.join(filters)}", HOME, PATIENCE_S)


def main():
    long = "XDC_LONG" in os.environ
    report = ktap.Ktap()
    ktap.load("tcp_unocc", "tcp_gemini", "tls", "netdevsim", "ifb")
    programs = {"tls": lambda cc: tls(report, cc, long)}
    for name, command, fast in PROGRAMS:
        if fast or long:
            command = FUNCTIONS + command
            programs[name] = lambda cc, name=name, command=command: ktap.program(
                report, cc, name, command, HOME, PATIENCE_S)
    missed = {}
    for cc in VARIANTS if long else OURS:
        ktap.choose_congestion_control(cc)
        missed.update((name, run) for name, run in programs.items() if not run(cc))
    if not long and missed:
        ktap.choose_congestion_control(MEASURE)
        for run in missed.values():
            run(MEASURE)
    report.finish()


if __name__ == "__main__":
    main()
