// SPDX-License-Identifier: GPL-2.0

//! What a host finds out by itself, where its parameters leave it open: the rate of its link, and the
//! base RTT inside its datacenter.

use super::fixed::{BYTE_BITS, US_PER_S};
use super::params::Values;
use super::rtt::{BaseRtt, Sample};

/// By what a flow sends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Way {
    /// It cannot be told at this moment.
    Unknown,
    /// The peer is this host.
    Loopback,
    /// A device that says so many Mbit/s.
    Told(u32),
    /// A device that does not tell its speed.
    Silent,
}

/// C, the rate of the host's link, as a flow finds it out: what the device says, or, if that is more
/// or the device says nothing, the fastest that the flow was delivered; and since when nothing has
/// said that this is all. All zeroes is "not known".
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LineRate(u32);

/// The flow was delivered faster than its device says.
const SHOWN: u32 = 1 << 31;
/// A device has told it. Without, the link may be faster than what was seen.
const TOLD: u32 = 1 << 30;
/// A path with a longer base RTT leads out of the region, by links that may be far slower than the host's.
const REGION_RTT_US: u32 = 5_000;

/// Whether a path with that base RTT stays where links are like the host's.
#[inline(always)]
pub fn is_in_region(base_rtt_us: u32) -> bool {
    base_rtt_us <= REGION_RTT_US
}

/// So many seconds since congestion count, at most ([`LineRate::calm_step_scaled`]).
const MAX_CALM_S: u32 = 31;

/// No link is faster: the bound of `line_rate_mbps`.
const MAX_MBPS: u32 = 1_000_000;

/// Its bits.
const MBPS: u32 = (1 << 20) - 1;
const _: () = assert!(MAX_MBPS <= MBPS);

/// The other ten bits are the time of the last congestion, in 2^20 us: it wraps after 18 minutes.
const CONGESTED: u32 = !(MBPS | SHOWN | TOLD);
const CONGESTED_SHIFT: u32 = MBPS.count_ones();
const SECOND_BITS: u32 = 20;

impl LineRate {
    /// So many Mbit/s, without a doubt; not 0.
    #[inline(always)]
    pub fn told(mbps: u32) -> Self {
        LineRate(TOLD | mbps & MBPS)
    }

    /// In Mbit/s; 0 = not known.
    #[inline(always)]
    pub fn mbps(self) -> u32 {
        self.0 & MBPS
    }

    /// It is a bound: the device has told it.
    #[inline(always)]
    pub fn is_told(self) -> bool {
        self.0 & TOLD != 0
    }

    /// There was congestion: a loss, or a window that was not delivered.
    #[inline(always)]
    pub fn congested_at(&mut self, now_us: u64) {
        let second = (now_us >> SECOND_BITS) as u32;
        self.0 = (self.0 & !CONGESTED) | (second << CONGESTED_SHIFT & CONGESTED);
    }

    /// Whole seconds, of 2^20 us, since the last congestion; one too few where it began in the middle of one.
    pub fn calm_s(self, now_us: u64) -> u32 {
        let second = (now_us >> SECOND_BITS) as u32;
        let since = second.wrapping_sub((self.0 & CONGESTED) >> CONGESTED_SHIFT);
        (since & (CONGESTED >> CONGESTED_SHIFT)).saturating_sub(1)
    }

    /// An increase where C is not known: larger by itself with each second. The first one after congestion has the usual
    /// one.
    // A function of three numbers: by reference what an ACK needs would have to be in memory.
    #[cold]
    #[inline(never)]
    pub fn calm_step_scaled(self, step_scaled: u64, now_us: u64, mss_bytes: u32) -> u64 {
        match self.calm_s(now_us).min(MAX_CALM_S) {
            0 => step_scaled,
            calm_s => step_scaled
                .saturating_mul(u64::from(calm_s).saturating_add(1))
                .max(u64::from(mss_bytes) << BYTE_BITS),
        }
    }

