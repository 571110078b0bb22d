// SPDX-License-Identifier: GPL-2.0

//! UnoCC: one AIMD loop for flows inside and between datacenters.
//!
//! Source: Uno, section 4.1 and Algorithm 1. Additive increase per unmarked byte; at most one
//! multiplicative decrease per epoch, and an epoch is one intra-datacenter RTT whatever the RTT
//! of the flow; Quick Adapt once per RTT where far fewer bytes arrive than the window promises.
//!
//! Where this differs from Algorithm 1:
//! 1. The factor of a gentle decrease is applied afresh to each epoch. Read literally the
//!    algorithm multiplies it into itself for ever.
//! 2. An epoch clock that fell behind (the flow was idle, or sends less than a packet per epoch)
//!    is brought forward; else every ACK would end an epoch until it caught up.
//! 3. Quick Adapt looks at the delivery rate of the last round trip, not at a count of bytes per
//!    period: with delayed ACKs and a window of few packets the count jumps by whole packets. It
//!    rests while a loss is repaired, and after a start with a whole BDP until `qa_beta` of that has
//!    been in flight: the receiver's window opens later.
//! 4. Nothing grows and Quick Adapt rests while the application, not the network, is slow; but at the end of a marked epoch
//!    in which E fell the window grows all the same.
//! 5. One ACK adds at most the increase of one RTT, however much it acknowledges.
//! 6. Slow start can begin with a part of the BDP (`initial_cwnd_bdp`), paced over an RTT.
//! 7. A loss lowers the window to what Quick Adapt would leave, but to no less than half: of a
//!    window that has just grown the last round trip says too little.
//! 8. Where neither a device nor the administrator tells C, what was seen of it is too little after an
//!    early loss, and the increase with it. There the increase is at least that of 100 Mbit/s. It grows
//!    with the seconds since the last loss, and is at least a packet, until something is marked, while a
//!    round trip has an RTT without a queue.
//! 9. A path of more than 5 ms leaves the region, and its slowest link may be far slower than the host's.
//!    There a flow does not begin with a part of the BDP that the device's speed makes.
//! 10. On such a path the increase is a number of packets that follows from the seconds since the last loss or Quick
//!     Adapt, so that flows which share the path grow alike. This begins with the flow's first loss. Until then, and
//!     as an upper bound from then on, the device's speed gives the increase. Where no device tells C there is no such
//!     bound, and this begins with the flow.
//! 11. Within the region, where C is told, the increase of a window below a part of the BDP (1024 / `step_windows`) is in
//!     proportion to it, and its decreases likewise, while both are near their balance (`balance.rs`). A host's noise counts
//!     as part of the RTT there.
//! 12. Quick Adapt acts where E is a quarter and more: on a host with noise few packets are marked.
//! 13. Where ACKs cover more than an epoch, as with TSO and GRO, a decrease is as many times as large as epochs have
//!     passed, those of an RTT at most, and up to half of the window. Else such a flow would decrease more rarely than others.
//! 14. The ceiling of the window is a BDP by the shortest RTT, which hosts that gather packets or are late with ACKs, and a
//!     path that has become longer, exceed. Past slow start a window may pass it, up to `max_cwnd_unfilled` times as high,
//!     while the link is not full, E is less than a thousandth, and RTTs are hardly longer than they were at the ceiling. What
//!     it may have above the ceiling goes by the fourth power of its part of the link, so that flows which fill a link together
//!     hardly pass theirs. Else it shrinks as fast as it grew, and sixteen times as fast where RTTs are twice as long and more.
//! 15. Where nothing is marked, the queue of the flow, or of those beside it, would become its base RTT, and its ceiling would grow
//!     with it. Every 10 s, together with all flows of the host, a flow whose RTTs show a queue falls to a part of its ceiling
//!     (`probe_rtt`), from where slow start leads back. Beyond 5 ms it keeps eight times as much, and does so only at its ceiling.

use crate::algo::balance::{Balance, Change, MOST_WITHHELD, REGROWTH_BITS};
use crate::algo::controller::{Controller, Published, Watch, published};
use crate::algo::entry::{Entry, Event as Tracepoint, Line, Marks, Shown, State, Unit, Value};
use crate::algo::fixed::{
    BYTE_BITS, FRACTION_BITS, FRACTION_ONE, NS_PER_US, PPM, RATIO_BITS, RATIO_ONE, bdp_bytes,
    bytes_per_s, ewma, fraction, mul_div, mul_fraction, mul_ratio,
};
use crate::algo::host::{self, LineRate};
use crate::algo::params::{Values, params};
use crate::algo::rtt::{BaseRtt, Moment, Sample};
use crate::algo::window::Window;
use crate::algo::{Ack, Output};

params! {
    /// Which set of values the parameters start from.
    profiles {
        /// As the paper states them.
        Paper = c"paper",
        /// As the authors' simulator runs them.
        Artifact = c"artifact",
        /// What measures best on the kernel.
        Linux = c"linux",
    }

    //                                          min  max          paper    artifact linux

    /// Rate of the host's link, for the BDP; 0 = what the route's device says, or else what is delivered.
    line_rate_mbps: "Mbit/s",                   0,   1_000_000,   [100_000, 100_000, 0];
    /// Base RTT inside a datacenter: the length of an epoch; 0 = the shortest that flows here have had.
    intra_rtt_us: "us",                         0,   1_000_000,   [14, 14, 0];
    /// Additive increase per RTT, as a part of the flow's own BDP.
    ai_ppm: "ppm",                              0,   1_000_000,   [1_000, 1_000, 4_000];
    /// Near its balance the increase is a part of so many windows, if that is less than the BDP, and decreases are
    /// less in proportion; 0 = always of the BDP.
    step_windows: "1/1024",                     0,   1 << 20,     [0, 0, 2_560];
    /// K of the decrease E x 4K / (K + BDP); 0 = k_intra_bdp.
    k_bytes: "bytes",                           0,   1 << 30,     [0, 24_576, 0];
    /// K relative to the intra-datacenter BDP, where k_bytes is 0.
    k_intra_bdp: "1/1024",                      1,   16_384,      [146, 146, 200];
    /// Gain of E, the average of the marked fraction per epoch.
    ewma: "1/1024",                             1,   1_024,       [512, 666, 333];
    /// Factor of a decrease while only phantom queues are congested.
    md_gentle: "1/1024",                        0,   1_024,       [307, 358, 1_024];
    /// RTT above the base, relative to it, that still counts as no delay.
    delay_tolerance_ppm: "ppm",                 0,   1_000_000,   [0, 55_000, 55_000];
    /// RTT above the base that still counts as no delay, beside the tolerance.
    delay_floor_us: "us",                       0,   1_000_000,   [0, 0, 10];
    /// 1 = increase, not decrease, at the end of a marked epoch in which E fell.
    skip_md_when_falling: "0 or 1",             0,   1,           [0, 1, 1];
    /// 1 = where ACKs cover more than an epoch, one decrease stands for those of all epochs that passed.
    md_elapsed: "0 or 1",                       0,   1,           [0, 0, 1];
    /// Quick Adapt acts when less than this part of the window was delivered in an RTT.
    qa_beta: "1/1024",                          0,   1_024,       [512, 512, 512];
    /// The part of the delivered bytes that Quick Adapt leaves as the window.
    qa_keep: "1/1024",                          1,   1_024,       [1_024, 983, 983];
    /// Quick Adapt forgives so much missing, for delayed ACKs.
    qa_slack_packets: "packets",                0,   64,          [0, 0, 2];
    /// 1 = Quick Adapt acts only where the round trip also saw a mark: a host that is slow for a
    /// moment is no congestion.
    qa_needs_mark: "0 or 1",                    0,   1,           [0, 0, 1];
    /// Quick Adapt acts only where E is at least this: of a host's noise few packets are marked.
    qa_least_e: "1/1024",                       0,   1_024,       [0, 0, 256];
    /// How a flow begins: 0 = slow start until the first congestion, 1 = one BDP at once.
    start: "0 or 1",                            0,   1,           [0, 1, 0];
    /// Slow start begins with this part of the BDP, if that is more than the kernel's initial window.
    initial_cwnd_bdp: "1/1024",                 0,   1_024,       [0, 0, 32];
    /// How slow start ends: 0 = at the first mark, 1 = when the decreases that the marks of a round
    /// trip call for would outweigh its additive increase.
    balanced_exit: "0 or 1",                    0,   1,           [0, 0, 1];
    /// Ceiling of the window, relative to the flow's BDP; 0 = none.
    max_cwnd_bdp: "1/1024",                     0,   16_384,      [0, 1_024, 1_280];
    /// Past slow start a flow may pass the ceiling where nothing is marked, less than 29/32 of C is delivered, and RTTs stay as they
    /// are, up to a base RTT of 5 ms. What it may have above the ceiling is (times - 1) ceilings, multiplied by the fourth power of
    /// the part of C that it delivers; 1 = never.
    max_cwnd_unfilled: "times",                 1,   64,          [1, 1, 6];
    /// Every 10 s a window falls to this part of its ceiling for a round trip, where RTTs show a queue and nothing is marked, so that the
    /// base RTT is seen without the queue; beyond a base RTT of 5 ms eight times as much, and only at the ceiling. 0 = never.
    probe_rtt: "1/1024",                        0,   1_024,       [0, 0, 16];
}

