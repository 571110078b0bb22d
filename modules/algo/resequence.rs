// SPDX-License-Identifier: GPL-2.0

//! UnoRC's receiver: the order of a channel's packets, what is lost is decoded, and the sender is told.
//!
//! Source: Bonato et al., "Uno", SC 2025, section 4.2. docs/unorc.md has the rules. What is in order goes
//! up at once; a copy stays until its block can be read, for the rest may have to be decoded from it.

use super::{
    gf256::{self, LENGTH_BYTES, MAX_DATA, MAX_PARITY, Solution},
    unorc::{
        Config, Context, Count, Ecn, FIRST_PARITY, Feedback, Happened, Header, Io, Kind,
        MAX_REPORTS, Packet, Report, earlier, is_before,
    },
};

/// Feedback is sent after so many packets...
const FEEDBACK_PACKETS: u8 = 4;
/// ...or this time.
pub const FEEDBACK_US: u32 = 20;
/// Times that a block is reported while nothing comes of it: what is sent again can be lost, too.
const MAX_NACKS: u8 = 3;
/// The longest time that is taken for an RTT; anything longer was an outage.
const MAX_AGAIN_US: u64 = 1_000_000;
/// In how many feedbacks a report is.
const REPEATS: u8 = 3;
/// Bytes that a channel holds at most.
pub const MAX_HELD_BYTES: usize = 8 << 20;
const DATA_BITS: u32 = (1 << MAX_DATA) - 1;

/// A packet that came.
#[derive(Debug)]
pub struct Held<P> {
    packet: Option<P>,
    is_marked: bool,
    /// It went up; the packet is a copy.
    is_up: bool,
}

impl<P> Default for Held<P> {
    fn default() -> Self {
        Self {
            packet: None,
            is_marked: false,
            is_up: false,
        }
    }
}

/// A block of which something came, or of a later one.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeldBlock {
    /// Data packets; 0 = not known.
    k: u8,
    is_done: bool,
    /// What came, by index.
    have: u32,
    /// When it will be reported; 0: it was.
    deadline_us: u64,
    nacked_us: u64,
    nacks: u8,
}

/// The memory of a channel's receiver.
pub struct Lent<'a, P> {
    /// [`Config::held_slots`].
    pub slots: &'a mut [Held<P>],
    /// [`Config::blocks`].
    pub blocks: &'a mut [HeldBlock],
}

impl<P> Lent<'_, P> {
    fn at(&self, id: u32) -> usize {
        id as usize & self.blocks.len().saturating_sub(1)
    }

    fn block(&mut self, id: u32) -> Option<&mut HeldBlock> {
        let at = self.at(id);
        self.blocks.get_mut(at)
    }

    /// Its packets: x of data and then y parities.
    fn packets(&mut self, config: &Config, id: u32) -> &mut [Held<P>] {
        let in_block = usize::from(config.x).saturating_add(config.y.into());
        let start = self.at(id).saturating_mul(in_block);
        let end = start.saturating_add(in_block);
        self.slots.get_mut(start..end).unwrap_or_default()
    }
}

/// A channel's receiver. All zeroes is one that has not begun.
#[derive(Debug, Default)]
pub struct Receiver {
    /// The first block that did not go up, and the packet of it.
    next: u32,
    next_index: u8,
    /// Behind the last block that is known of.
    end: u32,
    held_bytes: usize,
    /// When to look at deadlines.
    deadline_us: u64,
    /// When to send feedback.
    feedback_us: u64,
    unreported: u8,
    is_urgent: bool,
    feedback: Feedback,
    /// In how many more feedbacks each report is.
    repeats: [u8; MAX_REPORTS],
    newest_us: u64,
    /// Time from a NACK to what it asked for: a maximum that decays by an eighth with each copy that was asked for once.
    /// 0: not known.
    again_us: u32,
}

impl Receiver {
    /// A session begins, with block `first`.
    pub fn begin<P>(&mut self, lent: &mut Lent<'_, P>, first: u32) {
        for slot in lent.slots.iter_mut() {
            *slot = Held::default();
        }
        for block in lent.blocks.iter_mut() {
            *block = HeldBlock::default();
        }
        *self = Self {
            next: first,
            end: first,
            ..Self::default()
        };
    }

