// SPDX-License-Identifier: GPL-2.0
//! A connection between the kernel and a scripted peer: each case decides which segments arrive, with which
//! mark, and when they are acknowledged.

use std::{
    collections::VecDeque,
    io::{Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::AsRawFd,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use socket2::{Domain, Protocol, Socket, Type};
use xdc_tcpinfo::{DctcpInfo, TcpInfo, dctcp_info, tcp_info};

use crate::lab::{self, KERNEL_V4, KERNEL_V6, Lab, MSS_BYTES, RTT_US};
use crate::tun::now_ns;
use crate::wire::{self, Codepoint, Options, Segment};

/// The side that opens the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    KernelConnects,
    KernelAccepts,
}

/// Address families.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
    /// IPv4 on an IPv6 socket.
    Mapped,
}

/// ECN support of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ecn {
    None,
    /// ECE from a mark until CWR (RFC 3168).
    Rfc3168,
    /// ECE on the ACK of each marked packet, as DCTCP's receiver does.
    PerPacket,
    Accurate,
    /// AccECN with the TCP option.
    AccurateWithOption,
}

/// ECN mark of an arriving segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    No,
    Ce,
}

/// Parameters of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    pub cc: &'static str,
    pub role: Role,
    pub family: Family,
    pub ecn: Ecn,
    pub timestamps: bool,
    pub sack: bool,
    pub rtt_us: u64,
    /// The kernel's initial window in packets; the routes have 10, 32 and 100.
    pub initial_window: u16,
    /// Last byte of the peer's address.
    pub host: u8,
    /// Congestion control until the SYN is sent, if not `cc`.
    pub first_cc: Option<&'static str>,
    /// The SYN waits for the first data (TCP_FASTOPEN_CONNECT), and the socket gets `first_cc` meanwhile; the
    /// route to `host` sets `cc`.
    pub deferred: bool,
    /// Variant of the handshake.
    pub handshake: Handshake,
}

/// Behavior of the peer in the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handshake {
    Whole,
    /// Simultaneous open: the peer sends a SYN before it has seen the kernel's.
    Crossed,
    /// A middlebox clears the ACE counter of the last ACK.
    Cleared,
    /// As `Cleared`, and the peer opens with data, so the kernel answers before the last ACK.
    ClearedFastOpen,
}

impl Setup {
    pub fn new(cc: &'static str) -> Self {
        Setup {
            cc,
            role: Role::KernelConnects,
            family: Family::V4,
            ecn: Ecn::Accurate,
            timestamps: false,
            sack: true,
            rtt_us: RTT_US,
            initial_window: 10,
            host: 2,
            first_cc: None,
            deferred: false,
            handshake: Handshake::Whole,
        }
    }
}

/// A data segment from the kernel.
#[derive(Debug, Clone)]
pub struct Arrival {
    pub segment: Segment,
    pub sent_us: u64,
    /// ACKs that the kernel had received before it sent this segment.
    pub acks_before: usize,
}

/// One ACK and the kernel's state after it.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    /// Arrival time at the kernel.
    pub at_us: u64,
    /// Departure time of the newest acknowledged segment.
    pub sent_us: u64,
    /// ACKs that the kernel had received by `sent_us`.
    pub acks_before: usize,
    /// Bytes acknowledged with it, and the marked part.
    pub bytes: u32,
    pub marked_bytes: u32,
    pub tcp: TcpInfo,
    pub cc: DctcpInfo,
}

impl Step {
    pub fn cwnd(&self) -> u32 {
        self.tcp.snd_cwnd
    }

    /// The measured average, 0 to 1.
    pub fn alpha(&self) -> f64 {
        f64::from(self.cc.alpha) / 1_024.0
    }
}

/// A connection between the kernel and the peer.
pub struct Flow<'a> {
    lab: &'a mut Lab,
    pub socket: Socket,
    setup: Setup,
    kernel: SocketAddr,
    peer: SocketAddr,
    /// Time from a segment's departure to its ACK.
    pub rtt_us: u64,
    /// Minimum time between ACKs.
    pub gap_us: u64,
    last_ack_us: u64,
    /// The peer's receive window, in units of 16 kB.
    pub window: u16,
    /// Data segments not yet processed by a case, in sending order.
    pub arrived: VecDeque<Arrival>,
    /// ACKs from the kernel as receiver.
    pub acks: Vec<Segment>,
    /// One entry per ACK.
    pub steps: Vec<Step>,

    // Peer as sender.
    snd_nxt: u32,
    // Peer as receiver.
    rcv_nxt: u32,
    out_of_order: Vec<(u32, u32)>,
    newest_block: Option<(u32, u32)>,
    dsack: Option<(u32, u32)>,
    echo_timestamp: u32,
    ece: bool,
    ce_packets: u32,
    accecn_bytes: [u32; 3],
}

