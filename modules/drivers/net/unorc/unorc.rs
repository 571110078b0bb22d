// SPDX-License-Identifier: GPL-2.0

//! UnoRC, UnoLB and REPS: a UDP tunnel that spreads packets over paths, repairs losses by parities, and keeps
//! order for a bounded time. TCP repairs the rest.
//!
//! The rules are in algo/unorc_sender.rs, algo/parity_credit.rs, algo/resequence.rs (receiver), algo/paths.rs
//! (choosers), algo/gf256.rs (code) and algo/tunnel.rs (sessions); docs/unorc.md lists them. Differences from
//! the papers and their simulators:
//!
//! 1. The tunnel is below TCP and independent of its window and congestion control. In the papers the
//!    transport codes, chooses paths and retransmits.
//! 2. The tunnel does not retransmit. An undecodable packet is passed over after a bounded time, and TCP's
//!    SACK is the NACK. The papers' NACK reaches only the choosers.
//! 3. Blocks belong to a channel, one of eight selected by a hash of the flow, not to a flow.
//! 4. Parities are a share of the data, halved under congestion. The papers' sender always sends them.
//! 5. Packets are delivered in order within the bound, so that TCP takes no path difference for a loss.
//! 6. UnoLB replaces a used path without feedback; an idle path stays.
//! 7. REPS also freezes for a reported loss (`freeze loss`): the papers' code has a timer for it.
//! 8. The bitmap chooser counts a lost packet as a NACK, and each packet of a silent block as a timeout.
//! 9. `reps-paper` assumes a bandwidth-delay product above its 256 values.
//! 10. Silence is checked when a packet is sent. The papers' code has a timer.

#[path = "../../../algo/mod.rs"]
mod algo;
#[path = "../../../oot/kernel_api.rs"]
mod kernel_api;
mod vector_code;

use algo::{
    gf256::MAX_PARITY,
    paths::{Fate, Freeze, Kind},
    tunnel,
    unorc::{self, Config, Count, Happened, Io, Standing},
    unorc_blocks::{Held, HeldBlock, Lent},
    unorc_sender::Sent,
    unorc_wire::{self, Header},
};
use kernel::prelude::*;
use kernel_api::{
    bindings::{
        xdc_unorc_cause, xdc_unorc_decoded, xdc_unorc_freeze, xdc_unorc_nack, xdc_unorc_reroute,
        xdc_unorc_session, xdc_unorc_standing, XDC_TUNNEL_HELLO, XDC_UNORC_ASKED, XDC_UNORC_DOWN,
        XDC_UNORC_LOSS, XDC_UNORC_MARK, XDC_UNORC_NACK, XDC_UNORC_TIMEOUT, XDC_UNORC_UP,
    },
    random::random_u64,
    trace::{tracepoint, Tracepoint},
    udp_tunnel::{self, Decisions, Packet, Settings, Tunnel, HEADER_BYTES},
    vectors::Vectors,
};

module! {
    type: Module,
    name: "unorc",
    authors: ["xdc developers"],
    description: "UDP tunnel with multipath spraying and erasure coding: UnoRC, UnoLB, REPS",
    license: "GPL v2",
    alias: ["rtnl-link-unorc"],
}

// C sorts packets by it.
const _: () = assert!(unorc_wire::HELLO as u32 == XDC_TUNNEL_HELLO);

struct Module {
    _registration: udp_tunnel::Registration<Unorc>,
}

impl kernel::Module for Module {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        Ok(Module {
            _registration: udp_tunnel::Registration::new()?,
        })
    }
}

impl unorc::Packet for Packet {
    fn bytes(&self) -> &[u8] {
        self.bytes()
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes_mut()
    }

    fn cut(&mut self, start: usize, len: usize) {
        self.cut(start, len);
    }
}