    /// Blocks of which something came and not all went up.
    pub fn blocks_under_way(&self) -> u32 {
        self.end.wrapping_sub(self.next)
    }

    /// Bytes of the packets that are kept.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// A data or parity packet came.
    pub fn receive<I: Io>(
        &mut self,
        cx: &mut Context<'_, I>,
        lent: &mut Lent<'_, I::Packet>,
        header: &Header,
        packet: I::Packet,
        is_marked: bool,
    ) {
        let x = cx.config.x;
        let slot = match header.kind {
            Kind::Data if header.index < x => usize::from(header.index),
            Kind::Parity if header.index >= FIRST_PARITY && header.k > 0 => {
                let r = header.index.saturating_sub(FIRST_PARITY);
                if r >= cx.config.y {
                    cx.io.count(Count::Malformed, 1);
                    return;
                }
                usize::from(x).saturating_add(r.into())
            }
            _ => {
                cx.io.count(Count::Malformed, 1);
                return;
            }
        };
        self.echo(cx, header, is_marked);
        if header.is_again {
            self.learn(cx.now_us, lent, header.block);
        }
        if is_before(header.block, self.next) {
            cx.io.count(Count::Old, 1);
            return;
        }
        if header.block.wrapping_sub(self.next) as usize >= lent.blocks.len() {
            cx.io.count(Count::Far, 1);
            return;
        }
        self.extend(cx, lent, header.block);
        let bit = 1u32.checked_shl(header.index.into()).unwrap_or(0);
        let Some(block) = lent.block(header.block) else {
            return;
        };
        let is_late = block.is_done || block.have & bit != 0;
        if header.k != 0 && block.k == 0 && !block.is_done {
            let above = u32::MAX.checked_shl(header.k.into()).unwrap_or(0) & DATA_BITS;
            if header.k > x || block.have & above != 0 {
                cx.io.count(Count::Malformed, 1);
                return;
            }
            block.k = header.k;
        }
        let is_inside = header.kind == Kind::Parity || block.k == 0 || header.index < block.k;
        if !is_inside || (header.k != 0 && block.k != header.k && !block.is_done) {
            cx.io.count(Count::Malformed, 1);
            return;
        }
        if is_late {
            cx.io.count(Count::Duplicate, 1);
        } else {
            block.have |= bit;
            if block.deadline_us == 0 {
                block.deadline_us = cx.after(cx.config.timer_us.saturating_add(cx.config.flush_us));
                block.nacked_us = 0;
                self.deadline_us = earlier(self.deadline_us, block.deadline_us);
            }
            let is_next = header.kind == Kind::Data
                && header.block == self.next
                && header.index == self.next_index;
            self.keep(cx, lent, header.block, slot, packet, is_marked, is_next);
        }
        // A copy can bring the number of packets.
        self.complete(cx, lent, header.block);
        self.advance(cx, lent);
        while self.held_bytes > MAX_HELD_BYTES && self.next != self.end {
            self.give_up(cx, lent);
            self.advance(cx, lent);
        }
    }

    /// The packet goes up, or is kept, or both.
    #[allow(clippy::too_many_arguments)]
    fn keep<I: Io>(
        &mut self,
        cx: &mut Context<'_, I>,
        lent: &mut Lent<'_, I::Packet>,
        id: u32,
        slot: usize,
        packet: I::Packet,
        is_marked: bool,
        is_next: bool,
    ) {
        let Some(held) = lent.packets(cx.config, id).get_mut(slot) else {
            return;
        };
        let kept = if is_next {
            self.next_index = self.next_index.saturating_add(1);
            let copy = match cx.config.y {
                0 => None,
                _ => cx.io.copy(&packet),
            };
            cx.io.deliver(packet, is_marked);
            copy
        } else {
            Some(packet)
        };
        let bytes = kept.as_ref().map_or(0, |packet| packet.bytes().len());
        self.held_bytes = self.held_bytes.saturating_add(bytes);
        *held = Held {
            packet: kept,
            is_marked,
            is_up: is_next,
        };
    }

