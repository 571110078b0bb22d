// SPDX-License-Identifier: GPL-2.0

//! An example qdisc to start from: a FIFO of 1 MB that marks packets which arrive while
//! more than 100 kB are queued, as DCTCP requires (RFC 8257, section 3.1).
//!
//! sch_phantom.rs also has options, statistics and a shaper.

use kernel::prelude::*;

#[path = "../modules/oot/kernel_api.rs"]
mod kernel_api;

use kernel_api::{
    netlink::{Extack, Message, Nest},
    qdisc::{DropReason, Packet, Qdisc, Queue, Registration, RtnlQdisc, Verdict},
};

module! {
    type: Module,
    name: "sch_example",
    authors: ["xdc developers"],
    description: "Example of a qdisc",
    license: "GPL v2",
    alias: ["net-sch-example"],
}

const LIMIT_BYTES: u32 = 1_000_000;
const MARK_ABOVE_BYTES: u32 = 100_000;

/// Data that may be read at any time, such as the configuration: here, none.
struct Fifo;

/// Data that only the callbacks under the qdisc's lock access.
struct State {
    backlog_bytes: u32,
}

impl Qdisc for Fifo {
    const NAME: &'static CStr = c"example";

    type Module = ();
    type State = State;
    type Rtnl = ();
    type Stats = ();

    fn init(
        _module: &(),
        _qdisc: &mut RtnlQdisc<'_, Self>,
        options: Nest<'_>,
        extack: &Extack<'_>,
    ) -> Result<(Self, (), State)> {
        if !options.is_none() {
            return Err(extack.invalid(c"example takes no options"));
        }
        Ok((Fifo, (), State { backlog_bytes: 0 }))
    }

    fn change(
        &self,
        _module: &(),
        _rtnl: &mut (),
        _qdisc: &mut RtnlQdisc<'_, Self>,
        _options: Nest<'_>,
        extack: &Extack<'_>,
    ) -> Result {
        Err(extack.invalid(c"example has nothing to change"))
    }

    fn destroy(&self, _module: &(), _rtnl: &mut (), _state: &mut State) {}

    /// Marks are per packet, so GSO packets are split first.
    fn splits_segments(_state: &State) -> bool {
        true
    }

    fn enqueue<'a>(&self, state: &mut State, queue: Queue<'a>, mut packet: Packet<'a>) -> Verdict {
        let backlog_bytes = state.backlog_bytes.saturating_add(packet.len_bytes());
        if backlog_bytes > LIMIT_BYTES {
            return queue.drop_packet(packet, DropReason::Overlimit);
        }
        if state.backlog_bytes > MARK_ABOVE_BYTES {
            packet.set_ce();
        }
        state.backlog_bytes = backlog_bytes;
        queue.push(packet)
    }

    fn dequeue<'a>(&self, state: &mut State, queue: Queue<'a>) -> Option<Packet<'a>> {
        let packet = queue.pop()?;
        state.backlog_bytes = state.backlog_bytes.saturating_sub(packet.len_bytes());
        Some(packet)
    }

    fn reset(&self, state: &mut State) {
        state.backlog_bytes = 0;
    }

    fn dump(&self, _rtnl: &(), _message: &mut Message<'_>) -> Result {
        Ok(())
    }

    fn stats(&self, _rtnl: &(), _qdisc: &mut RtnlQdisc<'_, Self>) {}
}

struct Module {
    _registration: Registration<Fifo>,
}

impl kernel::Module for Module {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        Ok(Self {
            _registration: Registration::new(())?,
        })
    }
}
