// SPDX-License-Identifier: GPL-2.0

//! TLT: one important packet of each flow is in flight, and the switch never drops it.
//!
//! Source: Lim et al., "Towards Timeout-less Transport in Commodity Datacenter Networks", EuroSys
//! 2021, section 5 and Algorithm 1, in the form of window-based transport. docs/tlt.md numbers what
//! the kernel's TCP makes different; "rule N" below is that page's.
//!
//! A flow is a sender and a receiver at once. The sender marks one data packet, waits for its echo,
//! and marks the next one that leaves. Where none can leave although payload is unacknowledged, it
//! sends a packet of its own: a retransmission, or one byte that the receiver has or will get anyway
//! (ClockData). Each echo proves lost what was sent before the packet that it echoes and is not
//! acknowledged. The receiver echoes at once.

use super::params::params;

params! {
    /// Which set of values the parameters start from.
    profiles {
        /// The only one.
        Default = c"default",
    }

    //                                min  max         default

    /// 1 = mark the packets of this namespace's connections, and answer marks.
    enabled: "0 or 1",                0,   1,          [0];
    /// 1 = only with peers whose handshake says that they do so too; 0 = with all.
    negotiate: "0 or 1",              0,   1,          [1];
    /// DSCP of the important data packet, and of a SYN.
    dscp_data: "DSCP",                0,   63,         [10];
    /// DSCP of the ACK that echoes it, and of a SYN-ACK that agrees.
    dscp_echo: "DSCP",                0,   63,         [12];
    /// DSCP of the byte that is sent where nothing else may leave.
    dscp_clock: "DSCP",               0,   63,         [18];
    /// DSCP of the ACK that echoes the byte.
    dscp_clock_echo: "DSCP",          0,   63,         [20];
    /// DSCP of what carries no data: ACKs, FIN, RST, probes.
    dscp_control: "DSCP",             0,   63,         [26];
    /// DSCP of all other data, which a switch may drop.
    dscp_unimportant: "DSCP",         0,   63,         [8];
    /// Only sockets with this mark (SO_MARK); 0 = all.
    fwmark: "mark",                   0,   u32::MAX,   [0];
    /// 1 = a write after a pause is a first window of its own: its last packet is marked, not its first.
    burst_tail: "0 or 1",             0,   1,          [1];
    /// What is sent where nothing may leave: 0 = a lost segment if there is one, else a byte; 1 = always a byte.
    clock_mode: "0 or 1",             0,   1,          [0];
    /// A socket that is in use is looked at again after this time; after twice that the next time, up to 1 ms.
    retry_us: "us",                   1,   1_000,      [10];
    /// Flows of the namespace; further ones are left alone.
    max_flows: "flows",               0,   1 << 24,    [65_536];
}

/// [`Rows::clock_mode`]: a lost segment if there is one, else a byte.
pub const CLOCK_ADAPTIVE: u32 = 0;
/// [`Rows::clock_mode`]: always a byte.
pub const CLOCK_BYTE: u32 = 1;

/// No important packet is older than this many smoothed RTTs...
const STALE_SRTTS: u64 = 4;
/// ...and this time.
const STALE_MIN_US: u64 = 1_000;

/// A flow that met so many timeouts without ever seeing an echo has a peer that sends none.
const DEAF_AFTER_RTOS: u16 = 2;
/// One that has echoed may have a path that is gone for a while: its flow is given more. The timeouts double, so an
/// outage has to last 255 times the first of them.
const SILENT_AFTER_RTOS: u16 = 8;

/// What a packet is. All but [`Mark::Unimportant`] are green to a switch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Mark {
    /// The important data packet of its flow; a SYN.
    Data,
    /// The first ACK that covers it; a SYN-ACK.
    Echo,
    /// A byte sent in place of data.
    ClockData,
    /// The ACK of that.
    ClockEcho,
    /// No data.
    Control,
    /// Data that may be dropped.
    Unimportant,
}

impl Mark {
    /// Every mark, in the order of the rows `dscp_*`.
    pub const ALL: [Mark; 6] = [
        Mark::Data,
        Mark::Echo,
        Mark::ClockData,
        Mark::ClockEcho,
        Mark::Control,
        Mark::Unimportant,
    ];

