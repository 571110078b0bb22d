// SPDX-License-Identifier: GPL-2.0

//! TLT: one important packet of each TCP connection in flight, whatever its congestion control.
//!
//! The rules are in algo/tlt.rs. Here they meet TCP, by hooks in the path of packets: what a socket
//! sends gets its mark last of all, what comes for one is looked at before TCP sees it, and a softirq
//! does the rest when TCP has. Where that differs from the paper (docs/tlt.md has the rules):
//!
//! 1. The retransmit queue with RACK is TLT's list of unimportant packets in flight: no
//!    packet is copied, and each loss is the congestion control's to know of.
//! 2. TCP is made to act by its release callback with the flag of a timer, for what does
//!    that is not exported: RACK's timer marks lost and enters recovery, the one of TCP
//!    Small Queues sends again.
//! 3. RACK is asked after the echo of data, too, so that what is missing is lost at once,
//!    be `net.ipv4.tcp_reordering` 1 or not.
//! 4. RACK takes what is lost off its list. If an ACK of a single byte comes before
//!    anything was sent again, TCP forgets the loss, and nobody looks at the segment again
//!    until a timeout. It is put back on the list.
//! 5. A first window is one after each pause, not one for each connection: testbeds reuse
//!    connections. `burst_tail` = 0 is the paper's.
//! 6. A byte is echoed by an ACK of its own, when everything before it was handled; TCP's
//!    own ACK of the byte goes before, without its D-SACK.
//! 7. An echo is not refused for coming sooner than the shortest RTT: a handshake that had
//!    to wait for an address is the shortest RTT that a new connection knows of.
//! 8. Timeouts before the first data, those of the handshake, are not held against a peer
//!    that has not echoed.
//! 9. A sender that cannot write yet when its ACK is handled sends a byte, not data.
//! 10. DSCPs that are the same are not refused: of two marks the first is meant.
//! 11. The paper's clock of whole segments (its Figure 17) is not there: where nothing is
//!     lost TCP has no segment to send again, and a byte goes.
//! 12. The ACK of a byte may look to TCP, by its timestamp, as if the network reordered. TCP's
//!     measure of that is set back to what it was when the byte was sent.
//! 13. A byte that reaches a connection in TIME_WAIT is dropped: its answer would be answered by
//!     a RST, which ends TIME_WAIT (RFC 1337).

#[path = "algo/mod.rs"]
mod algo;
#[path = "kernel/mod.rs"]
mod kernel_api;
#[path = "live.rs"]
mod live;

use algo::tlt::{
    self, Action, Incoming, Kind, Mark, Order, Outgoing, Path, Phase, Rows, Seen, Socket,
};
use kernel::prelude::*;
use kernel_api::{
    bindings::{
        xdc_tlt_clock, xdc_tlt_echo, xdc_tlt_phase, xdc_tlt_send, xdc_tlt_state, XDC_TLT_AWAITED,
        XDC_TLT_BAD, XDC_TLT_CLOCK, XDC_TLT_DATA, XDC_TLT_FIRST, XDC_TLT_LATE, XDC_TLT_NONE,
        XDC_TLT_PENDING,
    },
    conn::{Conn, Found, Locked},
    counters,
    deferred::Deferred,
    flows::{Errand, Flow, FlowOps, Flows, Held},
    netfilter::{Hooks, Packet, Registration, Segment, Verdict},
    qdisc::now_ns,
    seq::Line,
    sysctl::{self, Net, Param, MAX_PARAMS},
    trace::{tracepoint, Tracepoint},
};
module! {
    type: Module,
    name: "tlt",
    authors: ["xdc developers"],
    description: "TLT: no timeouts under incast",
    license: "GPL v2",
}

struct Module {
    _registration: Deferred<Registration<Tlt>>,
}

impl kernel::Module for Module {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let register = || Registration::new(Tlt::new()?);
        Ok(Module {
            _registration: Deferred::new(register)?,
        })
    }
}

