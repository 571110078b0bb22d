// SPDX-License-Identifier: GPL-2.0

//! A qdisc to begin your own from: a FIFO of 1 MB that marks what arrives while
//! 100 kB are queued, as DCTCP wants it (RFC 8257, section 3.1).
//!
//! sch_phantom.rs has what is left out here: options, statistics, a shaper.

use kernel::prelude::*;

#[path = "../modules/kernel/mod.rs"]
mod kernel_api;

use kernel_api::{
    netlink::{Attrs, Extack, Message},
    qdisc::{Control, Discipline, DropReason, Packet, Queue, Registration, Verdict},
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

/// What anybody may read at any time, such as the configuration: here, nothing.
struct Fifo;

/// What only the callbacks under the qdisc's lock see.
struct Hot {
    backlog_bytes: u32,
}

impl Discipline for Fifo {
    const NAME: &'static CStr = c"example";

    type Module = ();
    type Hot = Hot;
    type Stats = ();
    type Owner = Module;

    fn init(
        _module: &(),
        _control: &mut Control<'_, Self>,
        options: Attrs<'_>,
        extack: &Extack<'_>,
    ) -> Result<(Self, Hot)> {
        if !options.is_empty() {
            return Err(extack.invalid(c"example takes no options"));
        }
        Ok((Fifo, Hot { backlog_bytes: 0 }))
    }

    fn change(
        &self,
        _module: &(),
        _control: &mut Control<'_, Self>,
        _options: Attrs<'_>,
        extack: &Extack<'_>,
    ) -> Result {
        Err(extack.invalid(c"example has nothing to change"))
    }

    fn destroy(&self, _module: &(), _hot: &mut Hot) {}

    /// Marks are per packet, so a burst of segments is split first.
    fn splits_segments(_hot: &Hot) -> bool {
        true
    }

    fn enqueue(&self, hot: &mut Hot, queue: &mut Queue<'_>, mut packet: Packet) -> Verdict {
        let backlog_bytes = hot.backlog_bytes.saturating_add(packet.len_bytes());
        if backlog_bytes > LIMIT_BYTES {
            queue.drop_packet(packet, DropReason::Overlimit);
            return Verdict::Dropped;
        }
        if hot.backlog_bytes > MARK_ABOVE_BYTES {
            packet.set_ce();
        }
        hot.backlog_bytes = backlog_bytes;
        queue.push(packet);
        Verdict::Queued
    }

    fn dequeue(&self, hot: &mut Hot, queue: &mut Queue<'_>) -> Option<Packet> {
        let packet = queue.pop()?;
        hot.backlog_bytes = hot.backlog_bytes.saturating_sub(packet.len_bytes());
        Some(packet)
    }

    fn reset(&self, hot: &mut Hot) {
        hot.backlog_bytes = 0;
    }

    fn dump(&self, _message: &mut Message<'_>) -> Result {
        Ok(())
    }

    fn stats(&self, _module: &(), _control: &Control<'_, Self>) {}
}

struct Module {
    _qdisc: Registration<Fifo>,
}

impl kernel::Module for Module {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        Ok(Self {
            _qdisc: Registration::new(())?,
        })
    }
}
