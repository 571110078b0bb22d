#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# suite: our own cases of phantom's options, by the kernel's tdc.py
# kernels: uml x86 debug
# variants: | phantom
"""selftests/guest/tdc/phantom.json, which selftests/guest/61-tdc.sh runs by a reader of our own."""

import json
import os

import ktap
import tdclib

CASES = "/selftests/tdc/phantom.json"
# In the fast form one in so many, so that each option is met; 61-tdc has all of them.
STEP = 7


def main():
    report = ktap.Ktap()
    ktap.load("sch_phantom")
    with open(CASES, encoding="utf-8") as text:
        cases = json.load(text)
    if "XDC_LONG" not in os.environ:
        cases = cases[::STEP]
    for case, outcome, notes in tdclib.run(cases):
        report.result(outcome, "phantom", case, notes)
    report.finish()


if __name__ == "__main__":
    main()
