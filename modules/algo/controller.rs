// SPDX-License-Identifier: GPL-2.0

//! What every algorithm here has in common: a window that ACKs move, and one reduction in a round
//! trip, however many losses there are in it.

use super::fixed::BYTE_BITS;
use super::params::Values;
use super::window::Window;
use super::{Ack, Output};

/// Bits of [`Published::flags`].
pub mod published {
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

/// Yes or no, as a flow keeps it. Any byte is a value of this, as it is not of a `bool`: where a flow
/// should be there may be what another algorithm has left, since the kernel does not always clear the
/// area of a socket whose algorithm it replaces.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Flag(u8);

impl Flag {
    /// Yes.
    pub const SET: Flag = Flag(1);
    /// No.
    pub const CLEAR: Flag = Flag(0);

    /// Whether it is yes.
    #[inline(always)]
    pub fn is_set(self) -> bool {
        self != Flag::CLEAR
    }
}

#[cfg(test)]
impl Flag {
    /// The value of that byte.
    pub fn of_byte(byte: u8) -> Self {
        Flag(byte)
    }
}

impl From<bool> for Flag {
    #[inline(always)]
    fn from(is_so: bool) -> Self {
        Flag(u8::from(is_so))
    }
}

/// What people see of a flow.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Published {
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
    /// Of [`published`].
    pub flags: u8,
}

/// An observer of what an algorithm does.
pub trait Watch<E> {
    /// Something happened. An observer that ignores it never computes the event.
    fn observe(&mut self, event: impl FnOnce() -> E);
}

/// The observer that ignores everything.
pub struct Unwatched;

impl<E> Watch<E> for Unwatched {
    #[inline(always)]
    fn observe(&mut self, _event: impl FnOnce() -> E) {}
}

/// One flow under the control of an algorithm. All zeroes is "not started", and then every method
/// does nothing. It is made of integers only, so that any bytes are a flow; see [`Flag`].
pub trait Controller: Copy + Send {
    /// What a [`Watch`] of it observes.
    type Event;

    /// A flow that is established, with an initial window and the handshake's RTT, if known.
    fn new(params: &impl Values, now_us: u64, cwnd_bytes: u64, rtt_us: Option<u32>) -> Self;

    /// Nothing was sent yet, and no SYN was lost: the flow may choose its first window.
    fn open(&mut self, _params: &impl Values) {}

    /// The flow was another algorithm's, and goes on with its window and the end of its slow start
    /// (`u64::MAX` = none).
    fn resume(&mut self, cwnd_bytes: u64, ssthresh_bytes: u64) {
        self.window_mut().resume(cwnd_bytes, ssthresh_bytes);
    }

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

    /// What people see of it.
    fn published(&self) -> Published;

    /// An ACK arrived. `None` where the flow was never started.
    // Once per ACK and called from one place: inlined, a parameter is a load where it is used.
    #[inline(always)]
    fn on_ack(&mut self, params: &impl Values, ack: &Ack) -> Option<Output> {
        self.on_ack_watched(params, ack, &mut Unwatched)
    }

    /// [`on_ack`](Self::on_ack), observed.
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
        self.on_loss(params, now_us, mss_bytes);
        self.restart(in_flight_bytes, mss_bytes);
    }

    /// What a timeout does besides the reduction.
    fn restart(&mut self, in_flight_bytes: u64, mss_bytes: u32) {
        if self.window().is_started() {
            self.window_mut()
                .restart(in_flight_bytes.saturating_add(u64::from(mss_bytes)));
        }
    }

    /// The last loss was spurious. The window before it was `prior_bytes`, and slow start would have
    /// ended at `ssthresh_bytes`; `u64::MAX` = nowhere.
    fn undo(&mut self, prior_bytes: u64, ssthresh_bytes: u64) {
        if self.window().is_started() {
            self.window_mut().undo(prior_bytes, ssthresh_bytes);
        }
    }

    /// The window, in bytes; 0 = not started.
    fn cwnd_bytes(&self) -> u64 {
        self.window().bytes()
    }
}