/// Longest wait for the kernel, in virtual time.
const PATIENCE_NS: u64 = 20_000_000_000;
/// Offset of events within a microsecond: the kernel counts whole ones and may need some ns.
const PHASE_NS: u64 = 200;
/// The peer's initial window: 1 GB.
const WINDOW: u16 = 65_535;
/// Window scale of the peer: units of 16 kB.
const WINDOW_SHIFT: u8 = 14;
/// The peer's initial sequence number, close to the wrap.
const ISN: u32 = 0xffff_f000;
/// Initial value of ACE.
const ACE_OFFSET: u32 = 5;

impl<'a> Flow<'a> {
    /// Establishes a connection whose handshake takes one RTT.
    pub fn open(lab: &'a mut Lab, setup: Setup) -> Result<Self> {
        let v6 = setup.family == Family::V6;
        let peer = SocketAddr::new(lab.peer(v6, setup.initial_window, setup.host), lab.port());
        let kernel_port = lab.port();
        let kernel_ip = if v6 { IpAddr::from(KERNEL_V6) } else { KERNEL_V4.into() };
        let kernel = SocketAddr::new(kernel_ip, kernel_port);
        let socket = new_socket(&setup, kernel_port)?;
        let mut flow = Flow {
            lab,
            socket,
            setup,
            kernel,
            peer,
            rtt_us: setup.rtt_us,
            gap_us: 0,
            last_ack_us: 0,
            window: WINDOW,
            arrived: VecDeque::new(),
            acks: Vec::new(),
            steps: Vec::new(),
            snd_nxt: ISN,
            rcv_nxt: 0,
            out_of_order: Vec::new(),
            newest_block: None,
            dsack: None,
            echo_timestamp: 0,
            ece: false,
            ce_packets: 0,
            accecn_bytes: [1, 0, 1],
        };
        flow.align()?;
        match setup.role {
            Role::KernelConnects => flow.accept()?,
            Role::KernelAccepts => flow.connect()?,
        }
        Ok(flow)
    }

    /// Address of the kernel's socket in its own family.
    fn socket_address(&self, address: SocketAddr) -> SocketAddr {
        match (self.setup.family, address.ip()) {
            (Family::Mapped, IpAddr::V4(ip)) => {
                SocketAddr::new(ip.to_ipv6_mapped().into(), address.port())
            }
            _ => address,
        }
    }

    fn accept(&mut self) -> Result<()> {
        let address = self.socket_address(self.peer).into();
        let sent_ns = now_ns()?;
        if self.setup.deferred {
            self.connect_with_data(&address)?;
        } else {
            match self.socket.connect(&address) {
                Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
                other => bail!("connect: {other:?}"),
            }
        }
        let (_, syn) = self.expect("a SYN", |segment| segment.syn && !segment.has_ack)?;
        self.rcv_nxt = syn.seq.wrapping_add(1 + syn.payload_bytes);
        self.echo_timestamp = syn.options.timestamps.map_or(0, |(value, _)| value);
        let ace = match self.setup.ecn {
            Ecn::None => 0,
            Ecn::Rfc3168 | Ecn::PerPacket => 0b001,
            Ecn::Accurate | Ecn::AccurateWithOption => syn.codepoint.handshake_ace(),
        };
        if self.setup.first_cc.is_some() && !self.setup.deferred {
            self.switch_to(self.setup.cc)?;
        }
        self.wait_until_us(sent_ns / 1_000 + self.rtt_us)?;
        let crossed = self.setup.handshake == Handshake::Crossed;
        self.send(Segment {
            syn: true,
            has_ack: !crossed,
            ace: if crossed { self.syn_ace() } else { ace },
            options: self.handshake_options(),
            ..self.empty()
        })?;
        self.snd_nxt = ISN.wrapping_add(1);
        let (_, ack) = self.expect("the handshake's ACK", |segment| segment.has_ack)?;
        ensure!(ack.ack == self.snd_nxt, "ACK of {}", ack.ack);
        ensure!(ack.syn == crossed, "wrong SYN flag of the ACK");
        // A SYN's window is not scaled (65 packets), so send an update.
        let update = self.next_ack();
        self.send(update)
    }