    /// Its DSCP.
    pub fn dscp(self, params: &impl Rows) -> u8 {
        let dscp = match self {
            Mark::Data => params.dscp_data(),
            Mark::Echo => params.dscp_echo(),
            Mark::ClockData => params.dscp_clock(),
            Mark::ClockEcho => params.dscp_clock_echo(),
            Mark::Control => params.dscp_control(),
            Mark::Unimportant => params.dscp_unimportant(),
        };
        u8::try_from(dscp).unwrap_or(0)
    }

    /// The first mark of that DSCP.
    pub fn of(dscp: u8, params: &impl Rows) -> Option<Self> {
        Self::ALL.into_iter().find(|mark| mark.dscp(params) == dscp)
    }
}

/// Which important packet is in flight.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Kind {
    /// A data packet.
    Data,
    /// A byte.
    Clock,
}

/// What a sender's state is called.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Phase {
    /// A first window is being sent.
    First,
    /// A data packet waits for its echo.
    Data,
    /// A byte does.
    Clock,
    /// The next data packet is important.
    Pending,
}

impl Phase {
    /// As people see it.
    pub fn name(self) -> &'static str {
        match self {
            Phase::First => "first",
            Phase::Data => "data",
            Phase::Clock => "clock",
            Phase::Pending => "pending",
        }
    }
}

/// Something that is known to have arrived, and so what was sent before it and has not is lost.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Proof {
    /// When it was sent.
    pub sent_us: u64,
    /// Of what was sent at the same time it is behind what ends before this.
    pub end_seq: u32,
    /// What it was.
    pub kind: Kind,
}

impl Proof {
    /// Whether it proves lost what was sent then and is not acknowledged. The kernel's RACK uses the
    /// same order (tcp_skb_sent_after()), and is handed the two numbers.
    pub fn is_after(&self, sent_us: u64, end_seq: u32) -> bool {
        self.sent_us > sent_us || (self.sent_us == sent_us && is_after(self.end_seq, end_seq))
    }
}

/// The sender's half.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(u8)]
enum Sender {
    /// A first window is being sent; its last packet will be important.
    #[default]
    First,
    /// An important packet waits for its echo.
    InFlight {
        kind: Kind,
        end_seq: u32,
        sent_us: u64,
    },
    /// The next data packet is important.
    Pending,
}

/// The receiver's half: what it owes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(u8)]
enum Receiver {
    /// Nothing.
    #[default]
    Idle,
    /// An echo of data that end here.
    Data { end_seq: u32 },
    /// An echo of the byte that is there.
    Clock { seq: u32 },
}

/// What a receiver owed when it was looked at.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Owed(Receiver);

/// What the ACK that is being sent is for.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(u8)]
pub enum Errand {
    /// TCP's own.
    #[default]
    None,
    /// It shall echo a byte.
    ClockEcho,
    /// It shall become a byte.
    ClockData,
}

/// State of one flow. All zeroes is its beginning: each enum is a number and what follows it, and its
/// first variant has nothing.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Flow {
    sender: Sender,
    /// Of an echo that came, until it was made use of.
    proof: Option<Proof>,
    receiver: Receiver,
    /// Data have left: `heard_rtos` is known.
    is_started: bool,
    /// Timeouts of the socket before its first data (those of the handshake are among them), and then when the
    /// last packet that was echoed had been sent.
    heard_rtos: u16,
    /// Timeouts when the important packet was sent.
    rtos: u16,
    /// Timeouts when the last packet left.
    seen_rtos: u16,
    /// Echoes that came; saturates.
    echoes: u16,
    /// Important packets that were replaced, or are no longer waited for, of which an echo may still come;
    /// saturates.
    replaced: u8,
    /// Behind the newest data that have left. TCP itself knows of them a moment later, when its ACK
    /// may have come on another processor.
    newest: u32,
    /// The last byte that came: a D-SACK of it says nothing of the network.
    clock_seq: u32,
    clock_seen: bool,
    /// The peer does not echo; we still do.
    is_mute: bool,
}