/// Declares the counters, each with its name in `nstat`.
macro_rules! counters {
    ($($(#[doc = $help:literal])+ $counter:ident $name:literal,)+) => {
        // Those of marks are reached by number.
        #[allow(dead_code)]
        #[derive(Clone, Copy)]
        enum Count {
            $($(#[doc = $help])+ $counter,)+
        }

        impl counters::Counters for Count {
            const FILE: &'static CStr = c"tlt_stat";
            const PREFIX: &'static CStr = c"Tlt";
            const NAMES: &'static [&'static CStr] = &[$($name,)+];
            const GAUGE: usize = Count::Flows as usize;
        }
    };
}

counters! {
    // In the order of `Mark::ALL`.
    /// Packets sent, by mark.
    TxData c"TxData",
    /// As above.
    TxEcho c"TxEcho",
    /// As above.
    TxClockData c"TxClockData",
    /// As above.
    TxClockEcho c"TxClockEcho",
    /// As above.
    TxControl c"TxControl",
    /// As above.
    TxUnimportant c"TxUnimportant",
    /// Packets received, by mark.
    RxData c"RxData",
    /// As above.
    RxEcho c"RxEcho",
    /// As above.
    RxClockData c"RxClockData",
    /// As above.
    RxClockEcho c"RxClockEcho",
    /// As above.
    RxControl c"RxControl",
    /// As above.
    RxUnimportant c"RxUnimportant",
    /// Connections that are taken part with now.
    Flows c"Flows",
    /// Echoes by which RACK was asked for losses.
    Detect c"Detect",
    /// Segments that were to be sent again beyond the window.
    ForcedRetrans c"ForcedRetrans",
    /// D-SACKs of a clock's byte that were cut.
    DsackCut c"DsackCut",
    /// ACKs that TCP would not have sent, or not yet.
    WorkerEcho c"WorkerEcho",
    /// Sockets that somebody used when they were to be looked at.
    OwnedRetry c"OwnedRetry",
    /// Bursts of which the last segment left by itself.
    GsoSplit c"GsoSplit",
    /// Connections that the peer's SYN-ACK or SYN left as they are.
    PeerPlain c"PeerPlain",
    /// Connections given up: the peer never echoed.
    Fallback c"Fallback",
    /// Marks on packets that cannot be what they say.
    BadMark c"BadMark",
    /// Echoes of important packets that were taken for lost, and replaced.
    LateEcho c"LateEcho",
    /// Packets and connections left alone for want of memory.
    NoMem c"NoMem",
    /// Connections left alone: MPTCP, MD5, AO, no SACK, offloaded encryption, TCP_REPAIR, a DSCP of others.
    Excluded c"Excluded",
    /// Connections left alone: there are `max_flows`.
    TooMany c"TooMany",
}

/// net.tlt.*.
struct Sysctls;

impl Sysctls {
    const FILES: &'static [Param; MAX_PARAMS] = &live::files(tlt::PARAMS);
}

impl sysctl::Params for Sysctls {
    const DIR: &'static CStr = c"net/tlt";
    const PARAMS: &'static [Param] = Self::FILES.split_at(tlt::PARAMS.len()).0;
    const PROFILES: &'static [&'static CStr] = &[c"default"];
    const PROFILE: usize = 0;
}

/// What everything here shares.
struct Shared {
    sysctls: sysctl::Registration<Sysctls>,
    counters: counters::Registration<Count>,
}

impl Shared {
    #[inline(always)]
    fn params<'a>(&'a self, net: &'a Net) -> &'a sysctl::Values {
        self.sysctls.of(net)
    }

    fn count(&self, net: &Net, counter: Count) {
        self.counters.add(net, counter as usize, 1);
    }

    fn count_tx(&self, net: &Net, mark: Mark, packets: u32) {
        let first = Count::TxData as usize;
        self.counters
            .add(net, first.wrapping_add(mark as usize), packets);
    }

    fn count_rx(&self, net: &Net, mark: Mark) {
        let first = Count::RxData as usize;
        self.counters.add(net, first.wrapping_add(mark as usize), 1);
    }
}

/// The most that one look at a socket does: a smaller window, an echo, a proof, a segment, a byte.
const MAX_ACTIONS: usize = 6;

impl FlowOps for Shared {
    type State = tlt::Flow;

    const FILE: &'static CStr = c"tlt";
    const COLUMNS: &'static CStr = c"sender age_us owes echoes replaced";

    fn show(flow: &tlt::Flow, now_us: u64, line: &mut Line<'_>) {
        line.text(match flow.is_mute() {
            true => "mute",
            false => flow.phase().name(),
        });
        line.number(flow.age_us(now_us).unwrap_or(0));
        line.text(flow.owes());
        line.number(flow.echoes());
        line.number(flow.replaced());
    }

    fn poll(&self, net: &Net, flow: &Flow<'_, tlt::Flow>, conn: Option<Locked<'_>>) -> u32 {
        let params = self.params(net);
        if params.enabled() == 0 {
            return 0;
        }
        let Some(mut conn) = conn else {
            self.count(net, Count::OwnedRetry);
            return params.retry_us();
        };
        // TCP_REPAIR may have come since its last packet.
        if !conn.is_open() || conn.is_excluded() {
            return 0;
        }
        let mut was_refused = false;
        for _ in 0..MAX_ACTIONS {
            let socket = Socket {
                has_unacked: conn.has_payload(),
                has_lost: conn.has_lost(),
                is_held: conn.is_held(),
                was_refused,
            };
            // Not while it is locked, what TCP does comes back to a hook.
            let action = {
                let mut state = flow.lock();
                if state.is_pending() {
                    break;
                }
                state.poll(&params, &socket)
            };
            let Some(action) = action else {
                break;
            };
            match action {
                Action::Reduce => conn.reduce(),
                Action::SendEcho(owed) => {
                    self.count(net, Count::WorkerEcho);
                    conn.send_ack(Errand::Ack);
                    // What was marked is not what arrived, or there is no memory.
                    flow.lock().forgive(owed);
                }
                Action::SendClockEcho(owed) => {
                    self.count(net, Count::WorkerEcho);
                    conn.send_ack(Errand::Echo);
                    flow.lock().forgive(owed);
                }
                Action::Detect(proof) => {
                    self.count(net, Count::Detect);
                    match proof.kind {
                        Kind::Data => conn.detect(0, 0),
                        Kind::Clock => {
                            // By its timestamp the byte looks like a packet that others have overtaken.
                            let order = flow.lock().order;
                            conn.set_order((order.reordering, order.seen));
                            conn.detect(proof.sent_us, proof.end_seq);
                        }
                    }
                }
                Action::Retransmit => {
                    trace_clock(&conn, true);
                    self.count(net, Count::ForcedRetrans);
                    conn.retransmit();
                    was_refused = true;
                }
                Action::SendClock => {
                    trace_clock(&conn, false);
                    let (reordering, seen) = conn.order();
                    flow.lock().order = Order { reordering, seen };
                    conn.send_ack(Errand::Clock);
                    break;
                }
            }
        }
        0
    }

    fn removed(&self, net: &Net) {
        self.counters.add_to_gauge(net, -1);
    }
}

/// The hooks of the module.
struct Tlt {
    flows: Flows<Shared>,
}

impl Hooks for Tlt {
    /// Behind those who drop packets, and those who set marks of their own.
    const PRIORITY: i32 = i32::MAX;

    #[inline]
    fn local_in<'a>(&self, net: &Net, packet: Packet<'a>) -> Verdict<'a> {
        if self.params(net).enabled() != 0 && !self.receive(net, &packet) {
            return packet.discard();
        }
        packet.accept()
    }

    #[inline]
    fn post_routing<'a>(&self, net: &Net, packet: Packet<'a>) -> Verdict<'a> {
        if self.params(net).enabled() == 0 {
            return packet.accept();
        }
        self.send(net, packet)
    }

    fn net_exit(&self, net: &Net) {
        self.flows.flush(net);
    }
}

