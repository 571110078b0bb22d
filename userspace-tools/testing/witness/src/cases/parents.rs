// SPDX-License-Identifier: GPL-2.0
//! The port below each kernel qdisc with children, with each cause of drops, and all operations under
//! traffic. At every level packets in = sent + dropped + queued, and the bytes sent match red and codel in
//! the same place.

use std::{fs, thread, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use xdc_ktap::Ktap;
use xdc_netlink::{
    phantom::{ColorSource, Gso, Mark, MarkAt, Options},
    qdisc::{self, Handle, QdiscState},
};

use super::tap;
use crate::{
    lab::{Lab, equal, now_ns, run, time_is_virtual},
    sender::{Ecn, Frame},
};

/// A tbf with the rate of each tree, RATE.
const TBF: &str = "tbf rate RATE burst 3000 limit 10m";

/// Half of the rate that [`Load`] offers in virtual time.
const RATE_BYTES_PER_S: u64 = 1_000_000;

struct Parent {
    name: &'static str,
    setup: &'static [&'static str],
    /// Parents of the child and of its copies.
    places: &'static [Handle],
}

/// Rate of the trees in bytes/s, which a load exceeds. A real-time guest's sending rate is unknown, and lower
/// with a tree, so there it is a quarter of the measured rate without a tree.
fn rate_of(lab: &mut Lab, exact: bool) -> Result<u64> {
    if exact {
        return Ok(RATE_BYTES_PER_S);
    }
    lab.clear()?;
    let mut slowest = RATE_BYTES_PER_S;
    for mut load in [Load::plain(10), Load::bundles(10)] {
        let start_ns = now_ns()?;
        load.send(lab)?;
        let took_ns = (now_ns()? - start_ns).max(1);
        let bytes = load.offered() * FRAME_BYTES as u64;
        slowest = slowest.min(bytes * 1_000_000_000 / took_ns / 4);
    }
    // Queued packets must leave in time.
    let rate = slowest.max(100_000);
    println!("# the trees pass {rate} bytes/s");
    Ok(rate)
}

const fn at(major: u16, minor: u16) -> Handle {
    Handle { major, minor }
}

