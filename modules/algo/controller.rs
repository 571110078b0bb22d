// SPDX-License-Identifier: GPL-2.0

//! What every algorithm here has in common: a window that ACKs move, and one reduction in a round
//! trip, however many losses there are in it.

use super::fixed::BYTE_BITS;
use super::params::Values;
use super::window::Window;
use super::{Ack, Output};

/// Bits of [`Shown::flags`].
pub mod shown {
    /// Something was marked in this round trip.
    pub const MARKED: u8 = 1;
    /// No further reduction in this round trip.
    pub const REDUCED: u8 = 2;
    /// The WAN counts as congested.
    pub const WAN: u8 = 4;

    /// `bit`, if so.
    pub fn flag(is_so: bool, bit: u8) -> u8 {
        if is_so { bit } else { 0 }
    }
}

/// What people see of a flow.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Shown {
    /// Average of the marked part, as a fraction of 2^30.
    pub marked_fraction: u32,
    /// Bytes acknowledged in the present period.
    pub acked_bytes: u32,
    /// Of those, bytes marked.
    pub marked_bytes: u32,
    /// Base RTT; 0 = no sample.
    pub base_rtt_us: u32,
    /// Periods that have ended, modulo 256.
    pub periods: u8,
    /// How often Quick Adapt acted, modulo 256.
    pub quick_adapts: u8,
    /// Of [`shown`].
    pub flags: u8,
}

/// Who is told what an algorithm does.
pub trait Watch<E> {
    /// Something happened. Who does not want to know has nothing of it computed.
    fn see(&mut self, event: impl FnOnce() -> E);
}

/// Nobody.
pub struct Unwatched;

impl<E> Watch<E> for Unwatched {
    #[inline(always)]
    fn see(&mut self, _event: impl FnOnce() -> E) {}
}

/// One flow under the control of an algorithm. All zeroes is "not started", and then every method
/// does nothing.
pub trait Controller: Copy + Send {
    /// What it tells a [`Watch`].
    type Event;

    /// A flow that is established, with an initial window and the handshake's RTT, if known.
    fn new(params: &impl Values, now_us: u64, cwnd_bytes: u64, rtt_us: Option<u32>) -> Self;

    /// Nothing was sent yet, and no SYN was lost: the flow may choose its first window.
    fn open(&mut self, _params: &impl Values) {}

    /// The window.
    fn window(&self) -> &Window;

    /// The window, to be changed.
    fn window_mut(&mut self) -> &mut Window;

    /// The algorithm's rules for one ACK, recovery aside.
    fn adjust(&mut self, params: &impl Values, ack: &Ack, watch: &mut impl Watch<Self::Event>);

    /// What the sender is to do now, with that smoothed RTT (0 = none).
    fn output(&self, params: &impl Values, srtt_us: u32) -> Output;

    /// The window that a loss leaves, in 2^-16 bytes: at least the floor, at most the present one.
    fn loss_window_scaled(&self, params: &impl Values, mss_bytes: u32) -> u64;

    /// Whether this round trip has had its reduction.
    fn was_reduced(&self) -> bool;

    /// The reduction of this round trip is made.
    fn reduced_at(&mut self, now_us: u64);

    /// Sending begins with nothing in flight.
    fn on_idle_restart(&mut self, _now_us: u64) {}

    /// For people.
    fn shown(&self) -> Shown;

    /// An ACK arrived. `None` where the flow was never started.
    // Once per ACK and called from one place: inlined, a parameter is a load where it is used.
    #[inline(always)]
    fn on_ack(&mut self, params: &impl Values, ack: &Ack) -> Option<Output> {
        self.on_ack_watched(params, ack, &mut Unwatched)
    }

    /// [`on_ack`](Self::on_ack), which somebody looks at.
    #[inline(always)]
    fn on_ack_watched(
        &mut self,
        params: &impl Values,
        ack: &Ack,
        watch: &mut impl Watch<Self::Event>,
    ) -> Option<Output> {
        if !self.window().is_started() {
            return None;
        }
        self.adjust(params, ack, watch);
        let mut output = self.output(params, ack.srtt_us);
        if ack.in_recovery {
            output.cwnd_bytes = self.window().recovery_bytes(ack);
        }
        Some(output)
    }

    /// The window that a loss leaves.
    fn loss_window_bytes(&self, params: &impl Values, mss_bytes: u32) -> u64 {
        self.loss_window_scaled(params, mss_bytes) >> BYTE_BITS
    }

    /// A loss was detected. The second reduction in a round trip changes nothing.
    fn on_loss(&mut self, params: &impl Values, now_us: u64, mss_bytes: u32) {
        if !self.window().is_started() || self.was_reduced() {
            return;
        }
        let left_scaled = self.loss_window_scaled(params, mss_bytes);
        self.window_mut().lower_to_scaled(left_scaled);
        self.reduced_at(now_us);
    }

    /// The retransmission timer fired: what was in flight is lost, and slow start from what still
    /// is leads to the window that a loss leaves.
    fn on_timeout(
        &mut self,
        params: &impl Values,
        now_us: u64,
        in_flight_bytes: u64,
        mss_bytes: u32,
    ) {
        if !self.window().is_started() {
            return;
        }
        self.on_loss(params, now_us, mss_bytes);
        self.window_mut()
            .restart(in_flight_bytes.saturating_add(u64::from(mss_bytes)));
    }

    /// The last loss was spurious, and the window before it was `prior_bytes`.
    fn undo(&mut self, prior_bytes: u64) {
        if self.window().is_started() {
            self.window_mut().undo(prior_bytes);
        }
    }

    /// The window, in bytes; 0 = not started.
    fn cwnd_bytes(&self) -> u64 {
        self.window().bytes()
    }
}
