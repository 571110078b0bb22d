# SPDX-License-Identifier: GPL-2.0
"""The network that packetdrill scripts are run on: a TUN device, and TCP in bytes."""

import fcntl
import os
import select
import socket
import struct
import subprocess
import time

import pkt

DEVICE = "tun0"
TUNSETIFF = 0x400454CA
TUNSETOFFLOAD = 0x400454D0
IFF_TUN, IFF_NO_PI, IFF_VNET_HDR = 0x0001, 0x1000, 0x4000
# The device accepts segments above the MSS, with any ECN bits, as they leave TCP.
OFFLOADS = 0x01 | 0x02 | 0x04 | 0x08
# struct virtio_net_hdr: flags, type, header length, MSS, start and offset of the checksum.
VIRTIO = struct.Struct("<BBHHHH")
SPLIT_IPV4, SPLIT_IPV6 = 1, 4
LARGEST = 1 << 17
SETTLE_S = 0.05
TTL = 255
# TCP header flags; AE is the former NS bit.
FLAGS = {"F": 0x01, "S": 0x02, "R": 0x04, "P": 0x08, ".": 0x10, "U": 0x20, "E": 0x40, "W": 0x80, "A": 0x100}
ACE_SHIFT = 6
EOL, NOP, MSS, WSCALE, SACK_OK, SACK, TS, MD5, FO = 0, 1, 2, 3, 4, 5, 8, 19, 34
ECN0, ECN1, EXPERIMENTAL = 172, 174, 254
FOEXP_MAGIC = b"\xf9\x89"


class Addresses:
    """Who talks to whom, in one version of IP. Cookies of Fast Open depend on both."""

    def __init__(self, version):
        self.version = version
        self.six = version == "ipv6"
        self.local, self.remote = "192.168.0.1", "192.0.2.1"
        if self.six:
            self.local, self.remote = "fd3d:0a0b:17d6::1", "fd3d:fa7b:d17d::1"
        self.family = socket.AF_INET if version == "ipv4" else socket.AF_INET6
        wire = socket.AF_INET6 if self.six else socket.AF_INET
        self.local_bytes = socket.inet_pton(wire, self.local)
        self.remote_bytes = socket.inet_pton(wire, self.remote)

    def sockaddr(self, address, port):
        """Of this version's sockets; an address of None is any."""
        if self.family == socket.AF_INET:
            return struct.pack("=HH", self.family, socket.htons(port)) + (
                socket.inet_aton(address) if address else bytes(4)
            ).ljust(12, b"\0")
        if not address:
            address = "::"
        elif not self.six:
            address = f"::ffff:{address}"
        raw = socket.inet_pton(socket.AF_INET6, address)
        return struct.pack("=HHI", self.family, socket.htons(port), 0) + raw + bytes(4)

    def setup(self):
        """Commands for ip(8). Its own traffic is not the script's, and is none of ours."""
        mtu, mask, host, more = (1520, 48, 128, "nodad") if self.six else (1500, 16, 32, "")
        return (
            f"link set lo up\nlink set {DEVICE} mtu {mtu}\n"
            f"addr add {self.local}/{mask} dev {DEVICE} {more}\nlink set {DEVICE} up\n"
            f"route add {self.remote}/{host} dev {DEVICE}\n"
        )


def checksum(data):
    """The Internet's, of an even number of bytes or one more."""
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


class Segment:
    """A TCP segment that came out of the device."""

    def __init__(self, raw, when):
        self.when = when
        six = raw[0] >> 4 == 6
        self.ecn = (struct.unpack("!I", raw[:4])[0] >> 20 if six else raw[1]) & 3
        self.source, self.target = (raw[8:24], raw[24:40]) if six else (raw[12:16], raw[16:20])
        tcp = raw[40:] if six else raw[(raw[0] & 15) * 4 :]
        self.source_port, self.target_port, self.seq, self.ack, bits, self.window, _, self.urgent = struct.unpack(
            "!HHIIHHHH", tcp[:20]
        )
        self.flags = bits & 0x1FF
        header = (bits >> 12) * 4
        self.size = len(tcp) - header
        self.options = list(options(tcp[20:header]))

    def has(self, flag):
        return bool(self.flags & FLAGS[flag])


