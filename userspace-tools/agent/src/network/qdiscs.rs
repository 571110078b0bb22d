// SPDX-License-Identifier: GPL-2.0
//! Qdiscs of a device's egress: the wire, and the queue below it.

use anyhow::{Context, Result, anyhow, bail};
use xdc_netlink::{
    Connection, Request, phantom,
    qdisc::{self, Handle, Qdisc, QdiscState},
};
use xdc_proto::{
    Direction, Faults, Queue,
    privileged::{BadName, TcBatch},
};

use crate::layout::Port;

use super::{CHILD, LEAF, ORDERED, ROOT, class_of};

/// netem with a rate keeps packets in order whatever their delay, also when an event shortens it. At this
/// rate serialization takes no time.
pub(super) const IN_ORDER_BPS: u64 = 100_000_000_000_000;

/// Limit of a link's netem, including packets in flight; never reached.
pub(super) const LINK_LIMIT_PACKETS: u32 = 10_000_000;

/// Burst of htb, so that a late timer costs no rate: bytes, but at most this much time.
pub(super) const HTB_BURST_BYTES: u64 = 64 << 10;
pub(super) const HTB_BURST_MAX_NS: u64 = 1_000_000;

/// Qdiscs for a device's egress: netem for the wire (and for the rate if there is no queue), and below it the
/// queue.
pub(super) fn egress(index: u32, direction: &Direction) -> Result<Vec<Request>> {
    let add = |parent, handle, kind, options| Qdisc { index, parent, handle, kind, options }.add();
    // Faults start after the link check.
    let wires = wires(index, direction, None);
    let mut requests: Vec<_> = wires.iter().map(Qdisc::add).collect();
    let Some(queue) = &direction.queue else {
        return Ok(requests);
    };
    let parent = below(&wires);
    if !queue.is_phantom() {
        if direction.rate_bps > 0 {
            requests.push(add(parent, CHILD, "htb", qdisc::htb(class_of(CHILD).minor)));
            requests.push(
                Qdisc {
                    index,
                    parent: CHILD,
                    handle: class_of(CHILD),
                    kind: "htb",
                    options: qdisc::htb_class(direction.rate_bps, htb_burst_ns(direction)),
                }
                .add_class(),
            );
        }
        // tc adds the leaf: see `add_leaf`.
        return Ok(requests);
    }
    let options = phantom_options(queue, direction)?;
    requests.push(add(parent, CHILD, phantom::KIND, options.encode()));
    Ok(requests)
}

/// Adds the queue that [`egress`] leaves to tc.
pub(super) fn add_leaf(
    batch: &mut TcBatch,
    device: &str,
    direction: &Direction,
) -> Result<(), BadName> {
    let Some(queue) = direction.queue.as_ref().filter(|queue| !queue.is_made_by_agent()) else {
        return Ok(());
    };
    let parent = match direction.rate_bps {
        0 => below(&wires(0, direction, None)),
        _ => class_of(CHILD),
    };
    let parent = (parent != Handle::ROOT).then(|| typed(parent));
    batch.add_qdisc(device, parent.as_deref(), &typed(LEAF), queue)
}

/// A handle in tc's syntax.
pub(super) fn typed(handle: Handle) -> String {
    match handle.minor {
        0 => format!("{:x}:", handle.major),
        minor => format!("{:x}:{minor:x}", handle.major),
    }
}

/// Adds the policer of a port in the current namespace.
pub(super) fn police(port: &Port) -> Result<()> {
    let Some(policer) = port.egress.policer else {
        return Ok(());
    };
    let mut batch = TcBatch::default();
    batch.add_policer(&port.name, policer)?;
    Connection::open()?.batch([qdisc::clsact(port.index)])?;
    tc(&batch)
}

/// Runs a batch in the current namespace.
pub(super) fn tc(batch: &TcBatch) -> Result<()> {
    let output = batch
        .run()
        .context("cannot run tc, which a queue's 'tc' and a policer need (Debian: iproute2)")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said: Vec<_> = said.lines().map(str::trim).collect();
        bail!("tc refused a queue or a policer: {}", said.join("; "));
    }
    Ok(())
}

/// The netems of a direction, root first; empty if packets pass unchanged. A queue has its own rate. Rate and
/// jitter keep the order, so a reordering link has them one level below.
pub(super) fn wires(index: u32, direction: &Direction, damage: Option<&Faults>) -> Vec<Qdisc> {
    let wire = |parent, handle, options: qdisc::Netem| Qdisc {
        index,
        parent,
        handle,
        kind: "netem",
        options: options.encode(),
    };
    let shaped = direction.queue.is_some();
    let faults = direction.faults.as_ref();
    let is_rated = !shaped && direction.rate_bps > 0;
    if direction.delay_ns == 0 && faults.is_none() && !is_rated {
        return Vec::new();
    }
    let jitter_ns = damage.map_or(0, |damage| damage.jitter_ns);
    let ordered = qdisc::Netem {
        rate_bps: match is_rated {
            true => direction.rate_bps,
            false => IN_ORDER_BPS,
        },
        delay_ns: jitter_ns / 2,
        jitter_ns: jitter_ns / 2,
        limit_packets: LINK_LIMIT_PACKETS,
        seed: damage.map(|damage| damage.seed),
        ..Default::default()
    };
    let reorders = faults.is_some_and(|faults| faults.reorder_ppm > 0);
    let mut first = qdisc::Netem {
        delay_ns: direction.delay_ns,
        loss_ppm: damage.map_or(0, |damage| damage.loss_ppm),
        ..ordered
    };
    if !reorders {
        first.delay_ns += ordered.delay_ns;
        return vec![wire(Handle::ROOT, ROOT, first)];
    }
    first.rate_bps = 0;
    first.jitter_ns = 0;
    first.reorder_ppm = damage.map_or(0, |damage| damage.reorder_ppm);
    let first = wire(Handle::ROOT, ROOT, first);
    let has_jitter = faults.is_some_and(|faults| faults.jitter_ns > 0);
    match is_rated || has_jitter {
        true => vec![first, wire(class_of(ROOT), ORDERED, ordered)],
        false => vec![first],
    }
}

/// Parent handle of a direction's queue.
pub(super) fn below(wires: &[Qdisc]) -> Handle {
    wires.last().map_or(Handle::ROOT, |wire| class_of(wire.handle))
}

/// Whether a qdisc is a direction's own netem.
pub fn is_wire(state: &QdiscState) -> bool {
    state.kind == "netem" && [ROOT, ORDERED].contains(&state.handle)
}

/// Whether a qdisc is the queue of a direction.
pub fn is_queue(state: &QdiscState, queue: &Queue) -> bool {
    let handle = match queue {
        queue if queue.is_phantom() => CHILD,
        queue if queue.is_acceltor() => ROOT,
        _ => LEAF,
    };
    state.handle == handle
}

pub(super) fn htb_burst_ns(direction: &Direction) -> u64 {
    let bits = u128::from(HTB_BURST_BYTES) * 8;
    let burst_ns = bits * 1_000_000_000 / u128::from(direction.rate_bps);
    burst_ns.min(HTB_BURST_MAX_NS.into()) as u64
}

/// Parses the words of phantom; the rate defaults to the link's.
pub fn phantom_options(queue: &Queue, direction: &Direction) -> Result<phantom::Options> {
    let mut options = phantom::Options::from_words(&queue.words).map_err(|err| anyhow!("{err}"))?;
    options.rate_bytes_per_s.get_or_insert(direction.rate_bps / 8);
    options.seed = options.seed.or(queue.seed);
    Ok(options)
}
