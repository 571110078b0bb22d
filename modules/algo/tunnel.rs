// SPDX-License-Identifier: GPL-2.0

//! One end of a tunnel: the session with the peer, and the channels.
//!
//! A session is two tags; each end has chosen one, and every packet has the tag of the end that it goes
//! to. An end that answers keeps nothing until the peer has shown that it gets the answer: its tag is a
//! keyed hash of the peer's and of the time, which the peer gives back, so neither need be remembered.
//! docs/unorc.md has the rules.

#[allow(deprecated)]
use core::hash::{Hasher, SipHasher};

use super::{
    random::Random,
    resequence::{self, Held, HeldBlock, Receiver},
    rtt::BaseRtt,
    unorc::{
        self, Config, Context, Count, Ecn, FIRST_BLOCK, Feedback, HEADER_BYTES, Happened, Header,
        Io, Kind, Packet, Sender, Sent, SentBlock, Standing, earlier,
    },
};

/// Packets that wait for a session.
const MAX_WAITING: usize = 64;
/// A session that does not come in this time will not.
const PATIENCE_US: u64 = 3_000_000;
const RETRY_US: u64 = 1_000;
const MAX_RETRY_US: u64 = 1_000_000;
/// An end whose peer asks, too, does not wait longer until it asks again.
const SOON_US: u64 = 64_000;
/// How long an end waits for the session of a peer that asked at the same time, or that it has answered. MAX_CONFIRMS repetitions take half of it.
const YIELD_US: u64 = 500_000;
/// A session is new for so long at least: the peer may not have heard of it.
const NEW_US: u64 = 1_000_000;
/// Forged packets draw no more answers than one in this time.
const STALE_EVERY_US: u64 = 10_000;
/// How long CONFIRM is sent instead of STALE: longer than the delays of two paths usually differ.
const TELL_US: u64 = 100_000;
/// Times that the end of a handshake is sent again.
const MAX_CONFIRMS: u8 = 8;
/// An answer that is older begins no session.
const MINUTE_US: u64 = 60_000_000;
const HELLO_BYTES: usize = 8;
/// The time of an answer, in the answer and in CONFIRM.
const WHEN_BYTES: usize = 8;

/// A channel.
pub struct Channel<P> {
    sender: Sender<P>,
    receiver: Receiver,
}

impl<P> Channel<P> {
    /// What it sends.
    pub fn sender(&self) -> &Sender<P> {
        &self.sender
    }

    /// What it receives.
    pub fn receiver(&self) -> &Receiver {
        &self.receiver
    }
}

impl<P> Default for Channel<P> {
    fn default() -> Self {
        Self {
            sender: Sender::default(),
            receiver: Receiver::default(),
        }
    }
}

/// The memory of all channels.
pub struct Lent<'a, P> {
    /// [`Config::channels`].
    pub channels: &'a mut [Channel<P>],
    /// [`Config::sent_slots`] for each.
    pub sent: &'a mut [Sent<P>],
    /// [`Config::blocks`] for each.
    pub sent_blocks: &'a mut [SentBlock],
    /// [`Config::held_slots`] for each.
    pub held: &'a mut [Held<P>],
    /// [`Config::blocks`] for each.
    pub held_blocks: &'a mut [HeldBlock],
}

/// What a channel's two halves work with.
struct Parts<'a, P> {
    channel: &'a mut Channel<P>,
    sent: unorc::Lent<'a, P>,
    held: resequence::Lent<'a, P>,
}

/// The part of a channel in memory of all, of which each has `each`.
fn part<T>(all: &mut [T], each: usize, number: usize) -> Option<&mut [T]> {
    let from = each.checked_mul(number)?;
    all.get_mut(from..from.checked_add(each)?)
}

