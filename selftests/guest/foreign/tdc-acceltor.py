#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# suite: our own cases of acceltor's options, by the kernel's tdc.py
# kernels: uml x86 debug
# variants: | acceltor
"""selftests/guest/tdc/acceltor.json: what each option takes and refuses, and the sentences of refusals."""

import tdclib

if __name__ == "__main__":
    tdclib.run_ours("acceltor")