/// What TCP knows of the path and of itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Path {
    /// Smoothed RTT; 0 = none.
    pub srtt_us: u32,
    /// Timeouts that the socket has met.
    pub rtos: u16,
    /// A tail loss probe is out.
    pub is_probing: bool,
}

/// A data packet on its way out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outgoing {
    /// When it leaves.
    pub now_us: u64,
    /// Its data end here.
    pub end_seq: u32,
    /// It was sent before.
    pub is_again: bool,
    /// Nothing can be sent after it: no data, or no window, is left.
    pub is_last: bool,
    /// Nothing is unacknowledged before it.
    pub is_first: bool,
    /// About the socket.
    pub path: Path,
}

/// An ACK that came, before TCP sees it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Incoming {
    /// What it acknowledges.
    pub ack: u32,
    /// First byte that is not acknowledged.
    pub una: u32,
    /// First byte that was never sent.
    pub nxt: u32,
    /// The largest window that the peer ever offered.
    pub max_window: u32,
    /// It says that the important packet has arrived.
    pub reports: bool,
}

/// What came of a packet that came.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Seen {
    /// Nothing.
    Nothing,
    /// Look at the socket when TCP has seen the packet: [`Flow::poll`].
    Poll,
    /// An echo of what was replaced.
    Late,
    /// It cannot be what it says that it is.
    Bad,
}

/// The socket, when TCP has seen everything that came.
#[derive(Clone, Copy, Debug, Default)]
pub struct Socket {
    /// Payload is unacknowledged.
    pub has_unacked: bool,
    /// A lost segment is not sent again yet.
    pub has_lost: bool,
    /// A timer of TCP will send what there is.
    pub is_held: bool,
    /// TCP was asked for a segment and sent none.
    pub was_refused: bool,
}

/// What is to be done with the socket.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Action {
    /// An ACK; it will turn out to be the echo.
    SendEcho(Owed),
    /// An ACK, as [`Errand::ClockEcho`].
    SendClockEcho(Owed),
    /// Mark lost what this proves lost.
    Detect(Proof),
    /// Send one lost segment, whatever the window.
    Retransmit,
    /// A byte: an ACK, as [`Errand::ClockData`].
    SendClock,
}

impl Flow {
    /// A data packet leaves. Returns its mark; of a burst of segments, that of the last one, of which
    /// the others are unimportant.
    pub fn on_data(&mut self, params: &impl Rows, packet: &Outgoing) -> Mark {
        self.watch(packet.path.rtos);
        if !self.is_started {
            self.is_started = true;
            self.heard_rtos = packet.path.rtos;
            self.rtos = packet.path.rtos;
            self.newest = packet.end_seq;
        }
        if is_after(packet.end_seq, self.newest) {
            self.newest = packet.end_seq;
        }
        let is_important = match self.sender {
            // Rule 3: what follows a pause is a window of its own.
            Sender::Pending if params.burst_tail() != 0 && packet.is_first && !packet.is_again => {
                self.proof = None;
                self.sender = Sender::First;
                packet.is_last
            }
            Sender::Pending => true,
            // Rule 2, and rule 15 for one that never filled.
            Sender::First => packet.is_last || packet.path.rtos != self.rtos,
            Sender::InFlight { sent_us, .. } => self.is_stale(sent_us, packet),
        };
        if !is_important {
            if self.sender == Sender::First {
                self.rtos = packet.path.rtos;
            }
            return Mark::Unimportant;
        }
        if let Sender::InFlight { .. } = self.sender {
            self.replaced = self.replaced.saturating_add(1);
        }
        self.in_flight(Kind::Data, packet.end_seq, packet.now_us, packet.path.rtos);
        Mark::Data
    }

    /// Rule 15: the important packet, or its echo, did not come through.
    fn is_stale(&self, sent_us: u64, packet: &Outgoing) -> bool {
        let age_us = packet.now_us.saturating_sub(sent_us);
        let limit_us = u64::from(packet.path.srtt_us).saturating_mul(STALE_SRTTS);
        packet.path.rtos != self.rtos
            || packet.path.is_probing
            || age_us > limit_us.max(STALE_MIN_US)
    }