impl<P> Lent<'_, P> {
    fn parts(&mut self, config: &Config, number: usize) -> Option<Parts<'_, P>> {
        // Of each packet that comes, for all channels: worth reckoning once.
        let blocks = config.blocks();
        Some(Parts {
            channel: self.channels.get_mut(number)?,
            sent: unorc::Lent {
                slots: part(self.sent, config.slots_sent(blocks), number)?,
                blocks: part(self.sent_blocks, blocks, number)?,
            },
            held: resequence::Lent {
                slots: part(self.held, config.slots_held(blocks), number)?,
                blocks: part(self.held_blocks, blocks, number)?,
            },
        })
    }
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Session {
    /// None.
    #[default]
    Down,
    /// The peer was asked.
    Asked {
        tag: u32,
        since_us: u64,
        retry_us: u64,
        next_us: u64,
        /// Until then answers are ignored, and the peer's session is awaited. 0: it has not given way to the peer.
        yields_us: u64,
    },
    /// There is one. `confirms`: times that its begin is still to be repeated, for the peer has not spoken.
    Up {
        mine: u32,
        theirs: u32,
        since_us: u64,
        confirms: u8,
        next_us: u64,
        /// When the peer answered, by its clock; 0: we answered.
        when_us: u64,
        /// The peer is in it, too.
        is_heard: bool,
        /// Until then the peer may not have heard of it.
        new_until_us: u64,
    },
}

impl Session {
    fn standing(&self) -> Standing {
        match self {
            Session::Down => Standing::Down,
            Session::Asked { .. } => Standing::Asked,
            Session::Up { .. } => Standing::Up,
        }
    }
}

/// A hash that cannot be predicted without the key.
#[allow(deprecated)]
fn keyed(secret: (u64, u64), what: &[u64]) -> u64 {
    let mut hasher = SipHasher::new_with_keys(secret.0, secret.1);
    for word in what {
        hasher.write_u64(*word);
    }
    hasher.finish()
}

/// A packet as it comes from above.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Inner {
    /// What tells its flow from others: addresses, protocol and ports.
    pub flow: [u64; 5],
    /// It goes without order and code: an ACK without data, or no IP. Rule B2.
    pub is_raw: bool,
    /// Whether it can be marked.
    pub ecn: Ecn,
}

impl Inner {
    /// Looks into a packet.
    pub fn of(packet: &[u8]) -> Self {
        Self::look(packet).unwrap_or(Inner {
            is_raw: true,
            ..Inner::default()
        })
    }

    fn look(packet: &[u8]) -> Option<Self> {
        let word = |at: usize| {
            let bytes = packet.get(at..at.saturating_add(4))?;
            Some(u64::from(u32::from_be_bytes(*bytes.first_chunk()?)))
        };
        if !resequence::is_ip(packet) {
            return None;
        }
        let first = word(0)?;
        let (tos, protocol, header, addresses, is_first) = match first >> 28 {
            4 => {
                let header = usize::from(*packet.first()? & 15).saturating_mul(4);
                // Only the first fragment has ports, so none of a fragmented packet counts.
                let is_whole = word(4)? & 0x3fff == 0;
                let addresses = [word(12)?, word(16)?, 0, 0];
                (first >> 16, *packet.get(9)?, header, addresses, is_whole)
            }
            _ => {
                let long = |at: usize| Some(word(at)? << 32 | word(at.saturating_add(4))?);
                let addresses = [long(8)?, long(16)?, long(24)?, long(32)?];
                (first >> 20, *packet.get(6)?, 40, addresses, true)
            }
        };
        let has_ports = is_first && matches!(protocol, TCP | UDP);
        let ports = match has_ports {
            true => word(header)?,
            false => 0,
        };
        let ecn = match tos & 3 {
            0 => Ecn::Not,
            _ => Ecn::Capable,
        };
        let [a, b, c, d] = addresses;
        Some(Inner {
            flow: [a, b, c, d, ports << 8 | u64::from(protocol)],
            is_raw: is_first && protocol == TCP && is_pure_ack(packet, header)?,
            ecn,
        })
    }
}

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Whether a TCP segment has neither data nor SYN, FIN, RST.
fn is_pure_ack(packet: &[u8], header: usize) -> Option<bool> {
    let tcp = packet.get(header..)?;
    let offset = usize::from(*tcp.get(12)? >> 4).saturating_mul(4);
    Some(tcp.len() == offset && tcp.get(13)? & 0b1_0111 == 0b1_0000)
}

/// One end.
pub struct Endpoint<P> {
    config: Config,
    secret: (u64, u64),
    session: Session,
    tags: u64,
    waiting: [Option<P>; MAX_WAITING],
    rng: Random,
    rtt: BaseRtt,
    stale_us: u64,
    /// Since when CONFIRM is sent instead of STALE; 0: it is not.
    told_us: u64,
    /// When the peer was last answered. No two answers have the same time.
    answered_us: u64,
    /// Since when the session of a peer that was answered is awaited; 0: never.
    awaited_us: u64,
    /// No answer that was given up to then begins a session any more.
    begun_us: u64,
    /// When anything is due; 0: nothing.
    due_us: u64,
}