impl Tlt {
    fn new() -> Result<Self> {
        Ok(Self {
            flows: Flows::new(Shared {
                sysctls: sysctl::Registration::new()?,
                counters: counters::Registration::new()?,
            })?,
        })
    }

    fn shared(&self) -> &Shared {
        self.flows.ops()
    }

    #[inline(always)]
    fn params<'a>(&'a self, net: &'a Net) -> &'a sysctl::Values {
        self.shared().params(net)
    }

    fn count(&self, net: &Net, counter: Count) {
        self.shared().count(net, counter);
    }

    /// A packet leaves.
    fn send<'a>(&self, net: &Net, packet: Packet<'a>) -> Verdict<'a> {
        let Some(segment) = packet.segment() else {
            return packet.accept();
        };
        if segment.is_syn() {
            return self.send_syn(net, packet, &segment);
        }
        let flow = self
            .flows
            .find(net, &segment)
            .and_then(|flow| self.still_taking_part(net, &packet, &segment, flow));
        let Some(flow) = flow else {
            return packet.accept();
        };
        let mut packet = packet;
        if (flow.clock_seq()).is_some_and(|seq| packet.cut_dsack(&segment, seq)) {
            self.count(net, Count::DsackCut);
        }
        match segment.len() {
            0 => self.send_ack(net, packet, &segment, flow),
            _ if flow.is_mute() => packet.accept(),
            _ => self.send_data(net, packet, &segment, flow),
        }
    }

    /// The flow of a packet that leaves, unless it has become one that is not marked.
    fn still_taking_part<'a>(
        &self,
        net: &Net,
        packet: &Packet<'_>,
        segment: &Segment,
        mut flow: Held<'a, tlt::Flow>,
    ) -> Option<Held<'a, tlt::Flow>> {
        let conn = packet.sender()?;
        // What a timeout sends has data. One that could send nothing says nothing of the peer.
        let is_data = segment.len() != 0;
        let rtos = conn.timeouts();
        if is_data {
            flow.watch(rtos);
        }
        let may_mark = Mark::may_replace(segment.dscp(), &self.params(net));
        let why = if conn.is_excluded() || !may_mark {
            Count::Excluded
        } else if is_data && self.params(net).negotiate() != 0 && flow.is_deaf(rtos) {
            Count::Fallback
        } else {
            return Some(flow);
        };
        self.count(net, why);
        let from = flow.phase();
        match why {
            Count::Fallback => {
                flow.give_up();
                drop(flow);
            }
            _ => flow.remove(),
        }
        trace_state(&conn, Some(from), None);
        None
    }

    /// A SYN offers, a SYN-ACK agrees. Rule 17.
    fn send_syn<'a>(&self, net: &Net, packet: Packet<'a>, segment: &Segment) -> Verdict<'a> {
        let params = self.params(net);
        let may_mark = Mark::may_replace(segment.dscp(), &params);
        if let Some(flow) = self.flows.find(net, segment) {
            if !segment.is_ack() && packet.sender().is_some() {
                flow.remove();
            }
        }
        let wants = params.fwmark();
        let mark = if let Some(request) = packet.request() {
            let agrees = params.negotiate() == 0 || u32::from(request.dscp()) == params.dscp_data();
            let is_ours = wants == 0 || request.mark() == wants;
            let is_excluded = request.is_excluded() || !may_mark;
            // Who agrees has to echo: what is under way is not counted yet.
            let flows = self.shared().counters.add_to_gauge(net, 0);
            let has_room = i64::from(flows) < i64::from(params.max_flows());
            if !agrees {
                self.count(net, Count::PeerPlain);
            } else if is_ours && is_excluded {
                self.count(net, Count::Excluded);
            } else if is_ours && !has_room {
                self.count(net, Count::TooMany);
            }
            let takes_part = agrees && is_ours && !is_excluded && has_room;
            (takes_part && segment.is_ack()).then_some(Mark::Echo)
        } else if let Some(conn) = packet.sender() {
            let is_ours = (wants == 0 || conn.mark() == wants) && !conn.is_excluded();
            (is_ours && may_mark && !segment.is_ack()).then_some(Mark::Data)
        } else {
            None
        };
        match mark {
            Some(mark) => self.mark(net, packet, mark),
            None => packet.accept(),
        }
    }

    /// What carries no data leaves.
    fn send_ack<'a>(
        &self,
        net: &Net,
        mut packet: Packet<'a>,
        segment: &Segment,
        mut flow: Held<'_, tlt::Flow>,
    ) -> Verdict<'a> {
        // Sent just now, so it says all that the socket has, even where its blocks have no room.
        let is_own = packet.errand() == Errand::Ack;
        let errand = match packet.errand() {
            Errand::Echo => tlt::Errand::ClockEcho,
            Errand::Clock => tlt::Errand::ClockData,
            Errand::None | Errand::Ack => tlt::Errand::None,
        };
        let is_clock = errand == tlt::Errand::ClockData && packet.make_clock(segment);
        let mark = {
            let Some(conn) = packet.sender() else {
                drop(flow);
                return packet.accept();
            };
            if is_clock {
                let from = flow.phase();
                let mark = flow.on_clock(conn.departure_us(), conn.snd_una(), conn.timeouts());
                let to = flow.phase();
                drop(flow);
                trace_state(&conn, Some(from), Some(to));
                mark
            } else if segment.is_fin() || segment.is_rst() {
                drop(flow);
                Mark::Control
            } else {
                let covers =
                    |end_seq| packet.reports(segment, end_seq) || (is_own && conn.has(end_seq));
                let mark = flow.on_ack(errand, covers);
                drop(flow);
                mark
            }
        };
        self.mark(net, packet, mark)
    }

    /// Data leaves.
    fn send_data<'a>(
        &self,
        net: &Net,
        packet: Packet<'a>,
        segment: &Segment,
        mut flow: Held<'_, tlt::Flow>,
    ) -> Verdict<'a> {
        let params = self.params(net);
        let mark = {
            let Some(conn) = packet.sender() else {
                drop(flow);
                return packet.accept();
            };
            let data = outgoing(&conn, segment);
            let from = flow.phase();
            let mark = flow.on_data(&params, &data);
            let to = flow.phase();
            drop(flow);
            trace_send(&conn, &data, segment.segs(), mark);
            trace_state(&conn, Some(from), Some(to));
            mark
        };
        if mark == Mark::Unimportant || segment.segs() < 2 {
            return self.mark_all(net, packet, mark, segment.segs());
        }
        let unimportant = Mark::Unimportant.dscp(&params);
        match packet.split_last(unimportant, mark.dscp(&params)) {
            Ok(split) => {
                self.count(net, Count::GsoSplit);
                self.shared()
                    .count_tx(net, Mark::Unimportant, segment.segs().wrapping_sub(1));
                self.shared().count_tx(net, mark, 1);
                if split.is_congested {
                    if let Some(mut flow) = self.flows.find(net, segment) {
                        flow.on_congestion();
                        flow.poll_later();
                    }
                }
                split.verdict
            }
            // All of it green rather than none.
            Err(packet) => {
                self.count(net, Count::NoMem);
                self.mark_all(net, packet, mark, segment.segs())
            }
        }
    }

    fn mark<'a>(&self, net: &Net, packet: Packet<'a>, mark: Mark) -> Verdict<'a> {
        self.mark_all(net, packet, mark, 1)
    }

    /// Gives a packet its DSCP; it counts as so many.
    fn mark_all<'a>(
        &self,
        net: &Net,
        mut packet: Packet<'a>,
        mark: Mark,
        segs: u32,
    ) -> Verdict<'a> {
        match packet.set_dscp(mark.dscp(&self.params(net))) {
            true => self.shared().count_tx(net, mark, segs),
            false => self.count(net, Count::NoMem),
        }
        packet.accept()
    }

    /// A packet came. Returns whether TCP is to see it.
    fn receive(&self, net: &Net, packet: &Packet<'_>) -> bool {
        let Some(segment) = packet.segment() else {
            return true;
        };
        let params = self.params(net);
        let mark = Mark::of(segment.dscp(), &params);
        // A SYN, too, that resets is no answer and no offer.
        if segment.is_rst() {
            return true;
        }
        if segment.is_syn() {
            self.receive_syn(net, packet, &segment, mark);
            return true;
        }
        // Dropped after the flow's lock, as it may be the socket's last reference.
        let found;
        let Some(mut flow) = self.flows.find(net, &segment) else {
            if mark.is_some() || params.negotiate() == 0 {
                self.receive_first(net, packet, &segment, mark);
            }
            return true;
        };
        if let Some(mark) = mark {
            self.shared().count_rx(net, mark);
        }
        if !flow.is_listening(mark) {
            return true;
        }
        found = Found::new(net, &segment);
        let Some(found) = &found else {
            return true;
        };
        let Some(conn) = found.conn() else {
            // TIME_WAIT would answer the byte, and who has sent it, and closed, the answer by a RST, which ends
            // TIME_WAIT (RFC 1337).
            if mark == Some(Mark::ClockData)
                && segment.len() == 1
                && !segment.is_fin()
                && found.is_time_wait()
            {
                return false;
            }
            receive_data(&mut flow, &segment, mark);
            return true;
        };
        let is_meant = conn.is_near(&segment) && conn.is_in_window(&segment);
        if !packet.is_intact(&segment) || !is_meant {
            self.count(net, Count::BadMark);
            return true;
        }
        if segment.len() != 0 {
            receive_data(&mut flow, &segment, mark);
        }
        // What carries data carries no echo, but it acknowledges.
        let echo = mark.filter(|_| segment.len() == 0);
        let incoming = Incoming {
            ack: segment.ack(),
            una: conn.snd_una(),
            nxt: conn.snd_nxt(),
            max_window: conn.max_window(),
            reports: flow
                .awaited()
                .is_some_and(|end| packet.reports(&segment, end)),
        };
        let from = flow.phase();
        let sent_ago_us = TltEcho::is_on().then(|| flow.age_us(now_ns() / 1_000));
        let seen = flow.on_ack_in(echo, &incoming);
        if seen == Seen::Poll {
            flow.poll_later();
        }
        let to = flow.phase();
        drop(flow);
        trace_echo(&conn, echo, seen, segment.ack(), sent_ago_us.flatten());
        trace_state(&conn, Some(from), Some(to));
        match seen {
            Seen::Bad => self.count(net, Count::BadMark),
            Seen::Late => self.count(net, Count::LateEcho),
            Seen::Poll | Seen::Nothing => {}
        }
        true
    }

    /// The answer to our offer, or an offer, which forgets what the addresses stood for before.
    fn receive_syn(&self, net: &Net, packet: &Packet<'_>, segment: &Segment, mark: Option<Mark>) {
        let params = self.params(net);
        if !segment.is_ack() {
            // Dropped after the flow's lock, as it may be the socket's last reference.
            let found;
            if let Some(flow) = self.flows.find(net, segment) {
                // In TIME_WAIT the addresses are free for another connection.
                found = Found::new(net, segment);
                if found.as_ref().and_then(Found::conn).is_none() {
                    flow.remove();
                }
            }
            return;
        }
        let Some(found) = Found::new(net, segment) else {
            return;
        };
        let Some(conn) = found.conn() else {
            return;
        };
        if conn.is_open() || (params.fwmark() != 0 && conn.mark() != params.fwmark()) {
            return;
        }
        // What TCP will not take answers nothing. It may come before connect() has moved snd_nxt.
        let is_answer = tlt::is_after(segment.ack(), conn.snd_una())
            && !tlt::is_after(segment.ack(), conn.write_seq());
        if !is_answer || !conn.is_near(segment) || !packet.is_intact(segment) {
            return self.count(net, Count::BadMark);
        }
        if conn.is_excluded() {
            return self.count(net, Count::Excluded);
        }
        if params.negotiate() != 0 && mark != Some(Mark::Echo) {
            return self.count(net, Count::PeerPlain);
        }
        if self.take_part(net, segment, &found, false).is_some() {
            trace_state(&conn, None, Some(Phase::First));
        }
    }

    /// The end of a handshake that we agreed to take part in.
    fn receive_first(&self, net: &Net, packet: &Packet<'_>, segment: &Segment, mark: Option<Mark>) {
        let params = self.params(net);
        let Some(found) = Found::new(net, segment) else {
            return;
        };
        let Some(request) = found.request(segment) else {
            return;
        };
        let agrees = params.negotiate() == 0 || u32::from(request.dscp()) == params.dscp_data();
        let is_ours = params.fwmark() == 0 || request.mark() == params.fwmark();
        if agrees && is_ours && !request.is_excluded() && packet.is_intact(segment) {
            // The SYN-ACK has promised it, unless each connection takes part.
            if let Some(mut flow) = self.take_part(net, segment, &found, params.negotiate() != 0) {
                receive_data(&mut flow, segment, mark);
            }
        }
    }

    /// Its flow, if it does. What was promised to a peer is kept beyond `max_flows`, too.
    fn take_part(
        &self,
        net: &Net,
        segment: &Segment,
        found: &Found,
        is_promised: bool,
    ) -> Option<Held<'_, tlt::Flow>> {
        let flows = &self.shared().counters;
        let max_flows = i64::from(self.params(net).max_flows());
        if i64::from(flows.add_to_gauge(net, 1)) > max_flows && !is_promised {
            flows.add_to_gauge(net, -1);
            self.count(net, Count::TooMany);
            return None;
        }
        let added = self.flows.add(net, segment, found, tlt::Flow::default());
        if let Err(error) = &added {
            flows.add_to_gauge(net, -1);
            if *error == ENOMEM {
                self.count(net, Count::NoMem);
            }
        }
        added.ok()
    }
}

