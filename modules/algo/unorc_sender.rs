// SPDX-License-Identifier: GPL-2.0

//! UnoRC's sender: blocks of up to x data packets, with as many parities as its credit pays.
//!
//! Source: Bonato et al., "Uno", SC 2025, sections 4.2 and 5. The sender keeps no packet and retransmits none: TCP
//! repairs losses that parities cannot. It remembers path and time of each packet, so that the chooser can learn
//! from the receiver's feedback. docs/unorc.md has the rules.

use super::{
    gf256::{self, LENGTH_BYTES, MAX_PARITY},
    parity_credit::Credit,
    paths::{Event, Paths},
    resequence::FEEDBACK_US,
    rtt::BaseRtt,
    unorc::{Cause, Config, Context, Count, Ecn, Happened, Io, Packet, is_before},
    unorc_wire::{FIRST_PARITY, Feedback, Header, Kind, Report},
};

/// Window of the minimum RTT.
const RTT_WINDOW_MS: u32 = 10_000;
/// Window of the minimum smoothed RTT, the base for a long queue: longer than queues stay full.
const BASE_WINDOW_MS: u32 = 600_000;
/// Rule K3: delay above 5/4 of the base plus this time indicates a queue.
const QUEUE_US: u32 = 100;
/// Silence limit before the first RTT sample.
const UNKNOWN_SILENCE_US: u32 = 200_000;
/// Multiples of `flush` that a block waits for the credit for all its parities.
const LATE_FLUSHES: u64 = 10;
/// Shorter packets do not repay the cost of saving vector registers.
const WORTH_VECTORS_BYTES: usize = 512;

/// Record of a sent data packet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sent {
    /// Lower bits of the departure time.
    sent_us: u32,
    ev: u16,
    /// Lower bits of the block number.
    block: u16,
}

/// Sender of a channel. All zeroes is a sender without a session.
pub struct Sender<P> {
    /// The chooser.
    pub paths: Paths,
    credit: Credit,
    /// The open block, or the next one.
    block: u32,
    /// Data packets in the open block; 0 = none is open.
    open: u8,
    /// Data packets of the previous block.
    before: u8,
    open_us: u64,
    /// Nonzero bytes of the parities.
    used: usize,
    parities: [Option<P>; MAX_PARITY],
    ecn: Ecn,
    /// Smoothed RTT of this session; 0 = none.
    srtt_us: u32,
    /// Minimum of the smoothed RTT.
    base: BaseRtt,
    /// Start of silence; 0 = no feedback is due.
    unheard_us: u64,
}

impl<P> Default for Sender<P> {
    fn default() -> Self {
        Self {
            paths: Paths::default(),
            credit: Credit::default(),
            block: 0,
            open: 0,
            before: 0,
            open_us: 0,
            used: 0,
            parities: [None, None, None],
            ecn: Ecn::Not,
            srtt_us: 0,
            base: BaseRtt::default(),
            unheard_us: 0,
        }
    }
}

/// Returns the index of a data packet's record, below [`Config::sent_slots`].
fn place(config: &Config, block: u32, index: u8) -> usize {
    let in_ring = block as usize & config.blocks().saturating_sub(1);
    let first = in_ring.saturating_mul(config.x.into());
    first.saturating_add(index.into())
}

impl<P: Packet> Sender<P> {
    /// Begins a session: resets the sender, and numbers blocks from `first`.
    pub fn begin(&mut self, config: &Config, first: u32) {
        let mut paths = core::mem::take(&mut self.paths);
        paths.begin(config.paths, config.freeze);
        *self = Self {
            paths,
            credit: Credit::new(config.x, config.y),
            block: first,
            ..Self::default()
        };
    }

    /// Returns the smoothed RTT; 0 = no sample in this session.
    #[cfg(test)]
    pub fn srtt_us(&self) -> u32 {
        self.srtt_us
    }

    /// Returns the share of parities that is earned, in percent.
    #[cfg(test)]
    pub fn parity_percent(&self) -> u32 {
        self.credit.percent()
    }