    /// The socket counts as connecting after this; its first data sends the SYN.
    fn connect_with_data(&mut self, address: &socket2::SockAddr) -> Result<()> {
        set_option(&self.socket, libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT, &1i32)?;
        self.socket.connect(address)?;
        if let Some(cc) = self.setup.first_cc {
            self.switch_to(cc)?;
        }
        (&self.socket).write_all(&[0; 100]).context("cannot write data for the SYN")
    }

    fn connect(&mut self) -> Result<()> {
        self.socket.listen(1)?;
        let fast_open = self.setup.handshake == Handshake::ClearedFastOpen;
        let payload_bytes = if fast_open { 100 } else { 0 };
        self.send(Segment {
            syn: true,
            has_ack: false,
            ace: self.syn_ace(),
            options: self.handshake_options(),
            payload_bytes,
            ..self.empty()
        })?;
        self.snd_nxt = ISN.wrapping_add(1 + payload_bytes);
        let (sent_ns, syn) = self.expect("a SYN-ACK", |segment| segment.syn && segment.has_ack)?;
        self.rcv_nxt = syn.seq.wrapping_add(1);
        self.echo_timestamp = syn.options.timestamps.map_or(0, |(value, _)| value);
        if fast_open {
            ensure!(syn.ack == self.snd_nxt, "the SYN-ACK does not acknowledge only the SYN");
            self.take_socket()?;
            self.write(MSS_BYTES.into())?;
        }
        self.wait_until_us(sent_ns / 1_000 + self.rtt_us)?;
        let mut ack = self.empty();
        let accurate = matches!(self.setup.ecn, Ecn::Accurate | Ecn::AccurateWithOption);
        if accurate && self.setup.handshake == Handshake::Whole {
            ack.ace = syn.codepoint.handshake_ace();
        }
        self.send(ack)?;
        if !fast_open {
            self.take_socket()?;
        }
        Ok(())
    }

    fn take_socket(&mut self) -> Result<()> {
        let (socket, _) = self.socket.accept().context("no connection to accept")?;
        configure(&socket)?;
        self.socket = socket;
        Ok(())
    }

    /// ACE bits of the peer's own SYN.
    fn syn_ace(&self) -> u8 {
        match self.setup.ecn {
            Ecn::None => 0,
            Ecn::Rfc3168 | Ecn::PerPacket => 0b011,
            Ecn::Accurate | Ecn::AccurateWithOption => 0b111,
        }
    }

    fn handshake_options(&self) -> Options {
        Options {
            mss_bytes: Some(MSS_BYTES),
            window_shift: Some(WINDOW_SHIFT),
            sack_permitted: self.setup.sack,
            accecn: (self.setup.ecn == Ecn::AccurateWithOption).then_some(self.accecn_bytes),
            ..Options::default()
        }
    }

    // Time.

    /// Waits for the beginning of a microsecond, so that later times are exact.
    pub fn align(&mut self) -> Result<()> {
        self.wait_until_us(now_ns()? / 1_000 + 2)
    }

    pub fn wait_us(&mut self, us: u64) -> Result<()> {
        self.wait_until_us(now_ns()? / 1_000 + us)
    }

    /// Waits, and records the kernel's segments.
    pub fn wait_until_us(&mut self, us: u64) -> Result<()> {
        self.pump(us * 1_000 + PHASE_NS)
    }

    fn pump(&mut self, deadline_ns: u64) -> Result<()> {
        while self.pump_one(deadline_ns)? {}
        Ok(())
    }

    /// Returns whether the kernel sent a segment.
    fn pump_one(&mut self, deadline_ns: u64) -> Result<bool> {
        match self.lab.receive(self.kernel, self.peer, deadline_ns)? {
            Some((at_ns, segment)) => {
                if segment.payload_bytes > 0 {
                    self.arrived.push_back(Arrival {
                        segment,
                        sent_us: at_ns / 1_000,
                        acks_before: self.steps.len(),
                    });
                } else {
                    self.acks.push(segment);
                }
                Ok(true)
            }
            None => Ok(false),
        }
    }