    /// Something of that block was sent again. An end that sends nothing in blocks measures no RTT but this, and
    /// what comes after its block was given up shows that the RTT is longer than it knows.
    fn learn<P>(&mut self, now_us: u64, lent: &mut Lent<'_, P>, id: u32) {
        // A block that was given up is remembered until a later one takes its place.
        let back = self.end.wrapping_sub(id) as usize;
        if back == 0 || back > lent.blocks.len() {
            return;
        }
        let Some(block) = lent.block(id).filter(|block| block.nacked_us != 0) else {
            return;
        };
        let took_us = now_us.saturating_sub(block.nacked_us).min(MAX_AGAIN_US) as u32;
        // Karn's rule: which of several NACKs brought it is not known, so a short time proves nothing.
        let before_us = match block.nacks > 1 {
            true => self.again_us,
            false => self.again_us.saturating_sub(self.again_us >> 3),
        };
        self.again_us = took_us.max(before_us);
    }

    fn echo<I: Io>(&mut self, cx: &mut Context<'_, I>, header: &Header, is_marked: bool) {
        let at = usize::from(self.feedback.echo_count);
        if let Some(echo) = self.feedback.echoes.get_mut(at) {
            *echo = (header.ev, is_marked);
            self.feedback.echo_count = self.feedback.echo_count.saturating_add(1);
        }
        self.feedback.newest = (header.block, header.index);
        self.newest_us = cx.now_us;
        self.unreported = self.unreported.saturating_add(1);
        if self.unreported >= FEEDBACK_PACKETS {
            self.is_urgent = true;
        }
        if self.feedback_us == 0 {
            self.feedback_us = cx.after(FEEDBACK_US);
        }
    }

    /// Blocks up to this one are known of. Rule D2: the deadline of one of which nothing came is a later one's.
    fn extend<I: Io>(&mut self, cx: &Context<'_, I>, lent: &mut Lent<'_, I::Packet>, id: u32) {
        let deadline_us = cx.after(cx.config.timer_us.saturating_add(cx.config.flush_us));
        while !is_before(id, self.end) {
            if let Some(block) = lent.block(self.end) {
                *block = HeldBlock {
                    deadline_us,
                    ..HeldBlock::default()
                };
            }
            self.deadline_us = earlier(self.deadline_us, deadline_us);
            self.end = self.end.wrapping_add(1);
        }
    }

    /// Rule D1: any k packets suffice.
    fn complete<I: Io>(
        &mut self,
        cx: &mut Context<'_, I>,
        lent: &mut Lent<'_, I::Packet>,
        id: u32,
    ) {
        let Some(block) = lent.block(id) else {
            return;
        };
        let (k, have) = (u32::from(block.k), block.have);
        if k == 0 || block.is_done || have.count_ones() < k {
            return;
        }
        let lost = !have & 1u32.checked_shl(k).unwrap_or(0).wrapping_sub(1);
        if lost != 0 {
            let Some(solution) = Solution::new(k as usize, lost, have >> FIRST_PARITY) else {
                return;
            };
            if !self.decode(cx, lent, id, lost, &solution) {
                return;
            }
            cx.io.count(Count::Recovered, lost.count_ones().into());
            cx.trace(&Happened::Decoded {
                block: id,
                k: k as u8,
                have,
            });
            self.add_report(
                cx,
                Report {
                    block: id,
                    is_done: true,
                    have,
                },
            );
        }
        if let Some(block) = lent.block(id) {
            block.is_done = true;
        }
        // What is not to go up is not needed any more.
        let x = usize::from(cx.config.x);
        for (index, held) in lent.packets(cx.config, id).iter_mut().enumerate() {
            if held.is_up || index >= x {
                self.forget(held);
            }
        }
    }

    fn forget<P: Packet>(&mut self, held: &mut Held<P>) -> Option<P> {
        let packet = held.packet.take();
        let bytes = packet.as_ref().map_or(0, |packet| packet.bytes().len());
        self.held_bytes = self.held_bytes.saturating_sub(bytes);
        packet
    }

