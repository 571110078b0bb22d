#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
# suite: the packetdrill scripts of the kernel's selftests/net
# kernels: uml
# variants: cubic reno dctcp | unocc gemini
# time: waiting
"""Each script with each congestion control; in the long form by each version of IP as well. The fast
form runs some of them with ours, and with the kernel's own those that fail.

packetdrill itself is in no package. pkt.py reads its language and pktrun.py runs
it. A case passes if every line of the script was done and held; a script with a
construct that is not known is skipped, with the construct's name.

A test that needs ECN asks for it whatever a script's sysctls are, so the ECN of its SYNs
is not held against the script. Where it makes a difference later on, DCTCP, which
needs it too, is the measure: where a script holds with CUBIC, what ours do
otherwise in the very line in which DCTCP does, and in the same respect, is
skipped and no failure. So is what DIFFERS lists.
"""

import ctypes
import json
import os
import re
import select
import shutil
import signal
import sys
import time

import ktap
import pkt
import pktrun

FOLDER = "/kselftest/tools/testing/selftests/net/packetdrill"
VARIANTS = ["cubic", "reno", "dctcp", "unocc", "gemini"]
# Scripts of the fast form: congestion and its signals.
ABOUT = ("tcp_accecn_delivered", "tcp_accecn_negotiation", "tcp_accecn_synack_ce", "tcp_dsack", "tcp_ecn", "tcp_eor",
         "tcp_fast_recovery", "tcp_limited_transmit", "tcp_sack", "tcp_slow_start", "tcp_tcp_info", "tcp_timestamping")
OURS = {"unocc", "gemini"}
# References for scripts in which ours fail.
MEASURES = ["cubic", "dctcp"]
# Congestion controls that request ECN by themselves.
NEED_ECN = OURS | {"dctcp"}
# Options as in the kernel's ksft_runner.sh.
VERSIONS = {
    "ipv4": ("3021b9d889017eeb", "b7c12350a90dc8f5", "IP"),
    "ipv6": ("c1d1e9742a47a9bc", "82af1a8f9a205c34", "IPV6"),
    "ipv4-mapped-ipv6": ("3021b9d889017eeb", "b7c12350a90dc8f5", "IPV6"),
}
# Line and aspect in which ours differ by design, and the reason.
DIFFERS = {
    "tcp_accecn_accecn_to_rfc3168": ("line 13: flags, options", "ours accept AccECN even if the sysctl asks for less"),
    "tcp_accecn_client_accecn_options_lost": ("line 22: flags", "UnoCC's first burst is larger, and PSH at its end"),
}
CLONE_NEWNET = 0x40000000
# Limit for one script; the longest waits 10 s.
PATIENCE_S = 120


def definitions(version):
    """What the runner of the kernel's defines."""
    cookie, zero, family = VERSIONS[version]
    return {
        "TFO_COOKIE": cookie,
        "TFO_COOKIE_ZERO": zero,
        "CMSG_LEVEL_IP": f"SOL_{family}",
        "CMSG_TYPE_RECVERR": f"{family}_RECVERR",
    }


def missing(text):
    """What a script is about and this kernel does not have."""
    if "tcp_syncookies=2" in text and not os.path.exists("/proc/sys/net/ipv4/tcp_syncookies"):
        return "the guest's kernel has no syncookies"
    return None


def copy(cc):
    """The scripts' folder, whose defaults set this congestion control."""
    folder = f"/tmp/packetdrill-{cc}"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(FOLDER, folder)
    path = f"{folder}/defaults.sh"
    with open(path, encoding="utf-8") as defaults:
        text, count = re.subn(r"(tcp_congestion_control)=cubic", rf"\1={cc}", defaults.read())
    if count != 1:
        raise ValueError("the scripts' defaults set no congestion control")
    with open(path, "w", encoding="utf-8") as defaults:
        defaults.write(text)
    return folder