    fn expect(&mut self, what: &str, is_it: impl Fn(&Segment) -> bool) -> Result<(u64, Segment)> {
        let deadline_ns = now_ns()? + PATIENCE_NS;
        while let Some((at_ns, segment)) = self.lab.receive(self.kernel, self.peer, deadline_ns)? {
            if is_it(&segment) {
                return Ok((at_ns, segment));
            }
        }
        bail!("the kernel did not send {what}")
    }

    // The kernel's application.

    /// Gives the kernel data to send.
    pub fn write(&mut self, bytes: usize) -> Result<()> {
        self.align()?;
        (&self.socket).write_all(&vec![0; bytes]).context("cannot write the data")?;
        self.pump(now_ns()?)
    }

    /// The kernel's application reads received data.
    pub fn read(&mut self, bytes: usize) -> Result<()> {
        let mut data = vec![0; bytes];
        (&self.socket).read_exact(&mut data).context("the data has not arrived")
    }

    /// Sets unocc's parameters of the running flow.
    pub fn unocc(&self, values: &[(&str, u32)]) -> Result<()> {
        lab::set("unocc", values)
    }

    /// Sets gemini's parameters of the running flow.
    pub fn gemini(&self, values: &[(&str, u32)]) -> Result<()> {
        lab::set("gemini", values)
    }

    pub fn tcp(&self) -> Result<TcpInfo> {
        Ok(tcp_info(&self.socket)?)
    }

    pub fn cc(&self) -> Result<DctcpInfo> {
        Ok(dctcp_info(&self.socket)?)
    }

    pub fn cc_name(&self) -> Result<String> {
        let name = self.socket.tcp_congestion()?;
        let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
        Ok(String::from_utf8_lossy(name).into_owned())
    }

    /// Limits the pacing rate by SO_MAX_PACING_RATE.
    pub fn max_pacing_rate(&self, bytes_per_s: u64) -> Result<()> {
        const SO_MAX_PACING_RATE: libc::c_int = 47;
        set_option(&self.socket, libc::SOL_SOCKET, SO_MAX_PACING_RATE, &bytes_per_s)
    }

    /// Changes IP_TOS: the socket has no route until its next transmission.
    pub fn forget_route(&self) -> Result<()> {
        const LOW_DELAY: libc::c_int = 0x10;
        set_option(&self.socket, libc::IPPROTO_IP, libc::IP_TOS, &LOW_DELAY)
    }

    pub fn switch_to(&mut self, cc: &str) -> Result<()> {
        self.socket
            .set_tcp_congestion(cc.as_bytes())
            .with_context(|| format!("cannot switch to {cc}"))
    }

    // The peer as a receiver.

    /// Waits for the oldest unprocessed segment.
    pub fn next_arrival(&mut self) -> Result<Arrival> {
        let deadline_ns = now_ns()? + PATIENCE_NS;
        loop {
            if let Some(arrival) = self.arrived.pop_front() {
                return Ok(arrival);
            }
            ensure!(self.pump_one(deadline_ns)?, "the kernel sends no more packets");
        }
    }

    /// Loses the next segment.
    pub fn lose_next(&mut self) -> Result<Arrival> {
        self.next_arrival()
    }

    /// Delivers the next segment and acknowledges it one RTT after it was sent.
    pub fn ack_next(&mut self, mark: Mark) -> Result<Step> {
        self.ack_many(1, mark)
    }

    /// Delivers the next `count` segments and sends one ACK for them, one RTT after the last was sent.
    pub fn ack_many(&mut self, count: u32, mark: Mark) -> Result<Step> {
        let mut bytes = 0;
        for _ in 1..count {
            let arrival = self.next_arrival()?;
            bytes += arrival.segment.payload_bytes;
            self.take(&arrival.segment, mark);
        }
        let last = self.next_arrival()?;
        let due_us = (last.sent_us + self.rtt_us).max(self.last_ack_us + self.gap_us);
        self.wait_until_us(due_us)?;
        self.deliver_with(&last, mark, bytes)
    }