#[rustfmt::skip]
const PARENTS: &[Parent] = &[
    Parent {
        name: "tbf",
        setup: &["qdisc add dev DEV root handle 1: TBF"],
        places: &[at(1, 1)],
    },
    Parent {
        name: "htb",
        setup: &[
            "qdisc add dev DEV root handle 1: htb default 1",
            "class add dev DEV parent 1: classid 1:1 htb rate RATE burst 3000 cburst 3000 quantum 3000",
        ],
        places: &[at(1, 1)],
    },
    Parent {
        name: "tbf > prio",
        setup: &[
            "qdisc add dev DEV root handle 1: TBF",
            "qdisc add dev DEV parent 1:1 handle 2: prio priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0",
        ],
        places: &[at(2, 1)],
    },
    Parent {
        name: "tbf > multiq",
        setup: &[
            "qdisc add dev DEV root handle 1: TBF",
            "qdisc add dev DEV parent 1:1 handle 2: multiq",
        ],
        places: &[at(2, 1), at(2, 2)],
    },
    Parent {
        name: "tbf > ets, strict",
        setup: &[
            "qdisc add dev DEV root handle 1: TBF",
            "qdisc add dev DEV parent 1:1 handle 2: ets bands 2 strict 2 priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0",
        ],
        places: &[at(2, 1)],
    },
    Parent {
        name: "tbf > ets, by quantum",
        setup: &[
            "qdisc add dev DEV root handle 1: TBF",
            "qdisc add dev DEV parent 1:1 handle 2: ets bands 2 quanta 3000 3000 priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0",
        ],
        places: &[at(2, 1)],
    },
    Parent {
        name: "tbf > drr",
        setup: &[
            "qdisc add dev DEV root handle 1: TBF",
            "qdisc add dev DEV parent 1:1 handle 2: drr",
            "class add dev DEV parent 2: classid 2:1 drr quantum 3000",
            "filter add dev DEV parent 2: protocol all prio 1 matchall classid 2:1",
        ],
        places: &[at(2, 1)],
    },
    Parent {
        name: "tbf > qfq",
        setup: &[
            "qdisc add dev DEV root handle 1: TBF",
            "qdisc add dev DEV parent 1:1 handle 2: qfq",
            "class add dev DEV parent 2: classid 2:1 qfq weight 1 maxpkt 2048",
            "filter add dev DEV parent 2: protocol all prio 1 matchall classid 2:1",
        ],
        places: &[at(2, 1)],
    },
    Parent {
        name: "tbf > hfsc",
        setup: &[
            "qdisc add dev DEV root handle 1: TBF",
            "qdisc add dev DEV parent 1:1 handle 2: hfsc default 1",
            "class add dev DEV parent 2: classid 2:1 hfsc rt m2 50kbit ls m2 RATE",
        ],
        places: &[at(2, 1)],
    },
    Parent {
        name: "hfsc with an upper limit",
        setup: &[
            "qdisc add dev DEV root handle 1: hfsc default 1",
            "class add dev DEV parent 1: classid 1:1 hfsc ls m2 RATE ul m2 RATE",
        ],
        places: &[at(1, 1)],
    },
    Parent {
        name: "tbf > red",
        setup: &[
            "qdisc add dev DEV root handle 1: TBF",
            "qdisc add dev DEV parent 1:1 handle 2: red limit 1000000 min 300000 max 900000 avpkt 1000 burst 501 probability 0.02 bandwidth RATE",
        ],
        places: &[at(2, 1)],
    },
    Parent {
        name: "tbf > netem",
        setup: &[
            "qdisc add dev DEV root handle 1: TBF",
            "qdisc add dev DEV parent 1:1 handle 2: netem delay 1ms limit 10000",
        ],
        places: &[at(2, 1)],
    },
    Parent {
        name: "mq > tbf",
        setup: &[
            "qdisc add dev DEV root handle 1: mq",
            "qdisc add dev DEV parent 1:1 handle 2: TBF",
            "qdisc add dev DEV parent 1:2 handle 3: TBF",
        ],
        places: &[at(2, 1), at(3, 1)],
    },
    Parent {
        name: "mqprio > tbf",
        setup: &[
            "qdisc add dev DEV root handle 1: mqprio num_tc 2 map 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 queues 1@0 1@1 hw 0",
            "qdisc add dev DEV parent 1:1 handle 2: TBF",
            "qdisc add dev DEV parent 1:2 handle 3: TBF",
        ],
        places: &[at(2, 1), at(3, 1)],
    },
    Parent {
        name: "taprio > tbf",
        setup: &[
            "qdisc add dev DEV root handle 1: taprio num_tc 2 map 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 queues 1@0 1@1 base-time 0 sched-entry S 03 1000000 clockid CLOCK_TAI",
            "qdisc add dev DEV parent 1:1 handle 2: TBF",
            "qdisc add dev DEV parent 1:2 handle 3: TBF",
        ],
        places: &[at(2, 1), at(3, 1)],
    },
];

/// Nested qdiscs that peek. Their children never drop their last packet: qfq and others peek by
/// qdisc_peek_dequeued(), which is wrong if a peek further below empties the queue, in any qdisc.
#[rustfmt::skip]
const DEEP: Parent = Parent {
    name: "htb > hfsc > qfq > drr > prio",
    setup: &[
        "qdisc add dev DEV root handle 1: htb default 1",
        "class add dev DEV parent 1: classid 1:1 htb rate RATE burst 3000 cburst 3000 quantum 3000",
        "qdisc add dev DEV parent 1:1 handle 2: hfsc default 1",
        "class add dev DEV parent 2: classid 2:1 hfsc rt m2 50kbit ls m2 RATE",
        "qdisc add dev DEV parent 2:1 handle 3: qfq",
        "class add dev DEV parent 3: classid 3:1 qfq weight 1 maxpkt 2048",
        "filter add dev DEV parent 3: protocol all prio 1 matchall classid 3:1",
        "qdisc add dev DEV parent 3:1 handle 4: drr",
        "class add dev DEV parent 4: classid 4:1 drr quantum 3000",
        "filter add dev DEV parent 4: protocol all prio 1 matchall classid 4:1",
        "qdisc add dev DEV parent 4:1 handle 5: prio priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0",
    ],
    places: &[at(5, 1)],
};

/// Handle of the first child; the others follow.
const CHILD: Handle = at(0x10, 0);