/// Data came, for a flow.
fn receive_data(flow: &mut Held<'_, tlt::Flow>, segment: &Segment, mark: Option<Mark>) {
    let end_seq = segment.seq().wrapping_add(segment.len());
    if segment.len() != 0
        && mark.is_some_and(|mark| flow.on_data_in(mark, segment.seq(), end_seq) == Seen::Poll)
    {
        flow.poll_later();
    }
}

tracepoint! {
    /// `xdc:tlt_send`.
    TltSend, tlt_send, xdc_tlt_send, conn
}
tracepoint! {
    /// `xdc:tlt_echo`.
    TltEcho, tlt_echo, xdc_tlt_echo, conn
}
tracepoint! {
    /// `xdc:tlt_clock`.
    TltClock, tlt_clock, xdc_tlt_clock, conn
}
tracepoint! {
    /// `xdc:tlt_state`.
    TltState, tlt_state, xdc_tlt_state, conn
}

/// Data leave.
#[inline(always)]
fn trace_send(conn: &Conn<'_>, packet: &Outgoing, segs: u32, mark: Mark) {
    if TltSend::is_on() {
        let info = xdc_tlt_send {
            end_seq: packet.end_seq,
            segs,
            important: mark != Mark::Unimportant,
            again: packet.is_again,
        };
        TltSend::emit(conn, &info);
    }
}

