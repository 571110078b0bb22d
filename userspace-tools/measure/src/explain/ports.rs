// SPDX-License-Identifier: GPL-2.0
//! Notes about ports and their marks.

use xdc_netlink::phantom::{Mark, Options};
use xdc_proto::{Direction, ETHERNET_HEADER_BYTES, Ecn, Queue, RunPlan};

use super::flows::pairs;
use super::{by_cause, flows, grouped, names};
use crate::record::Record;
use crate::run::{Note, NoteKind};
use crate::ways::{Port, Ways};

/// A single flow cannot fill a link whose phantom queue marks every packet below this many packets.
const LEAST_PACKETS: u64 = 10;

/// Qdiscs that mark only with one of these words. A qdisc in neither list may mark.
const MARK_IF_ASKED: &[(&str, &[&str])] = &[
    ("acceltor", &["ecn"]),
    ("choke", &["ecn"]),
    ("codel", &["ecn", "ce_threshold"]),
    ("fq", &["ce_threshold"]),
    ("fq_pie", &["ecn"]),
    ("gred", &["ecn"]),
    ("netem", &["ecn"]),
    ("pie", &["ecn"]),
    ("red", &["ecn"]),
    ("sfq", &["ecn"]),
];
const NEVER_MARK: &[&str] = &[
    "bfifo",
    "drr",
    "etf",
    "hhf",
    "htb",
    "pfifo",
    "pfifo_fast",
    "pfifo_head_drop",
    "prio",
    "qfq",
    "taprio",
    "tbf",
];

/// Description of a queue that never marks; None if it may.
fn never_marks(direction: &Direction) -> Option<String> {
    match &direction.queue {
        None => Some("no queue".to_owned()),
        Some(queue) if queue.is_phantom() => {
            (options(queue).mark == Some(Mark::None)).then(|| "a drop-tail queue".to_owned())
        }
        Some(queue) => (!may_mark(queue)).then(|| format!("'{}'", tc_text(queue))),
    }
}

fn tc_text(queue: &Queue) -> String {
    let words = [queue.kind.as_str()].into_iter();
    let words: Vec<_> = words.chain(queue.words.iter().map(String::as_str)).collect();
    words.join(" ")
}

fn may_mark(queue: &Queue) -> bool {
    let has = |word: &str| queue.words.iter().any(|own| own == word);
    let kind = queue.kind.as_str();
    if let Some((_, words)) = MARK_IF_ASKED.iter().find(|(name, _)| *name == kind) {
        return words.iter().any(|word| has(word));
    }
    if kind == "fq_codel" {
        return !has("noecn") || has("ce_threshold");
    }
    !NEVER_MARK.contains(&kind)
}

/// Options of phantom; the guest has accepted the words.
fn options(queue: &Queue) -> Options {
    Options::from_words(&queue.words).unwrap_or_default()
}

/// Notes about ECN flows without a marking port on their path.
pub(super) fn never_mark(record: &Record) -> Vec<Note> {
    let topology = &record.plan.topology;
    let unmarked = || {
        pairs(record).filter(|(result, _)| {
            let has_ecn = matches!(result.ecn, Some(Ecn::Rfc3168 | Ecn::Accurate));
            has_ecn && result.received_bytes > 0
        })
    };
    let ccs = || names(unmarked().map(|(result, _)| result.cc.as_str()));
    let marking: Vec<Port> = (0..topology.links.len())
        .flat_map(|link| [true, false].map(|forward| Port { link, forward }))
        .filter(|port| never_marks(port.direction(topology)).is_none())
        .collect();
    let mut ways = Ways::new(topology);
    let mut cause = |src: &str, dst: &str| {
        let crosses = marking.iter().any(|&port| ways.share(src, dst, port) > 0.0);
        let port = ways.slowest(src, dst).filter(|_| !crosses)?;
        let kind = never_marks(port.direction(topology))?;
        Some((port.name(topology), kind))
    };
    let causes: Vec<_> = unmarked().filter_map(|(_, flow)| cause(&flow.src, &flow.dst)).collect();
    let found = !causes.is_empty();
    let mut notes = by_cause(NoteKind::NeverMarks, causes.into_iter(), |count, (port, kind)| {
        format!(
            "no port marks the packets of {} with ECN ({}), since {port} has {kind}: they react only to losses",
            flows(count),
            ccs()
        )
    });
    let totals = record.totals.unwrap_or_default();
    let count = unmarked().filter(|(result, _)| result.retransmits > 0).count();
    if !found && count > 0 && totals.drops > 0 && totals.marks == 0 {
        notes.push(Note {
            kind: NoteKind::NeverMarks,
            text: format!(
                "queues dropped {} packets and marked none, so {} with ECN ({}) reacted only to losses: \
                 thresholds above the limit, or queues that do not mark",
                grouped(totals.drops),
                flows(count),
                ccs()
            ),
            count,
        });
    }
    notes
}