def one(text, version, cc, folder):
    """Outcome and notes of a script, in this process, which is for it alone."""
    try:
        why = missing(text)
        if why:
            return "skipped", [why]
        script = pkt.parse(text, definitions(version))
        if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET):
            return "failed", ["no network namespace"]
        # nstat's file of earlier values.
        os.environ["NSTAT_HISTORY"] = f"/tmp/nstat.{os.getpid()}"
        pktrun.Runner(script, version, cc, cc in NEED_ECN, folder).run()
    except pkt.Unknown as unknown:
        return "skipped", [str(unknown.args[0])]
    except pktrun.Failed as failed:
        return "failed", [str(arg) for arg in failed.args]
    except Exception as error:  # pylint: disable=broad-except
        return "failed", [f"{type(error).__name__}: {error}"]
    return "passed", []


def apart(*arguments):
    """one() in a process, a network namespace and a time limit of its own."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.setsid()
        os.write(writer, json.dumps(one(*arguments)).encode())
        os._exit(0)
    os.close(writer)
    said = b""
    end = time.monotonic() + PATIENCE_S
    while select.select([reader], [], [], max(end - time.monotonic(), 0))[0]:
        part = os.read(reader, 4096)
        if not part:
            break
        said += part
    os.close(reader)
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        pass
    os.waitpid(child, 0)
    return json.loads(said) if said else ("failed", [f"died, or took more than {PATIENCE_S} s"])


def respect(notes):
    """The line that did not hold, and in what: without what came instead, and when."""
    return re.sub(r"[\d.]{4,}", "", notes[0].split("; came: ")[0])


class Measure:
    """How scripts came out with the kernel's own, for ours to be held against."""

    def __init__(self):
        self.holds, self.dctcp = set(), {}

    def judge(self, cc, name, version, outcome, notes):
        """Outcome and notes, with what ours do by design as skipped."""
        case = name, version
        if cc == "cubic" and outcome == "passed":
            self.holds.add(case)
        if outcome != "failed":
            return outcome, notes
        if cc == "dctcp":
            self.dctcp[case] = respect(notes)
        if cc not in OURS or case not in self.holds:
            return outcome, notes
        if self.dctcp.get(case) == respect(notes):
            return "skipped", [f"as with dctcp: {notes[0]}"]
        where, why = DIFFERS.get(name, (None, None))
        return ("skipped", [why]) if where == respect(notes) else (outcome, notes)


def chosen(long):
    """(name, version of IP, text): of those that are named, if some are."""
    for file in sorted(os.listdir(FOLDER)):
        name, kind = os.path.splitext(file)
        named = any(word in name for word in sys.argv[1:]) if sys.argv[1:] else long or name.startswith(ABOUT)
        if kind != ".pkt" or not named:
            continue
        with open(f"{FOLDER}/{file}", encoding="utf-8") as script:
            text = script.read()
        own = re.search(r"^--ip_version=(\S+)", text, re.MULTILINE)
        for version in [own[1]] if own else VERSIONS if long else ["ipv4"]:
            yield name, version, text


def main():
    long = "XDC_LONG" in os.environ
    report = ktap.Ktap()
    ktap.load("tcp_unocc", "tcp_gemini", "tcp_dctcp", "tun")
    measure = Measure()
    folders = {cc: copy(cc) for cc in VARIANTS}
    done = set()

    def run(cc, name, version, text):
        done.add((cc, name, version))
        ktap.choose_congestion_control(cc)
        outcome, notes = apart(text, version, cc, folders[cc])
        if cc in OURS and outcome == "failed":
            for other in MEASURES:
                if (other, name, version) not in done:
                    run(other, name, version, text)
        outcome, notes = measure.judge(cc, name, version, outcome, notes)
        report.result(outcome, cc, f"{name}, {version}", notes)

    for cc in VARIANTS if long else sorted(OURS):
        for case in chosen(long):
            run(cc, *case)
    report.finish()


if __name__ == "__main__":
    main()