/// An ACK came, so long after the important packet left.
#[inline(always)]
fn trace_echo(conn: &Conn<'_>, mark: Option<Mark>, seen: Seen, ack: u32, sent_ago_us: Option<u64>) {
    if TltEcho::is_on() {
        let seen = match (mark, seen) {
            (Some(Mark::Echo | Mark::ClockEcho), Seen::Poll) => XDC_TLT_AWAITED,
            (_, Seen::Late) => XDC_TLT_LATE,
            (_, Seen::Bad) => XDC_TLT_BAD,
            _ => return,
        };
        let info = xdc_tlt_echo {
            ack,
            echo_us: match seen {
                XDC_TLT_AWAITED => {
                    sent_ago_us.map_or(0, |us| u32::try_from(us).unwrap_or(u32::MAX))
                }
                _ => 0,
            },
            clock: mark == Some(Mark::ClockEcho),
            seen,
        };
        TltEcho::emit(conn, &info);
    }
}

/// A packet leaves where none may.
#[inline(always)]
fn trace_clock(conn: &Conn<'_>, segment: bool) {
    if TltClock::is_on() {
        let info = xdc_tlt_clock {
            una: conn.snd_una(),
            segment,
        };
        TltClock::emit(conn, &info);
    }
}

/// None is a connection that does not take part.
#[inline(always)]
fn trace_state(conn: &Conn<'_>, from: Option<Phase>, to: Option<Phase>) {
    if TltState::is_on() && from != to {
        let info = xdc_tlt_state {
            from: phase_number(from),
            to: phase_number(to),
        };
        TltState::emit(conn, &info);
    }
}

fn phase_number(phase: Option<Phase>) -> xdc_tlt_phase {
    match phase {
        None => XDC_TLT_NONE,
        Some(Phase::First) => XDC_TLT_FIRST,
        Some(Phase::Data) => XDC_TLT_DATA,
        Some(Phase::Clock) => XDC_TLT_CLOCK,
        Some(Phase::Pending) => XDC_TLT_PENDING,
    }
}

/// What the rules want to know of data that leave.
fn outgoing(conn: &Conn<'_>, segment: &Segment) -> Outgoing {
    let end_seq = segment.end_seq();
    Outgoing {
        now_us: conn.departure_us(),
        end_seq,
        is_again: tlt::is_after(conn.snd_nxt(), segment.seq()),
        is_last: conn.is_last(end_seq, segment.segs()),
        is_first: conn.packets_out() == 0,
        path: Path {
            srtt_us: conn.srtt_us(),
            rtos: conn.timeouts(),
            is_probing: conn.is_probing(),
        },
    }
}
