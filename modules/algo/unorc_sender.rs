// SPDX-License-Identifier: GPL-2.0

//! UnoRC's sender: blocks of up to x data packets, with as many parities as its credit pays.
//!
//! Source: Bonato et al., "Uno", SC 2025, sections 4.2 and 5. The sender keeps no packet and retransmits none: TCP
//! repairs losses that parities cannot. It remembers path and time of each packet, so that the chooser can learn
//! from the receiver's feedback. docs/unorc.md has the rules.

use super::{
    gf256::{self, LENGTH_BYTES, MAX_PARITY},
    parity_credit::Credit,
    paths::{Fate, Paths},
    resequence::FEEDBACK_US,
    rtt::BaseRtt,
    unorc::{Config, Context, Count, Happened, Io, Packet, is_before},
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
#[derive(Default)]
pub struct Sender {
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
    /// All packets of the open block are ECN capable.
    is_capable: bool,
    /// Smoothed RTT of this session; 0 = none.
    srtt_us: u32,
    /// Minimum of the smoothed RTT.
    base: BaseRtt,
    /// Start of silence; 0 = no feedback is due.
    unheard_us: u64,
}

impl Sender {
    /// Begins a session: resets the sender, and numbers blocks from `first`.
    pub fn begin<I: Io>(&mut self, cx: &mut Context<'_, I>, first: u32) {
        cx.lent.parities.fill_with(|| None);
        *self = Self {
            paths: Paths::new(cx.config.paths, cx.config.freeze),
            credit: Credit::new(cx.config.x, cx.config.y),
            block: first,
            ..Self::default()
        };
    }

    /// Sends a data packet.
    pub fn push<I: Io>(&mut self, cx: &mut Context<'_, I>, packet: I::Packet, is_capable: bool) {
        self.notice_silence(cx);
        if self.open == 0 {
            self.open(cx);
        }
        let index = self.open;
        self.open = index.saturating_add(1);
        let rtt_us = self.srtt_us_or(cx.min_rtt_us());
        self.credit.earn(cx.now_us, rtt_us, cx.config.y);
        self.absorb(cx, packet.bytes());
        self.is_capable &= is_capable;
        let ev = self.paths.next(cx.now_us, cx.rng);
        if let Some(slot) = cx.lent.sent(cx.config, self.block, index) {
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
        cx.io.send(&header, packet, is_capable);
        if self.unheard_us == 0 {
            self.unheard_us = cx.now_us;
        }
        if self.open >= cx.config.x {
            self.close(cx);
        }
    }

    /// Sends a packet without order and code. Rule B2.
    pub fn raw<I: Io>(&mut self, cx: &mut Context<'_, I>, packet: I::Packet, is_capable: bool) {
        let header = Header {
            ev: self.paths.next(cx.now_us, cx.rng),
            ..cx.header(Kind::Raw)
        };
        cx.io.count(Count::TxRaw, 1);
        cx.io.send(&header, packet, is_capable);
    }

    /// Returns the newest block with data packets, and their number.
    fn last(&self) -> (u32, u8) {
        match self.open {
            0 => (self.block.wrapping_sub(1), self.before),
            open => (self.block, open),
        }
    }

    fn srtt_us_or(&self, unknown_us: u32) -> u32 {
        match self.srtt_us {
            0 => unknown_us,
            srtt_us => srtt_us,
        }
    }

    fn open<I: Io>(&mut self, cx: &mut Context<'_, I>) {
        let Config { x, y, mtu, .. } = *cx.config;
        // At most the parities that a full block can pay.
        let rows = self.credit.would_afford(x, y).min(y.into()) as usize;
        let len = usize::from(mtu).saturating_add(LENGTH_BYTES);
        for parity in cx.lent.parities.iter_mut().take(rows) {
            *parity = cx.io.make(len);
        }
        self.open_us = cx.now_us;
        self.used = 0;
        self.is_capable = true;
    }

    /// Rule B4: adds the packet to each parity.
    fn absorb<I: Io>(&mut self, cx: &mut Context<'_, I>, bytes: &[u8]) {
        let used = self.used;
        self.used = used.max(bytes.len().saturating_add(LENGTH_BYTES));
        let has_parities = cx.lent.parities.iter().any(Option::is_some);
        let mut registers = match has_parities && self.used >= WORTH_VECTORS_BYTES {
            true => cx.io.vectors(),
            false => None,
        };
        let mut done = 0;
        if let [Some(p), Some(q), ..] = cx.lent.parities.as_mut_slice() {
            let (p, q) = (p.bytes_mut(), q.bytes_mut());
            if gf256::absorb_pair(registers.as_mut(), p, q, used, bytes) {
                done = 2;
            }
        }
        for (r, parity) in cx.lent.parities.iter_mut().enumerate().skip(done) {
            let Some(row) = parity.as_mut().map(I::Packet::bytes_mut) else {
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

    /// Closes the block and sends the parities that it can pay.
    fn close<I: Io>(&mut self, cx: &mut Context<'_, I>) {
        let (k, x) = (core::mem::take(&mut self.open), cx.config.x);
        for r in 0..MAX_PARITY {
            let parity = cx.lent.parities.get_mut(r).and_then(Option::take);
            let Some(mut parity) = parity.filter(|_| self.credit.affords(x) > 0) else {
                continue;
            };
            self.credit.spend(x);
            parity.cut(0, self.used);
            let header = Header {
                block: self.block,
                index: FIRST_PARITY.saturating_add(r as u8),
                k,
                ev: self.paths.next(cx.now_us, cx.rng),
                ..cx.header(Kind::Parity)
            };
            cx.io.count(Count::TxParity, 1);
            cx.io.send(&header, parity, self.is_capable);
        }
        self.before = k;
        self.block = self.block.wrapping_add(1);
    }

    /// Rule B5: closes an incomplete block, soon if it can pay all parities, later if it can pay one. Returns
    /// the time of the next call; 0 = none.
    pub fn poll<I: Io>(&mut self, cx: &mut Context<'_, I>) -> u64 {
        let Config { x, y, flush_us, .. } = *cx.config;
        let flushes = match self.credit.affords(x) {
            _ if self.open == 0 || y == 0 => return 0,
            0 => return 0,
            affords if affords >= y.into() => 1,
            _ => LATE_FLUSHES,
        };
        let after_us = u64::from(flush_us).saturating_mul(flushes);
        let due_us = self.open_us.saturating_add(after_us);
        if due_us > cx.now_us {
            return due_us;
        }
        self.close(cx);
        0
    }

    /// Rule F3: after silence, the paths in use count as dead. Checked before sending, because an idle sender
    /// needs no path.
    fn notice_silence<I: Io>(&mut self, cx: &mut Context<'_, I>) {
        let rtt_us = self.srtt_us_or(UNKNOWN_SILENCE_US);
        let silence_us = rtt_us
            .saturating_add(cx.config.longest_us())
            .saturating_add(cx.config.flush_us)
            .saturating_add(FEEDBACK_US);
        let silent_us = cx.now_us.saturating_sub(self.unheard_us);
        if self.unheard_us == 0 || silent_us <= silence_us.into() {
            return;
        }
        self.unheard_us = cx.now_us;
        let (block, k) = self.last();
        for index in 0..k {
            if let Some(slot) = find(cx, block, index) {
                self.tell(cx, slot.ev, Fate::Timeout);
            }
        }
    }

    /// Handles feedback; `newest`: block and index of the receiver's newest packet with a code.
    pub fn feedback<I: Io>(
        &mut self,
        cx: &mut Context<'_, I>,
        newest: Option<(u32, u8)>,
        feedback: &Feedback,
    ) {
        if newest.is_some_and(|(block, _)| is_before(self.block, block)) {
            // Feedback on a packet that was never sent.
            return cx.io.count(Count::Malformed, 1);
        }
        if let Some((block, index)) = newest {
            if let Some(slot) = find(cx, block, index) {
                let took_us = (cx.now_us as u32).wrapping_sub(slot.sent_us);
                self.measure(cx, took_us.saturating_sub(feedback.age_us).max(1));
            }
            // After a block's last packet, only its parities may follow.
            let (last, k) = self.last();
            self.unheard_us = match block == last && index.saturating_add(1) >= k {
                true => 0,
                false => cx.now_us,
            };
        }
        let base_us = self.base.get().unwrap_or(self.srtt_us);
        let queue_us = self.srtt_us.saturating_sub(base_us);
        let is_long = queue_us > (base_us >> 2).saturating_add(QUEUE_US);
        let echoes = feedback.echoes.iter().flatten();
        let heard = echoes.clone().count() as u8;
        let marked = echoes.clone().filter(|(_, is_marked)| *is_marked).count() as u8;
        let rtt_us = self.srtt_us_or(cx.min_rtt_us());
        self.credit.hear(cx.now_us, rtt_us, heard, marked, is_long);
        for &(ev, is_marked) in echoes {
            let fate = if is_marked { Fate::Marked } else { Fate::Good };
            self.tell(cx, ev, fate);
        }
        if feedback.is_full() {
            self.tell(cx, 0, Fate::Unheard);
        }
        for report in feedback.reports.iter().flatten() {
            self.report(cx, report);
        }
    }

    fn measure<I: Io>(&mut self, cx: &mut Context<'_, I>, rtt_us: u32) {
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
    fn report<I: Io>(&mut self, cx: &mut Context<'_, I>, report: &Report) {
        let Report { block, lost, .. } = *report;
        let mut fate = Fate::Lost;
        if !report.is_decoded {
            fate = Fate::Nack;
            cx.io.count(Count::NackReceived, 1);
            cx.trace(&Happened::Nack {
                block,
                lost,
                is_sent: false,
            });
        }
        for index in (0..cx.config.x).filter(|index| lost >> index & 1 != 0) {
            if let Some(slot) = find(cx, block, index) {
                self.tell(cx, slot.ev, fate);
            }
        }
    }

    /// Passes feedback to the chooser and counts its reaction.
    fn tell<I: Io>(&mut self, cx: &mut Context<'_, I>, ev: u16, cause: Fate) {
        let was_frozen = self.paths.thaw_us() != 0;
        let paths = self.paths.event(&cx.time(), cx.rng, ev, cause);
        if paths != 0 {
            cx.io.count(Count::Reroute, paths.into());
            cx.trace(&Happened::Reroute { ev, paths, cause });
        }
        let thaw_us = self.paths.thaw_us();
        if thaw_us != 0 && !was_frozen {
            cx.io.count(Count::Freeze, 1);
            cx.trace(&Happened::Freeze { ev, thaw_us, cause });
        }
    }
}

/// Returns the record of a data packet. Block numbers repeat after 65,536 blocks; a wrong record is harmless.
fn find<I: Io>(cx: &mut Context<'_, I>, block: u32, index: u8) -> Option<Sent> {
    let slot = cx.lent.sent(cx.config, block, index).copied();
    slot.filter(|slot| slot.block == block as u16 && slot.sent_us != 0 && index < cx.config.x)
}

#[cfg(test)]
#[path = "tests/unorc_sender.rs"]
mod tests;
