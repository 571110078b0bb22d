#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# suite: MPTCP, of the kernel's selftests/net
# kernels: debug
# variants: cubic | unocc gemini
# form: long
"""As extensions.py, for MPTCP."""


import ktap

VARIANTS = ["cubic", "unocc", "gemini"]
HOME = "/kselftest/tools/testing/selftests/net/mptcp"
# Small files by IPv4: emulated, the debug kernel would need most of an hour per variant. simult_flows.sh
# judges by transfer times.
COMMANDS = ["mptcp_sockopt.sh", "diag.sh", "mptcp_connect.sh -4 -m sendfile -f 65536"]
# Cases of diag.sh that start 100 or 200 programs and check them after a fixed time: an emulated machine fails
# two with each congestion control.
TIMED = r"\bmany\b"
PATIENCE_S = 3600


def main():
    report = ktap.Ktap()
    ktap.load("tcp_unocc", "tcp_gemini")
    for cc in VARIANTS:
        ktap.choose_congestion_control(cc)
        for command in COMMANDS:
            ktap.program(report, cc, f"mptcp {command}", f"./{command}", HOME, PATIENCE_S, TIMED)
    report.finish()


if __name__ == "__main__":
    main()
