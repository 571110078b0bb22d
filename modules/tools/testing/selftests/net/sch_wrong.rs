// SPDX-License-Identifier: GPL-2.0

//! A FIFO with the possible errors of a qdisc: it drops packets silently, holds them, and reports wrong
//! results. Nevertheless the parents' counts must be right.
//!
//! A packet's priority selects the error.

use kernel::prelude::*;

#[path = "../../../../oot/kernel_api.rs"]
mod kernel_api;

use kernel_api::{
    netlink::{Extack, Message, Nest},
    qdisc::{now_ns, DropReason, Packet, Qdisc, Queue, Registration, RtnlQdisc, Verdict},
};

module! {
    type: Module,
    name: "sch_wrong",
    authors: ["xdc developers"],
    description: "Erroneous qdisc, for tests",
    license: "GPL v2",
    alias: ["net-sch-wrong"],
}

/// Errors of enqueue, by priority.
mod enqueue {
    /// Drops the packet, reports it as queued.
    pub(crate) const DROP_AND_SAY_QUEUED: u32 = 1;
    /// Queues the packet, reports it as dropped.
    pub(crate) const QUEUE_AND_SAY_DROPPED: u32 = 2;
    /// Drops the packet without a reason, reports it as queued.
    pub(crate) const LOSE_AND_SAY_QUEUED: u32 = 3;
    /// Loses the first packet of the queue.
    pub(crate) const LOSE_HEAD: u32 = 4;
    /// Drops the first packet of the queue, reports this packet as dropped.
    pub(crate) const DROP_HEAD_AND_SAY_DROPPED: u32 = 5;
    /// Empties the queue, partly with a reason, and queues the packet.
    pub(crate) const LOSE_OTHERS: u32 = 6;
    /// Empties the queue, reports the packet as queued.
    pub(crate) const LOSE_ALL_AND_SAY_QUEUED: u32 = 7;
}

/// Errors of dequeue, by the first packet's priority.
mod dequeue {
    /// Loses the packet, returns the next one.
    pub(crate) const LOSE: u32 = 8;
    /// Loses the packet, returns none.
    pub(crate) const LOSE_AND_STOP: u32 = 9;
    /// Empties the queue, returns none.
    pub(crate) const LOSE_ALL: u32 = 10;
    /// Returns the packet, loses the others.
    pub(crate) const LOSE_OTHERS: u32 = 11;
    /// Moves the packet to the end, returns none.
    pub(crate) const HOLD: u32 = 12;
}

const HOLD_NS: u64 = 1_000_000;

struct Wrong;

struct State {
    /// Verdicts on earlier packets.
    queued: Option<Verdict>,
    dropped: Option<Verdict>,
    /// The first packet was held once.
    held: bool,
}

/// Empties the queue, with a reason for every other packet.
fn lose_all(queue: Queue<'_>) {
    while let Some(packet) = queue.pop() {
        drop(packet);
        if let Some(packet) = queue.pop() {
            queue.drop_packet(packet, DropReason::Congested);
        }
    }
}

impl Qdisc for Wrong {
    const NAME: &'static CStr = c"wrong";

    type Module = ();
    type State = State;
    type Rtnl = ();
    type Stats = ();

    fn init(
        _module: &(),
        _qdisc: &mut RtnlQdisc<'_, Self>,
        _options: Nest<'_>,
        _extack: &Extack<'_>,
    ) -> Result<(Self, (), State)> {
        let state = State {
            queued: None,
            dropped: None,
            held: false,
        };
        Ok((Wrong, (), state))
    }

    fn change(
        &self,
        _module: &(),
        _rtnl: &mut (),
        _qdisc: &mut RtnlQdisc<'_, Self>,
        _options: Nest<'_>,
        _extack: &Extack<'_>,
    ) -> Result {
        Ok(())
    }

    fn destroy(&self, _module: &(), _rtnl: &mut (), _state: &mut State) {}

    fn splits_segments(_state: &State) -> bool {
        true
    }

    fn enqueue<'a>(&self, state: &mut State, queue: Queue<'a>, packet: Packet<'a>) -> Verdict {
        let wish = packet.priority();
        // No earlier verdict to misreport yet.
        let (Some(queued), Some(dropped)) = (state.queued, state.dropped) else {
            if state.queued.is_none() {
                return *state.queued.insert(queue.push(packet));
            }
            return *state
                .dropped
                .insert(queue.drop_packet(packet, DropReason::Overlimit));
        };
        match wish {
            enqueue::DROP_AND_SAY_QUEUED => {
                queue.drop_packet(packet, DropReason::Overlimit);
                queued
            }
            enqueue::QUEUE_AND_SAY_DROPPED => {
                queue.push(packet);
                dropped
            }
            enqueue::LOSE_AND_SAY_QUEUED => {
                drop(packet);
                queued
            }
            enqueue::LOSE_HEAD => {
                drop(queue.pop());
                queue.push(packet)
            }
            enqueue::DROP_HEAD_AND_SAY_DROPPED => {
                if let Some(head) = queue.pop() {
                    queue.drop_packet(head, DropReason::Overlimit);
                }
                queue.push(packet);
                dropped
            }
            enqueue::LOSE_OTHERS => {
                lose_all(queue);
                queue.push(packet)
            }
            enqueue::LOSE_ALL_AND_SAY_QUEUED => {
                lose_all(queue);
                drop(packet);
                queued
            }
            _ => queue.push(packet),
        }
    }

    fn dequeue<'a>(&self, state: &mut State, queue: Queue<'a>) -> Option<Packet<'a>> {
        let packet = queue.pop()?;
        match packet.priority() {
            dequeue::LOSE => {
                drop(packet);
                queue.pop()
            }
            dequeue::LOSE_AND_STOP => {
                drop(packet);
                // The others must leave at some time.
                queue.schedule_watchdog(now_ns().wrapping_add(HOLD_NS));
                None
            }
            dequeue::LOSE_ALL => {
                drop(packet);
                lose_all(queue);
                None
            }
            dequeue::LOSE_OTHERS => {
                lose_all(queue);
                Some(packet)
            }
            dequeue::HOLD if !state.held => {
                state.held = true;
                queue.push(packet);
                queue.schedule_watchdog(now_ns().wrapping_add(HOLD_NS));
                None
            }
            _ => {
                state.held = false;
                Some(packet)
            }
        }
    }

    fn reset(&self, state: &mut State) {
        state.held = false;
    }

    fn dump(&self, _rtnl: &(), _message: &mut Message<'_>) -> Result {
        Ok(())
    }

    fn stats(&self, _rtnl: &(), _qdisc: &mut RtnlQdisc<'_, Self>) {}
}

struct Module {
    _registration: Registration<Wrong>,
}

impl kernel::Module for Module {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        Ok(Self {
            _registration: Registration::new(())?,
        })
    }
}
