# SPDX-License-Identifier: GPL-2.0
"""Reads scripts of the packetdrill language, as far as the kernel's own scripts use it.

A script is options, then events: a time, and what is to happen then. Names of
constants are looked up while reading, so a script is read anew for each way to
run it. Whatever is not known here raises Unknown with the construct's name.
"""

import errno
import fcntl
import os
import re
import select
import socket


class Unknown(Exception):
    """A construct that this reader does not know."""


# The wildcard `...`.
ANY = type("Any", (), {"__repr__": lambda self: "..."})()

# Constants that some versions of Python do not name.
NAMES = {
    "NULL": None,
    "SOL_IP": 0,
    "SOL_IPV6": 41,
    "SOL_TCP": 6,
    "IP_RECVERR": 11,
    "IP_MTU_DISCOVER": 10,
    "IP_PMTUDISC_DONT": 0,
    "IP_FREEBIND": 15,
    "IPV6_RECVERR": 25,
    "TCP_USER_TIMEOUT": 18,
    "TCP_FASTOPEN": 23,
    "TCP_FASTOPEN_CONNECT": 30,
    "TCP_FASTOPEN_KEY": 33,
    "TCP_INQ": 36,
    "TCP_CM_INQ": 36,
    "SO_TIMESTAMPING": 37,
    "SCM_TIMESTAMPING": 37,
    "SO_ZEROCOPY": 60,
    "MSG_ZEROCOPY": 0x4000000,
    "MSG_FASTOPEN": 0x20000000,
    "MSG_EOR": 0x80,
    "MSG_MORE": 0x8000,
    "SIOCINQ": 0x541B,
    "SOF_TIMESTAMPING_TX_SOFTWARE": 1 << 1,
    "SOF_TIMESTAMPING_SOFTWARE": 1 << 4,
    "SOF_TIMESTAMPING_OPT_ID": 1 << 7,
    "SOF_TIMESTAMPING_TX_SCHED": 1 << 8,
    "SOF_TIMESTAMPING_TX_ACK": 1 << 9,
    "SCM_TSTAMP_SND": 0,
    "SCM_TSTAMP_SCHED": 1,
    "SCM_TSTAMP_ACK": 2,
    "SO_EE_ORIGIN_TIMESTAMPING": 4,
    "SO_EE_ORIGIN_ZEROCOPY": 5,
    "SO_EE_CODE_ZEROCOPY_COPIED": 1,
    "EPOLL_CTL_ADD": 1,
    "EPOLL_CTL_DEL": 2,
    "EPOLL_CTL_MOD": 3,
}


def constants():
    """Every constant of the system's that Python names, and those above."""
    names = {}
    for module in (os, fcntl, select, socket, errno):
        for name in dir(module):
            value = getattr(module, name)
            if re.fullmatch(r"[A-Z][A-Z0-9_]+", name) and isinstance(value, int):
                names[name] = int(value)
    return names | NAMES


class Event:
    """What happens at a time.

    `kind` is packet, icmp, call, command or code, and `what` its content. `end`
    is the end of a call that blocks, or the last time that a packet may come;
    `anytime` is the time `*`.
    """

    def __init__(self, line, text, kind, what):
        self.line, self.text, self.kind, self.what = line, text, kind, what
        self.timed, self.relative, self.anytime = True, False, False
        self.start, self.end, self.blocks = 0.0, None, False


class Packet:
    """A TCP segment as a script writes it; None is what it does not say."""

    inbound = False
    ecn = None
    flags = frozenset()
    # The three ECN bits as a number, if the script has one.
    ace = None
    seq = end = size = 0
    ack = window = urgent = None
    # A list of tuples: name and values.
    options = ()
    # `<...>`
    any_options = False


class Icmp:
    """An ICMP error about a segment of ours."""

    kind = code = None
    mtu = 0
    seq = size = 0


class Call:
    """A system call and what it returns: `error` is a name, or None if the script gives none."""

    name = ""
    arguments = ()
    result = None
    error = None