    /// Returns whether what was lost is there now.
    fn decode<I: Io>(
        &mut self,
        cx: &mut Context<'_, I>,
        lent: &mut Lent<'_, I::Packet>,
        id: u32,
        lost: u32,
        solution: &Solution,
    ) -> bool {
        let x = usize::from(cx.config.x);
        let k = lent.block(id).map_or(0, |block| usize::from(block.k));
        let packets = lent.packets(cx.config, id);
        let parity = |r: usize| packets.get(x.saturating_add(r))?.packet.as_ref();
        let Some(len) = solution
            .parities()
            .next()
            .and_then(parity)
            .map(|row| row.bytes().len())
        else {
            return false;
        };
        let mut found: [Option<I::Packet>; MAX_PARITY] = [None, None, None];
        let count = lost.count_ones() as usize;
        for (j, found) in found.iter_mut().enumerate().take(count) {
            let Some(mut vector) = cx.io.make(len) else {
                cx.io.count(Count::NoMem, 1);
                return false;
            };
            for r in solution.parities() {
                match parity(r) {
                    Some(row) if row.bytes().len() == len => {
                        gf256::add_multiple(
                            vector.bytes_mut(),
                            solution.of_parity(j, r),
                            row.bytes(),
                        );
                    }
                    // Rule D10.
                    _ => return self.bad_decode(cx, lent, id),
                }
            }
            for (index, held) in packets.iter().enumerate().take(k) {
                if lost >> index & 1 != 0 || solution.of_data(j, index) == 0 {
                    continue;
                }
                match &held.packet {
                    Some(packet) => {
                        let factor = solution.of_data(j, index);
                        gf256::add_packet(vector.bytes_mut(), factor, packet.bytes());
                    }
                    // There was no memory for its copy: the sender will be asked.
                    None => return false,
                }
            }
            if !unwrap(&mut vector) {
                return self.bad_decode(cx, lent, id);
            }
            *found = Some(vector);
        }
        let indices = (0..k).filter(|index| lost >> index & 1 != 0);
        for (packet, index) in found.into_iter().flatten().zip(indices) {
            self.held_bytes = self.held_bytes.saturating_add(packet.bytes().len());
            if let Some(held) = lent.packets(cx.config, id).get_mut(index) {
                *held = Held {
                    packet: Some(packet),
                    is_marked: false,
                    is_up: false,
                };
            }
        }
        true
    }

    /// The parities are of no use: what is missing has to be sent again.
    fn bad_decode<I: Io>(
        &mut self,
        cx: &mut Context<'_, I>,
        lent: &mut Lent<'_, I::Packet>,
        id: u32,
    ) -> bool {
        cx.io.count(Count::BadDecode, 1);
        let x = usize::from(cx.config.x);
        for held in lent.packets(cx.config, id).iter_mut().skip(x) {
            self.forget(held);
        }
        if let Some(block) = lent.block(id) {
            block.have &= DATA_BITS;
        }
        false
    }

    /// What is in order goes up.
    fn advance<I: Io>(&mut self, cx: &mut Context<'_, I>, lent: &mut Lent<'_, I::Packet>) {
        while self.next != self.end {
            let Some(&mut block) = lent.block(self.next) else {
                return;
            };
            if block.is_done && self.next_index >= block.k {
                self.step(cx, lent);
                continue;
            }
            // A parity is no packet of the order.
            if self.next_index >= cx.config.x {
                return;
            }
            let index = usize::from(self.next_index);
            let Some(held) = lent.packets(cx.config, self.next).get_mut(index) else {
                return;
            };
            if held.packet.is_none() || held.is_up {
                return;
            }
            let is_marked = held.is_marked;
            held.is_up = true;
            let Some(packet) = self.forget(held) else {
                return;
            };
            let copy = match (cx.config.y, block.is_done) {
                (0, _) | (_, true) => None,
                _ => cx.io.copy(&packet),
            };
            cx.io.deliver(packet, is_marked);
            self.next_index = self.next_index.saturating_add(1);
            let bytes = copy.as_ref().map_or(0, |packet| packet.bytes().len());
            self.held_bytes = self.held_bytes.saturating_add(bytes);
            if let Some(held) = lent.packets(cx.config, self.next).get_mut(index) {
                held.packet = copy;
            }
        }
    }

    /// Rule D6: what is there of the first block goes up, and no more of it.
    fn give_up<I: Io>(&mut self, cx: &mut Context<'_, I>, lent: &mut Lent<'_, I::Packet>) {
        let x = usize::from(cx.config.x);
        let is_whole = lent.block(self.next).is_some_and(|block| block.is_done);
        if !is_whole {
            cx.io.count(Count::GivenUp, 1);
        }
        for (index, held) in lent.packets(cx.config, self.next).iter_mut().enumerate() {
            let (is_up, is_marked) = (held.is_up, held.is_marked);
            match self.forget(held) {
                Some(packet) if !is_up && index < x => cx.io.deliver(packet, is_marked),
                _ => {}
            }
        }
        self.step(cx, lent);
    }