impl<P: Packet> Endpoint<P> {
    /// With a secret of 128 random bits.
    pub fn new(config: Config, secret: (u64, u64)) -> Self {
        Self {
            config,
            secret,
            session: Session::Down,
            tags: 0,
            waiting: [const { None }; MAX_WAITING],
            rng: Random::new(keyed(secret, &[])),
            rtt: BaseRtt::default(),
            stale_us: 0,
            told_us: 0,
            answered_us: 0,
            awaited_us: 0,
            begun_us: 0,
            due_us: 0,
        }
    }

    /// How it works.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Goes on with other paths and times, in the same session. What both ends agreed on stays: the code,
    /// the channels, their window, and the longest packet.
    pub fn change(&mut self, lent: &mut Lent<'_, P>, to: Config) {
        let is_other = (to.paths, to.freeze) != (self.config.paths, self.config.freeze);
        self.config = Config {
            paths: to.paths,
            freeze: to.freeze,
            timer_us: to.timer_us,
            flush_us: to.flush_us,
            ..self.config
        };
        if is_other {
            for channel in lent.channels.iter_mut() {
                channel.sender.paths.begin(to.paths, to.freeze);
            }
        }
    }

    /// Whether there is a session.
    pub fn is_up(&self) -> bool {
        matches!(self.session, Session::Up { .. })
    }

    /// Whether there is a session, and since when it is so, if that is known.
    pub fn session(&self) -> (Standing, Option<u64>) {
        let since_us = match self.session {
            Session::Down => None,
            Session::Asked { since_us, .. } | Session::Up { since_us, .. } => Some(since_us),
        };
        (self.session.standing(), since_us)
    }

    /// Packets that wait for a session.
    pub fn waiting(&self) -> usize {
        self.waiting.iter().flatten().count()
    }

    /// The shortest RTT; 0: none was measured.
    pub fn min_rtt_us(&self) -> u32 {
        self.rtt.get().unwrap_or(0)
    }

    /// When [`Self::poll`] is to be called; 0: not.
    pub fn due_us(&self) -> u64 {
        self.due_us
    }

    fn tag(&self) -> u32 {
        match self.session {
            Session::Up { theirs, .. } => theirs,
            _ => 0,
        }
    }