/// Size of a marking phantom queue, if the plan gives one, and the share of it from which every
/// packet is marked, ppm. None for other queues.
fn phantom(direction: &Direction) -> Option<(Option<u64>, u32)> {
    let queue = direction.queue.as_ref().filter(|queue| queue.is_phantom())?;
    let options = options(queue);
    let pmax_ppm = options.pmax_ppm.unwrap_or(default_of("pmax") as u32);
    options.marks_by_phantom().then_some((options.phantom_limit_bytes, pmax_ppm))
}

/// The module's default of an option of phantom.
fn default_of(name: &str) -> u64 {
    Options::default_of(name).and_then(|default| default.try_into().ok()).unwrap_or(0)
}

/// Notes about phantom queues of default size, and those too small for one flow.
pub(super) fn phantoms(plan: &RunPlan) -> Vec<Note> {
    let topology = &plan.topology;
    let ports = || {
        let links = 0..topology.links.len();
        let ports = links.flat_map(|link| [true, false].map(|forward| Port { link, forward }));
        ports.filter_map(|port| Some((port, phantom(port.direction(topology))?)))
    };
    let first = |holds: &dyn Fn(Port) -> bool| {
        let mut ports = ports().map(|(port, _)| port);
        let port = ports.find(|&port| holds(port));
        port.map_or(String::new(), |port| port.name(topology))
    };
    let several = |port: String, count: usize| match count {
        1 => format!("of {port}"),
        count => format!("of each of {count} ports ({port} and others)"),
    };
    let default = ports().filter(|(_, (bytes, _))| bytes.is_none());
    let mut notes = by_cause(NoteKind::DefaultPhantom, default.map(|_| ()), |count, ()| {
        let is_default = |port: Port| {
            phantom(port.direction(topology)).is_some_and(|(bytes, _)| bytes.is_none())
        };
        format!(
            "the phantom queue {} has the module's default of {} bytes, since the scenario sets none: \
             marks begin at {} bytes (set 'phantom = \"1bdp\"')",
            several(first(&is_default), count),
            grouped(default_of("phantom")),
            grouped(default_of("phantom") * default_of("pmin") / 1_000_000)
        )
    });
    let small = |port: Port| {
        let (bytes, pmax_ppm) = phantom(port.direction(topology))?;
        let bytes = bytes?;
        let all_bytes = u128::from(bytes) * u128::from(pmax_ppm) / 1_000_000;
        let packet_bytes = topology.links[port.link].mtu + ETHERNET_HEADER_BYTES;
        let is_small = all_bytes < u128::from(LEAST_PACKETS) * u128::from(packet_bytes);
        is_small.then_some((bytes, all_bytes as u64, packet_bytes))
    };
    let sizes = ports().filter_map(|(port, _)| small(port));
    notes.extend(by_cause(
        NoteKind::SmallPhantom,
        sizes,
        |count, cause @ &(bytes, all_bytes, packet_bytes)| {
            let port = first(&|port| small(port).as_ref() == Some(cause));
            format!(
                "the phantom queue {} is {} bytes, and marks every packet from {} bytes on, {:.1} packets: \
                 a flow may leave a part of the link idle (set a larger 'phantom')",
                several(port, count),
                grouped(bytes),
                grouped(all_bytes),
                all_bytes as f64 / f64::from(packet_bytes)
            )
        },
    ));
    notes
}