impl Io for Decisions<'_> {
    type Packet = Packet;
    type Vectors = Vectors;

    fn vectors(&mut self) -> Option<Vectors> {
        Vectors::begin()
    }

    fn make(&mut self, len: usize) -> Option<Packet> {
        let made = self.make(len);
        if made.is_none() {
            self.count(Count::NoMem as usize, 1);
        }
        made
    }

    fn copy(&mut self, packet: &Packet) -> Option<Packet> {
        let copied = self.copy(packet);
        if copied.is_none() {
            self.count(Count::NoMem as usize, 1);
        }
        copied
    }

    fn send(&mut self, header: &Header, packet: Packet, is_capable: bool) {
        let bytes: [u8; HEADER_BYTES] = header.to_bytes();
        let port = unorc::FIRST_PORT.saturating_add(header.ev);
        self.send(packet, &bytes, port, is_capable);
    }

    fn again(&mut self, packet: Packet) {
        self.again(packet);
    }

    fn deliver(&mut self, packet: Packet, is_marked: bool) {
        self.deliver(packet, is_marked);
    }

    fn count(&mut self, count: Count, n: u64) {
        self.count(count as usize, n);
    }

    fn trace(&mut self, channel: u8, what: &Happened) {
        match *what {
            Happened::Decoded { block, k, have } => {
                if UnorcDecoded::is_on() {
                    let info = xdc_unorc_decoded {
                        channel: channel.into(),
                        block,
                        have,
                        k,
                    };
                    UnorcDecoded::emit(self, &info);
                }
            }
            Happened::Nack {
                block,
                lost,
                is_sent,
            } => {
                if UnorcNack::is_on() {
                    let info = xdc_unorc_nack {
                        channel: channel.into(),
                        block,
                        lost,
                        sent: is_sent,
                    };
                    UnorcNack::emit(self, &info);
                }
            }
            Happened::Reroute { ev, paths, cause } => {
                if UnorcReroute::is_on() {
                    let info = xdc_unorc_reroute {
                        channel: channel.into(),
                        entropy: ev,
                        paths,
                        cause: cause_number(cause),
                    };
                    UnorcReroute::emit(self, &info);
                }
            }
            Happened::Freeze { ev, thaw_us, cause } => {
                if UnorcFreeze::is_on() {
                    let info = xdc_unorc_freeze {
                        channel: channel.into(),
                        entropy: ev,
                        until_us: thaw_us,
                        cause: cause_number(cause),
                    };
                    UnorcFreeze::emit(self, &info);
                }
            }
            Happened::Session { from, to } => {
                if UnorcSession::is_on() {
                    let info = xdc_unorc_session {
                        from: standing_number(from),
                        to: standing_number(to),
                    };
                    UnorcSession::emit(self, &info);
                }
            }
        }
    }
}

tracepoint! {
    /// `xdc:unorc_decoded`.
    UnorcDecoded, unorc_decoded, xdc_unorc_decoded, tunnel
}
tracepoint! {
    /// `xdc:unorc_nack`.
    UnorcNack, unorc_nack, xdc_unorc_nack, tunnel
}
tracepoint! {
    /// `xdc:unorc_reroute`.
    UnorcReroute, unorc_reroute, xdc_unorc_reroute, tunnel
}
tracepoint! {
    /// `xdc:unorc_freeze`.
    UnorcFreeze, unorc_freeze, xdc_unorc_freeze, tunnel
}
tracepoint! {
    /// `xdc:unorc_session`.
    UnorcSession, unorc_session, xdc_unorc_session, tunnel
}

fn cause_number(cause: Fate) -> xdc_unorc_cause {
    match cause {
        Fate::Good | Fate::Marked => XDC_UNORC_MARK,
        Fate::Lost => XDC_UNORC_LOSS,
        Fate::Nack => XDC_UNORC_NACK,
        Fate::Timeout | Fate::Unheard => XDC_UNORC_TIMEOUT,
    }
}

fn standing_number(standing: Standing) -> xdc_unorc_standing {
    match standing {
        Standing::Down => XDC_UNORC_DOWN,
        Standing::Asked => XDC_UNORC_ASKED,
        Standing::Up => XDC_UNORC_UP,
    }
}

/// The kind of device.
struct Unorc;

/// The session with a peer.
struct Session(tunnel::Session<Packet>);

/// A channel of a peer, with its memory.
struct Channel {
    channel: tunnel::Channel,
    memory: Memory,
}

struct Memory {
    sent: KVVec<Sent>,
    parities: [Option<Packet>; MAX_PARITY],
    held: KVVec<Held<Packet>>,
    held_blocks: KVVec<HeldBlock>,
}

fn some<T: Default>(all: usize) -> Result<KVVec<T>> {
    let mut memory = KVVec::with_capacity(all, GFP_KERNEL_ACCOUNT)?;
    for _ in 0..all {
        memory.push(T::default(), GFP_KERNEL_ACCOUNT)?;
    }
    Ok(memory)
}

impl Memory {
    fn lent(&mut self) -> Lent<'_, Packet> {
        Lent {
            sent: &mut self.sent,
            parities: &mut self.parities,
            slots: &mut self.held,
            blocks: &mut self.held_blocks,
        }
    }
}