/// [`Rows::start`]: one BDP at once.
const START_BDP: u32 = 1;

/// A base RTT that no sample confirmed for this long is forgotten.
const BASE_RTT_WINDOW_MS: u32 = 10_000;

/// E above this decreases the window even while it falls (`skip_md_when_falling`): 0.9.
const E_ALWAYS_DECREASES: u32 = FRACTION_ONE / 10 * 9;

/// The increase is that of at least this rate where C is not told.
const UNTOLD_LEAST_MBPS: u32 = 100;

/// A host's noise counts as part of the RTT, up to so much and so many base RTTs.
const NOISE_US: u32 = 50;
const NOISE_BASE_RTTS: u32 = 4;

/// 4,096 packets: in ten RTTs half a window of 10 Gbit/s and 100 ms.
const MAX_DOUBLINGS: u32 = 12;

/// The increase beyond the region, where C gives `step_scaled`: a packet, and one more for each second since the last
/// congestion if the port marks, else twice as much with each.
// Of numbers: by reference what an ACK needs would have to be in memory.
#[cold]
#[inline(never)]
fn far_step_scaled(
    step_scaled: u64,
    line_rate: LineRate,
    signs: Signs,
    now_us: u64,
    mss_bytes: u32,
) -> u64 {
    let mss_scaled = u64::from(mss_bytes) << BYTE_BITS;
    let calm_scaled = match signs.has(Signs::TELLING) {
        true => line_rate.calm_step_scaled(mss_scaled, now_us, mss_bytes),
        false => mss_scaled << line_rate.calm_s(now_us).min(MAX_DOUBLINGS),
    };
    match (line_rate.is_told(), signs.has(Signs::LOST)) {
        (true, false) => step_scaled,
        (true, true) => step_scaled.min(calm_scaled),
        (false, _) => calm_scaled,
    }
}

/// The part of C, in 1/1024, from which on the link counts as full: 29/32. Of the rest frames and headers take a part, and a
/// phantom queue leaves a twentieth free.
const FULL: u32 = 928;

/// A window above its ceiling that makes RTTs twice as long and more shrinks so many times as fast as it would grow.
const QUEUED_SHRINKS: u64 = 16;

/// Beyond the region a window keeps so many times more of its ceiling while it looks for the base RTT: three round trips later it is
/// back, as six would cost several per cent of 10 s.
const FAR_PROBES: u32 = 8;

/// Whether a window past slow start, of so many 2^-16 bytes, may be above its ceiling, of which it may have so many times.
fn may_pass(
    window_scaled: u64,
    ceiling_bytes: u64,
    times: u32,
    delivered: Rate,
    rate_mbps: u32,
) -> bool {
    // 1024 at most, and the ceiling 2^60.
    let part = delivered.part_of(rate_mbps);
    // N flows that fill a link pass their ceilings by N^-3 of what one may, all together.
    let squared = part.wrapping_mul(part) >> RATIO_BITS;
    let fourth = squared.wrapping_mul(squared) >> RATIO_BITS;
    let ceiling_scaled = ceiling_bytes << BYTE_BITS;
    let more = u64::from(times).saturating_sub(1);
    let more_scaled = mul_ratio(ceiling_scaled, fourth).saturating_mul(more);
    part < FULL && window_scaled <= ceiling_scaled.saturating_add(more_scaled)
}

/// The path of a flow.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    base_rtt_us: u32,
    /// C.
    rate_mbps: u32,
    /// What C is by.
    line_rate: LineRate,
    bdp_bytes: u64,
}

impl Path {
    /// This RTT between the base RTT and what a host's noise may make of it.
    #[inline(always)]
    fn noisy_rtt_us(&self, rtt_us: u32) -> u32 {
        let base_rtt_us = self.base_rtt_us;
        let most_us = base_rtt_us
            .saturating_mul(NOISE_BASE_RTTS)
            .min(base_rtt_us.saturating_add(NOISE_US));
        rtt_us.min(most_us).max(base_rtt_us)
    }

    /// The ceiling of that ratio, in 1/1024 of the BDP, which has 2^40 bytes at most.
    #[inline(always)]
    fn ceiling_bytes(&self, ratio: u32) -> u64 {
        self.bdp_bytes.wrapping_mul(ratio.into()) >> RATIO_BITS
    }

    /// How long C takes for what one ACK covers.
    #[inline(always)]
    fn bundle_us(&self, acked_bytes: u64) -> u32 {
        let bits = acked_bytes.min(u32::MAX.into()) << 3;
        bits.checked_div(self.rate_mbps.into()).unwrap_or(0) as u32
    }

    /// Whether increase and decrease are in proportion to the window near their balance.
    #[inline(always)]
    fn is_proportional(&self) -> bool {
        self.line_rate.is_told() && host::is_in_region(self.base_rtt_us)
    }

    /// The BDP that the increase is a part of where C is only what was seen: an early loss leaves too little of it.
    #[cold]
    #[inline(never)]
    fn untold_bdp_bytes(&self) -> u64 {
        bdp_bytes(self.rate_mbps.max(UNTOLD_LEAST_MBPS), self.base_rtt_us)
    }
}

/// What follows from the parameters.
pub trait Derived: Rows {
    /// The path of a flow with that base RTT and link.
    #[inline(always)]
    fn path(&self, base_rtt_us: u32, rate_mbps: u32, line_rate: LineRate) -> Path {
        Path {
            base_rtt_us,
            rate_mbps,
            line_rate,
            bdp_bytes: bdp_bytes(rate_mbps, base_rtt_us),
        }
    }

    /// The length of an epoch.
    #[inline(always)]
    fn epoch_us(&self, base_rtt_us: u32) -> u32 {
        host::intra_rtt_us(self.intra_rtt_us(), self.shortest_rtt_us(), base_rtt_us)
    }

    /// Additive increase per RTT, in 2^-16 bytes.
    #[inline(always)]
    fn increase_scaled(&self, path: &Path) -> u64 {
        self.increase_of_scaled(match path.line_rate.is_told() {
            true => path.bdp_bytes,
            false => path.untold_bdp_bytes(),
        })
    }

    /// The part of a BDP that is the increase, in 2^-16 bytes.
    #[inline(always)]
    fn increase_of_scaled(&self, bdp_bytes: u64) -> u64 {
        mul_div(bdp_bytes << BYTE_BITS, u64::from(self.ai_ppm()), PPM)
    }

