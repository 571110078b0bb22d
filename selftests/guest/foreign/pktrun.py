# SPDX-License-Identifier: GPL-2.0
"""Runs a packetdrill script: does its calls, sends its packets, and compares what arrives with it."""

import copy
import ctypes
import errno
import os
import select
import signal
import socket
import struct
import subprocess
import threading
import time

import pkt
import pktwire

# Port of listeners and of outgoing connections.
PORT = 8080
# First remote port of incoming connections.
FIRST_PORT = 40001
TOLERANCE_S = 0.004
# A kernel timer may be late by up to an eighth (kernel/time/timer.c).
TIMER_PART = 8
# Limits of waiting for a packet without a given time, and for a call that should not block.
PATIENCE_S = 20
CALL_PATIENCE_S = 5
PR_SET_TIMERSLACK = 29
SO_MEMINFO, TCP_INFO, TCP_CONGESTION = 55, 11, 13
WRAP = 1 << 32
# MSS for the device's MTU, and default of a SYN without MSS.
LARGEST_MSS, DEFAULT_MSS = 1460, 536
# Flags that a congestion control with ECN adds to a SYN, whatever the script's sysctls.
ASKS_FOR_ECN = sum(pktwire.FLAGS[flag] for flag in "EWA")

libc = ctypes.CDLL(None, use_errno=True)
for name in ("read", "write", "send", "sendto", "recv", "recvfrom", "sendmsg", "recvmsg", "sendfile", "splice"):
    getattr(libc, name).restype = ctypes.c_ssize_t


class Failed(Exception):
    """What did not hold."""


class Iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]


class Msghdr(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_void_p),
        ("name_size", ctypes.c_uint32),
        ("iov", ctypes.POINTER(Iovec)),
        ("iov_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_size", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    ]


class EpollEvent(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("events", ctypes.c_uint32), ("data", ctypes.c_uint64)]


def tcp_info_fields():
    """struct tcp_info of the kernel's uapi, as far as the scripts could ask."""
    u8, u16, u32, u64 = ctypes.c_uint8, ctypes.c_uint16, ctypes.c_uint32, ctypes.c_uint64
    fields = [(name, u8) for name in "state ca_state retransmits probes backoff options".split()]
    fields += [("snd_wscale", u8, 4), ("rcv_wscale", u8, 4), ("delivery_rate_app_limited", u8, 1)]
    fields += [("fastopen_client_fail", u8, 2)]
    for kind, names in (
        (u32, "rto ato snd_mss rcv_mss unacked sacked lost retrans fackets last_data_sent last_ack_sent"),
        (u32, "last_data_recv last_ack_recv pmtu rcv_ssthresh rtt rttvar snd_ssthresh snd_cwnd advmss reordering"),
        (u32, "rcv_rtt rcv_space total_retrans"),
        (u64, "pacing_rate max_pacing_rate bytes_acked bytes_received"),
        (u32, "segs_out segs_in notsent_bytes min_rtt data_segs_in data_segs_out"),
        (u64, "delivery_rate busy_time rwnd_limited sndbuf_limited"),
        (u32, "delivered delivered_ce"),
        (u64, "bytes_sent bytes_retrans"),
        (u32, "dsack_dups reord_seen rcv_ooopack snd_wnd rcv_wnd rehash"),
        (u16, "total_rto total_rto_recoveries"),
        (u32, "total_rto_time received_ce delivered_e1_bytes delivered_e0_bytes delivered_ce_bytes"),
        (u32, "received_e1_bytes received_e0_bytes received_ce_bytes"),
    ):
        fields += [(name, kind) for name in names.split()]
    fields += [("ecn_mode", u32, 2), ("accecn_opt_seen", u32, 2), ("accecn_fail_mode", u32, 4), ("options2", u32, 24)]
    return [("tcpi_" + field[0], *field[1:]) for field in fields]


class TcpInfo(ctypes.Structure):
    _fields_ = tcp_info_fields()


