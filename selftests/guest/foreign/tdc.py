#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# suite: the kernel's tc-testing: red, codel, fq_codel, dualpi2 and parents, and with phantom as the child
# kernels: uml debug x86
# variants: kernel | phantom
"""The kernel's own tdc.py on its own cases, as they are and with phantom in place of a child.

The long form runs every case of the files that are named here; the fast one
those that phantom can stand in, and as they are only those in which it fails.
"""

import json
import os
import re

import ktap
import tdclib

QDISCS = """red codel fq_codel dualpi2 htb tbf prio mq mqprio ets drr qfq hfsc multiq
    netem taprio cake cake_mq plug fifo""".split()
FILES = ["infra/qdiscs.json"] + [f"qdiscs/{name}.json" for name in QDISCS]
# Children of classes that phantom can replace.
CHILDREN = """red codel fq_codel dualpi2 pfifo bfifo fq sfq pie fq_pie hhf sfb cake skbprio
    choke netem tbf""".split()
PACKET_BYTES = 2000

CHILD = re.compile(r"(\$TC qdisc (?:add|replace|change) .*?)\b(" + "|".join(CHILDREN) + r")\b(.*)")


def commands(case):
    """Every command of a case, setup first; what is a list has exit codes behind it."""
    for step in case["setup"] + [case["cmdUnderTest"]]:
        yield step if isinstance(step, str) else step[0]


def handles_of_parents(case):
    """The handles below which a case hangs something."""
    return {m for line in commands(case) for m in re.findall(r"\bparent ([0-9a-f]+):", line)}


def options(kind, words):
    """phantom's words for what a child is told. It has no speed of its own to go by, as the
    devices tell none: so it marks by what is queued, as the kernel's do."""
    limit = re.search(r"\blimit (\d+)b?\b", words)
    rate = ""
    size = "1mb"
    if kind == "netem" and re.search(r"delay (?!0)", words):
        # A shaper in place of netem's delay.
        rate = "rate 1kbit "
    elif kind == "tbf":
        rate = f"rate {re.search(r'rate (.+?) ', words)[1]} "
    elif re.search(r"\b(memory_limit|memlimit) [0-9]\b", words):
        size = "1"
    elif "target 1" in words:
        # As in codel's case: a packet with a successor is dropped at dequeue, so that a peek returns the
        # successor.
        return "limit 1mb mark physical at dequeue min 0.1% max 0.15% ecn-drop on"
    elif limit:
        # Limits of red, bfifo and sfb are in bytes.
        size = str(int(limit[1]) * (1 if kind in ("red", "bfifo", "sfb") else PACKET_BYTES))
    return f"{rate}limit {size} mark physical"


def replaced(case):
    """The case with phantom as the child, or None if it is about none."""
    parents = handles_of_parents(case)
    kinds = set()

    def line(text):
        match = CHILD.fullmatch(text.strip())
        if not match:
            return text
        before, kind, words = match.groups()
        parent = re.search(r"\bparent ([0-9a-f]*):", before)
        handle = re.search(r"\bhandle ([0-9a-f]+):", before)
        # phantom has no classes, and lacks features of netem: duplication, and delays of years.
        if not parent or (handle and handle[1] in parents) or re.search(r"duplicate|delay \d{6}", words):
            return text
        kinds.add(kind)
        return f"{before}phantom {options(kind, words)}"

    setup = [line(s) if isinstance(s, str) else [line(s[0])] + s[1:] for s in case["setup"]]
    tested = line(case["cmdUnderTest"])
    if not kinds:
        return None
    text = json.dumps({key: case[key] for key in ("verifyCmd", "matchPattern", "matchJSON") if key in case})
    for kind in kinds:
        text = re.sub(rf"(qdisc |\"kind\": \"){kind}\b", r"\1phantom", text)
    return dict(case, setup=setup, cmdUnderTest=tested, **json.loads(text))


def main():
    long = "XDC_LONG" in os.environ
    report = ktap.Ktap()
    ktap.load("sch_phantom", "netdevsim")
    every = {file: tdclib.cases(file) for file in FILES}
    flat = [case for cases in every.values() for case in cases]
    substituted = [case for case in (replaced(case) for case in flat) if case]

    def run(variant, cases):
        """The ids of those that did not pass."""
        missed = set()
        for case, outcome, notes in tdclib.run(cases):
            report.result(outcome, variant, case, notes)
            if outcome != "passed":
                missed.add(case.split()[0])
        return missed

    if long:
        run("kernel", flat)
        run("phantom", substituted)
    else:
        missed = run("phantom", substituted)
        run("kernel", [case for case in flat if case["id"] in missed])
    report.finish()


if __name__ == "__main__":
    main()