    /// 4K / (K + BDP) as a fraction, at most 1.
    fn decrease_gain(&self, path: &Path) -> u32 {
        let k_bytes = match self.k_bytes() {
            0 => {
                let intra_bdp_bytes = bdp_bytes(path.rate_mbps, self.epoch_us(path.base_rtt_us));
                // A byte at least: without, marks would decrease nothing at a few Mbit/s.
                mul_ratio(intra_bdp_bytes, self.k_intra_bdp()).max(1)
            }
            k_bytes => u64::from(k_bytes),
        };
        fraction(
            k_bytes.saturating_mul(4),
            k_bytes.saturating_add(path.bdp_bytes),
        )
    }

    /// The highest RTT that counts as "delay == 0".
    fn undelayed_rtt_us(&self, base_rtt_us: u32) -> u64 {
        let tolerated_ppm = PPM.saturating_add(u64::from(self.delay_tolerance_ppm()));
        mul_div(u64::from(base_rtt_us), tolerated_ppm, PPM)
            .saturating_add(u64::from(self.delay_floor_us()))
    }
}

impl<V: Rows> Derived for V {}

/// The delivery rate of about one round trip. All zeroes is "no sample yet".
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    bytes: u32,
    interval_us: u32,
}

impl Rate {
    /// The rate sample of an ACK that has one.
    #[inline(always)]
    fn of(ack: &Ack) -> Self {
        let mut bytes = ack.delivered_bytes;
        let mut interval_us = ack.interval_us;
        // 4 GB in a round trip are 400 Gbit/s over 85 ms: the same rate in less time.
        while bytes > u64::from(u32::MAX) {
            bytes >>= 1;
            interval_us >>= 1;
        }
        Rate {
            bytes: bytes as u32,
            interval_us: interval_us.max(1),
        }
    }

    /// The part of that rate that it is, in 1/1024. Without a sample all of it.
    fn part_of(self, rate_mbps: u32) -> u32 {
        let bits = u64::from(self.bytes) << 3;
        // 2^52 at most, as a rate has 20 bits.
        let carried_bits = u64::from(self.interval_us).wrapping_mul(rate_mbps.into());
        (bits << RATIO_BITS)
            .checked_div(carried_bits)
            .map_or(RATIO_ONE, |part| part.min(RATIO_ONE.into()) as u32)
    }

    /// What it delivers in one Quick Adapt period, 1.05 base RTTs, in 2^-16 bytes; 0 = no sample.
    fn in_period_scaled(self, base_rtt_us: u32) -> u64 {
        if self.interval_us == 0 {
            return 0;
        }
        mul_div(
            u64::from(self.bytes) << BYTE_BITS,
            u64::from(base_rtt_us).saturating_mul(21),
            u64::from(self.interval_us).saturating_mul(20),
        )
    }
}

/// State of one flow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flow {
    window: Window,

    // Epochs.
    /// T_epoch: an ACK for a packet sent at or after it ends the epoch; 0 = before the first ACK.
    epoch_ends_ns: u64,
    /// Bytes acknowledged in this epoch. Saturates: 4 GB pass in no epoch.
    epoch_acked_bytes: u32,
    /// Of those, bytes marked.
    epoch_marked_bytes: u32,
    /// E, as a fraction.
    ecn_fraction: u32,

    // Round trips: base RTT and Quick Adapt.
    /// The last rate that was not limited by the application.
    rate: Rate,
    /// An ACK for a packet sent at or after this ends the round trip; none before the first ACK.
    round_ends: Moment,
    /// C, where it is not set by hand.
    line_rate: LineRate,
    base_rtt: BaseRtt,
    /// What this round trip has shown.
    signs: Signs,
    /// Whether Quick Adapt may act.
    adapt: Adapt,
    /// How often Quick Adapt acted, for people; wraps.
    quick_adapts: u8,
    /// Epochs that have ended, for people; wraps.
    epochs: u8,
    /// Decreases that slow start withheld; later how they compare with the increases.
    balance: Balance,
}

/// Whether Quick Adapt may act, in the two lowest bits, and in the others the RTT at the ceiling, as so many times the base RTT:
/// two bits of an exponent, and four of a fraction.
#[derive(Clone, Copy, Debug, Default)]
struct Adapt(u8);

impl Adapt {
    /// At the end of this round trip, if the round trip says something.
    const READY: u8 = 0;
    /// Quick Adapt or a loss has just lowered the window: no other decrease in this round trip.
    const REDUCED: u8 = 1;
    /// The flow began with a BDP at once, and has not had that much in use yet.
    const UNUSED: u8 = 2;
    /// The window fell to see the base RTT, and stays there until a packet that was sent since is acknowledged.
    const PROBING: u8 = 3;

    #[inline(always)]
    fn state(self) -> u8 {
        self.0 & 3
    }

    #[inline(always)]
    fn set(&mut self, state: u8) {
        self.0 = self.0 & !3 | state;
    }

    /// The RTT at the ceiling; the base RTT, if that was not seen.
    fn rtt_at_ceiling_us(self, base_rtt_us: u32) -> u64 {
        let (exponent, part) = (self.0 >> 6, self.0 >> 2 & 15);
        u64::from(base_rtt_us).wrapping_mul(u64::from(16 | part) << exponent) >> 4
    }

    /// The RTT at the ceiling is noted again when the window is there. What made it long may have ended.
    fn forget_rtt_at_ceiling(&mut self) {
        self.0 = self.state();
    }

    /// Between 1 and 15.5 base RTTs, and by a sixteenth too long at most.
    fn note_rtt_at_ceiling(&mut self, rtt_us: u32, base_rtt_us: u32) {
        let sixteenths = (u64::from(rtt_us) << 4)
            .div_ceil(u64::from(base_rtt_us.max(1)))
            .clamp(16, 248);
        let exponent = sixteenths.ilog2().saturating_sub(4);
        let part = sixteenths.div_ceil(1 << exponent).saturating_sub(16);
        // Rounded up, a part may be the next power of two.
        let code = u64::from(exponent << 4).saturating_add(part);
        self.0 = (code as u8) << 2 | self.state();
    }
}

/// What a round trip has shown.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Signs(u8);

impl Signs {
    /// Something was marked, so Quick Adapt may act.
    const MARKED: Signs = Signs(1);
    /// An RTT showed no queue; where C is told, none that a window at its ceiling or above made.
    const UNDELAYED: Signs = Signs(2);
    /// One of the round trip before did.
    const WAS_UNDELAYED: Signs = Signs(4);
    /// Something was marked since the last loss: a port tells when there is no more, so nothing is probed.
    const TELLING: Signs = Signs(8);
    /// There was a loss.
    const LOST: Signs = Signs(16);
    /// The last reduction was that of the first loss, and the port had told before it: what an undo gives back.
    const FIRST_LOSS: Signs = Signs(32);
    const HAD_TOLD: Signs = Signs(64);
    /// A window above its ceiling has RTTs more than twice as long as those at the ceiling.
    const QUEUED: Signs = Signs(128);
    /// What stays from one round trip to the next.
    const LASTING: u8 = Signs::TELLING.0 | Signs::LOST.0 | Signs::FIRST_LOSS.0 | Signs::HAD_TOLD.0;

    #[inline(always)]
    fn has(self, sign: Signs) -> bool {
        self.0 & sign.0 != 0
    }

    #[inline(always)]
    fn note(&mut self, sign: Signs) {
        self.0 |= sign.0;
    }

    #[inline(always)]
    fn forget(&mut self, sign: Signs) {
        self.0 &= !sign.0;
    }

    /// There was a loss: what ports told before is over.
    fn lose(&mut self) {
        let (had_lost, had_told) = (self.has(Signs::LOST), self.has(Signs::TELLING));
        self.forget(Signs::FIRST_LOSS);
        self.forget(Signs::HAD_TOLD);
        self.forget(Signs::TELLING);
        self.note(Signs::LOST);
        if !had_lost {
            self.note(Signs::FIRST_LOSS);
        }
        if had_told {
            self.note(Signs::HAD_TOLD);
        }
    }