def is_tcp(raw):
    """TCP without extension headers."""
    return len(raw) >= 40 and (raw[9] if raw[0] >> 4 == 4 else raw[6]) == socket.IPPROTO_TCP


def options(data):
    """Each as the reader of scripts has it."""
    while data:
        kind = data[0]
        if kind in (EOL, NOP):
            yield ("eol",) if kind == EOL else ("nop",)
            data = data[1:]
            continue
        size = data[1] if len(data) > 1 else 0
        if size < 2:
            yield ("broken", data.hex())
            return
        body, data = data[2:size], data[size:]
        if kind == MSS:
            yield "mss", int.from_bytes(body, "big")
        elif kind == WSCALE:
            yield "wscale", body[0]
        elif kind == SACK_OK:
            yield ("sackOK",)
        elif kind == SACK:
            edges = struct.unpack(f"!{len(body) // 4}I", body)
            yield "sack", tuple(zip(edges[::2], edges[1::2]))
        elif kind == TS:
            yield "TS", *struct.unpack("!II", body)
        elif kind == MD5:
            yield "md5", body
        elif kind == FO:
            yield "FO", body
        elif kind == EXPERIMENTAL and body[:2] == FOEXP_MAGIC:
            yield "FOEXP", body[2:]
        elif kind in (ECN0, ECN1):
            counts = tuple(int.from_bytes(body[at : at + 3], "big") for at in range(0, len(body), 3))
            yield "ECN", "e0b" if kind == ECN0 else "e1b", counts
        else:
            yield f"kind {kind}", body.hex()


def option_bytes(option):
    """The other way around."""
    name, *values = option
    if name in ("nop", "eol"):
        return bytes([NOP if name == "nop" else EOL])
    if name == "mss":
        kind, body = MSS, struct.pack("!H", values[0])
    elif name == "wscale":
        kind, body = WSCALE, bytes([values[0]])
    elif name == "sackOK":
        kind, body = SACK_OK, b""
    elif name == "sack":
        kind, body = SACK, b"".join(struct.pack("!II", *edges) for edges in values[0])
    elif name == "TS":
        kind, body = TS, struct.pack("!II", *values)
    elif name in ("FO", "md5"):
        kind, body = (FO if name == "FO" else MD5), values[0]
    elif name == "FOEXP":
        kind, body = EXPERIMENTAL, FOEXP_MAGIC + values[0]
    elif name == "ECN":
        kind, body = (ECN0 if values[0] == "e0b" else ECN1), b"".join(n.to_bytes(3, "big") for n in values[1])
    else:
        raise pkt.Unknown(f"option {name} of a packet that we send")
    return bytes([kind, len(body) + 2]) + body


