# SPDX-License-Identifier: GPL-2.0
"""Runs cases by the tdc.py of the kernel's tree."""

import json
import re
import shutil
import subprocess

import ktap

HOME = "/kselftest/tools/testing/selftests/tc-testing"
CASES = "/tmp/tdc-cases.json"
RESULTS = "/tmp/tdc-results.tap"
LOCAL = """EXTRA_NAMES = {names!r}
ENVIR = {{"PATH": "/usr/sbin:/usr/bin"}}
"""
XDC = "/initramfs/bin/xdc"
RAW = "/initramfs/bin/xdc-witness raw"
OURS = "/selftests/tdc"


def run_ours(kind):
    """The whole suite of our cases of a qdisc of ours."""
    report = ktap.Ktap()
    ktap.load(f"sch_{kind}")
    with open(f"{OURS}/{kind}.json", encoding="utf-8") as text:
        wanted = json.load(text)
    for case, outcome, notes in run(wanted):
        report.result(outcome, kind, case, notes)
    report.finish()


def cases(file):
    """Those of one file of tc-tests/ that are not ours to skip."""
    with open(f"{HOME}/tc-tests/{file}", encoding="utf-8") as text:
        return json.load(text)


def run(wanted):
    """Yields name, outcome and what was said for each case, in order."""
    with open(f"{HOME}/tdc_config_local.py", "w", encoding="utf-8") as local:
        local.write(LOCAL.format(names={"XDC": XDC, "RAW": RAW, "TC": shutil.which("tc")}))
    names = {case["id"]: f"{case['id']} {case['name']}" for case in wanted}
    left = list(wanted)
    while left:
        with open(CASES, "w", encoding="utf-8") as text:
            json.dump(left, text)
        command = ["python3", "./tdc.py", "-f", CASES, "--outfile", RESULTS]
        said = subprocess.run(
            command, cwd=HOME, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        ).stdout
        done = 0
        for name, outcome, notes in results():
            # A failed setup ends the run: later cases get a new run.
            if "skipped - previous" in " ".join(notes):
                break
            if outcome == "failed" and notes in ([], ["None"]):
                notes = [line for line in said.splitlines() if " *** " in line]
            yield names[name], outcome, notes
            done += 1
        if not done:
            yield names[left[0]["id"]], "failed", said.splitlines()[-12:]
            done = 1
        left = left[done:]
        # Remove devices left by a failed case.
        try:
            with open("/sys/bus/netdevsim/del_device", "w", encoding="ascii") as device:
                device.write("1")
        except OSError:
            pass


def results():
    """What tdc.py wrote: (id, outcome, notes)."""
    found = []
    try:
        with open(RESULTS, encoding="utf-8") as text:
            lines = text.read().splitlines()
    except OSError:
        return found
    for line in lines:
        match = re.match(r"(ok|not ok) \d+ ([0-9a-f]{4}) - (.*)", line)
        if match:
            skipped = " # skipped" in match[3]
            outcome = "skipped" if skipped else "passed" if match[1] == "ok" else "failed"
            why = match[3].split(" # skipped")[-1].strip(" -") if skipped else ""
            found.append((match[2], outcome, [why] if why else []))
        elif found and line.strip():
            found[-1][2].append(line.strip())
    subprocess.run(["rm", "-f", RESULTS], check=True)
    return found