/// Qdisc in the child's place.
#[derive(Clone)]
enum Child {
    /// Arguments for tc.
    Of(&'static str),
    Phantom(Box<Options>),
}

fn phantom(options: Options) -> Child {
    Child::Phantom(Box::new(options))
}

fn add(lab: &mut Lab, parent: &Parent, child: &Child) -> Result<()> {
    for (number, place) in (0..).zip(parent.places) {
        put(lab, "add", *place, number, child)?;
    }
    Ok(())
}

/// `tc qdisc VERB` of child `number`.
fn put(lab: &mut Lab, verb: &str, place: Handle, number: u16, child: &Child) -> Result<()> {
    let handle = at(CHILD.major + number, 0);
    // tc reads hexadecimal numbers.
    let place_words = format!("{:x}:{:x}", place.major, place.minor);
    match child {
        Child::Of(words) => lab.tc(&format!(
            "qdisc {verb} dev DEV parent {place_words} handle {:x}: {words}",
            handle.major
        )),
        Child::Phantom(options) => {
            let port = qdisc::Qdisc { parent: place, ..lab.qdisc(handle, options) };
            let request = match verb {
                "add" => port.add(),
                "replace" => port.replace(),
                "change" => port.change(),
                _ => bail!("unknown verb: {verb}"),
            };
            lab.request(request)
        }
    }
}

/// Lowest rate at which queued packets leave in time.
const LEAST_RATE_BYTES_PER_S: u64 = 10_000;

/// Trees with a rate of `rate_bytes_per_s`.
struct Trees {
    rate_bytes_per_s: u64,
    exact: bool,
}

/// In real time a case takes seconds, so each parent gets a different third of the cases.
const SHARE: usize = 3;

impl Trees {
    fn set_up(&self, lab: &mut Lab, parent: &Parent) -> Result<()> {
        lab.clear()?;
        self.build(lab, parent)
    }

    fn build(&self, lab: &Lab, parent: &Parent) -> Result<()> {
        let rate = format!("{}bit", self.rate_bytes_per_s * 8);
        for line in parent.setup {
            lab.tc(&line.replace("TBF", TBF).replace("RATE", &rate))?;
        }
        Ok(())
    }
}

/// The qdiscs of a tree, for checks that hold at any time.
struct Tree(Vec<QdiscState>);

impl Tree {
    /// Reads the qdiscs until two reads agree, so that nothing happened in between.
    fn read(lab: &mut Lab) -> Result<Self> {
        let mut last = Self(lab.qdiscs()?);
        for _ in 0..1_000 {
            let now = Self(lab.qdiscs()?);
            if now.numbers() == last.numbers() {
                return Ok(now);
            }
            last = now;
        }
        bail!("the tree keeps changing")
    }

    /// Counters that only packets change.
    fn numbers(&self) -> Vec<[u64; 4]> {
        let of = |q: &QdiscState| [q.sent_packets, q.drops, q.backlog_packets, q.backlog_bytes];
        self.0.iter().map(of).collect()
    }

    fn root(&self) -> Result<&QdiscState> {
        let root = self.0.iter().find(|q| q.parent == Handle::ROOT);
        root.context("no root")
    }

    fn children(&self) -> impl Iterator<Item = &QdiscState> {
        self.0.iter().filter(|q| (CHILD.major..CHILD.major + 2).contains(&q.handle.major))
    }

    fn drops(&self) -> u64 {
        self.children().map(|q| q.drops).sum()
    }

    fn sent_packets(&self) -> u64 {
        self.children().map(|q| q.sent_packets).sum()
    }

    fn queued(&self) -> u64 {
        self.children().map(|q| q.backlog_packets).sum()
    }

    /// Checks that each parent's backlog is its children's, plus at most one packet that its own parent has
    /// peeked at.
    fn check_backlogs(&self, when: &str) -> Result<()> {
        for parent in &self.0 {
            let below: Vec<_> = self
                .0
                .iter()
                .filter(|q| q.parent.major == parent.handle.major && q.parent.minor != 0)
                .filter(|q| q.handle != parent.handle)
                .collect();
            if below.is_empty() || !counts_packets(parent) {
                continue;
            }
            let packets: u64 = below.iter().map(|q| q.backlog_packets).sum();
            let bytes: u64 = below.iter().map(|q| q.backlog_bytes).sum();
            let more_packets = parent.backlog_packets.wrapping_sub(packets);
            let more_bytes = parent.backlog_bytes.wrapping_sub(bytes);
            let most = match parent.kind.as_str() {
                // netem queues packets itself.
                "netem" => u64::from(u32::MAX),
                _ => 1,
            };
            let right = more_packets <= most
                && (!(counts_bytes(parent) && below.iter().all(|q| counts_bytes(q)))
                    || (more_bytes <= most * MAX_PACKET_BYTES
                        && (more_bytes == 0) == (more_packets == 0)));
            ensure!(
                right,
                "{when}: {} {} counts {} packets and {} bytes, its children have {packets} and {bytes}",
                parent.kind,
                parent.handle,
                parent.backlog_packets,
                parent.backlog_bytes,
            );
        }
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|q| {
            (q.backlog_packets == 0 || !counts_packets(q))
                && (q.backlog_bytes == 0 || !counts_bytes(q))
        })
    }
}