    fn in_flight(&mut self, kind: Kind, end_seq: u32, sent_us: u64, rtos: u16) {
        self.sender = Sender::InFlight {
            kind,
            end_seq,
            sent_us,
        };
        self.rtos = rtos;
    }

    /// An ACK without data leaves; `covers(end_seq)` says whether it acknowledges what ends there.
    /// One that goes as [`Errand::ClockData`] and was made a byte is [`Flow::on_clock`] instead.
    pub fn on_ack(&mut self, errand: Errand, covers: impl FnOnce(u32) -> bool) -> Mark {
        match (errand, self.receiver) {
            (Errand::ClockEcho, Receiver::Clock { .. }) => {
                self.receiver = Receiver::Idle;
                Mark::ClockEcho
            }
            // Rule 5: the first that covers it.
            (_, Receiver::Data { end_seq }) if covers(end_seq) => {
                self.receiver = Receiver::Idle;
                Mark::Echo
            }
            _ => Mark::Control,
        }
    }

    /// A byte leaves, of the payload at `una`.
    pub fn on_clock(&mut self, now_us: u64, una: u32, rtos: u16) -> Mark {
        self.watch(rtos);
        self.in_flight(Kind::Clock, una, now_us, rtos);
        Mark::ClockData
    }

    /// What a packet of that mark means depends on more than its mark. Where no data have left, an ACK
    /// ends no first window.
    pub fn is_listening(&self, mark: Option<Mark>) -> bool {
        match mark {
            None | Some(Mark::Control | Mark::Unimportant) => {
                self.is_started && self.sender == Sender::First
            }
            Some(_) => true,
        }
    }

    /// Data of that mark came, within the window.
    pub fn on_data_in(&mut self, mark: Mark, seq: u32, end_seq: u32) -> Seen {
        self.receiver = match mark {
            Mark::Data => Receiver::Data { end_seq },
            Mark::ClockData => {
                self.clock_seq = seq;
                self.clock_seen = true;
                Receiver::Clock { seq }
            }
            _ => return Seen::Nothing,
        };
        Seen::Poll
    }

    /// An ACK of that mark came. With [`None`], one that has none.
    pub fn on_ack_in(&mut self, mark: Option<Mark>, ack: &Incoming) -> Seen {
        if self.is_mute {
            return Seen::Nothing;
        }
        let echoed = match mark {
            Some(Mark::Echo) => Kind::Data,
            Some(Mark::ClockEcho) => Kind::Clock,
            // Rule 4: a window that a pacing rate stretches may never fill.
            _ if self.sender == Sender::First && is_after(ack.ack, ack.una) => {
                self.sender = Sender::Pending;
                return Seen::Poll;
            }
            _ => return Seen::Nothing,
        };
        // An echo may come behind later ACKs, as one of another processor: old ones are TCP's, too, within
        // a window (RFC 5961).
        let newest = match is_after(self.newest, ack.nxt) && self.is_started {
            true => self.newest,
            false => ack.nxt,
        };
        if is_after(ack.una.wrapping_sub(ack.max_window), ack.ack) || is_after(ack.ack, newest) {
            return Seen::Bad;
        }
        // Rule 16: only what is awaited, so who invents echoes gets no two bytes for one.
        let (kind, end_seq, sent_us) = match self.sender {
            Sender::InFlight {
                kind,
                end_seq,
                sent_us,
            } if kind == echoed && (kind == Kind::Clock || self.replaced == 0 || ack.reports) => {
                // A copy of an old one, or its block had no room: then its own may still come.
                if kind == Kind::Data && !ack.reports {
                    self.replaced = self.replaced.saturating_add(1);
                }
                (kind, end_seq, sent_us)
            }
            _ if self.replaced != 0 => {
                self.replaced = self.replaced.wrapping_sub(1);
                self.hear();
                return Seen::Late;
            }
            _ => return Seen::Bad,
        };
        self.hear();
        self.sender = Sender::Pending;
        self.proof = Some(Proof {
            sent_us,
            end_seq,
            kind,
        });
        Seen::Poll
    }

    /// The peer echoes.
    fn hear(&mut self) {
        self.echoes = self.echoes.saturating_add(1);
        self.heard_rtos = self.rtos;
    }