STATES = "ESTABLISHED SYN_SENT SYN_RECV FIN_WAIT1 FIN_WAIT2 TIME_WAIT CLOSE CLOSE_WAIT LAST_ACK LISTEN CLOSING"
CODE_NAMES = {f"TCP_{name}": number for number, name in enumerate(STATES.split(), 1)}
CODE_NAMES |= {f"TCP_CA_{name}": number for number, name in enumerate("Open Disorder CWR Recovery Loss".split())}
CODE_NAMES |= {
    f"TCPI_OPT_{name}": 1 << bit
    for bit, name in enumerate("TIMESTAMPS SACK WSCALE ECN ECN_SEEN SYN_DATA USEC_TS TFO_CHILD".split())
}
MEMORY = "RMEM_ALLOC RCVBUF WMEM_ALLOC SNDBUF FWD_ALLOC WMEM_QUEUED OPTMEM BACKLOG DROPS"


class Connection:
    """Its ports, and what the script's numbers are on the wire."""

    def __init__(self, local_port, remote_port):
        self.local_port, self.remote_port = local_port, remote_port
        # Our initial sequence number on the wire and in the script; the remote's is equal in both.
        self.local_isn, self.script_isn, self.remote_isn = None, 0, 0
        # Our timestamp clock: script values mapped to the wire's, and the first of both.
        self.clock, self.first_clock = {}, None
        self.fd = None
        # State of the remote.
        self.mss = DEFAULT_MSS
        # ECN field of our last SYN, until the remote has reported it.
        self.syn_mark = 0

    def owns(self, segment):
        """Whether a segment is of this connection; the first of one that we opened says its port."""
        if segment.target_port != self.remote_port:
            return False
        if self.local_port is None and segment.has("S") and not segment.has("."):
            self.local_port = segment.source_port
        return segment.source_port == self.local_port


class Pending:
    """A system call: what does it, what looks at its result, and when it has to end if it blocks."""

    def __init__(self, event, function, check, start, end):
        self.event, self.function, self.check, self.start, self.end = event, function, check, start, end
        self.result = self.error = self.when = None
        self.thread, self.entered, self.done = None, False, None

    def work(self):
        ctypes.set_errno(0)
        self.entered = True
        self.result = self.function()
        self.error = ctypes.get_errno()
        self.when = time.monotonic()
        if self.done is not None:
            os.write(self.done[1], b".")

    def start_apart(self):
        """In a thread, which is asleep, or has done it, when this comes back.

        There is no wait with a timeout in here: it would be a tick of virtual time.
        """
        self.done = os.pipe()
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()
        while self.when is None and not (self.entered and self.sleeps()):
            os.sched_yield()

    def sleeps(self):
        with open(f"/proc/self/task/{self.thread.native_id}/stat", encoding="ascii") as stat:
            return stat.read().rpartition(")")[2].split()[0] == "S"

    def wait(self, until):
        """For its end, or until a time."""
        select.select([self.done[0]], [], [], max(until - time.monotonic(), 0))