    /// Sends a data packet.
    pub fn push<I: Io<Packet = P>>(
        &mut self,
        cx: &mut Context<'_, I>,
        sent: &mut [Sent],
        packet: P,
        ecn: Ecn,
    ) {
        self.notice_silence(cx, sent);
        if self.open == 0 {
            self.open(cx);
        }
        let index = self.open;
        self.open = index.saturating_add(1);
        self.credit.earn(cx.now_us, self.rtt_us(cx), cx.config.y);
        self.absorb(cx, packet.bytes());
        if ecn == Ecn::Not {
            self.ecn = Ecn::Not;
        }
        let ev = self.paths.next(&cx.time(), cx.rng);
        if let Some(slot) = sent.get_mut(place(cx.config, self.block, index)) {
            *slot = Sent {
                sent_us: cx.now_us as u32,
                ev,
                block: self.block as u16,
            };
        }
        let header = Header {
            block: self.block,
            index,
            k: self.before,
            ev,
            ..cx.header(Kind::Data)
        };
        cx.io.count(Count::TxData, 1);
        cx.io.send(&header, packet, ecn);
        if self.unheard_us == 0 {
            self.unheard_us = cx.now_us;
        }
        let is_full = self.open >= cx.config.x;
        if is_full || self.closes_us(cx).is_some_and(|us| us <= cx.now_us) {
            self.close(cx);
        }
    }

    /// Sends a packet without order and code. Rule B2.
    pub fn raw<I: Io<Packet = P>>(&mut self, cx: &mut Context<'_, I>, packet: P, ecn: Ecn) {
        let header = Header {
            ev: self.paths.next(&cx.time(), cx.rng),
            ..cx.header(Kind::Raw)
        };
        cx.io.count(Count::TxRaw, 1);
        cx.io.send(&header, packet, ecn);
    }

    fn rtt_us(&self, cx: &Context<'_, impl Io>) -> u32 {
        match self.srtt_us {
            0 => cx.min_rtt_us(),
            srtt_us => srtt_us,
        }
    }

    fn open<I: Io<Packet = P>>(&mut self, cx: &mut Context<'_, I>) {
        let Config { x, y, mtu, .. } = *cx.config;
        // At most the parities that a full block can pay.
        let rows = self.credit.would_afford(x, y, x).min(y.into()) as usize;
        let len = usize::from(mtu).saturating_add(LENGTH_BYTES);
        for parity in self.parities.iter_mut().take(rows) {
            *parity = cx.io.make(len);
        }
        self.open_us = cx.now_us;
        self.used = 0;
        self.ecn = Ecn::Capable;
    }

    /// Rule B4: adds the packet to each parity.
    fn absorb<I: Io<Packet = P>>(&mut self, cx: &mut Context<'_, I>, bytes: &[u8]) {
        let vector = bytes.len().saturating_add(LENGTH_BYTES);
        let used = self.used;
        self.used = used.max(vector);
        let has_parities = self.parities.iter().any(Option::is_some);
        let mut registers = match has_parities && self.used >= WORTH_VECTORS_BYTES {
            true => cx.io.vectors(),
            false => None,
        };
        let mut done = 0;
        if let [Some(p), Some(q), ..] = self.parities.as_mut_slice() {
            let (p, q) = (p.bytes_mut(), q.bytes_mut());
            if gf256::absorb_pair(registers.as_mut(), p, q, used, bytes) {
                done = 2;
            }
        }
        for (r, parity) in self.parities.iter_mut().enumerate().skip(done) {
            let Some(row) = parity.as_mut().map(P::bytes_mut) else {
                continue;
            };
            if !gf256::absorb(registers.as_mut(), row, r, used, bytes) {
                // Under PREEMPT_RT freeing may sleep, which is forbidden with vector registers. Words do the
                // rest.
                registers = None;
                *parity = None;
            }
        }
    }