    /// The next block's turn.
    fn step<I: Io>(&mut self, cx: &Context<'_, I>, lent: &mut Lent<'_, I::Packet>) {
        self.next = self.next.wrapping_add(1);
        self.next_index = 0;
        let is_reported = |block: &mut HeldBlock| !block.is_done && block.deadline_us == 0;
        if self.next != self.end && lent.block(self.next).is_some_and(is_reported) {
            // How long it is held counts from now on.
            self.deadline_us = earlier(self.deadline_us, cx.after(1));
        }
    }

    /// Nothing below `block` will come.
    pub fn floor<I: Io>(
        &mut self,
        cx: &mut Context<'_, I>,
        lent: &mut Lent<'_, I::Packet>,
        block: u32,
    ) {
        if is_before(block, self.next) {
            return;
        }
        if block.wrapping_sub(self.next) as usize > lent.blocks.len() {
            // All that is known of is below it. To drop a floor would be for ever: all that comes then is too far.
            while self.next != self.end {
                self.give_up(cx, lent);
            }
            self.next = block;
            self.end = block;
        }
        if block != self.next {
            self.extend(cx, lent, block.wrapping_sub(1));
        }
        while is_before(self.next, block) {
            self.give_up(cx, lent);
        }
        self.advance(cx, lent);
        self.is_urgent = true;
    }

    fn add_report<I: Io>(&mut self, cx: &mut Context<'_, I>, report: Report) {
        if usize::from(self.feedback.report_count) >= MAX_REPORTS {
            self.send_feedback(cx, 0);
        }
        // Sending leaves those that are to be repeated: the oldest makes room.
        if usize::from(self.feedback.report_count) >= MAX_REPORTS {
            self.feedback.reports.rotate_left(1);
            self.repeats.rotate_left(1);
            self.feedback.report_count = self.feedback.report_count.saturating_sub(1);
        }
        let at = usize::from(self.feedback.report_count);
        let places = (self.feedback.reports.get_mut(at), self.repeats.get_mut(at));
        if let (Some(place), Some(repeats)) = places {
            *place = report;
            *repeats = REPEATS;
            self.feedback.report_count = self.feedback.report_count.saturating_add(1);
        }
        if !report.is_done {
            self.is_urgent = true;
        }
    }

    /// The sender asks, or shall know: feedback is due now.
    pub fn hurry(&mut self) {
        self.is_urgent = true;
    }

    fn send_feedback<I: Io>(&mut self, cx: &mut Context<'_, I>, map: u64) {
        self.is_urgent = false;
        self.feedback_us = 0;
        self.unreported = 0;
        self.feedback.map = map;
        let age_us = cx.now_us.saturating_sub(self.newest_us);
        self.feedback.age_us = u32::try_from(age_us).unwrap_or(u32::MAX);
        let Some(mut packet) = cx.io.make(self.feedback.bytes()) else {
            cx.io.count(Count::NoMem, 1);
            return;
        };
        self.feedback.write(packet.bytes_mut());
        let header = Header {
            block: self.next,
            ..cx.header(Kind::Feedback)
        };
        cx.io.count(Count::TxFeedback, 1);
        cx.io.send(&header, packet, Ecn::Not);
        self.feedback.echo_count = 0;
        let old = self.feedback.reports;
        let mut kept = 0u8;
        let count = usize::from(self.feedback.report_count);
        let mut repeats = [0; MAX_REPORTS];
        for (report, left) in old.iter().zip(self.repeats).take(count) {
            let left = left.saturating_sub(1);
            let at = usize::from(kept);
            let places = (self.feedback.reports.get_mut(at), repeats.get_mut(at));
            if left == 0 {
                continue;
            }
            if let (Some(place), Some(cell)) = places {
                *place = *report;
                *cell = left;
                kept = kept.saturating_add(1);
            }
        }
        self.repeats = repeats;
        self.feedback.report_count = kept;
    }