class Network:
    """The device, its addresses, and what came out of it."""

    def __init__(self, version):
        self.addresses = Addresses(version)
        self.device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(self.device, TUNSETIFF, struct.pack("16sH22x", DEVICE.encode(), IFF_TUN | IFF_NO_PI | IFF_VNET_HDR))
        fcntl.ioctl(self.device, TUNSETOFFLOAD, OFFLOADS)
        subprocess.run(["ip", "-batch", "-"], input=self.addresses.setup(), text=True, check=True)
        # A kernel thread completes an IPv6 address when it is scheduled.
        time.sleep(SETTLE_S)
        self.queue = []

    def drain(self):
        """What is there, each with the time at which it was seen."""
        while True:
            try:
                raw = os.read(self.device, LARGEST)[VIRTIO.size :]
            except BlockingIOError:
                return
            if is_tcp(raw):
                self.queue.append(Segment(raw, time.monotonic()))

    def wait(self, until):
        """Until a time, or a segment."""
        while True:
            self.drain()
            left = until - time.monotonic()
            if left <= 0 or self.queue:
                return
            select.select([self.device], [], [], left)

    def sleep(self, until):
        """Until a time; what comes is kept."""
        while True:
            self.drain()
            left = until - time.monotonic()
            if left <= 0:
                return
            select.select([self.device], [], [], left)

    def ip(self, protocol, payload, ecn, outbound=False):
        """A packet around a payload, from the remote unless it is one of ours that an error quotes."""
        source, target = self.addresses.remote_bytes, self.addresses.local_bytes
        if outbound:
            source, target = target, source
        if self.addresses.six:
            head = struct.pack("!IHBB", 6 << 28 | ecn << 20, len(payload), protocol, TTL)
            return head + source + target + payload
        head = struct.pack("!BBHHHBBH", 0x45, ecn, 20 + len(payload), 0, 0, TTL, protocol, 0) + source + target
        return head[:10] + struct.pack("!H", 0xFFFF ^ checksum(head)) + head[12:] + payload

    def pseudo(self, protocol, size):
        """What a checksum covers of the IP header."""
        return self.addresses.remote_bytes + self.addresses.local_bytes + struct.pack("!II", size, protocol)

    def send(self, ports, packet, seq, ack, chosen, mss):
        """A segment of zeros; one of more than `mss` as if GRO had made it of several."""
        raw = b"".join(option_bytes(option) for option in chosen)
        raw = raw.ljust((len(raw) + 3) // 4 * 4, b"\0")
        bits = sum(FLAGS[flag] for flag in packet.flags)
        if packet.ace is not None:
            bits |= packet.ace << ACE_SHIFT
        head = 20 + len(raw)
        start = struct.pack("!HHIIHH", *ports, seq, ack, head // 4 << 12 | bits, packet.window or 0)
        urgent = struct.pack("!H", packet.urgent or 0)
        pseudo = self.pseudo(socket.IPPROTO_TCP, head + packet.size)
        total = 0xFFFF ^ checksum(pseudo + start + b"\0\0" + urgent + raw)
        split = (SPLIT_IPV6 if self.addresses.six else SPLIT_IPV4, mss) if 0 < mss < packet.size else (0, 0)
        # Header length 0 puts most of the packet into the skb's head, whose memory the scripts count.
        virtio = VIRTIO.pack(0, split[0], 0, split[1], 0, 0)
        tcp = start + struct.pack("!H", total) + urgent + raw + bytes(packet.size)
        os.write(self.device, virtio + self.ip(socket.IPPROTO_TCP, tcp, packet.ecn or 0))

    def send_icmp(self, ports, icmp, seq):
        """An error that quotes the start of a segment of ours."""
        tcp = struct.pack("!HHIIHHHH", *ports, seq, 0, 5 << 12 | FLAGS["."], 0, 0, 0) + bytes(icmp.size)
        six = self.addresses.six
        codes = {
            (False, "unreachable", None): (3, 0),
            (False, "unreachable", "host_unreachable"): (3, 1),
            (False, "unreachable", "frag_needed"): (3, 4),
            (True, "packet_too_big", None): (2, 0),
        }
        if (six, icmp.kind, icmp.code) not in codes:
            raise pkt.Unknown(f"icmp {icmp.kind} {icmp.code or ''}")
        kind, code = codes[six, icmp.kind, icmp.code]
        quoted = self.ip(socket.IPPROTO_TCP, tcp, 0, outbound=True)[:520]
        body = struct.pack("!I", icmp.mtu) + quoted
        protocol = socket.IPPROTO_ICMPV6 if six else socket.IPPROTO_ICMP
        pseudo = self.pseudo(protocol, 4 + len(body)) if six else b""
        total = 0xFFFF ^ checksum(pseudo + bytes([kind, code, 0, 0]) + body)
        message = bytes([kind, code]) + struct.pack("!H", total) + body
        os.write(self.device, VIRTIO.pack(0, 0, 0, 0, 0, 0) + self.ip(protocol, message, 0))