    /// Returns when an incomplete block closes: soon if it can pay all parities, later if it can pay one.
    /// Rule B5.
    fn closes_us(&self, cx: &Context<'_, impl Io>) -> Option<u64> {
        let Config { x, y, flush_us, .. } = *cx.config;
        let flushes = match self.credit.affords(x) {
            _ if self.open == 0 || y == 0 => return None,
            0 => return None,
            affords if affords >= y.into() => 1,
            _ => LATE_FLUSHES,
        };
        let after_us = u64::from(flush_us).saturating_mul(flushes);
        Some(self.open_us.saturating_add(after_us))
    }

    /// Closes the block and sends the parities that it can pay.
    fn close<I: Io<Packet = P>>(&mut self, cx: &mut Context<'_, I>) {
        let k = core::mem::take(&mut self.open);
        let mut left = self.credit.affords(cx.config.x);
        for r in 0..MAX_PARITY {
            let Some(mut parity) = self.parities.get_mut(r).and_then(Option::take) else {
                continue;
            };
            if left == 0 {
                continue;
            }
            left = left.saturating_sub(1);
            self.credit.spend(cx.config.x, 1);
            parity.cut(0, self.used);
            let header = Header {
                block: self.block,
                index: FIRST_PARITY.saturating_add(r as u8),
                k,
                ev: self.paths.next(&cx.time(), cx.rng),
                ..cx.header(Kind::Parity)
            };
            cx.io.count(Count::TxParity, 1);
            cx.io.send(&header, parity, self.ecn);
        }
        self.before = k;
        self.block = self.block.wrapping_add(1);
    }

    /// Closes a due block. Returns the time of the next call; 0 = none.
    pub fn poll<I: Io<Packet = P>>(&mut self, cx: &mut Context<'_, I>) -> u64 {
        match self.closes_us(cx) {
            Some(us) if us <= cx.now_us => {
                self.close(cx);
                0
            }
            Some(us) => us,
            None => 0,
        }
    }

    /// Rule F3: after silence, the paths in use count as dead. Checked before sending, because an idle sender
    /// needs no path.
    fn notice_silence<I: Io<Packet = P>>(&mut self, cx: &mut Context<'_, I>, sent: &[Sent]) {
        let rtt_us = match self.srtt_us {
            0 => UNKNOWN_SILENCE_US,
            srtt_us => srtt_us,
        };
        let silence_us = rtt_us
            .saturating_add(cx.config.longest_us())
            .saturating_add(cx.config.flush_us)
            .saturating_add(FEEDBACK_US);
        let silent_us = cx.now_us.saturating_sub(self.unheard_us);
        if self.unheard_us == 0 || silent_us <= silence_us.into() {
            return;
        }
        self.unheard_us = cx.now_us;
        let (block, k) = match self.open {
            0 => (self.block.wrapping_sub(1), self.before),
            open => (self.block, open),
        };
        for index in 0..k {
            if let Some(slot) = find(cx.config, sent, block, index) {
                self.tell(cx, Event::Timeout(slot.ev));
            }
        }
    }

    /// Handles feedback; `newest`: block and index of the receiver's newest packet with a code.
    pub fn feedback<I: Io<Packet = P>>(
        &mut self,
        cx: &mut Context<'_, I>,
        sent: &[Sent],
        newest: Option<(u32, u8)>,
        feedback: &Feedback,
    ) {
        if newest.is_some_and(|(block, _)| is_before(self.block, block)) {
            // Feedback on a packet that was never sent.
            cx.io.count(Count::Malformed, 1);
            return;
        }
        let slot = newest.and_then(|(block, index)| find(cx.config, sent, block, index));
        if let Some(slot) = slot {
            let took_us = (cx.now_us as u32).wrapping_sub(slot.sent_us);
            self.measure(cx, took_us.saturating_sub(feedback.age_us).max(1));
        }
        let base_us = self.base.get().unwrap_or(self.srtt_us);
        let queue_us = self.srtt_us.saturating_sub(base_us);
        let is_long = queue_us > (base_us >> 2).saturating_add(QUEUE_US);
        let rtt_us = self.rtt_us(cx);
        let marked = feedback
            .echoes()
            .filter(|(_, is_marked)| *is_marked)
            .count() as u8;
        let heard = feedback.echo_count;
        self.credit.hear(cx.now_us, rtt_us, heard, marked, is_long);
        let last = match self.open {
            0 => (self.block.wrapping_sub(1), self.before),
            open => (self.block, open),
        };
        if let Some((block, index)) = newest {
            // After a block's last packet, only its parities may follow.
            self.unheard_us = match block == last.0 && index.saturating_add(1) >= last.1 {
                true => 0,
                false => cx.now_us,
            };
        }
        for &(ev, is_marked) in feedback.echoes() {
            self.tell(
                cx,
                match is_marked {
                    true => Event::Marked(ev),
                    false => Event::Good(ev),
                },
            );
        }
        if feedback.is_full() {
            self.tell(cx, Event::Unheard);
        }
        for report in feedback.reports() {
            self.report(cx, sent, report);
        }
    }

