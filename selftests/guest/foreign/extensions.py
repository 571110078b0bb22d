#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# suite: TCP-AO, of the kernel's selftests/net
# kernels: debug
# variants: cubic | unocc gemini
# form: long
"""As net.py; only the debug kernel has TCP-AO."""


import ktap

VARIANTS = ["cubic", "unocc", "gemini"]
HOME = "/kselftest/tools/testing/selftests/net"
# bench-lookups is a benchmark that takes minutes.
AUTHENTICATED = [
    "connect-deny",
    "connect",
    "icmps-accept",
    "icmps-discard",
    "key-management",
    "restore",
    "rst",
    "self-connect",
    "seq-ext",
    "setsockopt-closed",
    "unsigned-md5",
]
PATIENCE_S = 900


def main():
    report = ktap.Ktap()
    ktap.load("tcp_unocc", "tcp_gemini")
    for cc in VARIANTS:
        ktap.choose_congestion_control(cc)
        for name in AUTHENTICATED:
            for family in ("ipv4", "ipv6"):
                program = f"./{name}_{family}"
                ktap.program(report, cc, f"tcp_ao {name} {family}", program, f"{HOME}/tcp_ao", PATIENCE_S)
    report.finish()


if __name__ == "__main__":
    main()