    /// There was none.
    fn undo(&mut self) {
        if self.has(Signs::FIRST_LOSS) {
            self.forget(Signs::FIRST_LOSS);
            self.forget(Signs::LOST);
        }
        if self.has(Signs::HAD_TOLD) {
            self.forget(Signs::HAD_TOLD);
            self.note(Signs::TELLING);
        }
    }

    /// What is left of them in the next round trip.
    #[inline(always)]
    fn next(self) -> Self {
        Signs((self.0 & Signs::UNDELAYED.0) << 1 | self.0 & Signs::LASTING)
    }
}

/// What a [`Watch`] observes.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// An epoch ended.
    Epoch(Epoch),
    /// A round trip ended, and Quick Adapt compared.
    QuickAdapt(QuickAdapt),
}

/// An epoch that ended.
#[derive(Clone, Copy, Debug)]
pub struct Epoch {
    /// Window before it was judged, and after.
    pub cwnd_before_bytes: u64,
    /// Within floor and ceiling.
    pub cwnd_bytes: u64,
    /// Length of the next.
    pub period_ns: u64,
    /// RTT of the packet that ended it.
    pub rtt_us: u32,
    /// Base RTT of the flow.
    pub base_rtt_us: u32,
    /// Bytes acknowledged in it.
    pub acked_bytes: u32,
    /// Of those, bytes marked.
    pub marked_bytes: u32,
    /// E, as a fraction.
    pub ecn_fraction: u32,
    /// What came of it.
    pub verdict: Verdict,
}

/// What the end of an epoch came to.
#[derive(Clone, Copy, Debug)]
pub struct Verdict {
    /// What was done.
    pub action: Action,
    /// The decrease that E calls for, as a fraction; 0 where nothing was marked.
    pub cut: u32,
    /// Only phantom queues are congested: `md_gentle` is part of the cut.
    pub gentle: bool,
}

/// How long an epoch was, up to an RTT, and should have been.
#[derive(Clone, Copy, Debug)]
struct Passed {
    ns: u64,
    period_ns: u64,
}

/// A decrease for all of the time that passed, up to half of the window if one epoch's is not more.
// Few epochs end late, and of numbers: by reference what an ACK needs would have to be in memory.
#[cold]
#[inline(never)]
fn times_passed(cut: u64, ns: u64, period_ns: u64) -> u64 {
    mul_div(cut, ns, period_ns.max(1))
        .min(u64::from(FRACTION_ONE / 2))
        .max(cut)
}

/// What the end of an epoch came to, and what the balance needs besides.
#[derive(Clone, Copy, Debug)]
struct Judged {
    verdict: Verdict,
    /// The decrease before it is made less in proportion, as a fraction.
    whole_cut: u32,
}

/// What the end of an epoch did to the window.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Action {
    /// Nothing was acknowledged, or nothing was marked.
    None,
    /// Marked, but this round trip has had its reduction.
    Rested,
    /// Slow start counted the decrease and did not make it.
    Withheld,
    /// The decreases that slow start withheld ended it.
    EndedSlowStart,
    /// E fell (`skip_md_when_falling`).
    Increased,
    /// The decrease was made.
    Decreased,
}

/// Quick Adapt, at the end of a round trip.
#[derive(Clone, Copy, Debug)]
pub struct QuickAdapt {
    /// Window before, and after.
    pub cwnd_before_bytes: u64,
    /// At least the floor.
    pub cwnd_bytes: u64,
    /// What a period delivered.
    pub delivered_bytes: u64,
    /// Less than this is too little.
    pub promised_bytes: u64,
    /// Base RTT of the flow.
    pub base_rtt_us: u32,
    /// It was, and the window was lowered.
    pub adapted: bool,
}

impl Controller for Flow {
    type Event = Event;

    fn new(params: &impl Values, now_us: u64, cwnd_bytes: u64, rtt_us: Option<u32>) -> Self {
        let mut flow = Flow::default();
        flow.window.start(cwnd_bytes, true);
        if let Some(rtt_us) = rtt_us {
            flow.base_rtt.update(now_us, rtt_us, BASE_RTT_WINDOW_MS);
            flow.base_rtt.align(BASE_RTT_WINDOW_MS);
        }
        flow.line_rate
            .ask_host(params, now_us, &flow.base_rtt, Sample::Least);
        flow.line_rate.congested_at(now_us);
        flow.start_at_bdp(params);
        flow
    }

    fn open(&mut self, params: &impl Values) {
        let Some(path) = self.known_path(params) else {
            return;
        };
        let initial_bytes = mul_ratio(path.bdp_bytes, params.initial_cwnd_bdp());
        if initial_bytes > self.window.bytes() && self.window.in_first_slow_start() {
            self.window.start(initial_bytes, true);
        }
    }

    fn window(&self) -> &Window {
        &self.window
    }

    fn window_mut(&mut self) -> &mut Window {
        &mut self.window
    }

    #[inline(always)]
    fn adjust(&mut self, params: &impl Values, ack: &Ack, watch: &mut impl Watch<Event>) {
        let base_rtt = &mut self.base_rtt;
        let sample = ack.rtt_us.map_or(Sample::Ordinary, |rtt_us| {
            base_rtt.update(ack.now_us, rtt_us, BASE_RTT_WINDOW_MS)
        });
        if sample != Sample::Ordinary {
            self.base_rtt.align(BASE_RTT_WINDOW_MS);
            self.line_rate
                .ask_host(params, ack.now_us, &self.base_rtt, sample);
            if sample != Sample::Least {
                self.probe_rtt(params, ack, sample == Sample::Longer);
            }
        }
        match self.path(params, params.line_rate_mbps()) {
            Some(path) => self.algorithm_1(params, ack, &path, watch),
            None => {
                self.slow_start(ack, false);
                self.window.clamp(ack.mss_bytes, u64::MAX);
            }
        }
    }

    #[inline(always)]
    fn output(&self, _params: &impl Values, _srtt_us: u32) -> Output {
        let cwnd_bytes = self.window.bytes();
        Output {
            cwnd_bytes,
            ssthresh_bytes: self.window.ssthresh_bytes(),
            pacing_bytes_per_s: bytes_per_s(cwnd_bytes, self.base_rtt.get().unwrap_or(0)),
        }
    }

    /// What Quick Adapt would leave, or half.
    fn loss_window_scaled(&self, params: &impl Values, mss_bytes: u32) -> u64 {
        let adapted_scaled = mul_ratio(self.delivered_scaled(), params.qa_keep());
        let half_scaled = self.window.scaled() >> 1;
        self.window
            .bounded(adapted_scaled.max(half_scaled), mss_bytes)
    }

    fn was_reduced(&self) -> bool {
        matches!(self.adapt.state(), Adapt::REDUCED | Adapt::PROBING)
    }

    fn reduced_at(&mut self, now_us: u64) {
        self.end_round_reduced(now_us);
        // Without marks there is no balance, but what losses make of it.
        if !self.signs.has(Signs::TELLING) {
            self.balance.renew();
        }
        self.signs.lose();
    }

    fn lost_again(&mut self) {
        self.signs.note(Signs::LOST);
    }

    fn undo(&mut self, prior_bytes: u64, ssthresh_bytes: u64) {
        self.signs.undo();
        if self.window.is_started() {
            self.window.undo(prior_bytes, ssthresh_bytes);
            self.end_reduction();
        }
    }

    /// The clocks do not count the silence.
    fn on_idle_restart(&mut self, now_us: u64) {
        if self.epoch_ends_ns != 0 {
            let now_ns = now_us.saturating_mul(NS_PER_US);
            self.epoch_ends_ns = self.epoch_ends_ns.max(now_ns);
            self.round_ends = Moment::at(now_us);
        }
    }

