// SPDX-License-Identifier: GPL-2.0

//! A FIFO that makes the mistakes that a qdisc can make: it drops packets
//! without a word, holds them, and says something else than what it did. The
//! parents' counts must nevertheless be right.
//!
//! What it does with a packet is the packet's priority.

use kernel::prelude::*;

#[path = "../kernel/mod.rs"]
mod kernel_api;

use kernel_api::{
    netlink::{Extack, Message, Nest},
    qdisc::{now_ns, DropReason, Packet, Qdisc, Queue, Registration, RtnlQdisc, Verdict},
};

module! {
    type: Module,
    name: "sch_wrong",
    authors: ["xdc developers"],
    description: "Qdisc that makes mistakes, for tests",
    license: "GPL v2",
    alias: ["net-sch-wrong"],
}

/// What enqueue does with a packet of that priority.
mod enqueue {
    /// Drops it, says that it is queued.
    pub(crate) const DROP_AND_SAY_QUEUED: u32 = 1;
    /// Queues it, says that it is dropped.
    pub(crate) const QUEUE_AND_SAY_DROPPED: u32 = 2;
    /// Forgets to give a reason, says that it is queued.
    pub(crate) const LOSE_AND_SAY_QUEUED: u32 = 3;
    /// Loses the first packet of the queue.
    pub(crate) const LOSE_HEAD: u32 = 4;
    /// Drops the first packet of the queue, says that this one is dropped.
    pub(crate) const DROP_HEAD_AND_SAY_DROPPED: u32 = 5;
    /// Empties the queue, some with a reason, and queues this one.
    pub(crate) const LOSE_OTHERS: u32 = 6;
    /// Empties the queue, and says that this one is queued.
    pub(crate) const LOSE_ALL_AND_SAY_QUEUED: u32 = 7;
}

/// What dequeue does when a packet of that priority is the first.
mod dequeue {
    /// Loses it, returns the next one.
    pub(crate) const LOSE: u32 = 8;
    /// Loses it, returns nothing.
    pub(crate) const LOSE_AND_STOP: u32 = 9;
    /// Empties the queue, returns nothing.
    pub(crate) const LOSE_ALL: u32 = 10;
    /// Returns it, and loses the others.
    pub(crate) const LOSE_OTHERS: u32 = 11;
    /// Puts it to the end, and returns nothing.
    pub(crate) const HOLD: u32 = 12;
}

const HOLD_NS: u64 = 1_000_000;

struct Wrong;

struct State {
    /// Verdicts on packets of the past.
    queued: Option<Verdict>,
    dropped: Option<Verdict>,
    /// The packet at the head was held once.
    held: bool,
}

/// Empties the queue, every other packet with a reason.
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
        // Nothing to lie with yet.
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
                // The rest has to go at some time.
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