/// taprio counts a packet before any child refuses it.
fn counts_packets(qdisc: &QdiscState) -> bool {
    qdisc.kind != "taprio"
}

/// multiq does not count arriving bytes, but subtracts those that its children drop.
fn counts_bytes(qdisc: &QdiscState) -> bool {
    counts_packets(qdisc) && qdisc.kind != "multiq"
}

/// Waits until nothing is queued, and returns the tree.
fn drained(lab: &mut Lab) -> Result<Tree> {
    lab.until("empty queues at every level", |lab| Ok(Tree(lab.qdiscs()?).is_empty()))
        .with_context(|| backlogs(lab))?;
    lab.settle()?;
    Tree::read(lab)
}

/// Backlogs for error messages.
fn backlogs(lab: &mut Lab) -> String {
    let shown = lab.qdiscs().unwrap_or_default();
    let each = shown.iter().map(|q| {
        format!("{} {}: {} packets, {} bytes", q.kind, q.handle, q.backlog_packets, q.backlog_bytes)
    });
    each.collect::<Vec<_>>().join("; ")
}

/// Traffic at twice the tree's rate.
struct Load {
    frames: Vec<Frame>,
    /// Packets per frame after splitting.
    split: u64,
    burst: usize,
    rounds: usize,
    sent: usize,
}

const ROUND: Duration = Duration::from_millis(5);
const FRAME_BYTES: usize = 1_000;
/// Payload of a segment; a frame with one segment has FRAME_BYTES.
const SEGMENT_BYTES: u16 = 958;
const SEGMENTS: u64 = 5;
const HEADER_BYTES: usize = 42;
/// Largest packet, split or not.
const MAX_PACKET_BYTES: u64 = 5_000;

impl Load {
    /// Frames of 1,000 bytes, for `rounds` of 5 ms.
    fn new(frames: Vec<Frame>, rounds: usize) -> Self {
        Self { frames, split: 1, burst: 10, rounds, sent: 0 }
    }

    fn bundles(rounds: usize) -> Self {
        let bytes = HEADER_BYTES + usize::from(SEGMENT_BYTES) * SEGMENTS as usize;
        let frame = Frame::new(bytes).ecn(Ecn::NotEct).segments_of(SEGMENT_BYTES);
        Self { split: SEGMENTS, burst: 2, ..Self::new(vec![frame], rounds) }
    }

    fn plain(rounds: usize) -> Self {
        Self::new(vec![frame()], rounds)
    }

    fn send(&mut self, lab: &mut Lab) -> Result<()> {
        for _ in 0..self.rounds {
            self.burst(lab)?;
            thread::sleep(ROUND);
        }
        Ok(())
    }

    fn burst(&mut self, lab: &mut Lab) -> Result<()> {
        for _ in 0..self.burst {
            let frame = self.frames[self.sent % self.frames.len()];
            lab.sender.send(&frame)?;
            self.sent += 1;
        }
        Ok(())
    }

    fn offered(&self) -> u64 {
        self.sent as u64 * self.split
    }
}

fn frame() -> Frame {
    Frame::new(FRAME_BYTES).ecn(Ecn::NotEct)
}