    // Inlined, so that only the parts that the caller uses are computed.
    #[inline(always)]
    fn published(&self) -> Published {
        Published {
            marked_fraction: self.ecn_fraction,
            acked_bytes: self.epoch_acked_bytes,
            marked_bytes: self.epoch_marked_bytes,
            base_rtt_us: self.base_rtt.get().unwrap_or(0),
            periods: self.epochs,
            quick_adapts: self.quick_adapts,
            flags: published::flag(self.signs.has(Signs::MARKED), published::MARKED)
                | published::flag(self.was_reduced(), published::REDUCED),
        }
    }
}

impl Flow {
    /// Base RTT, if there is a sample.
    pub fn base_rtt_us(&self) -> Option<u32> {
        self.base_rtt.get()
    }

    /// How often Quick Adapt acted.
    pub fn quick_adapts(&self) -> u8 {
        self.quick_adapts
    }

    /// What the last Quick Adapt period delivered that was not limited by the application, in
    /// 2^-16 bytes; 0 = nothing yet.
    fn delivered_scaled(&self) -> u64 {
        self.rate.in_period_scaled(self.base_rtt.get().unwrap_or(0))
    }

    /// The path with that `line_rate_mbps`, if the base RTT is known. Where C is not, it is what the window shows.
    #[inline(always)]
    fn path(&self, params: &impl Values, by_hand_mbps: u32) -> Option<Path> {
        let base_rtt_us = self.base_rtt.get()?;
        let line_rate = match by_hand_mbps {
            0 => self.line_rate,
            by_hand_mbps => LineRate::told(by_hand_mbps),
        };
        let rate_mbps = match line_rate.mbps() {
            0 => host::window_mbps(self.window.bytes(), base_rtt_us),
            mbps => mbps,
        };
        Some(params.path(base_rtt_us, rate_mbps, line_rate))
    }

    /// Additive increase per RTT, in 2^-16 bytes.
    #[inline(always)]
    fn step_scaled(
        &self,
        params: &impl Values,
        path: &Path,
        rtt_us: Option<u32>,
        now_us: u64,
        mss_bytes: u32,
    ) -> u64 {
        let far_scaled = |step_scaled| {
            far_step_scaled(step_scaled, self.line_rate, self.signs, now_us, mss_bytes)
        };
        let in_region = host::is_in_region(path.base_rtt_us);
        // A copy each, so that the compiler joins it with its half of increase_scaled(): five instructions less an ACK.
        if path.line_rate.is_told() {
            match (in_region, params.line_rate_mbps()) {
                (true, _) => {
                    let (_, share_bytes) = self.share_bytes(params, path, rtt_us.unwrap_or(0));
                    params.increase_of_scaled(share_bytes)
                }
                (false, 0) => far_scaled(params.increase_scaled(path)),
                (false, _) => params.increase_scaled(path),
            }
        } else {
            match in_region {
                true => params.increase_scaled(path),
                false => far_scaled(params.increase_scaled(path)),
            }
        }
    }

    /// What C carries in this RTT, of which a host's noise is a part, and how much of it the increase is a part of. Without
    /// `step_windows` both are the BDP.
    #[inline(always)]
    fn share_bytes(&self, params: &impl Values, path: &Path, rtt_us: u32) -> (u64, u64) {
        let windows = params.step_windows();
        if windows == 0 {
            return (path.bdp_bytes, path.bdp_bytes);
        }
        let noisy_bdp_bytes = bdp_bytes(path.rate_mbps, path.noisy_rtt_us(rtt_us));
        let window_bytes = self.window.bytes();
        let share_bytes = self
            .balance
            .share_bytes(window_bytes, windows, noisy_bdp_bytes);
        (noisy_bdp_bytes, share_bytes)
    }

    /// What an epoch, which ends with a packet of that RTT, did to the balance. `passed_us`: since the one before ended, an RTT
    /// or its period at most. The window before it was judged had so many bytes.
    // Inlined as all that has the parameters: else they would have to be in memory.
    #[inline(always)]
    fn end_balance(
        &mut self,
        params: &impl Values,
        path: &Path,
        rtt_us: u32,
        passed_us: u64,
        before_bytes: u64,
        judged: &Judged,
    ) {
        let is_needed = path.is_proportional() && params.step_windows() != 0;
        if self.window.in_slow_start() || !is_needed {
            return;
        }
        // In bits per microsecond, x 10^6: it adds a part of what C carries in an RTT in each RTT.
        let slope_ppm = u64::from(params.ai_ppm()).wrapping_mul(path.rate_mbps.into());
        let cut_bytes = mul_fraction(before_bytes, judged.whole_cut);
        let regrowth_scaled = match judged.verdict.action {
            Action::Decreased => mul_div(cut_bytes, (8 << REGROWTH_BITS) * PPM, slope_ppm.max(1)),
            _ => 0,
        };
        // A window acknowledged adds what C carries in its RTT, but in a queue's part of that nothing.
        let noisy_rtt_scaled = u64::from(path.noisy_rtt_us(rtt_us)) << REGROWTH_BITS;
        let grown_scaled =
            |bytes: u32| mul_div(noisy_rtt_scaled, bytes.into(), before_bytes.max(1));
        let unmarked_bytes = self
            .epoch_acked_bytes
            .saturating_sub(self.epoch_marked_bytes);
        let change = Change {
            passed_us,
            grown_scaled: grown_scaled(unmarked_bytes),
            twice_scaled: match judged.verdict.action {
                Action::Increased => grown_scaled(self.epoch_acked_bytes),
                _ => 0,
            },
            regrowth_scaled,
        };
        self.balance.end_epoch(path.base_rtt_us, &change);
    }

    /// The path, if base RTT and C are known before anything is sent: by hand, or by the device within the region.
    fn known_path(&self, params: &impl Values) -> Option<Path> {
        // Read once: it may change at any time.
        let by_hand_mbps = params.line_rate_mbps();
        self.path(params, by_hand_mbps).filter(|path| {
            path.line_rate.is_told() && (by_hand_mbps != 0 || host::is_in_region(path.base_rtt_us))
        })
    }

    /// `start` = bdp: one BDP at once, as soon as the base RTT is known.
    fn start_at_bdp(&mut self, params: &impl Values) {
        if params.start() != START_BDP || !self.window.in_first_slow_start() {
            return;
        }
        if let Some(path) = self.known_path(params) {
            self.window.start(path.bdp_bytes, false);
            self.adapt.set(Adapt::UNUSED);
        }
    }

    /// The ceiling of that ratio, if the window has reached it; 0 is no ceiling.
    #[inline(always)]
    fn reached_ceiling(&self, ratio: u32, path: &Path) -> Option<u64> {
        let ceiling_bytes = path.ceiling_bytes(ratio);
        let is_reached = self.window.bytes() >= ceiling_bytes;
        // Few windows reach it, so what takes the ceiling away is asked last.
        (is_reached && ratio != 0 && path.line_rate.is_told()).then_some(ceiling_bytes)
    }

    /// How many times as high as its ceiling a window past slow start may be.
    #[inline(always)]
    fn times_the_ceiling(params: &impl Values, path: &Path) -> u32 {
        match host::is_in_region(path.base_rtt_us) {
            true => params.max_cwnd_unfilled(),
            false => 1,
        }
    }

    /// The window as the end of this ACK, which found it at `before_scaled`, is going to leave it, if nothing else moves it:
    /// not above its ceiling, which it has reached, but past slow start.
    // Few ACKs find a window there, and of numbers: by reference what an ACK needs would have to be in memory.
    #[cold]
    #[inline(never)]
    fn held(&self, ceiling_bytes: u64, times: u32, before_scaled: u64, rate_mbps: u32) -> Window {
        let mut window = self.window;
        if window.in_slow_start() || times <= 1 {
            window.lower_to(ceiling_bytes);
            return window;
        }
        let window_scaled = window.scaled();
        let ceiling_scaled = ceiling_bytes << BYTE_BITS;
        let left_scaled = if self.is_marked() {
            // Decreases decide.
            before_scaled
        } else if !self.sees_queue()
            && may_pass(window_scaled, ceiling_bytes, times, self.rate, rate_mbps)
        {
            window_scaled
        } else {
            let added_scaled = window_scaled.saturating_sub(before_scaled);
            let shrinks = match self.signs.has(Signs::QUEUED) {
                true => QUEUED_SHRINKS,
                false => 1,
            };
            before_scaled.saturating_sub(added_scaled.saturating_mul(shrinks))
        };
        let most_scaled = ceiling_scaled.saturating_mul(times.into());
        window.lower_to_scaled(left_scaled.max(ceiling_scaled).min(most_scaled));
        window
    }