    /// TCP has seen everything that came. Called again until there is nothing to do.
    pub fn poll(&mut self, params: &impl Rows, socket: &Socket) -> Option<Action> {
        match self.receiver {
            Receiver::Data { .. } => return Some(Action::SendEcho(Owed(self.receiver))),
            Receiver::Clock { .. } => return Some(Action::SendClockEcho(Owed(self.receiver))),
            Receiver::Idle => {}
        }
        if self.sender != Sender::Pending || !socket.has_unacked {
            self.proof = None;
            return None;
        }
        // Rule 10.
        if let Some(proof) = self.proof.take() {
            return Some(Action::Detect(proof));
        }
        // Rule 8.
        if socket.is_held {
            return None;
        }
        // Rule 9.
        let wants_segment = params.clock_mode() != CLOCK_BYTE && socket.has_lost;
        if wants_segment && !socket.was_refused {
            return Some(Action::Retransmit);
        }
        Some(Action::SendClock)
    }

    /// What was owed is no longer, as it cannot be sent. What came since is.
    pub fn forgive(&mut self, owed: Owed) {
        if self.receiver == owed.0 {
            self.receiver = Receiver::Idle;
        }
    }

    /// Where the byte is that came last.
    pub fn clock_seq(&self) -> Option<u32> {
        self.clock_seen.then_some(self.clock_seq)
    }

    /// Data are about to leave. Each timeout that could send has sent some, so those of which nothing was seen came
    /// while TLT was off, and say nothing of the peer.
    pub fn watch(&mut self, rtos: u16) {
        let unseen = rtos.wrapping_sub(self.seen_rtos).saturating_sub(1);
        self.heard_rtos = self.heard_rtos.wrapping_add(unseen);
        self.rtos = self.rtos.wrapping_add(unseen);
        self.seen_rtos = rtos;
    }

    /// The peer never answers, or does not any more. Rule 17.
    pub fn is_deaf(&self, rtos: u16) -> bool {
        let met = rtos.wrapping_sub(self.heard_rtos);
        let patience = match self.echoes {
            0 => DEAF_AFTER_RTOS,
            _ => SILENT_AFTER_RTOS,
        };
        self.is_started && met >= patience
    }

    /// The peer does not echo: the sender's half ends.
    pub fn give_up(&mut self) {
        self.is_mute = true;
        self.is_started = false;
        self.sender = Sender::First;
        self.proof = None;
    }

    /// Whether it did.
    pub fn is_mute(&self) -> bool {
        self.is_mute
    }

    /// Where the important packet ends.
    pub fn awaited(&self) -> Option<u32> {
        match self.sender {
            Sender::InFlight { end_seq, .. } => Some(end_seq),
            Sender::First | Sender::Pending => None,
        }
    }

    /// Where the sender is.
    pub fn phase(&self) -> Phase {
        match self.sender {
            Sender::First => Phase::First,
            Sender::InFlight {
                kind: Kind::Data, ..
            } => Phase::Data,
            Sender::InFlight {
                kind: Kind::Clock, ..
            } => Phase::Clock,
            Sender::Pending => Phase::Pending,
        }
    }

    /// For how long the important packet has been in flight, if one is.
    pub fn age_us(&self, now_us: u64) -> Option<u64> {
        match self.sender {
            Sender::InFlight { sent_us, .. } => Some(now_us.saturating_sub(sent_us)),
            Sender::First | Sender::Pending => None,
        }
    }

    /// What the receiver owes an echo of.
    pub fn owes(&self) -> &'static str {
        match self.receiver {
            Receiver::Idle => "none",
            Receiver::Data { .. } => "data",
            Receiver::Clock { .. } => "clock",
        }
    }

    /// Echoes that came; saturates.
    pub fn echoes(&self) -> u16 {
        self.echoes
    }

    /// Important packets that were replaced, of which an echo may still come; saturates.
    pub fn replaced(&self) -> u8 {
        self.replaced
    }
}

/// Whether `a` is after `b` in sequence space.
pub fn is_after(a: u32, b: u32) -> bool {
    (b.wrapping_sub(a) as i32) < 0
}

#[cfg(test)]
#[path = "tests/tlt.rs"]
mod tests;