    /// Bit i: block `next` + 1 + i is done.
    fn map<P>(&self, lent: &mut Lent<'_, P>) -> u64 {
        let mut map = 0;
        let known = self
            .end
            .wrapping_sub(self.next)
            .saturating_sub(1)
            .min(u64::BITS);
        for i in 0..known {
            let id = self.next.wrapping_add(1).wrapping_add(i);
            if lent.block(id).is_some_and(|block| block.is_done) {
                map |= 1u64.checked_shl(i).unwrap_or(0);
            }
        }
        map
    }

    /// Does what is due. Returns when something will be; 0: nothing.
    pub fn poll<I: Io>(&mut self, cx: &mut Context<'_, I>, lent: &mut Lent<'_, I::Packet>) -> u64 {
        if self.deadline_us != 0 && self.deadline_us <= cx.now_us {
            self.look(cx, lent);
        }
        if self.is_urgent || (self.feedback_us != 0 && self.feedback_us <= cx.now_us) {
            let map = self.map(lent);
            self.send_feedback(cx, map);
        }
        earlier(self.deadline_us, self.feedback_us)
    }

    /// Looks at the deadlines of all blocks.
    fn look<I: Io>(&mut self, cx: &mut Context<'_, I>, lent: &mut Lent<'_, I::Packet>) {
        let rtt_us = cx.min_rtt_us().max(self.again_us);
        // What is sent again is here by then, and is reported once more if it is not.
        let again_us = rtt_us
            .saturating_add(cx.config.timer_us)
            .saturating_add(cx.config.flush_us);
        let hold_us = again_us.saturating_add(rtt_us >> 1);
        // Rule D6.
        while self.next != self.end {
            let is_over = lent.block(self.next).is_some_and(|block| {
                block.nacked_us != 0
                    && block.deadline_us == 0
                    && block.nacked_us.saturating_add(hold_us.into()) <= cx.now_us
            });
            if !is_over {
                break;
            }
            self.give_up(cx, lent);
            self.advance(cx, lent);
        }
        self.deadline_us = 0;
        let mut id = self.next;
        while id != self.end {
            let Some(block) = lent.block(id) else {
                return;
            };
            if !block.is_done {
                if block.deadline_us != 0 && block.deadline_us <= cx.now_us {
                    block.nacks = block.nacks.saturating_add(1);
                    block.deadline_us = match block.nacks {
                        MAX_NACKS.. => 0,
                        _ => cx.after(again_us),
                    };
                    block.nacked_us = cx.now_us;
                    let report = Report {
                        block: id,
                        is_done: false,
                        have: block.have,
                    };
                    let times = block.nacks;
                    cx.io.count(Count::NackSent, 1);
                    cx.trace(&Happened::Nack {
                        block: id,
                        have: report.have,
                        times,
                        is_sent: true,
                    });
                    self.add_report(cx, report);
                }
                if let Some(block) = lent.block(id) {
                    let due_us = match block.deadline_us {
                        0 => block.nacked_us.saturating_add(hold_us.into()),
                        deadline_us => deadline_us,
                    };
                    // One that waits behind another is looked at with that.
                    if block.deadline_us != 0 || id == self.next {
                        self.deadline_us = earlier(self.deadline_us, due_us);
                    }
                }
            }
            id = id.wrapping_add(1);
        }
    }
}

/// Rule D10: the vector becomes the packet, if it is one.
fn unwrap(vector: &mut impl Packet) -> bool {
    let bytes = vector.bytes();
    let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else {
        return false;
    };
    let length = usize::from(u16::from_be_bytes(*length));
    let Some((packet, zeros)) = rest.split_at_checked(length) else {
        return false;
    };
    let is_sound = zeros.iter().all(|&byte| byte == 0) && is_ip(packet);
    vector.cut(LENGTH_BYTES, length);
    is_sound
}

/// Whether it is an IP packet of its length.
pub fn is_ip(packet: &[u8]) -> bool {
    let field = |at: usize| {
        let bytes = packet.get(at..at.saturating_add(2))?;
        Some(usize::from(u16::from_be_bytes(*bytes.first_chunk()?)))
    };
    match packet.first().map(|first| first >> 4) {
        Some(4) => field(2) == Some(packet.len()),
        Some(6) => field(4).map(|payload| payload.saturating_add(40)) == Some(packet.len()),
        _ => false,
    }
}

#[cfg(test)]
#[path = "tests/resequence.rs"]
mod tests;