    /// [`Self::held`], and not below the floor, for who watches.
    #[inline(always)]
    fn shown_bytes(
        &self,
        params: &impl Values,
        mss_bytes: u32,
        path: &Path,
        before_scaled: u64,
    ) -> u64 {
        let mut window = self.window;
        if let Some(ceiling_bytes) = self.reached_ceiling(params.max_cwnd_bdp(), path) {
            let times = Self::times_the_ceiling(params, path);
            window = self.held(ceiling_bytes, times, before_scaled, path.rate_mbps);
        }
        window.clamp(mss_bytes, u64::MAX);
        window.bytes()
    }

    /// Lowers the window to a part of its ceiling, from where slow start leads back, where nothing is marked and RTTs show a queue.
    /// The flow may have made that queue, which would become a part of its base RTT. `is_longer`: it has just become one.
    #[inline(always)]
    fn probe_rtt(&mut self, params: &impl Values, ack: &Ack, is_longer: bool) {
        let Some(path) = self.path(params, params.line_rate_mbps()) else {
            return;
        };
        let (ratio, part) = (params.max_cwnd_bdp(), params.probe_rtt());
        if ratio == 0 || part == 0 || !path.line_rate.is_told() {
            return;
        }
        // A flow that begins, pauses, or repairs a loss makes no standing queue. But a slow start that does not grow may be one
        // that the receiver's window has stopped for good.
        let begins = self.window.in_slow_start() && ack.cwnd_limited;
        let is_steady = !ack.app_limited && !ack.in_recovery && !begins;
        let undelayed_us = path.base_rtt_us.saturating_add(path.base_rtt_us >> 3);
        let is_delayed = ack.rtt_us.is_some_and(|rtt_us| rtt_us > undelayed_us);
        let is_near = host::is_in_region(path.base_rtt_us);
        let is_full = is_near || self.reached_ceiling(ratio, &path).is_some();
        let ceiling_bytes = path.ceiling_bytes(ratio);
        let part = match is_near {
            true => part,
            false => part.saturating_mul(FAR_PROBES),
        };
        let kept_bytes = mul_ratio(ceiling_bytes, part);
        let is_needed = (is_longer || is_delayed && is_full) && self.window.bytes() > kept_bytes;
        if is_steady && is_needed && !self.is_marked() {
            // A slow start that a receiver stopped goes on once the receiver is faster.
            if !self.window.in_slow_start() {
                self.window.lower_to(ceiling_bytes);
            }
            self.window.restart(kept_bytes);
            self.adapt.forget_rtt_at_ceiling();
            self.adapt.set(Adapt::PROBING);
            self.round_ends = Moment::at(ack.now_us);
        }
    }

    /// Whether E is a thousandth and more.
    fn is_marked(&self) -> bool {
        self.ecn_fraction >> (FRACTION_BITS - RATIO_BITS) != 0
    }

    /// Algorithm 1, on a path whose base RTT is known.
    #[inline(always)]
    fn algorithm_1(
        &mut self,
        params: &impl Values,
        ack: &Ack,
        path: &Path,
        watch: &mut impl Watch<Event>,
    ) {
        if self.window.in_slow_start() {
            self.start_at_bdp(params);
        }
        let before_scaled = self.window.scaled();
        if self.window.in_slow_start() {
            self.slow_start(ack, params.balanced_exit() != 0);
        } else if ack.cwnd_limited {
            let mut step_scaled =
                self.step_scaled(params, path, ack.rtt_us, ack.now_us, ack.mss_bytes);
            let is_seen = !path.line_rate.is_told() && host::is_in_region(path.base_rtt_us);
            if is_seen && self.may_probe(params, ack, path) {
                let seen_scaled = params.increase_of_scaled(path.bdp_bytes);
                step_scaled = step_scaled.max(self.line_rate.calm_step_scaled(
                    seen_scaled,
                    ack.now_us,
                    ack.mss_bytes,
                ));
            }
            self.window.increase(step_scaled, ack.unmarked_bytes());
        }
        let sent_at_us = ack.sent_at_us();
        self.end_round(params, ack, sent_at_us, path, before_scaled, watch);
        self.end_epoch(params, ack, sent_at_us, path, before_scaled, watch);

        if let Some(ceiling_bytes) = self.reached_ceiling(params.max_cwnd_bdp(), path) {
            if let (false, false, Some(rtt_us)) = (
                self.signs.has(Signs::UNDELAYED),
                self.is_marked(),
                ack.rtt_us,
            ) {
                let rtt_us = rtt_us.saturating_sub(path.bundle_us(ack.acked_bytes));
                self.note_delay(rtt_us, path.base_rtt_us);
            }
            let times = Self::times_the_ceiling(params, path);
            self.window = self.held(ceiling_bytes, times, before_scaled, path.rate_mbps);
        }
        self.window.clamp(ack.mss_bytes, u64::MAX);
    }

    /// Notes whether this ACK's RTT showed no queue. Whether nothing tells of a rival or a full port now: neither marks
    /// nor a queue, which delays all packets of a round trip, as jitter does not.
    #[inline(always)]
    fn may_probe(&mut self, params: &impl Values, ack: &Ack, path: &Path) -> bool {
        let undelayed_rtt_us = params.undelayed_rtt_us(path.base_rtt_us);
        if ack
            .rtt_us
            .is_some_and(|rtt_us| u64::from(rtt_us) <= undelayed_rtt_us)
        {
            self.signs.note(Signs::UNDELAYED);
        }
        !self.sees_queue() && !self.signs.has(Signs::TELLING)
    }

    /// Whether all RTTs of two round trips showed a queue.
    #[inline(always)]
    fn sees_queue(&self) -> bool {
        !self.signs.has(Signs::UNDELAYED) && !self.signs.has(Signs::WAS_UNDELAYED)
    }

    /// Notes of a window at its ceiling or above whether this ACK's RTT, without what a bundle takes, is hardly longer than the
    /// RTTs at the ceiling, or far longer: what a larger window adds to a queue delays all packets of a round trip.
    #[cold]
    #[inline(never)]
    fn note_delay(&mut self, rtt_us: u32, base_rtt_us: u32) {
        let at_ceiling_us = self.adapt.rtt_at_ceiling_us(base_rtt_us);
        let rtt_us = u64::from(rtt_us);
        self.signs.forget(Signs::QUEUED);
        if rtt_us <= at_ceiling_us.saturating_add(at_ceiling_us >> 3) {
            self.signs.note(Signs::UNDELAYED);
        } else if rtt_us > at_ceiling_us << 1 {
            self.signs.note(Signs::QUEUED);
        }
    }

    /// Slow start; the first mark ends it, unless the end of an epoch is to judge.
    #[inline(always)]
    fn slow_start(&mut self, ack: &Ack, judged: bool) {
        if ack.marked_bytes > 0 && !judged {
            self.window.leave_slow_start();
        } else if ack.cwnd_limited && (ack.in_recovery || self.adapt.state() != Adapt::PROBING) {
            self.window.slow_start(ack.unmarked_bytes());
        }
    }