    fn context<'a, I: Io<Packet = P>>(
        &'a mut self,
        io: &'a mut I,
        now_us: u64,
        channel: usize,
    ) -> Context<'a, I> {
        Context {
            io,
            now_us: now_us.max(1),
            tag: self.tag(),
            channel: channel as u16,
            config: &self.config,
            rng: &mut self.rng,
            rtt: &mut self.rtt,
        }
    }

    /// A packet from above.
    pub fn transmit<I: Io<Packet = P>>(
        &mut self,
        io: &mut I,
        lent: &mut Lent<'_, P>,
        now_us: u64,
        packet: P,
    ) {
        if !self.is_up() {
            match self.waiting.iter_mut().find(|place| place.is_none()) {
                Some(place) => *place = Some(packet),
                None => io.count(Count::Unreachable, 1),
            }
            if self.session == Session::Down {
                self.ask(io, now_us);
            }
            return;
        }
        let inner = Inner::of(packet.bytes());
        let hash = keyed(self.secret, &inner.flow);
        let config = self.config;
        let number = (hash as usize) & usize::from(config.channels).saturating_sub(1);
        let Some(mut parts) = lent.parts(&config, number) else {
            return;
        };
        let mut cx = self.context(io, now_us, number);
        if inner.is_raw || packet.bytes().len() > usize::from(config.mtu) {
            parts.channel.sender.raw(&mut cx, packet, inner.ecn);
        } else {
            parts
                .channel
                .sender
                .push(&mut cx, &mut parts.sent, packet, inner.ecn);
            let due_us = parts.channel.sender.poll(&mut cx, &mut parts.sent);
            self.due_us = earlier(self.due_us, due_us);
        }
    }

    /// A packet from the peer, and whether it was marked.
    pub fn receive<I: Io<Packet = P>>(
        &mut self,
        io: &mut I,
        lent: &mut Lent<'_, P>,
        now_us: u64,
        mut packet: P,
        is_marked: bool,
    ) {
        let Some(header) = Header::parse(packet.bytes()) else {
            io.count(Count::Malformed, 1);
            return;
        };
        let len = packet.bytes().len().saturating_sub(HEADER_BYTES);
        packet.cut(HEADER_BYTES, len);
        match header.kind {
            Kind::Hello => self.hello(io, now_us, packet.bytes()),
            Kind::HelloAck => self.hello_ack(io, lent, now_us, header.tag, packet.bytes()),
            Kind::Confirm => self.confirm(io, lent, now_us, header.tag, packet.bytes()),
            Kind::Stale => self.stale(io, now_us, header.tag),
            _ => self.of_session(io, lent, now_us, &header, packet, is_marked),
        }
    }

    fn of_session<I: Io<Packet = P>>(
        &mut self,
        io: &mut I,
        lent: &mut Lent<'_, P>,
        now_us: u64,
        header: &Header,
        packet: P,
        is_marked: bool,
    ) {
        match &mut self.session {
            Session::Up {
                mine,
                confirms,
                is_heard,
                since_us,
                ..
            } if *mine == header.tag => {
                *confirms = 0;
                if !*is_heard {
                    *is_heard = true;
                    // The peer has given up what it asked before.
                    self.begun_us = self.begun_us.max(*since_us).max(self.answered_us);
                }
            }
            // Rule W2.
            _ => {
                io.count(Count::BadTag, 1);
                let since_us = now_us.saturating_sub(self.awaited_us);
                let is_awaited = self.awaited_us != 0 && since_us < YIELD_US;
                // Its CONFIRM is too old to begin it.
                let is_void = matches!(self.session, Session::Up { is_heard: false, since_us, .. }
                    if now_us.saturating_sub(since_us) >= MINUTE_US);
                if is_void || self.session == Session::Down && !is_awaited {
                    // The peer is in a session from before. Told so, it may take its session for new.
                    self.ask(io, now_us);
                    return;
                }
                if self.stale_us == 0 || now_us.saturating_sub(self.stale_us) >= STALE_EVERY_US {
                    self.stale_us = now_us.max(1);
                    // Not both: on another path STALE may overtake CONFIRM, and then each end takes the other's session.
                    let told_us = now_us.saturating_sub(self.told_us);
                    if (self.told_us == 0 || told_us < TELL_US) && self.remind(io, now_us) {
                        if self.told_us == 0 {
                            self.told_us = now_us.max(1);
                        }
                        return;
                    }
                    self.told_us = 0;
                    self.control(io, now_us, Kind::Stale, header.tag, &[]);
                }
                return;
            }
        }
        let config = self.config;
        let number = usize::from(header.channel);
        let Some(mut parts) = lent.parts(&config, number) else {
            io.count(Count::Malformed, 1);
            return;
        };
        let mut cx = self.context(io, now_us, number);
        let Channel { sender, receiver } = parts.channel;
        match header.kind {
            Kind::Raw => {
                cx.io.count(Count::RxRaw, 1);
                if resequence::is_ip(packet.bytes()) {
                    cx.io.deliver(packet, is_marked);
                } else {
                    cx.io.count(Count::Malformed, 1);
                }
                return;
            }
            Kind::Data if !resequence::is_ip(packet.bytes()) => {
                cx.io.count(Count::Malformed, 1);
                return;
            }
            Kind::Data | Kind::Parity => {
                let count = match header.kind {
                    Kind::Data => Count::RxData,
                    _ => Count::RxParity,
                };
                cx.io.count(count, 1);
                receiver.receive(&mut cx, &mut parts.held, header, packet, is_marked);
            }
            Kind::Floor => receiver.floor(&mut cx, &mut parts.held, header.block),
            _ => match Feedback::parse(packet.bytes()) {
                Some(feedback) => {
                    cx.io.count(Count::RxFeedback, 1);
                    sender.feedback(&mut cx, &mut parts.sent, header.block, &feedback);
                }
                None => cx.io.count(Count::Malformed, 1),
            },
        }
        let due_us = earlier(
            receiver.poll(&mut cx, &mut parts.held),
            sender.poll(&mut cx, &mut parts.sent),
        );
        self.due_us = earlier(self.due_us, due_us);
    }

    /// Does what is due.
    pub fn poll<I: Io<Packet = P>>(&mut self, io: &mut I, lent: &mut Lent<'_, P>, now_us: u64) {
        let was_asked = matches!(self.session, Session::Asked { .. });
        let mut due_us = self.poll_session(io, now_us);
        let config = self.config;
        if was_asked && self.session == Session::Down {
            // Nobody will ask for what is kept.
            self.forget(lent);
        }
        for number in 0..usize::from(config.channels) {
            let is_up = self.is_up();
            let Some(mut parts) = lent.parts(&config, number) else {
                break;
            };
            let Channel { sender, receiver } = parts.channel;
            if is_up {
                let mut cx = self.context(io, now_us, number);
                due_us = earlier(due_us, receiver.poll(&mut cx, &mut parts.held));
                due_us = earlier(due_us, sender.poll(&mut cx, &mut parts.sent));
            }
        }
        self.due_us = due_us;
    }

    /// Every channel is as at the beginning.
    fn forget(&mut self, lent: &mut Lent<'_, P>) {
        let config = self.config;
        for number in 0..usize::from(config.channels) {
            let Some(mut parts) = lent.parts(&config, number) else {
                break;
            };
            let Channel { sender, receiver } = parts.channel;
            sender.begin(&config, &mut parts.sent, FIRST_BLOCK);
            receiver.begin(&mut parts.held, FIRST_BLOCK);
        }
    }

    fn poll_session<I: Io<Packet = P>>(&mut self, io: &mut I, now_us: u64) -> u64 {
        match &mut self.session {
            Session::Down => 0,
            Session::Asked {
                since_us,
                retry_us,
                next_us,
                tag,
                ..
            } => {
                if now_us.saturating_sub(*since_us) >= PATIENCE_US {
                    // Rule W3.
                    self.become_now(io, Session::Down);
                    let lost = self.waiting.iter_mut().filter_map(Option::take).count();
                    io.count(Count::Unreachable, lost as u64);
                    return 0;
                }
                if *next_us > now_us {
                    return *next_us;
                }
                *retry_us = retry_us.saturating_mul(2).min(MAX_RETRY_US);
                *next_us = now_us.saturating_add(*retry_us);
                let (tag, next_us) = (*tag, *next_us);
                self.send_hello(io, now_us, tag);
                next_us
            }
            Session::Up { confirms: 0, .. } => 0,
            Session::Up {
                mine,
                theirs,
                confirms,
                next_us,
                when_us,
                ..
            } => {
                if *next_us > now_us {
                    return *next_us;
                }
                *confirms = confirms.saturating_sub(1);
                let tries = MAX_CONFIRMS.saturating_sub(*confirms);
                let pause_us = RETRY_US.checked_shl(tries.into()).unwrap_or(MAX_RETRY_US);
                *next_us = now_us.saturating_add(pause_us);
                let (mine, theirs, next_us, when_us) = (*mine, *theirs, *next_us, *when_us);
                self.send_confirm(io, now_us, theirs, mine, when_us);
                next_us
            }
        }
    }

    /// Sends what is no packet of a channel.
    fn control<I: Io<Packet = P>>(
        &mut self,
        io: &mut I,
        now_us: u64,
        kind: Kind,
        tag: u32,
        body: &[u8],
    ) {
        let cx = &mut self.context(io, now_us, 0);
        let header = Header {
            tag,
            ..cx.header(kind)
        };
        let Some(mut packet) = cx.io.make(body.len()) else {
            return;
        };
        for (cell, byte) in packet.bytes_mut().iter_mut().zip(body) {
            *cell = *byte;
        }
        cx.io.send(&header, packet, Ecn::Not);
    }

    /// As its logarithm.
    fn window(&self) -> u8 {
        self.config.window.trailing_zeros() as u8
    }

    fn hello_body(&self, tag: u32) -> [u8; HELLO_BYTES] {
        let [a, b, c, d] = tag.to_be_bytes();
        let Config { x, y, channels, .. } = self.config;
        [a, b, c, d, x, y, channels, self.window()]
    }

    /// The tag of a HELLO or its answer, if the peer works as we do.
    fn offered<I: Io<Packet = P>>(&self, io: &mut I, body: &[u8]) -> Option<u32> {
        let Ok(&[a, b, c, d, x, y, channels, window]) = <&[u8; HELLO_BYTES]>::try_from(body) else {
            io.count(Count::Malformed, 1);
            return None;
        };
        if (x, y) != (self.config.x, self.config.y)
            || (channels, window) != (self.config.channels, self.window())
        {
            io.count(Count::Mismatch, 1);
            return None;
        }
        Some(u32::from_be_bytes([a, b, c, d]))
    }

    fn send_confirm<I: Io<Packet = P>>(
        &mut self,
        io: &mut I,
        now_us: u64,
        theirs: u32,
        mine: u32,
        when_us: u64,
    ) {
        let body = u128::from(mine) << 64 | u128::from(when_us);
        let [_, _, _, _, body @ ..] = body.to_be_bytes();
        self.control(io, now_us, Kind::Confirm, theirs, &body);
    }

    /// The peer speaks, but not in our session: all that told it of that was lost.
    fn remind<I: Io<Packet = P>>(&mut self, io: &mut I, now_us: u64) -> bool {
        match self.session {
            Session::Up {
                mine,
                theirs,
                since_us,
                confirms: 0,
                when_us,
                is_heard: false,
                ..
            } if self.answered_us <= since_us => {
                self.send_confirm(io, now_us, theirs, mine, when_us);
                true
            }
            _ => false,
        }
    }

    fn send_hello<I: Io<Packet = P>>(&mut self, io: &mut I, now_us: u64, tag: u32) {
        let body = self.hello_body(tag);
        self.control(io, now_us, Kind::Hello, 0, &body);
    }

    /// The session is another one.
    fn become_now<I: Io<Packet = P>>(&mut self, io: &mut I, session: Session) {
        let what = Happened::Session {
            from: self.session.standing(),
            to: session.standing(),
        };
        self.session = session;
        self.told_us = 0;
        io.trace(0, &what);
    }

    /// Asks for a session.
    fn ask<I: Io<Packet = P>>(&mut self, io: &mut I, now_us: u64) {
        self.tags = self.tags.wrapping_add(1);
        let tag = keyed(self.secret, &[self.tags, now_us]) as u32;
        let next_us = now_us.saturating_add(RETRY_US);
        let asked = Session::Asked {
            tag,
            since_us: now_us,
            retry_us: RETRY_US,
            next_us,
            yields_us: 0,
        };
        self.become_now(io, asked);
        self.due_us = earlier(self.due_us, next_us);
        self.send_hello(io, now_us, tag);
    }

    /// The tag by which a peer's is answered at that time.
    fn answer(&self, tag: u32, when_us: u64) -> u32 {
        keyed(self.secret, &[tag.into(), when_us, 1]) as u32
    }

    fn hello<I: Io<Packet = P>>(&mut self, io: &mut I, now_us: u64, body: &[u8]) {
        let Some(tag) = self.offered(io, body) else {
            return;
        };
        // Rule W1: of two that ask at once the one with the lower tag goes on, and the other waits for it. Tags do not
        // change on the way, as addresses may. Its own that comes back gets no answer.
        match &mut self.session {
            Session::Asked {
                tag: mine,
                retry_us,
                next_us,
                ..
            } if *mine <= tag => {
                // The peer is there now, and waits for us.
                if *mine != tag && *retry_us > SOON_US {
                    *retry_us = SOON_US / 2;
                    *next_us = now_us;
                    self.due_us = earlier(self.due_us, now_us.max(1));
                }
                return;
            }
            Session::Asked {
                yields_us: yields_us @ 0,
                ..
            } => {
                *yields_us = now_us.saturating_add(YIELD_US);
            }
            // The peer asked before it heard of the session that it has answered.
            Session::Up { confirms: 1.., .. } => return,
            _ => {}
        }
        // Only half of the time, however often it asks: else forged HELLOs would keep this end from asking.
        let every_us = YIELD_US.saturating_mul(2);
        if self.awaited_us == 0 || now_us.saturating_sub(self.awaited_us) >= every_us {
            self.awaited_us = now_us.max(1);
        }
        let when_us = now_us.max(self.answered_us.max(self.begun_us).saturating_add(1));
        self.answered_us = when_us;
        let hello = self.hello_body(self.answer(tag, when_us));
        let body = u128::from(u64::from_be_bytes(hello)) << 64 | u128::from(when_us);
        self.control(io, now_us, Kind::HelloAck, tag, &body.to_be_bytes());
    }

    fn hello_ack<I: Io<Packet = P>>(
        &mut self,
        io: &mut I,
        lent: &mut Lent<'_, P>,
        now_us: u64,
        to: u32,
        body: &[u8],
    ) {
        let Session::Asked {
            tag,
            yields_us,
            since_us,
            ..
        } = self.session
        else {
            return;
        };
        if tag != to {
            io.count(Count::BadTag, 1);
            return;
        }
        if now_us < yields_us {
            return;
        }
        let Some((body, when)) = body.split_last_chunk::<WHEN_BYTES>() else {
            io.count(Count::Malformed, 1);
            return;
        };
        let Some(theirs) = self.offered(io, body) else {
            return;
        };
        let when_us = u64::from_be_bytes(*when);
        let next_us = now_us.saturating_add(RETRY_US);
        self.due_us = earlier(self.due_us, next_us);
        // A STALE that the peer sends before it hears CONFIRM comes an RTT later. The handshake took one, and the time that
        // the peer was not there.
        let handshake_us = now_us.saturating_sub(since_us);
        let new_us = handshake_us.saturating_mul(2).max(NEW_US);
        let up = Session::Up {
            mine: tag,
            theirs,
            since_us: now_us,
            confirms: MAX_CONFIRMS,
            next_us,
            when_us,
            is_heard: false,
            new_until_us: now_us.saturating_add(new_us),
        };
        self.become_now(io, up);
        self.send_confirm(io, now_us, theirs, tag, when_us);
        self.begin(io, lent, now_us);
    }

    fn confirm<I: Io<Packet = P>>(
        &mut self,
        io: &mut I,
        lent: &mut Lent<'_, P>,
        now_us: u64,
        to: u32,
        body: &[u8],
    ) {
        let Ok(&[a, b, c, d, ref when @ ..]) = <&[u8; 4 + WHEN_BYTES]>::try_from(body) else {
            io.count(Count::Malformed, 1);
            return;
        };
        let theirs = u32::from_be_bytes([a, b, c, d]);
        let when_us = u64::from_be_bytes(*when);
        let is_known = matches!(self.session, Session::Up { mine, theirs: known, .. }
            if (mine, known) == (to, theirs));
        if !is_known {
            let is_recent =
                when_us <= self.answered_us && now_us.saturating_sub(when_us) < MINUTE_US;
            let is_spent = when_us <= self.begun_us;
            if !is_recent || is_spent || to != self.answer(theirs, when_us) {
                io.count(Count::BadTag, 1);
                return;
            }
            // Rule W1, of two sessions that cross: we answered before ours began, and have not heard the peer in ours.
            if matches!(self.session, Session::Up { mine, is_heard: false, since_us, .. }
                if mine <= theirs && when_us <= since_us)
            {
                return;
            }
            self.begun_us = when_us;
            let up = Session::Up {
                mine: to,
                theirs,
                since_us: now_us,
                confirms: 0,
                next_us: 0,
                when_us: 0,
                is_heard: true,
                new_until_us: now_us.saturating_add(NEW_US),
            };
            self.become_now(io, up);
            self.begin(io, lent, now_us);
        }
        // The peer repeats it until it hears of us.
        if let Some(parts) = lent.parts(&self.config, 0) {
            parts.channel.receiver.hurry();
            self.due_us = earlier(self.due_us, now_us.max(1));
        }
    }

    /// Rule W2: the peer does not know of our session.
    fn stale<I: Io<Packet = P>>(&mut self, io: &mut I, now_us: u64, tag: u32) {
        let Session::Up {
            theirs,
            mine,
            confirms,
            new_until_us,
            when_us,
            is_heard,
            since_us,
            ..
        } = self.session
        else {
            return;
        };
        if tag != theirs {
            return;
        }
        let is_new = now_us < new_until_us;
        // It has been answered since: were it told of ours now, each end would take the other's session.
        if is_new && !is_heard && self.answered_us > since_us {
            return;
        }
        // Of a new one it may not have heard yet when it said so. If it knows of none it says so once more.
        match confirms {
            0 if !is_new => self.ask(io, now_us),
            _ => self.send_confirm(io, now_us, theirs, mine, when_us),
        }
    }

    /// A session begins: all that was before is forgotten, but what waits is sent.
    fn begin<I: Io<Packet = P>>(&mut self, io: &mut I, lent: &mut Lent<'_, P>, now_us: u64) {
        io.count(Count::Session, 1);
        self.forget(lent);
        for place in 0..MAX_WAITING {
            let waiting = self.waiting.get_mut(place).and_then(Option::take);
            if let Some(packet) = waiting {
                self.transmit(io, lent, now_us, packet);
            }
        }
    }
}

#[cfg(test)]
#[path = "tests/tunnel.rs"]
mod tests;
