// SPDX-License-Identifier: GPL-2.0
//! One flow and its sockets, opened shortly before its start and closed shortly after its end.
//!
//! A flow that fits into its send buffer takes one system call of the main thread; a larger or
//! pausing flow has a thread that blocks in the kernel.

use std::{
    fs::File,
    io,
    net::{Shutdown, SocketAddr},
    sync::Arc,
    thread::{self, JoinHandle},
};

use anyhow::{Context, Result, bail, ensure};
use socket2::Socket;
use xdc_proto::{Ecn, FIRST_PORT, Flow, FlowResult, FlowSample, RunPlan};

use crate::{
    clock::now_ns,
    network::Network,
    sending::{Application, LAST_BYTES, SEND_BYTES, send_at_once},
    socket::{self, COUNTERS, TcpInfo, TcpOptions, tcp_info},
};

/// A receiver wakes for the whole flow if that is at most a quarter of its buffer; else for such a
/// quarter, up to this, which keeps the window open.
const MAX_WAKE_BYTES: u64 = 8 << 20;

/// With an autotuned buffer: the longest flow of at most a quarter of its initial size (the kernel
/// would grow it for more), and the wake-up size of others, which lets the kernel tune.
const AUTOTUNED_WHOLE_BYTES: u64 = 1 << 20;
const AUTOTUNED_WAKE_BYTES: u64 = 64 << 10;

/// Bytes that an autotuned send buffer takes at once in any configuration.
const AUTOTUNED_SEND_BYTES: u64 = 1 << 20;

/// The SYN counts as an acknowledged byte.
const SYN_BYTES: u64 = 1;

/// State in TCP_INFO.
const TCP_ESTABLISHED: u8 = 1;

/// A flow waits this time and two RTTs for the last ACKs.
const SETTLE_NS: u64 = 1_000_000;

/// Maximum delay of an ACK (TCP_DELACK_MAX).
pub const DELAYED_ACK_NS: u64 = 200_000_000;

/// A flow of the plan, including the time before and after its sockets.
pub struct Transfer<'a> {
    plan: &'a Flow,
    number: usize,
    sockets: Option<Sockets>,
    /// Planned start, ns after the start of the traffic.
    start_ns: u64,
    started: bool,
    /// Delay of the actual start.
    late_ns: u64,
    end_ns: Option<u64>,
    acked_ns: Option<u64>,
    /// Payload read by the receiver.
    taken_bytes: u64,
    last: FlowSample,
    /// See [`FlowResult::writing`].
    writing: (u32, u32),
}

/// A flow's connection, possibly reused from another flow.
pub struct Sockets {
    sender: Socket,
    listener: Socket,
    receiver: Option<Socket>,
    sending: Option<JoinHandle<io::Result<()>>>,
    /// State at this flow's takeover, from earlier flows: of the sender, and bytes received.
    before: TcpInfo,
    received_before: u64,
}

/// Result of a receiver's wake-up.
pub enum Received {
    /// Payload bytes, with more to come.
    Some(u64),
    /// The last payload bytes.
    Rest(u64),
}

impl<'a> Transfer<'a> {
    /// A flow without sockets; `number` is its index in the plan, `start_ns` its planned start.
    pub fn new(plan: &'a Flow, number: usize, start_ns: u64) -> Self {
        Self {
            plan,
            number,
            sockets: None,
            start_ns,
            started: false,
            late_ns: 0,
            end_ns: None,
            acked_ns: None,
            taken_bytes: 0,
            last: FlowSample::default(),
            writing: (0, 0),
        }
    }

    /// The flow's name in errors.
    pub fn name(&self) -> String {
        let Flow { src, dst, .. } = self.plan;
        format!("flow {} from {src} to {dst}", self.number)
    }