    /// Once per round trip: Quick Adapt, or the end of the round trip that it skips.
    #[inline(always)]
    fn end_round(
        &mut self,
        params: &impl Values,
        ack: &Ack,
        sent_at_us: Option<u64>,
        path: &Path,
        before_scaled: u64,
        watch: &mut impl Watch<Event>,
    ) {
        let measured = ack.interval_us != 0 && !ack.app_limited;
        if measured {
            self.rate = Rate::of(ack);
        }
        if ack.marked_bytes > 0 {
            self.signs.note(Signs::MARKED);
            self.signs.note(Signs::TELLING);
        }
        if self.round_ends.is_none() {
            self.round_ends = Moment::at(ack.now_us);
        }
        let Some(sent_at_us) = sent_at_us else {
            return;
        };
        if !self.round_ends.is_reached(sent_at_us) {
            return;
        }
        self.round_ends = Moment::at(ack.now_us);
        // Up to an eighth above it, so that each window which passes it is seen there.
        if let Some(ceiling_bytes) = self.reached_ceiling(params.max_cwnd_bdp(), path) {
            let most_bytes = ceiling_bytes.saturating_add(ceiling_bytes >> 3);
            if self.window.bytes() <= most_bytes && !self.window.in_slow_start() {
                let rtt_us = ack.srtt_us.saturating_sub(path.bundle_us(ack.acked_bytes));
                self.adapt.note_rtt_at_ceiling(rtt_us, path.base_rtt_us);
            }
        }
        if measured {
            self.line_rate
                .delivered(self.rate.bytes, self.rate.interval_us);
        }
        match self.adapt.state() {
            Adapt::REDUCED | Adapt::PROBING => self.adapt.set(Adapt::READY),
            Adapt::UNUSED => {
                if self.is_in_use(params, ack) {
                    self.adapt.set(Adapt::READY);
                }
            }
            _ => {
                if measured && self.may_adapt(params, ack) {
                    self.quick_adapt(
                        params,
                        ack.now_us,
                        ack.mss_bytes,
                        path,
                        before_scaled,
                        watch,
                    );
                }
            }
        }
        self.balance.end_round();
        self.signs = self.signs.next();
    }

    /// Another round trip begins, with a window that is lower now.
    fn end_round_reduced(&mut self, now_us: u64) {
        self.adapt.set(Adapt::REDUCED);
        self.round_ends = Moment::at(now_us);
        self.line_rate.congested_at(now_us);
        self.balance.end_round();
    }

    /// Another reduction may follow in this round trip.
    fn end_reduction(&mut self) {
        if self.was_reduced() {
            self.adapt.set(Adapt::READY);
        }
    }

    /// Whether this round trip says something of the network, and the network of the window.
    fn may_adapt(&self, params: &impl Values, ack: &Ack) -> bool {
        let is_known = self.signs.has(Signs::MARKED) || params.qa_needs_mark() == 0;
        let least_e = params.qa_least_e().min(RATIO_ONE) << (FRACTION_BITS - RATIO_BITS);
        is_known && self.ecn_fraction >= least_e && !ack.in_recovery
    }

    /// Whether as much is in flight as Quick Adapt would expect to be delivered.
    fn is_in_use(&self, params: &impl Values, ack: &Ack) -> bool {
        let in_flight_bytes = u64::from(ack.prior_in_flight).saturating_mul(ack.mss_bytes.into());
        in_flight_bytes >= mul_ratio(self.window.bytes(), params.qa_beta())
    }

    /// Quick Adapt: much less was delivered than the window promises.
    // Without the `Ack`, and inlined, so that neither it nor the parameters need be in memory.
    #[inline(always)]
    fn quick_adapt(
        &mut self,
        params: &impl Values,
        now_us: u64,
        mss_bytes: u32,
        path: &Path,
        before_scaled: u64,
        watch: &mut impl Watch<Event>,
    ) {
        // A window that doubled within the round trip promises twice what it can have delivered.
        if self.window.in_slow_start() {
            return;
        }
        let slack_bytes = u64::from(params.qa_slack_packets()).saturating_mul(u64::from(mss_bytes));
        let promised_scaled = mul_ratio(self.window.scaled(), params.qa_beta())
            .saturating_sub(slack_bytes << BYTE_BITS);
        let delivered_scaled = self.delivered_scaled();
        let before = self.window;
        if delivered_scaled < promised_scaled {
            let left_scaled = mul_ratio(delivered_scaled, params.qa_keep());
            self.window.lower_to_scaled(left_scaled);
            self.end_round_reduced(now_us);
            self.balance.renew();
            self.quick_adapts = self.quick_adapts.wrapping_add(1);
        }
        watch.observe(|| {
            Event::QuickAdapt(QuickAdapt {
                cwnd_before_bytes: before.bytes(),
                cwnd_bytes: self.shown_bytes(params, mss_bytes, path, before_scaled),
                delivered_bytes: delivered_scaled >> BYTE_BITS,
                promised_bytes: promised_scaled >> BYTE_BITS,
                base_rtt_us: path.base_rtt_us,
                adapted: self.was_reduced(),
            })
        });
    }

    /// Counts the ACK, and ends the epoch if its packet was sent at or after T_epoch.
    #[inline(always)]
    fn end_epoch(
        &mut self,
        params: &impl Values,
        ack: &Ack,
        sent_at_us: Option<u64>,
        path: &Path,
        before_scaled: u64,
        watch: &mut impl Watch<Event>,
    ) {
        let saturating_sum =
            |sum: u32, bytes: u64| bytes.saturating_add(sum.into()).min(u32::MAX.into()) as u32;
        self.epoch_acked_bytes = saturating_sum(self.epoch_acked_bytes, ack.acked_bytes);
        // Most ACKs report no mark.
        if ack.marked_bytes > 0 {
            self.epoch_marked_bytes = saturating_sum(self.epoch_marked_bytes, ack.marked_bytes);
        }

        let (Some(rtt_us), Some(sent_at_us)) = (ack.rtt_us, sent_at_us) else {
            return;
        };
        let sent_at_ns = sent_at_us.wrapping_mul(NS_PER_US);
        if self.epoch_ends_ns == 0 {
            self.epoch_ends_ns = ack.now_us.wrapping_mul(NS_PER_US);
        }
        if sent_at_ns < self.epoch_ends_ns {
            return;
        }
        // The period is the packet's RTT, scaled down to an intra-datacenter flow's.
        let rtt_ns = u64::from(rtt_us).saturating_mul(NS_PER_US);
        let period_ns = mul_div(
            rtt_ns,
            u64::from(params.epoch_us(path.base_rtt_us)),
            u64::from(path.base_rtt_us),
        );
        let ended_ns = self.epoch_ends_ns;
        let next_ns = ended_ns.saturating_add(period_ns);
        self.epoch_ends_ns = if next_ns > sent_at_ns {
            next_ns
        } else {
            sent_at_ns.saturating_add(period_ns)
        };
        let elapsed_ns = self.epoch_ends_ns.saturating_sub(ended_ns);

        let before = self.window;
        let passed = Passed {
            ns: elapsed_ns.min(rtt_ns),
            period_ns,
        };
        // A silence makes no flow older; an epoch that is set longer than an RTT does.
        let passed_us = elapsed_ns.min(rtt_ns.max(period_ns)) / NS_PER_US;
        let judged = self.judge_epoch(params, ack, rtt_us, path, passed);
        self.epochs = self.epochs.wrapping_add(1);

        self.end_balance(params, path, rtt_us, passed_us, before.bytes(), &judged);
        watch.observe(|| {
            Event::Epoch(Epoch {
                cwnd_before_bytes: before.bytes(),
                cwnd_bytes: self.shown_bytes(params, ack.mss_bytes, path, before_scaled),
                period_ns,
                rtt_us,
                base_rtt_us: path.base_rtt_us,
                acked_bytes: self.epoch_acked_bytes,
                marked_bytes: self.epoch_marked_bytes,
                ecn_fraction: self.ecn_fraction,
                verdict: judged.verdict,
            })
        });
        self.epoch_acked_bytes = 0;
        self.epoch_marked_bytes = 0;
    }

