#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# suite: transfers by MPTCP, of the kernel's selftests/net
# kernels: debug
# variants: cubic | unocc gemini
# form: long
"""As extensions.py; the debug kernel needs most of an hour for each variant."""


import ktap

VARIANTS = ["cubic", "unocc", "gemini"]
HOME = "/kselftest/tools/testing/selftests/net/mptcp"
TRANSFERS = ["mptcp_connect.sh -m sendfile", "simult_flows.sh"]
PATIENCE_S = 3600


def main():
    report = ktap.Ktap()
    ktap.load("tcp_unocc", "tcp_gemini")
    for cc in VARIANTS:
        ktap.choose_congestion_control(cc)
        for command in TRANSFERS:
            ktap.program(report, cc, f"mptcp {command}", f"./{command}", HOME, PATIENCE_S)
    report.finish()


if __name__ == "__main__":
    main()