class Runner:
    """One script, in a network namespace that is its own."""

    def __init__(self, script, version, congestion, needs_ecn, folder):
        self.script, self.congestion, self.needs_ecn, self.folder = script, congestion, needs_ecn, folder
        libc.prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
        self.network = pktwire.Network(version)
        self.addresses = self.network.addresses
        options = script.options
        self.tolerance = int(options.get("tolerance_usecs") or TOLERANCE_S * 1e6) / 1e6
        self.tick = int(options.get("tcp_ts_tick_usecs") or 0) / 1e6
        self.mss = int(options.get("mss") or 0)
        self.zero = self.zero_realtime = self.last = 0.0
        self.connection, self.connections, self.listening = None, [], False
        self.fds, self.buffers = {}, []
        self.pending = None
        # Interrupts a call that blocks but should not.
        signal.signal(signal.SIGALRM, lambda *_: None)

    def run(self):
        """Every event; Failed or Unknown of the first that does not hold."""
        started = False
        for event in self.script.events:
            try:
                if event.timed and not started:
                    started = True
                    self.zero, self.zero_realtime = time.monotonic(), time.time()
                self.one(event)
            except (Failed, pkt.Unknown) as error:
                raise type(error)(f"line {event.line}: {error}", event.text[:200]) from None
        self.finish_call()

    def now(self):
        return time.monotonic() - self.zero

    def one(self, event):
        """An event, whose times are from now on those of the script's clock."""
        if not event.timed:
            self.finish_call()
            self.command(event.what)
            return
        base = self.last if event.relative else 0.0
        start = base + event.start
        end = base + event.end if event.end is not None else None
        if event.kind == "packet" and not event.what.inbound:
            self.expect(event, start, end)
            return
        self.network.sleep(self.zero + start)
        late = self.now() - start
        if late > self.tolerance:
            raise Failed(f"the runner is late by {late:.6f} s")
        self.last = start
        if event.kind == "packet":
            self.inject(event.what)
        elif event.kind == "icmp":
            self.inject_icmp(event.what)
        elif event.kind == "command":
            before = self.now()
            self.command(event.what)
            # The script's clock stops during computation.
            self.zero += self.now() - before
        elif event.kind == "code":
            self.finish_call()
            self.code(event.what)
        else:
            self.call(event, end)
        self.network.drain()

    # Commands and assertions

    def command(self, text):
        env = os.environ | {"PACKETDRILL_PID": str(os.getpid())}
        done = subprocess.run(
            ["sh", "-c", text], cwd=self.folder, env=env, stdin=subprocess.DEVNULL, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        if done.returncode:
            raise Failed(f"exit code {done.returncode}: {done.stdout.strip()[-100:]}")

    def info(self):
        """TCP_INFO of the connection."""
        with socket.socket(fileno=os.dup(self.connection.fd)) as sock:
            raw = sock.getsockopt(socket.IPPROTO_TCP, TCP_INFO, ctypes.sizeof(TcpInfo))
        return TcpInfo.from_buffer_copy(raw.ljust(ctypes.sizeof(TcpInfo), b"\0"))

    def code(self, text):
        if self.connection is None or self.connection.fd is None:
            raise Failed("no socket to ask")
        info = self.info()
        with socket.socket(fileno=os.dup(self.connection.fd)) as sock:
            memory = sock.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, 64)
        names = {field[0]: getattr(info, field[0]) for field in TcpInfo._fields_}
        numbers = struct.unpack(f"={len(memory) // 4}I", memory)
        names |= {f"SK_MEMINFO_{name}": number for name, number in zip(MEMORY.split(), numbers)}
        try:
            exec(compile(text, "script", "exec"), names | CODE_NAMES)  # pylint: disable=exec-used
        except AssertionError as error:
            raise Failed(f"assertion: {error}") from None
        except NameError as error:
            raise pkt.Unknown(str(error)) from None

    # Packets

    def inject(self, packet):
        syn, acks = "S" in packet.flags, "." in packet.flags
        if syn and not acks and self.listening:
            self.listening = False
            self.connect(PORT, FIRST_PORT + len(self.connections))
        at = self.connection
        if at is None or at.local_port is None:
            raise pkt.Unknown("a packet of no connection")
        if syn:
            at.remote_isn = packet.seq
            at.mss = next((option[1] for option in packet.options if option[0] == "mss"), DEFAULT_MSS)
        seq = packet.seq if syn else at.remote_isn + packet.seq
        ack = 0
        if acks:
            # A SYN's numbers are absolute, later ones relative to the SYN's.
            ack = (at.local_isn or 0) + (packet.ack or 0) - (at.script_isn if syn else 0)
        if self.needs_ecn and acks:
            packet = self.honest(packet, at)
        chosen = [self.to_wire(option, at) for option in packet.options]
        ports = at.remote_port, at.local_port
        self.network.send(ports, packet, seq % WRAP, ack % WRAP, chosen, self.mss)

    @staticmethod
    def honest(packet, at):
        """The script's remote tells that no ECN was in our SYN. Where some was, it tells that (RFC 9768)."""
        told, at.syn_mark = at.syn_mark, 0
        if told != pkt.ECN["ect0"] or packet.flags - {"S"} != {"W", "."}:
            return packet
        packet = copy.copy(packet)
        packet.flags = packet.flags - {"W"} | {"A"}
        return packet

    def inject_icmp(self, icmp):
        at = self.connection
        if at is None or at.local_isn is None:
            raise pkt.Unknown("icmp about no connection")
        self.network.send_icmp((at.local_port, at.remote_port), icmp, (at.local_isn + icmp.seq) % WRAP)

    def to_wire(self, option, at):
        if option[0] == "TS":
            _, value, echo = option
            if echo in at.clock:
                echo = at.clock[echo]
            elif echo and self.tick and at.first_clock:
                echo = (at.first_clock[1] + echo - at.first_clock[0]) % WRAP
            return "TS", value, echo
        if option[0] == "sack":
            base = at.local_isn or 0
            return "sack", tuple(tuple((edge + base) % WRAP for edge in edges) for edges in option[1])
        return option

    def connect(self, local_port, remote_port):
        """A new connection takes the place of the one before, whose packets are of no concern any more."""
        self.connection = Connection(local_port, remote_port)
        self.connections.append(self.connection)

    def expect(self, event, start, end):
        """The next packet of the connection is the one that the script has, in its time."""
        if self.connection is None:
            raise pkt.Unknown("a packet of no connection")
        latest = start if end is None else end
        late = max(self.tolerance, (latest - self.last) / TIMER_PART)
        deadline = self.now() + PATIENCE_S if event.anytime else latest + late + 1
        packet = event.what
        while True:
            self.network.wait(self.zero + deadline)
            if not self.network.queue:
                raise Failed(f"no packet until {self.now():.6f}")
            segment = self.network.queue.pop(0)
            if not self.connection.owns(segment):
                continue
            when = segment.when - self.zero
            seen = self.described(segment, when)
            left = packet.size - segment.size
            part = 0 < segment.size < packet.size and segment.size % self.payload(segment) == 0
            piece = copy.copy(packet)
            if part:
                piece.size = segment.size
            wrong = self.differences(piece, segment, when, part)
            if wrong:
                raise Failed(f"{', '.join(wrong)}; came: {seen}")
            if not event.anytime and not start - self.tolerance <= when <= latest + late:
                until = "" if end is None else f" to {end:.6f}"
                raise Failed(f"at {when:.6f}, not at {start:.6f}{until}; came: {seen}")
            if not part:
                break
            packet = copy.copy(packet)
            packet.seq, packet.size = (packet.seq + segment.size) % WRAP, left
        # Later times count from the actual arrival, not the expected one.
        self.last = when

    def payload(self, segment):
        """What a full segment carries: into how many of them data is cut is the pacing's choice."""
        if self.connection.fd is not None:
            return self.info().tcpi_snd_mss
        clock = 12 if any(option[0] == "TS" for option in segment.options) else 0
        return min(self.connection.mss, LARGEST_MSS) - clock

    def numbers(self, segment):
        """Sequence number and acknowledgement as the script has them."""
        at = self.connection
        if segment.has("S"):
            if at.local_isn is None:
                return None, segment.ack
            return (segment.seq - at.local_isn + at.script_isn) % WRAP, segment.ack
        ack = (segment.ack - at.remote_isn) % WRAP if segment.has(".") else segment.ack
        return (segment.seq - (at.local_isn or 0)) % WRAP, ack

    def differences(self, packet, segment, when, part=False):
        """What is not as the script has it; of a part, PSH is not looked at."""
        at = self.connection
        if segment.has("S") and at.local_isn is None:
            at.local_isn, at.script_isn = segment.seq, packet.seq
        seq, ack = self.numbers(segment)
        wanted = sum(pktwire.FLAGS[flag] for flag in packet.flags)
        if packet.ace is not None:
            wanted |= packet.ace << pktwire.ACE_SHIFT
        flags = segment.flags
        if part:
            flags, wanted = flags & ~pktwire.FLAGS["P"], wanted & ~pktwire.FLAGS["P"]
        # This sender requests ECN by itself, and marks its SYNs.
        asks = self.needs_ecn and segment.has("S")
        if segment.has("S"):
            at.syn_mark = segment.ecn
        if asks and not segment.has("."):
            flags &= wanted | ~ASKS_FOR_ECN
        pairs = [
            ("flags", wanted, flags),
            ("sequence", (packet.seq, packet.size), (seq, segment.size)),
            ("urgent", packet.urgent or 0, segment.urgent),
        ]
        if "." in packet.flags and packet.ack is not None:
            pairs.append(("ack", packet.ack % WRAP, ack))
        if packet.window is not None:
            pairs.append(("window", packet.window, segment.window))
        if packet.ecn is not None and not asks:
            pairs.append(("ecn", packet.ecn, segment.ecn))
        wrong = [name for name, script, live in pairs if script != live]
        if not packet.any_options:
            wrong += self.option_differences(packet.options, segment.options, when)
        return wrong

    def option_differences(self, script, live, when):
        at = self.connection
        if [option[0] for option in script] != [option[0] for option in live]:
            return ["options"]
        wrong = []
        for here, there in zip(script, live):
            if here[0] == "TS":
                wrong += self.clock_differences(here, there, when)
            elif here[0] == "sack":
                edges = tuple(tuple((edge - at.remote_isn) % WRAP for edge in pair) for pair in there[1])
                wrong += ["sack"] * (here[1] != edges)
            else:
                wrong += [here[0]] * (here != there)
        return wrong

    def clock_differences(self, here, there, _when):
        """Its value is checked if the script says how long a tick is; an echo always."""
        at = self.connection
        _, value, echo = there
        at.clock[here[1]] = value
        if at.first_clock is None:
            at.first_clock = here[1], value
        script, live = at.first_clock
        drift = ((value - live) - (here[1] - script) + WRAP // 2) % WRAP - WRAP // 2
        wrong = ["TS val"] * (abs(drift) * self.tick > self.tolerance)
        return wrong + ["TS ecr"] * (echo != here[2])

    def described(self, segment, when):
        """In the script's language."""
        seq, ack = self.numbers(segment)
        seq = 0 if seq is None else seq
        flags = "".join(flag for flag in "SFRPUEWA." if segment.has(flag)) or "-"
        at = self.connection
        text = []
        for name, *values in segment.options:
            if name == "TS":
                values = ["val", values[0], "ecr", values[1]]
            elif name == "sack":
                values = [f"{(a - at.remote_isn) % WRAP}:{(b - at.remote_isn) % WRAP}" for a, b in values[0]]
            elif name == "ECN":
                order = ("e0b", "ceb", "e1b") if values[0] == "e0b" else ("e1b", "ceb", "e0b")
                values = [f"{key} {count}" for key, count in zip(order, values[1])]
            else:
                values = [value.hex() if isinstance(value, bytes) else value for value in values]
            text.append(" ".join([name, *map(str, values)]))
        mark = {number: name for name, number in pkt.ECN.items()}[segment.ecn]
        return (
            f"{when:.6f} > [{mark}] {flags} {seq}:{seq + segment.size}({segment.size})"
            + (f" ack {ack}" if segment.has(".") else "")
            + f" win {segment.window} <{','.join(text)}>"
        )

    # System calls

    def call(self, event, end):
        self.finish_call()
        call = event.what
        method = getattr(self, f"do_{call.name}", None)
        if method is None:
            raise pkt.Unknown(f"{call.name}()")
        arguments = call.arguments if isinstance(call.arguments, list) else [call.arguments]
        try:
            function, check = method(*arguments)
        except TypeError as error:
            raise pkt.Unknown(f"arguments of {call.name}(): {error}") from None
        self.pending = Pending(event, function, check, self.last, end)
        if event.blocks:
            self.pending.start_apart()
            return
        signal.setitimer(signal.ITIMER_REAL, CALL_PATIENCE_S)
        self.pending.work()
        signal.setitimer(signal.ITIMER_REAL, 0)
        self.finish_call()

    def finish_call(self):
        """Wait for the pending call, and compare its result with the script."""
        job, self.pending = self.pending, None
        if job is None:
            return
        call = job.event.what
        where = f"{call.name}() of line {job.event.line}"
        if job.end is not None:
            job.wait(self.zero + job.end + (job.end - job.start) / TIMER_PART + 1)
            if job.when is None:
                raise Failed(f"{where} does not come back")
            late = job.when - self.zero - job.end
            if not -self.tolerance <= late <= max(self.tolerance, (job.end - job.start) / TIMER_PART):
                raise Failed(f"{where} ended at {job.when - self.zero:.6f}, not at {job.end:.6f}")
        result = job.result
        why = errno.errorcode.get(job.error, job.error) if result < 0 else ""
        returns_file = call.name in ("socket", "accept", "open", "epoll_create") and call.result >= 0
        if returns_file and result >= 0:
            self.fds[call.result] = result
        elif call.result is not pkt.ANY and result != call.result:
            raise Failed(f"{where} returned {result} {why}")
        elif call.error is not None and result < 0 and getattr(errno, call.error) != job.error:
            raise Failed(f"{where}: {why}")
        if job.check:
            job.check(result)

    def fd(self, number):
        if number not in self.fds:
            raise Failed(f"no file {number}")
        return self.fds[number]

    def buffer(self, where, size, content=b""):
        """Bytes that stay where they are, for those who send without copying."""
        if where is None:
            return None
        if where is not pkt.ANY and not isinstance(where, bytes):
            raise pkt.Unknown("a buffer that is given")
        buffer = ctypes.create_string_buffer(content, max(size, len(content), 1))
        self.buffers.append(buffer)
        return buffer

    def address(self):
        raw = self.addresses.sockaddr(self.addresses.remote, PORT)
        return self.buffer(pkt.ANY, len(raw), raw), len(raw)

    def do_socket(self, domain, kind, protocol):
        if domain is not pkt.ANY:
            raise pkt.Unknown("socket() of a domain")
        family = self.addresses.family

        def check(fd):
            with socket.socket(fileno=os.dup(fd)) as sock:
                name = sock.getsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, 16).rstrip(b"\0").decode()
            if name != self.congestion:
                raise Failed(f"the socket's congestion control is {name}")

        return lambda: libc.socket(family, kind, protocol), check

    def do_bind(self, fd, address, size):
        if (address, size) != (pkt.ANY, pkt.ANY):
            raise pkt.Unknown("bind() to an address")
        raw = self.addresses.sockaddr(None, PORT)
        fd = self.fd(fd)
        return lambda: libc.bind(fd, raw, len(raw)), None

    def do_listen(self, fd, backlog):
        self.listening = True
        fd = self.fd(fd)
        return lambda: libc.listen(fd, backlog), None

    def do_accept(self, fd, address, size):
        if (address, size) != (pkt.ANY, pkt.ANY):
            raise pkt.Unknown("accept() that asks for an address")
        fd = self.fd(fd)

        def check(result):
            if result < 0:
                return
            with socket.socket(fileno=os.dup(result)) as sock:
                try:
                    port = sock.getpeername()[1]
                except OSError:
                    # The connection was reset before it was accepted.
                    port = self.connection.remote_port
            for connection in self.connections:
                if connection.remote_port == port:
                    connection.fd = result

        return lambda: libc.accept(fd, None, None), check

    def do_connect(self, fd, address, size):
        live = self.fd(fd)
        if address == socket.AF_UNSPEC:
            raw = struct.pack("=H14x", socket.AF_UNSPEC)
            return lambda: libc.connect(live, raw, len(raw)), None
        if (address, size) != (pkt.ANY, pkt.ANY):
            raise pkt.Unknown("connect() to an address")
        raw = self.addresses.sockaddr(self.addresses.remote, PORT)
        self.connect(None, PORT)
        self.connection.fd = live
        return lambda: libc.connect(live, raw, len(raw)), None

    def do_close(self, fd):
        live = self.fds.pop(fd, -1)
        for connection in self.connections:
            if connection.fd == live:
                connection.fd = None
        return lambda: libc.close(live), None

    def do_shutdown(self, fd, how):
        fd = self.fd(fd)
        return lambda: libc.shutdown(fd, how), None

    def do_read(self, fd, where, size):
        fd, buffer = self.fd(fd), self.buffer(where, size)
        return lambda: libc.read(fd, buffer, ctypes.c_size_t(size)), None

    def do_write(self, fd, where, size):
        fd, buffer = self.fd(fd), self.buffer(where, size)
        return lambda: libc.write(fd, buffer, ctypes.c_size_t(size)), None

    def do_send(self, fd, where, size, flags):
        fd, buffer = self.fd(fd), self.buffer(where, size)
        return lambda: libc.send(fd, buffer, ctypes.c_size_t(size), flags), None

    def do_recv(self, fd, where, size, flags):
        fd, buffer = self.fd(fd), self.buffer(where, size)
        return lambda: libc.recv(fd, buffer, ctypes.c_size_t(size), flags), None

    def do_sendto(self, fd, where, size, flags, address, _size):
        if address is not pkt.ANY:
            raise pkt.Unknown("sendto() an address")
        live, buffer = self.fd(fd), self.buffer(where, size)
        target, target_size = self.address()
        if flags & pkt.NAMES["MSG_FASTOPEN"]:
            self.connect(None, PORT)
            self.connection.fd = live
        return lambda: libc.sendto(live, buffer, ctypes.c_size_t(size), flags, target, target_size), None

    def do_recvfrom(self, fd, where, size, flags, _address, _size):
        fd, buffer = self.fd(fd), self.buffer(where, size)
        return lambda: libc.recvfrom(fd, buffer, ctypes.c_size_t(size), flags, None, None), None

    def do_fcntl(self, fd, command, flags=0):
        fd = self.fd(fd)
        return lambda: libc.fcntl(fd, command, ctypes.c_long(flags)), None

    def do_ioctl(self, fd, command, value):
        fd, number = self.fd(fd), ctypes.c_int(0)

        def check(_):
            if [number.value] != value:
                raise Failed(f"ioctl() says {number.value}")

        return lambda: libc.ioctl(fd, ctypes.c_ulong(command), ctypes.byref(number)), check

    def do_setsockopt(self, fd, level, option, value, size):
        fd = self.fd(fd)
        if isinstance(value, list) and len(value) == 1:
            value = (value[0] % WRAP).to_bytes(4, "little")
        elif not isinstance(value, bytes):
            raise pkt.Unknown("setsockopt() of what is no number")
        buffer = self.buffer(pkt.ANY, size, value)
        return lambda: libc.setsockopt(fd, level, option, buffer, size), None

    def do_getsockopt(self, fd, level, option, value, size):
        fd, number, space = self.fd(fd), ctypes.c_int(0), ctypes.c_uint32(size[0])

        def check(_):
            if [number.value] != value:
                raise Failed(f"getsockopt() says {number.value}")

        return lambda: libc.getsockopt(fd, level, option, ctypes.byref(number), ctypes.byref(space)), check

    def do_pipe(self, numbers):
        pair = (ctypes.c_int * 2)()

        def check(_):
            self.fds.update(zip(numbers, pair))

        return lambda: libc.pipe(pair), check

    def do_splice(self, source, source_at, target, target_at, size, flags):
        if (source_at, target_at) != (None, None):
            raise pkt.Unknown("splice() at a place")
        source, target = self.fd(source), self.fd(target)
        return lambda: libc.splice(source, None, target, None, ctypes.c_size_t(size), flags), None

    def do_open(self, path, flags):
        return lambda: libc.open(path, flags), None

    def do_sendfile(self, target, source, where, size):
        source, target, start = self.fd(source), self.fd(target), ctypes.c_long(where[0])
        return lambda: libc.sendfile(target, source, ctypes.byref(start), ctypes.c_size_t(size)), None

    def message(self, message, control_size):
        """A struct msghdr and what it points to."""
        if set(message) - {"msg_name", "msg_iov", "msg_flags", "msg_control"} or message["msg_name"] is not pkt.ANY:
            raise pkt.Unknown("a message with more than data")
        parts = message["msg_iov"]
        vectors = (Iovec * len(parts))()
        for vector, (where, size) in zip(vectors, parts):
            vector.base, vector.size = ctypes.addressof(self.buffer(where, size)), size
        control = ctypes.create_string_buffer(max(control_size, 1))
        head = Msghdr(None, 0, vectors, len(parts), ctypes.addressof(control), control_size, 0)
        self.buffers.append((vectors, control))
        return head, control

    def do_sendmsg(self, fd, message, flags):
        if "msg_control" in message:
            raise pkt.Unknown("sendmsg() with control data")
        fd, (head, _) = self.fd(fd), self.message(message, 0)
        return lambda: libc.sendmsg(fd, ctypes.byref(head), flags), None

    def do_recvmsg(self, fd, message, flags):
        fd, (head, control) = self.fd(fd), self.message(message, 512)

        def check(result):
            if result < 0:
                return
            if head.flags != message.get("msg_flags", 0):
                raise Failed(f"recvmsg() has flags {head.flags:#x}")
            self.check_control(message.get("msg_control", []), control.raw[: head.control_size])

        return lambda: libc.recvmsg(fd, ctypes.byref(head), flags), check

    def check_control(self, script, raw):
        """Each control message against the script's."""
        live = []
        while len(raw) >= 16:
            size, level, kind = struct.unpack("=Qii", raw[:16])
            live.append((level, kind, raw[16:size]))
            raw = raw[(size + 7) // 8 * 8 :]
        heads = [(level, kind) for level, kind, _ in live]
        if [(one["cmsg_level"], one["cmsg_type"]) for one in script] != heads:
            raise Failed(f"recvmsg() has control messages {heads}")
        for one, (level, kind, data) in zip(script, live):
            wanted = one["cmsg_data"]
            if (level, kind) == (socket.SOL_SOCKET, pkt.NAMES["SCM_TIMESTAMPING"]):
                seconds, nanoseconds = struct.unpack("=qq", data[:16])
                when = seconds - self.zero_realtime + nanoseconds / 1e9
                if abs(when - wanted["scm_sec"] - wanted["scm_nsec"] / 1e9) > self.tolerance:
                    raise Failed(f"recvmsg() has time {when:.6f}")
            elif (level, kind) == (pkt.NAMES["SOL_TCP"], pkt.NAMES["TCP_CM_INQ"]):
                if struct.unpack("=i", data[:4])[0] != wanted:
                    raise Failed(f"recvmsg() says that {struct.unpack('=i', data[:4])[0]} bytes are left")
            elif (level, kind) in ((0, pkt.NAMES["IP_RECVERR"]), (41, pkt.NAMES["IPV6_RECVERR"])):
                names = "ee_errno", "ee_origin", "ee_type", "ee_code", "ee_info", "ee_data"
                found = dict(zip(names, struct.unpack("=IBBBxII", data[:16])))
                if wanted != found:
                    raise Failed(f"recvmsg() has {found}")
            else:
                raise pkt.Unknown(f"control message {level}, {kind}")

    def do_epoll_create(self, size):
        return lambda: libc.epoll_create(size), None

    def do_epoll_ctl(self, epoll, command, fd, event):
        epoll, live = self.fd(epoll), self.fd(fd)
        argument = EpollEvent(event["events"], event["fd"])
        return lambda: libc.epoll_ctl(epoll, command, live, ctypes.byref(argument)), None

    def do_epoll_wait(self, epoll, event, count, timeout):
        epoll, found = self.fd(epoll), EpollEvent()
        if count != 1:
            raise pkt.Unknown("epoll_wait() for more than one")

        def check(result):
            if result == 1 and (found.events, found.data) != (event["events"], event.get("fd")):
                raise Failed(f"epoll_wait() has events {found.events:#x}")

        return lambda: libc.epoll_wait(epoll, ctypes.byref(found), 1, timeout), check
