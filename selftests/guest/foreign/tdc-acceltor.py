#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# suite: our own cases of acceltor's options, by the kernel's tdc.py
# kernels: uml x86 debug
# variants: | acceltor
# form: long
"""selftests/guest/tdc/acceltor.json, which selftests/guest/61-tdc.sh runs by a reader of our own."""

import tdclib

if __name__ == "__main__":
    tdclib.run_ours("acceltor")
