#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# suite: the kernel's selftests/net/forwarding: sch_red, sch_tbf_*, sch_ets, with phantom for red and tbf
# kernels: uml x86
# variants: kernel | phantom-child phantom-port
# form: long
# time: waiting
"""The kernel's scripts, unchanged, with a tc before their own in PATH.

kernel: their own qdiscs. phantom-child: phantom where they have red, below
their shaper. phantom-port: one phantom where they have red below tbf, and
where they have tbf alone.

mausezahn sends as fast as it can; here it rests between packets, so that it
offers some two to eight times what the shapers let through.
"""

import os
import re
import sys

import ktap

HOME = "/kselftest/tools/testing/selftests/net/forwarding"
SHIM = "/tmp/forwarding-bin"
# Script and its cases per variant (None: all); a missing variant cannot run it.
SCRIPTS = [
    ("sch_red", {"kernel": None, "phantom-child": "ping_ipv4 ecn_test ecn_nodrop_test",
                 "phantom-port": "ping_ipv4 ecn_test ecn_nodrop_test"}),
    ("sch_tbf_root", {"kernel": None, "phantom-port": None}),
    ("sch_tbf_prio", {"kernel": None, "phantom-port": None}),
    ("sch_tbf_ets", {"kernel": None, "phantom-port": None}),
    ("sch_ets", {"kernel": None}),
]
# Cases without a counterpart in phantom: RED that drops markable packets, and qevents.
MISSING = {"sch_red": ["red_test", "red_qevent_test", "ecn_qevent_test"]}
PATIENCE_S = 900

TC = r"""#!/usr/bin/python3
import json, re, subprocess, sys
variant, words = @VARIANT@, sys.argv[1:]
line = " ".join(words)

def real(words, **more):
    return subprocess.run(["@TC@"] + words, check=False, **more)

def red(line):
    # min and max of the limit; ecn marks, nodrop lets pass what cannot be marked.
    size = {"K": 1 << 10, "M": 1 << 20}
    limit = re.search(r"limit (\d+)([KM])", line)
    limit = int(limit[1]) * size[limit[2]]
    low, high = (int(re.search(rf"{word} (\d+)", line)[1]) / limit for word in ("min", "max"))
    drop = "off" if "nodrop" in line else "on"
    return f"limit {limit} mark physical at enqueue min {low:.6f} max {high:.6f} ecn-drop {drop}"

if variant != "kernel" and re.match(r"qdisc (add|replace) ", line):
    before, kind, options = re.match(r"(.*? )(red|tbf)( .*)|(.*)", line).groups()[:3]
    if kind == "red" and variant == "phantom-child":
        words = f"{before}phantom {red(options)}".split()
    elif kind == "red":
        # What was its shaper is the port itself.
        before = re.sub(r"parent \S+", "root", before)
        words = f"{before}phantom rate 10mbit {red(options)}".split()
        real(["qdisc", "del", "dev", words[words.index("dev") + 1], "root"], stderr=subprocess.DEVNULL)
    elif kind == "tbf" and variant == "phantom-port" and "@CLASSFUL@" not in before:
        rate = re.search(r"rate (\S+)", options)[1]
        limit = re.search(r"limit (\S+)", options)[1]
        words = f"{before}phantom rate {rate.lower()} limit {limit.lower()}b mark none".split()
elif variant == "phantom-port" and re.match(r"qdisc del dev \S+ parent 1:1$", line):
    words = words[:-2] + ["root"]
if "-j" in words and "qdisc" in words:
    done = real(words, stdout=subprocess.PIPE, text=True)
    shown = json.loads(done.stdout or "[]")
    for qdisc in shown:
        if qdisc["kind"] == "phantom":
            qdisc["marked"] = sum(qdisc.get(f"marked_{by}", 0) for by in ("physical", "phantom", "both"))
    print(json.dumps(shown))
else:
    # sch_ets asks how its classes share the shaper, at any rate, and offers it 20 s eight times.
    done = real([word.replace("1Gbit", "100Mbit") for word in words])
sys.exit(done.returncode)
"""
# `ip vrf exec` needs a BPF program of its cgroup, which the guests' kernels lack. ping binds itself to the
# VRF's device.
IP = r"""#!/bin/bash
case "$1 $2 ${4##*/}" in
"vrf exec ping" | "vrf exec ping6") exec "$4" -I "$3" "${@:5}" ;;
*) exec /usr/sbin/ip "$@" ;;
esac
"""
# lib.sh waits by polling the time, which takes no virtual time.
DATE = """#!/bin/sh
sleep 0.001
exec /usr/bin/date "$@"
"""
# -c 0 sends forever.
MAUSEZAHN = r"""#!/bin/bash
case " $* " in
*" -c 0 "*" 8000 "* | *" 8000 "*" -c 0 "*) exec /usr/sbin/mausezahn "$@" -d @REST@ ;;
*" -c 0 "*) exec /usr/sbin/mausezahn "$@" -d 400usec ;;
*) exec /usr/sbin/mausezahn "$@" ;;
esac
"""


def shim(variant, script):
    """Puts the programs of that variant where PATH begins."""
    os.makedirs(SHIM, exist_ok=True)
    # Keep the shaper if it has a class below it.
    classful = {"sch_red": "swp-none", "sch_tbf_prio": "root", "sch_tbf_ets": "root"}.get(script, "never")
    text = TC.replace("@VARIANT@", repr(variant)).replace("@TC@", "/usr/sbin/tc").replace("@CLASSFUL@", classful)
    sends = MAUSEZAHN.replace("@REST@", "400usec" if script == "sch_ets" else "20usec")
    for name, body in [("tc", text), ("ip", IP), ("date", DATE), ("mausezahn", sends)]:
        with open(f"{SHIM}/{name}", "w", encoding="ascii") as file:
            file.write(body)
        os.chmod(f"{SHIM}/{name}", 0o755)


def outcomes(lines):
    """(case, outcome, notes) by log_test() of the scripts."""
    words = {"OK": "passed", "FAIL": "failed", "SKIP": "skipped", "XFAIL": "failed"}
    for at, line in enumerate(lines):
        match = re.match(r"TEST: (.+?) +\[ *(OK|FAIL|SKIP|XFAIL) *\]", line)
        if match:
            notes = [lines[at + 1].strip()] if at + 1 < len(lines) else []
            yield match[1], words[match[2]], notes


def main():
    report = ktap.Ktap()
    ktap.load("sch_phantom", "bridge", "8021q", "vrf", "veth")
    for script, variants in SCRIPTS:
        for variant, tests in variants.items():
            shim(variant, script)
            environment = f"export PATH={SHIM}:/usr/sbin:/usr/bin; export TESTS='{tests or ''}'; "
            command = f"{environment} unshare --net ./{script}.sh"
            code, lines = ktap.said(command, HOME, PATIENCE_S)
            found = list(outcomes(lines))
            # A name may occur twice, for example after a change of mode.
            seen = {}
            for case, outcome, notes in found:
                seen[case] = seen.get(case, 0) + 1
                again = f" ({seen[case]})" if seen[case] > 1 else ""
                report.result(outcome, variant, f"{script}: {case}{again}", notes)
            if not found or (code != 0 and all(outcome == "passed" for _, outcome, _ in found)):
                report.result("failed", variant, script, [f"exit code {code}"] + lines[-12:])
        for case in MISSING.get(script, []):
            for variant in ("phantom-child", "phantom-port"):
                report.result("skipped", variant, f"{script}: {case}", ["phantom has no such option"])
    report.finish()


if __name__ == "__main__":
    main()
