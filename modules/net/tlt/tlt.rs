// SPDX-License-Identifier: GPL-2.0

//! TLT: one important packet in flight for each TCP connection, with any congestion control.
//!
//! algo/tlt.rs has the rules, and docs/tlt.md numbers them. Hooks in the packet path connect them to TCP:
//! departing packets are marked last, received packets are examined before TCP, and a softirq acts on the
//! socket after TCP. Differences from the paper:
//!
//! 1. The retransmit queue with RACK is TLT's list of unimportant packets in flight: no packet is copied, and
//!    the congestion control learns of each loss.
//! 2. The functions that repair losses are not exported, so the module calls TCP's release callback with the
//!    flag of a timer: RACK's timer marks lost and enters recovery, TCP Small Queues' timer retransmits.
//! 3. RACK is also asked after the echo of data, so that missing packets are lost at once for any
//!    `net.ipv4.tcp_reordering`.
//! 4. RACK removes lost segments from its list. If an ACK of a single byte comes before any retransmission,
//!    TCP forgets the loss and RACK ignores the segment until a timeout. The module puts it back on the list.
//! 5. Each pause begins a first window, because testbeds reuse connections. `burst_tail` = 0 is the paper's
//!    rule.
//! 6. A clock byte is echoed by a separate ACK after all earlier packets were handled; TCP's own ACK of the
//!    byte precedes it, without its D-SACK.
//! 7. An echo sooner than the shortest RTT is accepted: a handshake that waited for an address is the only
//!    RTT sample of a new connection.
//! 8. Timeouts before the first data, including those of the handshake, do not count against a peer that has
//!    not echoed.
//! 9. A sender that cannot write yet when its ACK is handled sends a clock byte, not data.
//! 10. Equal DSCPs are accepted: the first mark with the DSCP applies.
//! 11. The paper's clock of whole segments (its Figure 17) is missing: without a loss, TCP has no segment to
//!     retransmit, so a byte is sent.
//! 12. TCP may take the ACK of a clock byte for reordering, by its timestamp. TCP's measure of reordering is
//!     restored to its value at the byte's departure.
//! 13. A clock byte that reaches a connection in TIME_WAIT is dropped: TIME_WAIT would answer, and the
//!     sender's RST to that answer ends TIME_WAIT (RFC 1337).

#[path = "../../algo/mod.rs"]
mod algo;
#[path = "../../oot/kernel_api.rs"]
mod kernel_api;
#[path = "../ipv4/live.rs"]
mod live;
#[path = "tlt_receive.rs"]
mod tlt_receive;
#[path = "tlt_trace.rs"]
mod tlt_trace;

use algo::tlt::{self, Action, Kind, Mark, Order, Outgoing, Path, Rows, Socket};
use kernel::prelude::*;
use kernel_api::{
    conn::{Conn, Locked},
    counters,
    deferred::Deferred,
    flows::{Errand, Flow, FlowOps, Flows, Held},
    netfilter::{Hooks, Packet, Registration, Segment, Verdict},
    seq::Line,
    sysctl::{self, Net, Param, MAX_PARAMS},
};
use tlt_trace::{trace_clock, trace_send, trace_state};

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

/// Declares the counters with their names in `nstat`.
macro_rules! counters {
    ($($(#[doc = $help:literal])+ $counter:ident $name:literal,)+) => {
        // The counters of marks are reached by number.
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
    /// Sent packets with the `data` mark.
    TxData c"TxData",
    /// Sent echoes of data.
    TxEcho c"TxEcho",
    /// Sent clock bytes.
    TxClockData c"TxClockData",
    /// Sent echoes of clock bytes.
    TxClockEcho c"TxClockEcho",
    /// Sent packets without data.
    TxControl c"TxControl",
    /// Sent unimportant data packets.
    TxUnimportant c"TxUnimportant",
    /// Received packets with the `data` mark.
    RxData c"RxData",
    /// Received echoes of data.
    RxEcho c"RxEcho",
    /// Received clock bytes.
    RxClockData c"RxClockData",
    /// Received echoes of clock bytes.
    RxClockEcho c"RxClockEcho",
    /// Received packets without data.
    RxControl c"RxControl",
    /// Received unimportant data packets.
    RxUnimportant c"RxUnimportant",
    /// Present connections with TLT.
    Flows c"Flows",
    /// Echoes after which RACK was asked for losses.
    Detect c"Detect",
    /// Requested retransmissions beyond the window.
    ForcedRetrans c"ForcedRetrans",
    /// D-SACKs of a clock byte that were removed.
    DsackCut c"DsackCut",
    /// ACKs that the module made TCP send.
    WorkerEcho c"WorkerEcho",
    /// Sockets found in use when they were due.
    OwnedRetry c"OwnedRetry",
    /// Bursts whose last segment was split off.
    GsoSplit c"GsoSplit",
    /// Connections without TLT because of the peer's SYN or SYN-ACK.
    PeerPlain c"PeerPlain",
    /// Connections given up: the peer never echoed.
    Fallback c"Fallback",
    /// Implausible marks.
    BadMark c"BadMark",
    /// Late echoes of important packets that were replaced.
    LateEcho c"LateEcho",
    /// Packets and connections left alone for lack of memory.
    NoMem c"NoMem",
    /// Connections left alone: MPTCP, MD5, AO, no SACK, offloaded encryption, TCP_REPAIR, a DSCP of others.
    Excluded c"Excluded",
    /// Connections left alone because `max_flows` is reached.
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
}

/// State shared by all connections.
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

    fn count_rx(&self, net: &Net, mark: Mark, packets: u32) {
        let first = Count::RxData as usize;
        self.counters
            .add(net, first.wrapping_add(mark as usize), packets);
    }
}

/// Limit of actions per look at a socket: reduce, echo, detect, retransmit, clock byte.
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
        // TCP_REPAIR may have been set since the last packet.
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
            // Drop the flow lock first: TCP calls re-enter our hooks, which take it.
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
                    // The marked data have not arrived, or memory is short.
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
                            // The byte's timestamp looks to TCP like reordering.
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
    /// After hooks that drop packets or set marks of their own.
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

    /// Handles a departing packet.
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

    /// Returns the flow of a departing packet, unless its connection must no longer be marked.
    fn still_taking_part<'a>(
        &self,
        net: &Net,
        packet: &Packet<'_>,
        segment: &Segment,
        mut flow: Held<'a, tlt::Flow>,
    ) -> Option<Held<'a, tlt::Flow>> {
        let conn = packet.sender()?;
        // A timeout's retransmission has data. A timeout that could send nothing does not count against the
        // peer.
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

    /// Handles a departing SYN, which offers TLT, or SYN-ACK, which agrees. Rule 17.
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
            // An agreeing host has to echo; handshakes in progress are not counted yet.
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

    /// Handles a departing packet without data.
    fn send_ack<'a>(
        &self,
        net: &Net,
        mut packet: Packet<'a>,
        segment: &Segment,
        mut flow: Held<'_, tlt::Flow>,
    ) -> Verdict<'a> {
        // A fresh ACK covers all that the socket has received, even if its SACK blocks have no room.
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

    /// Handles departing data.
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
            // Without memory, mark the whole burst green rather than none.
            Err(packet) => {
                self.count(net, Count::NoMem);
                self.mark_all(net, packet, mark, segment.segs())
            }
        }
    }

    fn mark<'a>(&self, net: &Net, packet: Packet<'a>, mark: Mark) -> Verdict<'a> {
        self.mark_all(net, packet, mark, 1)
    }

    /// Sets a packet's DSCP and counts `segs` packets.
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
}

/// Collects the rules' input for departing data.
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