/// Checks that all counters add up after a load; returns the bytes that the root sent during it.
fn books(
    trees: &Trees,
    lab: &mut Lab,
    parent: &Parent,
    child: &Child,
    mut load: Load,
) -> Result<u64> {
    trees.set_up(lab, parent)?;
    add(lab, parent, child)?;
    load.send(lab)?;
    // The machine may have been busy.
    for _ in 0..if trees.exact { 0 } else { 20 } {
        if Tree(lab.qdiscs()?).drops() > 0 {
            break;
        }
        load.send(lab)?;
    }
    // The machine is slower now than at the measurement.
    if !trees.exact
        && trees.rate_bytes_per_s > LEAST_RATE_BYTES_PER_S
        && Tree(lab.qdiscs()?).drops() == 0
    {
        let slower = Trees { rate_bytes_per_s: trees.rate_bytes_per_s / 4, ..*trees };
        return books(&slower, lab, parent, child, Load { sent: 0, ..load });
    }
    let busy = Tree::read(lab)?;
    let sent_bytes = busy.root()?.sent_bytes;
    busy.check_backlogs("under load")?;
    let rest = drained(lab)?;
    equal(
        "packets sent + dropped by the children, and offered",
        rest.sent_packets() + rest.drops(),
        load.offered(),
    )?;
    let root = rest.root()?;
    equal("packets sent by the root, and by the children", root.sent_packets, rest.sent_packets())?;
    equal(
        "packets that arrived, and sent by the root",
        lab.after.total()?.packets,
        root.sent_packets,
    )?;
    ensure!(rest.queued() == 0 && rest.drops() > 0, "no packet was dropped");
    Ok(sent_bytes)
}

struct Way {
    name: &'static str,
    child: Child,
    load: fn(usize) -> Load,
    /// Drops keep the tree busy, as red's do.
    keeps_busy: bool,
}

fn ways() -> Vec<Way> {
    let red = |at| Options {
        limit_bytes: Some(200_000),
        mark: Some(Mark::Physical),
        mark_at: Some(at),
        min_ppm: Some(50_000),
        max_ppm: Some(500_000),
        ecn_drop: Some(true),
        gso: Some(Gso::Whole),
        ..Options::default()
    };
    let unmarked =
        |limit| Options { limit_bytes: Some(limit), mark: Some(Mark::None), ..Options::default() };
    let busy = |name, options, load| Way { name, child: phantom(options), load, keeps_busy: true };
    let colored = |rounds| Load::new(vec![frame(), frame().dscp(8), frame().dscp(8)], rounds);
    vec![
        busy("drops at enqueue", red(MarkAt::Enqueue), Load::plain),
        busy("drops at dequeue", red(MarkAt::Dequeue), Load::plain),
        busy("drops at the limit", unmarked(20_000), Load::plain),
        busy(
            "drops segments at dequeue",
            Options { gso: Some(Gso::Split), ..red(MarkAt::Dequeue) },
            Load::bundles,
        ),
        busy(
            "drops segments at the limit",
            Options { gso: Some(Gso::Split), ..unmarked(20_000) },
            Load::bundles,
        ),
        busy(
            "drops by color",
            Options {
                color_source: Some(ColorSource::Dscp),
                dscp_red: Some(1 << 8),
                red_limit_bytes: Some(5_000),
                ..unmarked(20_000)
            },
            colored,
        ),
        busy(
            "drops at the pool's limit",
            Options {
                pool: Some("parents".into()),
                pool_limit_bytes: Some(40_000),
                ..unmarked(100_000)
            },
            Load::plain,
        ),
        Way {
            name: "returns no packet most of the time",
            child: phantom(Options { rate_bytes_per_s: Some(200_000), ..unmarked(20_000) }),
            load: Load::plain,
            keeps_busy: false,
        },
        Way {
            name: "drops all queued packets but the last at dequeue",
            child: phantom(Options {
                limit_bytes: Some(1_000_000),
                min_ppm: Some(0),
                max_ppm: Some(1_000),
                ..red(MarkAt::Dequeue)
            }),
            load: Load::plain,
            keeps_busy: false,
        },
    ]
}

/// The kernel's qdiscs in the same place: red drops at enqueue, codel at dequeue.
const OWN: &[(&str, &str)] = &[
    (
        "red",
        "red limit 200000 min 10000 max 100000 avpkt 1000 burst 12 probability 1 bandwidth 8mbit",
    ),
    ("codel", "codel target 1us interval 1us noecn limit 1000"),
];

fn within_2_percent(got: u64, want: u64) -> bool {
    got.abs_diff(want) * 50 <= want
}