class Script:
    """Options, and events in the order of the file."""

    def __init__(self):
        self.options, self.events = {}, []


OPTIONS = {"ip_version", "mss", "send_omit_free", "tolerance_usecs", "tcp_ts_tick_usecs"}
ECN = {"noecn": 0, "ect1": 1, "ect0": 2, "ce": 3}
NUMBER = r"\d+\.\d+|\.\d+|\d+"


def parse(text, definitions):
    """A script; definitions are names that the caller gives, some of them hexadecimal text."""
    return Reader(text, definitions).script()


class Reader:
    """A place in a text, and what can stand there."""

    def __init__(self, text, definitions):
        self.text, self.at = text, 0
        self.definitions = definitions
        self.names = constants()

    def blank(self):
        """Past white space and comments."""
        self.at = re.compile(r"(?:\s+|//[^\n]*|/\*.*?\*/)*", re.DOTALL).match(self.text, self.at).end()

    def take(self, pattern):
        """The match of a pattern that stands here, or None."""
        before = self.at
        self.blank()
        found = re.compile(pattern, re.DOTALL).match(self.text, self.at)
        self.at = found.end() if found else before
        return found

    def need(self, pattern, what):
        """The same, where it cannot be missing."""
        found = self.take(pattern)
        if not found:
            self.blank()
            rest = self.text[self.at :].split("\n", 1)[0].strip()
            line = self.text.count("\n", 0, self.at) + 1
            raise Unknown(f"line {line}: no {what}: {rest[:40]}")
        return found

    def script(self):
        script = Script()
        while option := self.take(r"--(\w+)(?:=(\S+))?"):
            if option[1] not in OPTIONS:
                raise Unknown(f"--{option[1]}")
            script.options[option[1]] = option[2]
        self.blank()
        while self.at < len(self.text):
            script.events.append(self.event())
            self.blank()
        return script

    def event(self):
        self.blank()
        start, line = self.at, self.text.count("\n", 0, self.at) + 1
        when = Event(line, "", "", None)
        if self.take(r"(?=`)"):
            when.timed = False
        elif self.take(r"\*"):
            when.anytime = when.relative = True
        else:
            number = self.need(rf"(\+?)({NUMBER})", "time")
            when.relative, when.start = bool(number[1]), float(number[2])
            if until := self.take(rf"\.\.\.\s*({NUMBER})"):
                when.end, when.blocks = float(until[1]), True
            elif until := self.take(rf"~\s*\+?({NUMBER})"):
                when.end = float(until[1])
        when.kind, when.what = self.what()
        when.text = " ".join(self.text[start : self.at].split())
        if when.blocks and when.kind != "call":
            raise Unknown("a duration of what is not a call")
        return when

    def what(self):
        if command := self.take(r"`([^`]*)`"):
            return "command", command[1]
        if code := self.take(r"%\{(.*?)\}%"):
            return "code", code[1].strip().rstrip("\\; \n\t")
        if direction := self.take(r"[<>]"):
            if self.take(r"icmp\b"):
                return "icmp", self.icmp(direction[0])
            return "packet", self.packet(direction[0])
        if name := self.take(r"([a-z]\w*)\s*\("):
            return "call", self.call(name[1])
        return self.need(r"$^", "event")

    def packet(self, direction):
        packet = Packet()
        packet.inbound = direction == "<"
        if mark := self.take(r"\[(\w+)\]"):
            if mark[1] not in ECN:
                raise Unknown(f"[{mark[1]}]")
            packet.ecn = ECN[mark[1]]
        flags = self.need(r"(-|[FSRPUEWA.0-7]+)(?=\s)", "flags")[1]
        packet.flags = frozenset(flags) & frozenset("FSRPUEWA.")
        if number := re.search(r"\d", flags):
            packet.ace = int(number[0])
        numbers = self.need(r"(\d+):(\d+)\((\d+)\)", "sequence numbers")
        packet.seq, packet.end, packet.size = (int(number) for number in numbers.groups())
        if (packet.end - packet.seq) % (1 << 32) != packet.size:
            raise Unknown("sequence numbers that are not the size")
        if number := self.take(r"ack\s+(\d+)"):
            packet.ack = int(number[1])
        if number := self.take(r"win\s+(\d+)"):
            packet.window = int(number[1])
        if number := self.take(r"urg\s+(\d+)"):
            packet.urgent = int(number[1])
        if options := self.take(r"<([^>]*)>"):
            if options[1].strip() == "...":
                packet.any_options = True
            else:
                packet.options = [self.option(option) for option in options[1].split(",")]
        return packet

    def option(self, text):
        words = text.split()
        name = words[0] if words else ""
        numbers = [int(word) for word in words[1:] if word.isdigit()]
        if name in ("nop", "eol", "sackOK") and len(words) == 1:
            return (name,)
        if name in ("mss", "wscale") and len(words) == 2 and numbers:
            return name, numbers[0]
        if name == "TS" and words[1::2] == ["val", "ecr"] and len(numbers) == 2:
            return name, *numbers
        if name == "sack" and all(re.fullmatch(r"\d+:\d+", word) for word in words[1:]):
            return name, tuple(tuple(int(edge) for edge in word.split(":")) for word in words[1:])
        if name in ("FO", "FOEXP", "md5") and len(words) <= 2:
            return name, bytes.fromhex(self.definitions.get("".join(words[1:]), "".join(words[1:])))
        # Bytes with ECT(1), CE and ECT(0), or in the opposite order.
        if name == "ECN" and len(numbers) * 2 == len(words) - 1:
            for order in (("e0b", "ceb", "e1b"), ("e1b", "ceb", "e0b")):
                if numbers and list(order[: len(numbers)]) == words[1::2]:
                    return name, order[0], tuple(numbers)
        raise Unknown(f"option {text.strip()}")

    def icmp(self, direction):
        if direction != "<":
            raise Unknown("outbound icmp")
        icmp = Icmp()
        icmp.kind = self.need(r"\w+", "type")[0]
        if code := self.take(r"(?!mtu\b)[a-z_]+"):
            icmp.code = code[0]
        if mtu := self.take(r"mtu\s+(\d+)"):
            icmp.mtu = int(mtu[1])
        numbers = self.need(r"\[(\d+):(\d+)\((\d+)\)\]", "segment")
        icmp.seq, icmp.size = int(numbers[1]), int(numbers[3])
        return icmp

    def call(self, name):
        call = Call()
        call.name, call.arguments = name, self.values(r"\)")
        self.need("=", "result")
        call.result = self.value()
        if error := self.take(r"(E[A-Z0-9]+)\b"):
            if error[1] not in self.names:
                raise Unknown(error[1])
            call.error = error[1]
        # Skip strace's comment for people.
        self.take(r"\([^)]*\)")
        return call

    def values(self, close):
        """Up to a closing bracket: a list, or a dictionary if they have names."""
        values, named = [], {}
        while not self.take(close):
            name = self.take(r"([a-z_]+)(?:\([^)]*\))?\s*=(?!=)")
            value = self.value()
            if name:
                named[name[1]] = value
            else:
                values.append(value)
            self.take(",")
        if values and named:
            raise Unknown("values with and without names in one")
        return named or values

    def value(self):
        if self.take(r"\.\.\."):
            return ANY
        if self.take(r"\["):
            return self.values(r"\]")
        if self.take(r"\{"):
            return self.values(r"\}")
        if string := self.take(r'"([^"]*)"'):
            return string[1].encode("latin-1").decode("unicode_escape").encode("latin-1")
        value = self.number()
        while self.take(r"\|"):
            value |= self.number()
        return value

    def number(self):
        if number := self.take(r"-?(?:0x[0-9a-fA-F]+|\d+)"):
            return int(number[0], 0)
        name = self.need(r"[A-Za-z_]\w*", "value")[0]
        name = self.definitions.get(name, name)
        if name not in self.names:
            raise Unknown(name)
        return self.names[name]