    /// Asks for the device. What was seen counts an eighth less in each window of the base RTT, so that a path that
    /// has become slower is noticed.
    pub fn ask(&mut self, way: Way, sample: Sample) {
        let (told, is_told) = match way {
            Way::Unknown => return,
            Way::Silent | Way::Loopback | Way::Told(0) => (0, 0),
            Way::Told(mbps) => (mbps.min(MAX_MBPS), TOLD),
        };
        let seen = match (self.0 & SHOWN, sample) {
            (0, _) => 0,
            (_, Sample::OfNewWindow) => self.mbps().saturating_sub(self.mbps() >> 3),
            _ => self.mbps(),
        };
        let congested = self.0 & CONGESTED;
        self.0 = congested | is_told | if seen > told { seen | SHOWN } else { told };
    }

    /// Asks the host for what no parameter says, which changes rarely, and tells it the flow's base RTT.
    // Inlined, so that the parameters need not be in memory for it.
    #[inline(always)]
    pub fn ask_host(
        &mut self,
        params: &impl Values,
        now_us: u64,
        base_rtt: &BaseRtt,
        sample: Sample,
    ) {
        let way = params.way();
        // One that cannot be told may be the host itself.
        if let (Some(base_rtt_us), Way::Told(_) | Way::Silent) = (base_rtt.get(), way) {
            params.note_base_rtt(now_us, base_rtt_us);
        }
        self.ask(way, sample);
    }

    /// So many bytes were delivered in that time, limited by nothing but the path.
    #[inline(always)]
    pub fn delivered(&mut self, bytes: u32, interval_us: u32) {
        // 1 Mbit/s is one bit per microsecond.
        let bits = u64::from(bytes) << 3;
        if bits > u64::from(self.mbps()).wrapping_mul(u64::from(interval_us)) {
            self.show(bits, interval_us);
        }
    }

    #[cold]
    #[inline(never)]
    fn show(&mut self, bits: u64, interval_us: u32) {
        let mbps = bits.checked_div(u64::from(interval_us)).unwrap_or(0);
        let mbps = mbps.min(u64::from(MAX_MBPS)) as u32;
        if mbps > self.mbps() {
            self.0 = (self.0 & (CONGESTED | TOLD)) | SHOWN | mbps;
        }
    }
}

#[cfg(test)]
impl LineRate {
    /// Any bytes.
    pub fn any(rng: &mut super::support::Rng) -> Self {
        LineRate(rng.any() as u32)
    }
}

/// What is shorter is no network, and what is longer no datacenter: bounds of what is found out.
const INTRA_RTT_US: (u32, u32) = (10, 500);

/// The base RTT inside the datacenter: by hand, or the shortest that flows of the host have lately
/// had ([`note_base_rtt`]), or the flow's own; 0 = not that.
#[inline(always)]
pub fn intra_rtt_us(by_hand_us: u32, shortest_us: u32, own_us: u32) -> u32 {
    match (by_hand_us, shortest_us) {
        (0, 0) => bounded_us(own_us),
        (0, shortest_us) => shortest_us,
        (by_hand_us, _) => by_hand_us,
    }
}

#[cold]
#[inline(never)]
fn bounded_us(rtt_us: u32) -> u32 {
    let (least_us, most_us) = INTRA_RTT_US;
    rtt_us.clamp(least_us, most_us)
}

/// A base RTT that no flow of the host had for this long is forgotten, as in [`BaseRtt`].
pub const SHORTEST_RTT_WINDOW_MS: u32 = 60_000;

/// A flow has that base RTT: what [`Values::note_base_rtt`](super::params::Values::note_base_rtt) does with what the host remembers,
/// which is within the bounds of a datacenter. Several do it at once; what one of them overwrites
/// the next one notes.
pub fn note_base_rtt(shortest: &mut BaseRtt, now_us: u64, rtt_us: u32) {
    shortest.update(now_us, bounded_us(rtt_us), SHORTEST_RTT_WINDOW_MS);
}

/// The rate, at least 1, that sends a window in an RTT: for who knows nothing else.
#[cold]
#[inline(never)]
pub fn window_mbps(cwnd_bytes: u64, base_rtt_us: u32) -> u32 {
    const BYTES_PER_S_OF_MBPS: u64 = US_PER_S / 8;
    let bytes_per_s = super::fixed::bytes_per_s(cwnd_bytes, base_rtt_us);
    (bytes_per_s / BYTES_PER_S_OF_MBPS).clamp(1, u64::from(MAX_MBPS)) as u32
}

#[cfg(test)]
#[path = "tests/host.rs"]
mod tests;