    fn measure<I: Io<Packet = P>>(&mut self, cx: &mut Context<'_, I>, rtt_us: u32) {
        cx.rtt.update(cx.now_us, rtt_us, RTT_WINDOW_MS);
        self.srtt_us = match self.srtt_us {
            0 => rtt_us,
            srtt_us => srtt_us
                .saturating_sub(srtt_us >> 3)
                .saturating_add(rtt_us >> 3),
        };
        self.base.update(cx.now_us, self.srtt_us, BASE_WINDOW_MS);
    }

    /// Rule F2: reports each lost packet to the chooser.
    fn report<I: Io<Packet = P>>(
        &mut self,
        cx: &mut Context<'_, I>,
        sent: &[Sent],
        report: &Report,
    ) {
        if !report.is_decoded {
            cx.io.count(Count::NackReceived, 1);
            cx.trace(&Happened::Nack {
                block: report.block,
                lost: report.lost,
                is_sent: false,
            });
        }
        for index in 0..cx.config.x {
            let is_lost = report.lost >> index & 1 != 0;
            let slot = find(cx.config, sent, report.block, index).filter(|_| is_lost);
            if let Some(slot) = slot {
                self.tell(
                    cx,
                    Event::Lost {
                        ev: slot.ev,
                        is_nack: !report.is_decoded,
                    },
                );
            }
        }
    }

    /// Passes an event to the chooser and counts its reaction.
    fn tell<I: Io<Packet = P>>(&mut self, cx: &mut Context<'_, I>, event: Event) {
        let (reroutes, freezes) = (self.paths.reroutes(), self.paths.freezes());
        self.paths.event(&cx.time(), cx.rng, event);
        let (ev, cause) = match event {
            Event::Good(ev) | Event::Marked(ev) => (ev, Cause::Mark),
            Event::Lost { ev, is_nack: false } => (ev, Cause::Loss),
            Event::Lost { ev, is_nack: true } => (ev, Cause::Nack),
            Event::Timeout(ev) => (ev, Cause::Timeout),
            Event::Unheard => (0, Cause::Timeout),
        };
        let paths = self.paths.reroutes().wrapping_sub(reroutes);
        if paths != 0 {
            cx.io.count(Count::Reroute, paths);
            cx.trace(&Happened::Reroute {
                ev,
                paths: paths as u32,
                cause,
            });
        }
        if self.paths.freezes() != freezes {
            cx.io.count(Count::Freeze, 1);
            cx.trace(&Happened::Freeze {
                ev,
                until_us: self.paths.frozen_until_us().unwrap_or(0),
                cause,
            });
        }
    }
}

/// Returns the record of a data packet. Block numbers repeat after 65,536 blocks; a wrong record is harmless.
fn find(config: &Config, sent: &[Sent], block: u32, index: u8) -> Option<Sent> {
    let slot = sent.get(place(config, block, index)).copied();
    slot.filter(|slot| slot.block == block as u16 && slot.sent_us != 0 && index < config.x)
}

#[cfg(test)]
#[path = "tests/unorc_sender.rs"]
mod tests;