    /// Opens both ends in their namespaces and starts the handshake.
    pub fn connect(&mut self, network: &Network, run: &'a RunPlan) -> Result<()> {
        let plan = self.plan;
        let port = FIRST_PORT + self.number as u16;
        let options = |host: &str, cc: &'a Option<String>| {
            let node = network.layout.node(host)?;
            let options = TcpOptions {
                congestion_control: match &run.topology.congctl {
                    Some(_) => None,
                    None => Some(cc.as_deref().unwrap_or(&run.cc)),
                },
                sndbuf_bytes: plan.sndbuf_bytes,
                rcvbuf_bytes: plan.rcvbuf_bytes,
                dscp: plan.dscp,
                local: SocketAddr::new(network.flow_address(node, plan.tunnel)?, port),
            };
            anyhow::Ok((node, options))
        };
        let (there, options_there) = options(&plan.dst, &plan.receiver_cc)?;
        let destination = options_there.local;
        let listener = network.inside(there, || {
            let listener = options_there.open()?;
            // The accepted connection inherits SO_RCVLOWAT.
            socket::set_wake_bytes(&listener, wake_bytes(plan)).context("SO_RCVLOWAT")?;
            listener.listen(1).context("cannot listen")?;
            Ok(listener)
        })?;
        let (here, options_here) = options(&plan.src, &plan.cc)?;
        let sender = network.inside(here, || options_here.open())?;
        if plan.persistent {
            // No end of stream would push the last bytes.
            sender.set_tcp_nodelay(true).context("TCP_NODELAY")?;
        } else if self.fits() {
            // Send the FIN with the last byte instead of after it.
            sender.set_tcp_cork(true).context("TCP_CORK")?;
        }
        match sender.connect(&destination.into()) {
            Ok(()) => {}
            Err(e) if e.raw_os_error() == Some(libc::EINPROGRESS) => {}
            Err(e) => return Err(e).context("cannot connect"),
        }
        if let Some(congctl) = &run.topology.congctl {
            let nodes = &network.layout.nodes;
            let expected = congctl.of(nodes[here].site != nodes[there].site);
            let name = socket::congestion_control(&sender)?;
            ensure!(name == expected, "the route set congestion control {name}, not {expected}");
        }
        let mut before = TcpInfo::default();
        before.bytes_acked = SYN_BYTES;
        self.sockets = Some(Sockets {
            sender,
            listener,
            receiver: None,
            sending: None,
            before,
            received_before: 0,
        });
        Ok(())
    }

    /// Whether a connection exists or is being established.
    pub fn is_connected(&self) -> bool {
        self.sockets.is_some()
    }

    /// Takes over an ended flow's connection, instead of [`connect`](Self::connect).
    pub fn take_over(&mut self, mut sockets: Sockets) -> Result<()> {
        sockets.sender.set_nonblocking(true)?;
        if let Some(receiver) = &sockets.receiver {
            socket::set_wake_bytes(receiver, wake_bytes(self.plan)).context("SO_RCVLOWAT")?;
            sockets.received_before = tcp_info(receiver)?.bytes_received;
        }
        sockets.before = tcp_info(&sockets.sender)?;
        self.sockets = Some(sockets);
        Ok(())
    }

    fn sockets(&mut self) -> Result<&mut Sockets> {
        self.sockets.as_mut().context("the flow has no sockets")
    }

    /// The receiver, once the handshake is complete.
    pub fn accept(&mut self) -> Result<Option<&Socket>> {
        let sockets = self.sockets()?;
        if sockets.receiver.is_some() {
            return Ok(sockets.receiver.as_ref());
        }
        match sockets.listener.accept() {
            Ok((receiver, _)) => Ok(Some(sockets.receiver.insert(receiver))),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(e) => Err(e).context("cannot accept"),
        }
    }

    /// Sends a byte from the receiver to announce its window, if the handshake is complete.
    pub fn tell_window(&mut self) -> Result<()> {
        if let Some(receiver) = self.accept()? {
            let sent = receiver.send(&[0]).context("cannot announce the window")?;
            ensure!(sent == 1, "the byte that announces the window was not sent");
        }
        Ok(())
    }

    /// Delays the planned start, so far relative to a gate that opens now; returns it.
    pub fn wait_until(&mut self, now_ns: u64) -> u64 {
        self.start_ns += now_ns;
        self.start_ns
    }

    /// Whether the flow has started.
    pub fn is_started(&self) -> bool {
        self.started
    }

    /// The listener, which reports a late handshake.
    pub fn listener(&mut self) -> Result<&Socket> {
        Ok(&self.sockets()?.listener)
    }

    /// Starts sending, `late_ns` after the planned time. Returns the sender if a separate thread
    /// writes to it, so that the main thread can watch for its failure.
    pub fn start(&mut self, late_ns: u64, payload: &Arc<File>) -> Result<Option<&Socket>> {
        (self.started, self.late_ns) = (true, late_ns);
        let Flow { bytes, persistent, .. } = *self.plan;
        let mut sent = 0;
        if self.fits() {
            let sender = &self.sockets()?.sender;
            let last = match persistent {
                true => 0,
                false => bytes.min(LAST_BYTES),
            };
            sent = send_at_once(sender, payload, bytes - last)?;
            if last > 0 && sent == bytes - last {
                socket::report_acks(sender).context("SO_TIMESTAMPING")?;
                sent += send_at_once(sender, payload, last)?;
            }
            if sent == bytes {
                if !persistent {
                    sender.shutdown(Shutdown::Write)?;
                }
                return Ok(None);
            }
        }
        let mut application = Application::new(self.plan, self::now_ns()?);
        application.bytes -= sent;
        let sockets = self.sockets()?;
        let sender = sockets.sender.try_clone()?;
        sender.set_nonblocking(false)?;
        let payload = Arc::clone(payload);
        sockets.sending = Some(thread::spawn(move || {
            let sent = application.send(&sender, &payload);
            if sent.is_err() {
                // The main thread sees the hang-up.
                let _ = sender.shutdown(Shutdown::Both);
            }
            sent
        }));
        Ok(Some(&sockets.sender))
    }

    /// Whether the send buffer takes all of the flow at once.
    fn fits(&self) -> bool {
        let Flow { bytes, burst_bytes, sndbuf_bytes, .. } = *self.plan;
        let room = match sndbuf_bytes {
            0 => AUTOTUNED_SEND_BYTES,
            sndbuf_bytes => sndbuf_bytes,
        };
        bytes > 0 && burst_bytes == 0 && bytes <= room.min(SEND_BYTES)
    }

    /// Whether one wake-up of the receiver covers the whole flow.
    pub fn arrives_whole(&self) -> bool {
        wake_bytes(self.plan) == self.plan.bytes
    }

    /// The receiver's socket, once accepted.
    pub fn receiver(&mut self) -> Result<Option<&Socket>> {
        Ok(self.sockets()?.receiver.as_ref())
    }

    /// Changes the sender's congestion control.
    pub fn switch(&mut self, cc: &str) -> Result<()> {
        match &self.sockets {
            Some(sockets) => socket::set_congestion_control(&sockets.sender, cc),
            // The flow has ended.
            None => Ok(()),
        }
    }

    /// Handles an error or hang-up at the sender before the flow was complete.
    pub fn sender_failed(&mut self) -> Result<()> {
        let name = self.name();
        let sockets = self.sockets()?;
        if let Some(error) = sockets.sender.take_error()? {
            return Err(error).context(name);
        }
        // The ACK of a piece: no failure.
        if tcp_info(&sockets.sender)?.state == TCP_ESTABLISHED {
            return Ok(());
        }
        let sending = sockets.sending.take().map(JoinHandle::join);
        match sending {
            Some(Ok(Err(error))) => Err(error).context(name),
            _ => bail!("{name} was closed before it was complete"),
        }
    }

    /// Discards received data. The end of the stream, or its last byte, completes the flow.
    pub fn receive(&mut self) -> Result<Received> {
        let (bytes, before_bytes) = (self.plan.bytes, self.taken_bytes);
        let wake_bytes = wake_bytes(self.plan);
        let Some(receiver) = &self.sockets()?.receiver else {
            return Ok(Received::Some(0));
        };
        let taken = match socket::discard(receiver) {
            Ok(0) => return Ok(Received::Rest(0)),
            Ok(taken) => taken as u64,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => 0,
            Err(e) => return Err(e).with_context(|| self.name()),
        };
        let left = bytes.saturating_sub(before_bytes + taken);
        if (1..wake_bytes).contains(&left) {
            // Wake at the last byte; the end of the stream may come an RTT later.
            socket::set_wake_bytes(receiver, left).context("SO_RCVLOWAT")?;
        }
        self.taken_bytes += taken;
        Ok(match bytes > 0 && left == 0 {
            true => Received::Rest(taken),
            false => Received::Some(taken),
        })
    }

    /// Marks the flow complete.
    pub fn end(&mut self, now_ns: u64) {
        self.end_ns = Some(now_ns);
        // The ACK's time was read first, at the same moment.
        self.acked_ns = self.acked_ns.map(|acked_ns| acked_ns.max(now_ns));
    }

    pub fn is_complete(&self) -> bool {
        self.end_ns.is_some()
    }

    /// The sender's socket, and whether a thread has written to it.
    pub fn sender(&mut self) -> Result<(&Socket, bool)> {
        let sockets = self.sockets()?;
        Ok((&sockets.sender, sockets.sending.is_some()))
    }

    /// Whether all payload is acknowledged, checked after an event at the sender.
    pub fn is_acked(&mut self, now_ns: u64) -> Result<bool> {
        let bytes = self.plan.bytes;
        if self.acked_ns.is_none() && bytes > 0 {
            let sockets = self.sockets()?;
            let acked_bytes = tcp_info(&sockets.sender)?.bytes_acked;
            if acked_bytes.saturating_sub(sockets.before.bytes_acked) >= bytes {
                self.acked_ns = Some(now_ns);
            }
        }
        Ok(self.acked_ns.is_some())
    }

    /// When the sender's counters are complete, ns after the start of the traffic.
    pub fn settled_ns(&self) -> Option<u64> {
        let rtts_ns = (2e3 * self.plan.base_rtt_us) as u64;
        let beyond_ns = match self.awaits_ack() {
            true => DELAYED_ACK_NS,
            false => SETTLE_NS,
        };
        Some(self.end_ns? + rtts_ns + beyond_ns)
    }

    /// Whether it is complete but the last byte's ACK is missing.
    pub fn awaits_ack(&self) -> bool {
        self.is_complete() && self.acked_ns.is_none() && !self.plan.persistent
    }

    /// Payload received so far, without the FIN that TCP counts.
    fn received_bytes(&self) -> Result<u64> {
        let sockets = self.sockets.as_ref();
        let Some((sockets, receiver)) = sockets.and_then(|s| Some((s, s.receiver.as_ref()?)))
        else {
            return Ok(self.taken_bytes);
        };
        let received = tcp_info(receiver)?.bytes_received - sockets.received_before;
        Ok(match self.plan.bytes {
            0 => received,
            bytes => received.min(bytes),
        })
    }

    /// The flow's current state, or its last one after the end.
    pub fn sample(&mut self) -> Result<FlowSample> {
        let over = self.end_ns.is_some() && !self.last.active;
        let Some(sockets) = &self.sockets else {
            return Ok(self.last);
        };
        if !self.started || over {
            return Ok(self.last);
        }
        let info = tcp_info(&sockets.sender)?;
        if sockets.sending.as_ref().is_some_and(|it| !it.is_finished()) {
            self.writing.0 += 1;
            self.writing.1 += u32::from(info.notsent_bytes < info.snd_mss);
        }
        self.last = FlowSample {
            active: self.end_ns.is_none(),
            cwnd_packets: info.snd_cwnd,
            cwnd_bytes: u64::from(info.snd_cwnd) * u64::from(info.snd_mss),
            srtt_us: info.rtt,
            received_bytes: self.received_bytes()?,
            retransmits: (info.total_retrans - sockets.before.total_retrans).into(),
            pacing_bps: pacing_bps(&info),
        };
        Ok(self.last)
    }

    /// Returns the result, and the connection if persistent. Other sockets close silently: a FIN
    /// would be traffic without a receiver.
    pub fn finish(&mut self) -> Result<(FlowResult, Option<Sockets>)> {
        let received_bytes = match self.end_ns.is_some() && self.plan.bytes > 0 {
            true => self.plan.bytes,
            false => self.received_bytes()?,
        };
        let sockets = self.sockets.take();
        let (info, before) = match &sockets {
            Some(sockets) => (tcp_info(&sockets.sender)?, sockets.before),
            None => Default::default(),
        };
        let cc = sockets.as_ref().map(|s| socket::congestion_control(&s.sender));
        let receiver = sockets.as_ref().and_then(|s| s.receiver.as_ref());
        let payload_bytes = match receiver {
            Some(receiver) => tcp_info(receiver)?.rcv_mss,
            None => 0,
        };
        let is_known = receiver.is_some();
        let mut left = None;
        if let Some(mut sockets) = sockets.filter(|_| self.end_ns.is_some()) {
            if self.plan.persistent {
                sockets.sending = None;
                left = Some(sockets);
            } else {
                socket::close_silently(sockets.sender)?;
                sockets.receiver.map_or(Ok(()), socket::close_silently)?;
            }
        }
        let result = FlowResult {
            flow: self.number,
            start_ns: self.start_ns,
            started: self.started,
            late_ns: self.late_ns,
            end_ns: self.end_ns,
            acked_ns: self.acked_ns,
            received_bytes,
            retransmits: (info.total_retrans - before.total_retrans).into(),
            timeouts: (info.total_rto - before.total_rto).into(),
            counters: COUNTERS
                .iter()
                .map(|counter| (counter.get)(&info).saturating_sub((counter.get)(&before)))
                .collect(),
            min_rtt_us: match info.min_rtt {
                u32::MAX => 0,
                min_rtt_us => min_rtt_us,
            },
            mss_bytes: info.snd_mss,
            payload_bytes,
            cc: cc.transpose()?.unwrap_or_default(),
            ecn: is_known.then(|| ecn(&info)),
            writing: self.writing,
        };
        Ok((result, left))
    }
}