    /// The epoch is over: E, and the decrease if anything was marked.
    #[inline(always)]
    fn judge_epoch(
        &mut self,
        params: &impl Values,
        ack: &Ack,
        rtt_us: u32,
        path: &Path,
        passed: Passed,
    ) -> Judged {
        let mut verdict = Verdict {
            action: Action::None,
            cut: 0,
            gentle: false,
        };
        if self.window.in_slow_start() {
            self.balance.renew();
        }
        if self.epoch_acked_bytes == 0 {
            return Judged {
                verdict,
                whole_cut: 0,
            };
        }
        let before = self.ecn_fraction;
        let marked = fraction(
            u64::from(self.epoch_marked_bytes),
            u64::from(self.epoch_acked_bytes),
        );
        self.ecn_fraction = ewma(before, marked, params.ewma());
        if self.epoch_marked_bytes == 0 || self.was_reduced() {
            if self.epoch_marked_bytes != 0 {
                verdict.action = Action::Rested;
            }
            return Judged {
                verdict,
                whole_cut: 0,
            };
        }

        let gain = u64::from(params.decrease_gain(path));
        let mut cut = mul_fraction(gain, self.ecn_fraction);
        if u64::from(rtt_us) <= params.undelayed_rtt_us(path.base_rtt_us) {
            cut = mul_ratio(cut, params.md_gentle());
            verdict.gentle = true;
        }
        let is_late = passed.ns > passed.period_ns && params.md_elapsed() != 0;
        let times = |cut| match is_late {
            true => times_passed(cut, passed.ns, passed.period_ns),
            false => cut,
        };
        let whole_cut = times(cut) as u32;
        // Less in proportion: where increase and decrease are in balance does not depend on the window.
        if path.is_proportional() {
            let (noisy_bdp_bytes, share_bytes) = self.share_bytes(params, path, rtt_us);
            if share_bytes < noisy_bdp_bytes {
                cut = mul_div(cut, share_bytes, noisy_bdp_bytes);
            }
        }
        cut = times(cut);
        verdict.cut = cut as u32;
        if self.window.in_slow_start() {
            let step_scaled = self.step_scaled(params, path, ack.rtt_us, ack.now_us, ack.mss_bytes);
            verdict.action = self.withhold(cut, step_scaled);
            return Judged { verdict, whole_cut };
        }

        let falling =
            before != 0 && self.ecn_fraction < before && self.ecn_fraction <= E_ALWAYS_DECREASES;
        if params.skip_md_when_falling() != 0 && falling {
            let step_scaled = self.step_scaled(params, path, ack.rtt_us, ack.now_us, ack.mss_bytes);
            self.window
                .increase(step_scaled, u64::from(self.epoch_acked_bytes));
            verdict.action = Action::Increased;
            return Judged { verdict, whole_cut };
        }
        self.window.decrease(cut as u32);
        verdict.action = Action::Decreased;
        Judged { verdict, whole_cut }
    }

    /// In slow start a decrease is only counted. The flow is where AIMD would hold it, and slow
    /// start ends, when the decreases of a round trip reach its additive increase.
    fn withhold(&mut self, cut: u64, step_scaled: u64) -> Action {
        let cut_bytes = mul_fraction(self.window.bytes(), cut as u32);
        let step_bytes = (step_scaled >> BYTE_BITS).min(MOST_WITHHELD);
        if self.balance.withhold(cut_bytes) >= step_bytes {
            // The marks are about what was sent a round trip ago, and that much is being delivered.
            match self.delivered_scaled() {
                0 => self.window.leave_slow_start(),
                delivered_scaled => self.window.lower_to_scaled(delivered_scaled),
            }
            return Action::EndedSlowStart;
        }
        Action::Withheld
    }
}

/// Of the path that a socket shows, with the parameters of its namespace; None: C is not set by hand.
fn shown_path<'a>(shown: &Shown<'a>) -> Option<(&'a dyn Values, Path)> {
    let params = shown.params?;
    let rate_mbps = (&params).line_rate_mbps();
    let path = (&params).path(shown.base_rtt_us?, rate_mbps, LineRate::told(rate_mbps));
    (rate_mbps != 0).then_some((params, path))
}

const STATE: &[State] = &[
    State {
        key: "base_rtt_us",
        label: "base RTT",
        unit: "us",
        help: "minimum over the last 10 to 20 s",
        value: |shown| Some(Value::Count(shown.base_rtt_us?.into())),
    },
    State {
        key: "intra_rtt_us",
        label: "intra RTT",
        unit: "us",
        help: "the length of an epoch: `intra_rtt_us`, or what stands for it where that is 0",
        value: |shown| {
            let params = shown.params?;
            let epoch_us = (&params).epoch_us(shown.base_rtt_us?);
            Some(Value::Count(epoch_us.into()))
        },
    },
    State {
        key: "e",
        label: "E",
        unit: "",
        help: "average marked part of an epoch's bytes, 0 to 1",
        value: |shown| Some(Value::fraction(shown.marked_fraction)),
    },
    State {
        key: "md_scale",
        label: "MD scale",
        unit: "",
        help: "4K / (K + BDP): the end of a marked epoch decreases the window by E times that, and by \
               `md_gentle` of it while the RTT shows no queue",
        value: |shown| {
            let params = shown.params?;
            // It is a ratio of BDPs, unless `k_bytes` is set.
            let rate_mbps = match (&params).line_rate_mbps() {
                0 if (&params).k_bytes() == 0 => 100_000,
                0 => return None,
                rate_mbps => rate_mbps,
            };
            let path = (&params).path(shown.base_rtt_us?, rate_mbps, LineRate::told(rate_mbps));
            Some(Value::fraction((&params).decrease_gain(&path)))
        },
    },
    State {
        key: "epochs",
        label: "epochs",
        unit: "",
        help: "that have ended; wraps at 2^32",
        value: |shown| Some(Value::Count(shown.periods.into())),
    },
    State {
        key: "quick_adapts",
        label: "QA",
        unit: "",
        help: "times that Quick Adapt acted; wraps at 65,536",
        value: |shown| Some(Value::Count(shown.count.into())),
    },
    State {
        key: "epoch_marked",
        label: "",
        unit: "",
        help: "marked part of the present epoch so far",
        value: |shown| shown.period_marked(),
    },
    State {
        key: "increase_bytes_per_rtt",
        label: "",
        unit: "",
        help: "additive increase of a whole step",
        value: |shown| {
            let (params, path) = shown_path(shown)?;
            Some(Value::bytes((&params).increase_scaled(&path), 1))
        },
    },
    State {
        key: "reduced",
        label: "adapted",
        unit: "",
        help: "this round trip has had its Quick Adapt or its loss: no other decrease in it",
        value: |shown| shown.flag(published::REDUCED),
    },
    State {
        key: "round_marked",
        label: "marked",
        unit: "",
        help: "a mark came in this round trip, so Quick Adapt may act at its end",
        value: |shown| shown.flag(published::MARKED),
    },
];

const QUICK_ADAPT: &str = "Quick Adapt: what a round trip delivered, and had to";

/// UnoCC, for everybody else.
pub const ENTRY: Entry = Entry {
    name: c"unocc",
    number: 1,
    marks: Marks::Phantom,
    params: PARAMS,
    profiles: &Profile::NAMES,
    profile: Profile::Linux as usize,
    state: STATE,
    events: &[
        Tracepoint {
            name: "unocc_epoch",
            help: "at the end of each epoch, one base RTT of a datacenter",
            lines: &[
                Line::window("cwnd_bytes"),
                Line::marked("e_ppm"),
                Line::rtt("rtt_us"),
            ],
        },
        Tracepoint {
            name: "unocc_qa",
            help: "at the end of a round trip in which Quick Adapt compared, whether or not it acted",
            lines: &[
                Line {
                    chart: QUICK_ADAPT,
                    field: "delivered_bytes",
                    unit: Unit::Bytes,
                    label: " delivered",
                },
                Line {
                    chart: QUICK_ADAPT,
                    field: "promised_bytes",
                    unit: Unit::Bytes,
                    label: " promised",
                },
            ],
        },
    ],
};

#[cfg(test)]
#[path = "tests/unocc.rs"]
mod tests;