    /// Delivers and acknowledges each of the next `count` segments.
    pub fn acks_of(&mut self, count: u32, mark: Mark) -> Result<Step> {
        for _ in 1..count {
            self.ack_next(mark)?;
        }
        self.ack_next(mark)
    }

    /// Acknowledges segments with `mark` for `us` microseconds.
    pub fn acks_for_us(&mut self, us: u64, mark: Mark) -> Result<Step> {
        let end_us = now_ns()? / 1_000 + us;
        loop {
            let step = self.ack_next(mark)?;
            if step.at_us >= end_us {
                return Ok(step);
            }
        }
    }

    /// Delivers a segment now and acknowledges it at once.
    pub fn deliver(&mut self, arrival: &Arrival, mark: Mark) -> Result<Step> {
        self.deliver_with(arrival, mark, 0)
    }

    fn deliver_with(&mut self, arrival: &Arrival, mark: Mark, others: u32) -> Result<Step> {
        let bytes = others + arrival.segment.payload_bytes;
        self.take(&arrival.segment, mark);
        let at_us = now_ns()? / 1_000;
        let ack = self.next_ack();
        self.send(ack)?;
        self.last_ack_us = at_us;
        let step = Step {
            at_us,
            sent_us: arrival.sent_us,
            acks_before: arrival.acks_before,
            bytes,
            marked_bytes: if mark == Mark::Ce { bytes } else { 0 },
            tcp: self.tcp()?,
            cc: self.cc()?,
        };
        self.steps.push(step);
        // Segments that this ACK released are the kernel's answer to it.
        self.pump(now_ns()?)?;
        Ok(step)
    }

    fn take(&mut self, segment: &Segment, mark: Mark) {
        if segment.cwr() {
            self.ece = false;
        }
        if mark == Mark::Ce {
            self.ece = true;
            self.ce_packets += 1;
            self.accecn_bytes[1] += segment.payload_bytes;
        } else {
            self.accecn_bytes[0] += segment.payload_bytes;
            if self.setup.ecn == Ecn::PerPacket {
                self.ece = false;
            }
        }
        if let Some((value, _)) = segment.options.timestamps {
            self.echo_timestamp = value;
        }
        let (start, end) = (segment.seq, segment.end());
        if !is_before(self.rcv_nxt, end) {
            self.dsack = Some((start, end));
            return;
        }
        if is_before(self.rcv_nxt, start) {
            self.insert_block(start, end);
            return;
        }
        self.rcv_nxt = end;
        while let Some(i) =
            self.out_of_order.iter().position(|&(start, _)| !is_before(self.rcv_nxt, start))
        {
            let (_, end) = self.out_of_order.swap_remove(i);
            if is_before(self.rcv_nxt, end) {
                self.rcv_nxt = end;
            }
        }
        self.newest_block = None;
    }

    fn insert_block(&mut self, mut start: u32, mut end: u32) {
        self.out_of_order.retain(|&(other_start, other_end)| {
            let apart = is_before(other_end, start) || is_before(end, other_start);
            if !apart {
                if is_before(other_start, start) {
                    start = other_start;
                }
                if is_before(end, other_end) {
                    end = other_end;
                }
            }
            apart
        });
        self.out_of_order.push((start, end));
        self.newest_block = Some((start, end));
    }

    fn next_ack(&mut self) -> Segment {
        let mut ack = self.empty();
        ack.ace = match self.setup.ecn {
            Ecn::None => 0,
            Ecn::Rfc3168 | Ecn::PerPacket => u8::from(self.ece),
            Ecn::Accurate | Ecn::AccurateWithOption => ((self.ce_packets + ACE_OFFSET) & 7) as u8,
        };
        if self.setup.ecn == Ecn::AccurateWithOption {
            ack.options.accecn = Some(self.accecn_bytes);
        }
        let dsack = self.dsack.take();
        if self.setup.sack {
            ack.options.sack.extend(dsack);
            ack.options.sack.extend(self.newest_block);
            let others =
                self.out_of_order.iter().filter(|&&block| Some(block) != self.newest_block);
            ack.options.sack.extend(others.copied());
            ack.options.sack.truncate(2);
        }
        ack
    }

    /// An ACK that repeats the current state, without a step.
    fn empty(&self) -> Segment {
        let timestamps = self.setup.timestamps.then(|| (timestamp_ms(), self.echo_timestamp));
        Segment {
            seq: self.snd_nxt,
            ack: self.rcv_nxt,
            has_ack: true,
            window: self.window,
            options: Options { timestamps, ..Options::default() },
            ..Segment::default()
        }
    }