/// Returns the algorithm's settings, or the reason why they are invalid.
fn config(settings: &Settings) -> Result<Config, &'static CStr> {
    let config = Config {
        x: settings.data,
        y: settings.parity,
        timer_us: settings.timer_us,
        flush_us: settings.flush_us,
        paths: Kind::of(settings.paths).ok_or(c"unknown paths")?,
        freeze: Freeze::of(settings.freeze).ok_or(c"freeze must be loss, timeout or off")?,
        mtu: settings.mtu,
        channels: settings.channels,
        window: settings.window,
    };
    if !config.is_sound() {
        return Err(c"fec must be 1 to 28 data packets and 1 to 3 parities, or off");
    }
    match config.has_sound_channels() {
        true => Ok(config),
        false => Err(c"channels must be 1, 2, 4 or 8, and window a power of two from 64 to 8192"),
    }
}

impl Tunnel for Unorc {
    const KIND: &'static CStr = c"unorc";
    const COUNTERS: &'static [&'static CStr] = Count::NAMES;
    type Session = Session;
    type Channel = Channel;

    fn check(settings: &Settings) -> Result<(), &'static CStr> {
        config(settings).map(|_| ())
    }

    fn open_session(settings: &Settings) -> Result<KBox<Session>> {
        let config = config(settings).map_err(|_| EINVAL)?;
        let session = Session(tunnel::Session::new(config, random_u64()));
        Ok(KBox::new(session, GFP_KERNEL_ACCOUNT)?)
    }

    fn open_channel(settings: &Settings, number: u8) -> Result<KBox<Channel>> {
        let config = config(settings).map_err(|_| EINVAL)?;
        let channel = Channel {
            channel: tunnel::Channel::new(config, number, random_u64()),
            memory: Memory {
                sent: some(config.sent_slots())?,
                parities: [const { None }; MAX_PARITY],
                held: some(config.held_slots())?,
                held_blocks: some(config.blocks())?,
            },
        };
        Ok(KBox::new(channel, GFP_KERNEL_ACCOUNT)?)
    }
}

impl udp_tunnel::Session for Session {
    fn mine(&self) -> u64 {
        self.0.mine
    }

    fn theirs(&self) -> u64 {
        self.0.theirs
    }

    fn wait(&mut self, decisions: &mut Decisions<'_>, packet: Packet, now_us: u64) -> u64 {
        self.0.wait(decisions, now_us, packet);
        self.0.due_us
    }

    fn hello(&mut self, decisions: &mut Decisions<'_>, packet: Packet, now_us: u64) -> u64 {
        self.0.hello(decisions, now_us, packet.bytes());
        self.0.due_us
    }

    fn stranger(&mut self, decisions: &mut Decisions<'_>, now_us: u64) -> u64 {
        self.0.stranger(decisions, now_us);
        self.0.due_us
    }

    fn ask(&mut self, decisions: &mut Decisions<'_>, now_us: u64) -> u64 {
        self.0.ask(decisions, now_us);
        self.0.due_us
    }

    fn poll(&mut self, decisions: &mut Decisions<'_>, now_us: u64) -> u64 {
        self.0.poll(decisions, now_us);
        self.0.due_us
    }
}

impl udp_tunnel::Channel for Channel {
    fn change(&mut self, settings: &Settings) {
        if let Ok(config) = config(settings) {
            self.channel.change(config);
        }
    }

    fn transmit(
        &mut self,
        decisions: &mut Decisions<'_>,
        packet: Packet,
        theirs: u64,
        now_us: u64,
    ) -> u64 {
        let lent = self.memory.lent();
        self.channel
            .transmit(decisions, lent, now_us, theirs, packet);
        self.channel.due_us
    }

    fn receive(
        &mut self,
        decisions: &mut Decisions<'_>,
        (packet, port, is_marked): (Packet, u16, bool),
        theirs: u64,
        now_us: u64,
    ) -> u64 {
        let lent = self.memory.lent();
        let packet = (packet, port.wrapping_sub(unorc::FIRST_PORT), is_marked);
        self.channel
            .receive(decisions, lent, now_us, theirs, packet);
        self.channel.due_us
    }

    fn poll(&mut self, decisions: &mut Decisions<'_>, theirs: u64, now_us: u64) -> u64 {
        let lent = self.memory.lent();
        self.channel.poll(decisions, lent, now_us, theirs);
        self.channel.due_us
    }
}
