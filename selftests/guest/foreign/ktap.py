# SPDX-License-Identifier: GPL-2.0
"""What the suites in Python share: KTAP as `xdc-harness foreign` reads it, and the guest around them."""

import os
import re
import signal
import subprocess
import sys


class Ktap:
    """One line a case and variant."""

    def __init__(self):
        self.number = 0
        print("KTAP version 1", flush=True)

    def result(self, outcome, variant, case, notes=()):
        """outcome is passed, failed or skipped; a skip's first note is its reason."""
        self.number += 1
        ok = "not ok" if outcome == "failed" else "ok"
        case = " ".join(case.split()).replace("#", "")
        skip = f" # SKIP {' '.join(notes)[:100]}" if outcome == "skipped" else ""
        print(f"{ok} {self.number} {variant} {case}{skip}", flush=True)
        if outcome == "failed":
            for note in notes:
                print(f"# {note}", flush=True)

    def finish(self):
        """A case that fails is for `xdc-harness foreign` to judge; the suite itself has done its work."""
        print(f"1..{self.number}", flush=True)


def last_words(kind, what, trace):
    """Of a suite that dies: KTAP's line for it, which `xdc-harness foreign` shows."""
    sys.__excepthook__(kind, what, trace)
    print(f"Bail out! {kind.__name__}: {what}", flush=True)


sys.excepthook = last_words


def load(*modules):
    """Modules that are there; a suite finds out by itself what it misses."""
    for module in modules:
        subprocess.run(["modprobe", "-q", module], check=False)


def has_virtual_time():
    """User-mode Linux, where who waits in a loop waits for ever, or nearly."""
    with open("/proc/cpuinfo", encoding="ascii") as cpu:
        return "User Mode Linux" in cpu.read()


def set_first_sysctl(name, value):
    """A sysctl that the kernel's first network namespace alone has; its threads are in there."""
    write = f"echo '{value}' >/proc/sys/{name}"
    subprocess.run(["nsenter", "--net=/proc/2/ns/net", "sh", "-c", write], check=True)


def choose_congestion_control(name):
    """That of every new socket, in namespaces that are made from now on and in this one."""
    set_first_sysctl("net/ipv4/tcp_congestion_control", name)
    with open("/proc/sys/net/ipv4/tcp_congestion_control", "w", encoding="ascii") as here:
        here.write(name)


# Exit code of a skipped kernel selftest.
SKIPPED = 4
# The host gives up on a guest that is silent for longer.
SIGN_OF_LIFE_S = 60
# Lines shown of a program without other output.
LAST_LINES = 8


def said(command, folder, patience_s):
    """Exit code and lines of a shell command; no code if it took too long."""
    with subprocess.Popen(
        ["bash", "-c", command],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        text = None
        for waited_s in range(0, patience_s, SIGN_OF_LIFE_S):
            try:
                text, _ = process.communicate(timeout=min(SIGN_OF_LIFE_S, patience_s - waited_s))
                break
            except subprocess.TimeoutExpired:
                print(f"  # {command}: still running", flush=True)
        code = process.returncode
        if text is None:
            os.killpg(process.pid, signal.SIGKILL)
            text, _ = process.communicate()
            code = None
        # Remaining processes would disturb the next program.
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    return code, text.splitlines()


def program(report, variant, name, command, folder, patience_s, timed=None):
    """A shell command of the kernel's tests: its own cases, if it has some, else it is one. Whether none failed.

    `timed` matches cases that fail where the machine is slow. Such a failure is reported as skipped."""
    code, lines = said(command, folder, patience_s)
    own = harness(lines)
    late = [case for case, outcome, _ in own if timed and outcome == "failed" and re.search(timed, case)]
    for case, outcome, notes in own:
        if case in late:
            report.result("skipped", variant, f"{name}: {case}", ["the machine was too slow for it"])
        else:
            report.result(outcome, variant, f"{name}: {case}", notes)
    # A program that dies after or before its cases has failed.
    failed_cases = any(outcome == "failed" and case not in late for case, outcome, _ in own)
    if own and (code == 0 or (code is not None and (failed_cases or late))):
        return not failed_cases
    why = [f"took more than {patience_s} s"] if code is None else [f"exit code {code}"]
    notes = why + [line for line in lines if line.strip()][-LAST_LINES:]
    outcome = {0: "passed", SKIPPED: "skipped"}.get(code, "failed")
    report.result(outcome, variant, name, notes if outcome != "skipped" else notes[1:][-1:])
    return outcome != "failed" and not failed_cases


def harness(lines):
    """(case, outcome, notes) of a program of kselftest_harness.h or ksft_*()."""
    found = []
    notes = []
    for line in lines:
        match = re.match(r"(ok|not ok) \d+ -? ?(.+)", line)
        if not match:
            notes.append(line.lstrip("# "))
            continue
        case, _, directive = match[2].partition(" # ")
        if "SKIP" in directive:
            outcome = "skipped"
        elif match[1] == "ok":
            outcome = "passed"
        else:
            outcome = "failed"
        found.append((case.strip(), outcome, [directive] if outcome == "skipped" else notes[-LAST_LINES:]))
        notes = []
    return found