    fn send(&mut self, mut segment: Segment) -> Result<()> {
        if self.setup.timestamps {
            segment.options.timestamps = Some((timestamp_ms(), self.echo_timestamp));
        }
        self.lab.send(self.peer, self.kernel, &segment)
    }

    /// A router reports that the packets in flight exceed the MTU of the next link.
    pub fn path_mtu(&mut self, mtu_bytes: u16) -> Result<()> {
        let first = self.next_arrival()?.segment;
        self.arrived.clear();
        let packet = wire::too_large(&first, self.kernel, self.peer, mtu_bytes)?;
        self.lab.send_packet(&packet)
    }

    /// Switches dropping at the kernel's qdisc layer on or off.
    pub fn drop_at_egress(&self, on: bool) -> Result<()> {
        self.lab.drop_at_egress(on)
    }

    /// Counts `count` pure ACKs from the kernel as received with CE.
    pub fn mark_acks(&mut self, count: usize) {
        self.ce_packets += count as u32;
    }

    // Peer as sender.

    /// The peer sends a data segment; returns the immediate ACKs.
    pub fn send_data(
        &mut self,
        bytes: u32,
        codepoint: Codepoint,
        cwr: bool,
    ) -> Result<Vec<Segment>> {
        self.pump(now_ns()?)?;
        self.acks.clear();
        let mut segment = self.next_ack();
        segment.payload_bytes = bytes;
        segment.codepoint = codepoint;
        if cwr {
            segment.ace |= 0b010;
        }
        self.send(segment)?;
        self.snd_nxt = self.snd_nxt.wrapping_add(bytes);
        self.pump(now_ns()?)?;
        Ok(std::mem::take(&mut self.acks))
    }

    /// ACKs that the kernel sends within `us` microseconds.
    pub fn acks_within_us(&mut self, us: u64) -> Result<Vec<Segment>> {
        self.wait_us(us)?;
        Ok(std::mem::take(&mut self.acks))
    }

    /// The peer's next sequence number.
    pub fn peer_next(&self) -> u32 {
        self.snd_nxt
    }
}

impl Drop for Flow<'_> {
    fn drop(&mut self) {
        // A reset leaves no state for the next case.
        let _ = self.socket.set_linger(Some(Duration::ZERO));
    }
}

fn new_socket(setup: &Setup, port: u16) -> Result<Socket> {
    let domain = match setup.family {
        Family::V4 => Domain::IPV4,
        Family::V6 | Family::Mapped => Domain::IPV6,
    };
    let socket = Socket::new(domain, Type::STREAM.cloexec(), Some(Protocol::TCP))?;
    if !setup.deferred {
        let cc = setup.first_cc.unwrap_or(setup.cc);
        socket
            .set_tcp_congestion(cc.as_bytes())
            .with_context(|| format!("this kernel has no {cc}"))?;
    }
    configure(&socket)?;
    let any: IpAddr = match setup.family {
        Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
        Family::V6 | Family::Mapped => Ipv6Addr::UNSPECIFIED.into(),
    };
    socket.bind(&SocketAddr::new(any, port).into())?;
    Ok(socket)
}

fn configure(socket: &Socket) -> Result<()> {
    let bytes: libc::c_int = 64 << 20;
    set_option(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &bytes)?;
    socket.set_tcp_nodelay(true)?;
    socket.set_nonblocking(true)?;
    Ok(())
}

/// Sets an option that socket2 does not know. `T` has the width that the kernel expects.
fn set_option<T: Copy>(
    socket: &Socket,
    level: libc::c_int,
    option: libc::c_int,
    value: &T,
) -> Result<()> {
    // SAFETY: the pointer and the length are those of `value`.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(value).cast(),
            size_of_val(value) as libc::socklen_t,
        )
    };
    nix::errno::Errno::result(result)
        .map(drop)
        .with_context(|| format!("cannot set option {option}"))
}

/// The peer's timestamp clock.
fn timestamp_ms() -> u32 {
    now_ns().map_or(0, |ns| (ns / 1_000_000) as u32)
}

/// Compares sequence numbers, which wrap.
fn is_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}