/// Tests each parent with each cause of drops.
fn each_way(trees: &Trees, lab: &mut Lab, ktap: &mut Ktap) {
    let (rounds, share) = if trees.exact { (60, 1) } else { (10, SHARE) };
    for (number, parent) in PARENTS.iter().chain([&DEEP]).enumerate() {
        let mut own = Vec::new();
        for (name, words) in OWN.iter().filter(|_| trees.exact) {
            let outcome = books(trees, lab, parent, &Child::Of(words), Load::plain(rounds));
            let outcome = outcome.map(|bytes| own.push((name, bytes)));
            ktap.case(&format!("{}: {name}", parent.name), outcome);
        }
        for way in ways().into_iter().skip(number % share).step_by(share) {
            let outcome =
                books(trees, lab, parent, &way.child, (way.load)(rounds)).and_then(|bytes| {
                    if !trees.exact || !way.keeps_busy {
                        return Ok(());
                    }
                    for (name, own_bytes) in &own {
                        ensure!(
                            within_2_percent(bytes, *own_bytes),
                            "sent {bytes} bytes, {name} in the same place {own_bytes}"
                        );
                    }
                    Ok(())
                });
            ktap.case(&format!("{}: phantom {}", parent.name, way.name), outcome);
        }
    }
}

/// Tests each parent with operations on its child under traffic.
fn each_event(trees: &Trees, lab: &mut Lab, ktap: &mut Ktap) {
    for parent in PARENTS.iter().chain([&DEEP]) {
        ktap.case(
            &format!("{}: change, replace, reset, delete, device down, under traffic", parent.name),
            events(trees, lab, parent),
        );
        ktap.case(
            &format!("{}: the namespace is deleted under traffic", parent.name),
            namespace_goes(trees, lab, parent),
        );
    }
}

fn port(limit_bytes: u32, mark_at: MarkAt) -> Child {
    phantom(Options {
        limit_bytes: Some(limit_bytes),
        mark: Some(Mark::Physical),
        mark_at: Some(mark_at),
        min_ppm: Some(50_000),
        max_ppm: Some(500_000),
        ecn_drop: Some(true),
        gso: Some(Gso::Split),
        ..Options::default()
    })
}

fn events(trees: &Trees, lab: &mut Lab, parent: &Parent) -> Result<()> {
    trees.set_up(lab, parent)?;
    let ports = [
        port(100_000, MarkAt::Dequeue),
        port(3_000, MarkAt::Enqueue),
        port(50_000, MarkAt::Dequeue),
    ];
    add(lab, parent, &ports[0])?;
    let mut plain = Load::plain(2);
    let mut bundles = Load::bundles(2);
    let mut traffic = |lab: &mut Lab, when: &str| -> Result<()> {
        plain.send(lab)?;
        bundles.send(lab)?;
        Tree::read(lab)?.check_backlogs(when)
    };
    let each = |lab: &mut Lab, verb: &str, child: &Child| -> Result<()> {
        for (number, place) in (0..).zip(parent.places) {
            put(lab, verb, *place, number, child)?;
        }
        Tree::read(lab)?.check_backlogs(verb)
    };
    traffic(lab, "at first")?;
    for child in [&ports[1], &ports[2], &ports[0]] {
        each(lab, "change", child)?;
        traffic(lab, "changed")?;
    }
    for child in [&Child::Of("pfifo limit 50"), &ports[1], &Child::Of("wrong"), &ports[0]] {
        // A handle stays with its kind, so delete first.
        for place in parent.places {
            lab.delete_at(*place)?;
        }
        Tree::read(lab)?.check_backlogs("deleted")?;
        traffic(lab, "without child").ok();
        each(lab, "replace", child)?;
        traffic(lab, "replaced")?;
    }
    passes(lab).context("after change and replace")?;
    // Delete with packets queued.
    bundles.burst(lab)?;
    plain.burst(lab)?;
    lab.delete_at(Handle::ROOT)?;

    // Some parents do not survive their own reset.
    let codel = device_down(trees, lab, parent, &Child::Of(OWN[1].1));
    let ours = device_down(trees, lab, parent, &ports[0]);
    match codel {
        Ok(()) => ours,
        Err(_) => Ok(()),
    }
}

/// Checks that packets pass after the device was down with packets queued.
fn device_down(trees: &Trees, lab: &mut Lab, parent: &Parent, child: &Child) -> Result<()> {
    trees.set_up(lab, parent)?;
    add(lab, parent, child)?;
    let mut load = Load::plain(2);
    load.send(lab)?;
    lab.set_link(false)?;
    let down = Tree::read(lab)?;
    lab.set_link(true)?;
    down.check_backlogs("down")?;
    ensure!(down.is_empty(), "the device holds packets while it is down");
    load.send(lab)?;
    Tree::read(lab)?.check_backlogs("up again")?;
    passes(lab).context("after the device was down")
}