/// ECN mode of a sender.
fn ecn(info: &TcpInfo) -> Ecn {
    match (info.has_ecn(), info.accecn_works()) {
        (false, _) => Ecn::None,
        (true, None) => Ecn::Rfc3168,
        (true, Some(true)) => Ecn::Accurate,
        (true, Some(false)) => Ecn::AccurateFailed,
    }
}

fn wake_bytes(plan: &Flow) -> u64 {
    let (whole, piece) = match plan.rcvbuf_bytes {
        0 => (AUTOTUNED_WHOLE_BYTES, AUTOTUNED_WAKE_BYTES),
        bytes => (bytes / 4, (bytes / 4).clamp(1, MAX_WAKE_BYTES)),
    };
    match plan.bytes {
        bytes if (1..=whole).contains(&bytes) => bytes,
        _ => piece,
    }
}

fn pacing_bps(info: &TcpInfo) -> u64 {
    match info.pacing_rate {
        u64::MAX => 0,
        bytes_per_s => bytes_per_s.saturating_mul(8),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(bytes: u64, rcvbuf_bytes: u64) -> Flow {
        let text = format!(
            r#"{{"src": "a", "dst": "b", "group": "g", "bytes": {bytes}, "start_ns": 0,
                 "start_jitter_us": 0, "cc": null, "sndbuf_bytes": 0,
                 "rcvbuf_bytes": {rcvbuf_bytes}, "base_rtt_us": 1.0}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn a_receiver_wakes_once_or_for_a_part_of_its_buffer() {
        let wake = |bytes, rcvbuf| wake_bytes(&flow(bytes, rcvbuf));
        assert_eq!(wake(5000, 0), 5000);
        assert_eq!(wake(0, 0), AUTOTUNED_WAKE_BYTES);
        assert_eq!(wake(1 << 30, 0), AUTOTUNED_WAKE_BYTES);
        assert_eq!(wake(1 << 20, 4 << 20), 1 << 20);
        assert_eq!(wake((1 << 20) + 1, 4 << 20), 1 << 20);
        assert_eq!(wake(1 << 29, 1 << 30), MAX_WAKE_BYTES);
        assert_eq!(wake(20 << 20, 1 << 30), 20 << 20);
    }

    #[test]
    fn a_flow_that_fits_the_send_buffer_needs_no_thread() {
        let fits = |flow: &Flow| Transfer::new(flow, 0, 0).fits();
        assert!(fits(&flow(AUTOTUNED_SEND_BYTES, 0)));
        assert!(!fits(&flow(AUTOTUNED_SEND_BYTES + 1, 0)));
        assert!(!fits(&flow(0, 0)));
        let mut pausing = flow(1000, 0);
        pausing.burst_bytes = 100;
        assert!(!fits(&pausing));
        let mut large = flow(50 << 20, 0);
        large.sndbuf_bytes = 64 << 20;
        assert!(fits(&large));
    }
}