/// Checks that packets pass the tree and leave it empty.
fn passes(lab: &mut Lab) -> Result<()> {
    drained(lab)?;
    lab.forget()?;
    for _ in 0..5 {
        lab.sender.send(&frame())?;
        drained(lab)?;
    }
    equal("packets one by one", lab.after.total()?.packets, 5)
}

const GONE: &str = "gone";

fn namespace_goes(trees: &Trees, lab: &mut Lab, parent: &Parent) -> Result<()> {
    lab.in_new_namespace(GONE, |lab| {
        trees.build(lab, parent)?;
        add(lab, parent, &port(100_000, MarkAt::Dequeue))?;
        Load::plain(3).send(lab)?;
        Tree::read(lab)?.check_backlogs("in the namespace")
    })?;
    lab.until("deletion of the namespace", |_| Ok(!fs::exists(format!("/run/netns/{GONE}"))?))
}

/// Mistakes of [`sch_wrong`] at enqueue and dequeue, selected by the packet's priority.
const MISTAKES: std::ops::RangeInclusive<u32> = 1..=12;

/// Tests each parent with a child that makes mistakes.
fn each_mistake(trees: &Trees, lab: &mut Lab, ktap: &mut Ktap) {
    let share = if trees.exact { 1 } else { SHARE };
    for (number, parent) in PARENTS.iter().enumerate() {
        let outcome = MISTAKES
            .skip(number % share)
            .step_by(share)
            .map(|mistake| {
                mistakes(trees, lab, parent, &[mistake]).with_context(|| format!("{mistake}"))
            })
            .collect::<Result<Vec<()>>>()
            .and_then(|_| {
                let all: Vec<u32> = MISTAKES.collect();
                mistakes(trees, lab, parent, &all).context("all")
            });
        ktap.case(&format!("{}: an erroneous child", parent.name), outcome);
    }
}

/// As [`drained`], but sends packets: a parent need not dequeue again from a child that once returned nothing
/// despite a queue. Returns the number of packets.
fn drained_by_kicks(lab: &mut Lab) -> Result<u64> {
    for kicks in 0..50 {
        lab.settle()?;
        if Tree(lab.qdiscs()?).is_empty() {
            return Ok(kicks);
        }
        thread::sleep(Duration::from_millis(50));
        if Tree(lab.qdiscs()?).is_empty() {
            return Ok(kicks);
        }
        lab.sender.send(&frame())?;
    }
    bail!("packets stay queued: {}", backlogs(lab))
}

fn mistakes(trees: &Trees, lab: &mut Lab, parent: &Parent, mistakes: &[u32]) -> Result<()> {
    trees.set_up(lab, parent)?;
    add(lab, parent, &Child::Of("wrong"))?;
    // Correct and wrong packets alternate.
    let frames =
        mistakes.iter().flat_map(|mistake| [frame(), frame().priority(*mistake)]).collect();
    let mut load = Load::new(frames, 6);
    load.send(lab)?;
    Tree::read(lab)?.check_backlogs("under load")?;
    let bundles: Vec<_> =
        mistakes.iter().map(|mistake| Load::bundles(1).frames[0].priority(*mistake)).collect();
    let mut bundles = Load { frames: bundles, ..Load::bundles(2) };
    bundles.send(lab)?;
    Tree::read(lab)?.check_backlogs("under load, bundles")?;
    // One burst after another, so that the queue empties in between.
    let mut kicks = 0;
    for _ in 0..5 {
        bundles.burst(lab)?;
        load.burst(lab)?;
        kicks += drained_by_kicks(lab)?;
    }
    let rest = drained(lab)?;
    equal(
        "packets sent + dropped by the children, and offered",
        rest.sent_packets() + rest.drops(),
        load.offered() + bundles.offered() + kicks,
    )?;
    equal(
        "packets that arrived, and sent by the root",
        lab.after.total()?.packets,
        rest.root()?.sent_packets,
    )?;
    passes(lab)?;
    load.burst(lab)?;
    lab.delete_at(Handle::ROOT)
}

/// Four transmit queues with a port each, and their parents.
const QUEUES: [Handle; 4] = [at(1, 1), at(1, 2), at(1, 3), at(1, 4)];
#[rustfmt::skip]
const MQS: &[(&str, &str)] = &[
    ("mq", "qdisc add dev DEV root handle 1: mq"),
    (
        "mqprio",
        "qdisc add dev DEV root handle 1: mqprio num_tc 1 map 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 queues 4@0 hw 0",
    ),
];

/// Marks each packet while the phantom queue exceeds 500,000 bytes; drains 1,000,000 bytes/s.
fn threshold() -> Options {
    Options {
        limit_bytes: Some(10_000_000),
        line_rate_bytes_per_s: Some(1_000_000),
        drain_ppm: Some(1_000_000),
        phantom_limit_bytes: Some(1_000_000),
        pmin_ppm: Some(500_000),
        pmax_ppm: Some(500_000),
        mark: Some(Mark::Phantom),
        mark_at: Some(MarkAt::Enqueue),
        ..Options::default()
    }
}

/// Packets marked by all ports, and each port's packets and phantom queue after about half has drained.
struct Phantoms {
    sent_packets: Vec<u64>,
    marked: u64,
    occupancy_bytes: Vec<u64>,
}

fn phantoms(lab: &mut Lab) -> Result<Phantoms> {
    // 2,000,000 bytes/s for 0.9 s exceed the threshold after half a second.
    for round in 0..180u16 {
        for flow in 0..10 {
            lab.sender.send_all(1, &Frame::new(1_000).port(round % 16 * 10 + flow))?;
        }
        thread::sleep(ROUND);
    }
    thread::sleep(Duration::from_millis(300));
    let ports = lab.phantoms()?;
    Ok(Phantoms {
        sent_packets: ports.iter().map(|p| p.state.sent_packets).collect(),
        marked: ports.iter().map(|p| p.x.marked()).sum(),
        occupancy_bytes: ports.iter().map(|p| p.x.phantom_bytes).collect(),
    })
}

fn one_phantom_queue(lab: &mut Lab, mq: &str, mark_at: MarkAt) -> Result<()> {
    let options = Options { mark_at: Some(mark_at), ..threshold() };
    lab.port(&options)?;
    let one = phantoms(lab)?;
    lab.clear()?;
    lab.tc(mq)?;
    for (number, place) in (0..).zip(QUEUES) {
        put(lab, "add", place, number, &phantom(options.clone()))?;
    }
    let four = phantoms(lab)?;
    let used = four.sent_packets.iter().filter(|sent| **sent > 100).count();
    ensure!(used >= 3, "queues used: {:?}", four.sent_packets);
    ensure!(
        one.marked > 100 && within_2_percent(four.marked, one.marked),
        "four queues mark {} packets, one queue {}",
        four.marked,
        one.marked
    );
    for bytes in &four.occupancy_bytes {
        ensure!(
            *bytes > 100_000 && within_2_percent(*bytes, one.occupancy_bytes[0]),
            "{:?} bytes after the drain, {:?} with one queue",
            four.occupancy_bytes,
            one.occupancy_bytes
        );
    }
    // A change of one port applies to all.
    let faster = Options { drain_ppm: Some(500_000), ..Options::default() };
    put(lab, "change", QUEUES[2], 2, &phantom(faster))?;
    for port in lab.phantoms()? {
        equal("drain", port.x.phantom_drain_bytes_per_s, 500_000)?;
    }
    // The last port deletes the phantom queue, so a new tree starts with an empty one.
    lab.delete_at(Handle::ROOT)?;
    lab.tc(mq)?;
    for (number, place) in (0..).zip(QUEUES) {
        put(lab, "add", place, number, &phantom(threshold()))?;
    }
    for port in lab.phantoms()? {
        equal("a new phantom queue", port.x.phantom_bytes, 0)?;
    }
    Ok(())
}

fn each_mq(lab: &mut Lab, ktap: &mut Ktap) {
    for (name, setup) in MQS {
        for (when, mark_at) in [("enqueue", MarkAt::Enqueue), ("dequeue", MarkAt::Dequeue)] {
            let outcome = lab.clear().and_then(|()| one_phantom_queue(lab, setup, mark_at));
            let name = format!("{name}: four ports share one phantom queue, marks at {when}");
            ktap.case(&name, outcome);
        }
    }
}

/// Runs all cases.
pub fn run_all(ktap: &mut Ktap) -> Result<()> {
    let exact = time_is_virtual()?;
    let mut lab = Lab::new(2)?;
    let trees = Trees { rate_bytes_per_s: rate_of(&mut lab, exact)?, exact };
    each_way(&trees, &mut lab, ktap);
    each_event(&trees, &mut lab, ktap);
    run("modprobe sch_wrong")?;
    each_mistake(&trees, &mut lab, ktap);
    drop(lab);
    if exact {
        each_mq(&mut Lab::new(4)?, ktap);
    }
    tap::run_all(ktap)
}
