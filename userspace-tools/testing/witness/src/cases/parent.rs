// SPDX-License-Identifier: GPL-2.0
//! The port as a child: the parent's queue counters match the port's while it holds and drops packets, and
//! when it is deleted.

use anyhow::{Result, ensure};
use xdc_netlink::{
    phantom::{Gso, Mark, MarkAt, Options},
    qdisc::Handle,
};

use super::Case;
use crate::{
    lab::{Lab, equal},
    sender::{Ecn, Frame},
};

pub const CASES: &[Case] = &[
    // A backlog unknown to the parent, which then sleeps with packets or spins without.
    ("htb", |lab| child(lab, HTB)),
    ("tbf", |lab| child(lab, TBF)),
    ("prio", |lab| child(lab, PRIO)),
    ("mq with a port for each queue", mq),
    // A peeked packet counted nowhere.
    ("below a throttled tbf, which peeks", peeked),
];

const HTB: &[&str] = &[
    "qdisc add dev DEV root handle 1: htb default 1",
    "class add dev DEV parent 1: classid 1:1 htb rate 10gbit quantum 60000",
];
const TBF: &[&str] = &["qdisc add dev DEV root handle 1: tbf rate 10gbit burst 10m limit 10m"];
const PRIO: &[&str] =
    &["qdisc add dev DEV root handle 1: prio priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0"];

const CHILD: Handle = Handle { major: 1, minor: 1 };
const PARENT: Handle = Handle { major: 1, minor: 0 };

/// Compares the parent's backlog in packets and bytes with the port's.
fn same_backlog(lab: &mut Lab, when: &str) -> Result<()> {
    let port = lab.look()?.state;
    let parent = find(lab, PARENT)?;
    equal(
        &format!("{when}: packets and bytes of parent and port"),
        (parent.backlog_packets, parent.backlog_bytes),
        (port.backlog_packets, port.backlog_bytes),
    )
}

fn find(lab: &mut Lab, handle: Handle) -> Result<xdc_netlink::qdisc::QdiscState> {
    let found = lab.qdiscs()?.into_iter().find(|q| q.handle == handle);
    found.ok_or_else(|| anyhow::anyhow!("no qdisc {handle}"))
}

fn child(lab: &mut Lab, parent: &[&str]) -> Result<()> {
    for line in parent {
        lab.tc(line)?;
    }
    // Some packets are dropped at enqueue, some at dequeue, and some are split.
    let options = Options {
        limit_bytes: Some(100_000),
        mark: Some(Mark::Physical),
        mark_at: Some(MarkAt::Dequeue),
        min_ppm: Some(200_000),
        max_ppm: Some(200_000),
        ecn_drop: Some(true),
        gso: Some(Gso::Split),
        ..Options::default()
    };
    lab.hold(CHILD, &options, |lab| {
        for _ in 0..130 {
            let frame = Frame::new(1_000).ecn(Ecn::NotEct);
            lab.sender.send(&frame)?;
        }
        Ok(100_000)
    })?;
    same_backlog(lab, "held")?;
    equal("dropped when full", lab.look()?.state.drops, 30)?;

    lab.release(0)?;
    same_backlog(lab, "released")?;
    let (account, port) = lab.balance(0)?;
    // Packets that left more than 20 % of the limit behind: 79 and the first.
    equal("dropped on the way out", port.x.drops_ecn, 80)?;
    equal("missing", account.missing.len(), 30 + 80)?;
    let sent = find(lab, PARENT)?;
    equal("the parent's sent packets", sent.sent_packets, port.state.sent_packets)?;

    // A GSO packet that fits in part.
    let segments = Frame::new(42 + 64_000).segments_of(1_000).ecn(Ecn::NotEct);
    lab.delete()?;
    lab.forget()?;
    let small = Options { limit_bytes: Some(30_000), mark: Some(Mark::None), ..options };
    lab.hold(CHILD, &small, |lab| {
        lab.sender.send_all(1, &segments)?;
        Ok(28 * 1_042)
    })?;
    same_backlog(lab, "a part of a bundle")?;

    // Deleting the port removes its packets from the parent's count.
    lab.delete()?;
    let left = find(lab, PARENT)?;
    equal("the parent's packets without the port", left.backlog_packets, 0)?;
    equal("the parent's bytes without the port", left.backlog_bytes, 0)?;
    // The parent's behavior without a child is not under test.
    lab.tc("qdisc replace dev DEV parent 1:1 pfifo")?;
    lab.sender.send_all(5, &Frame::new(500))?;
    lab.until("packets to pass without the port", |lab| Ok(lab.after.total()?.packets == 1 + 5))
}

fn mq(lab: &mut Lab) -> Result<()> {
    lab.tc("qdisc add dev DEV root handle 1: mq")?;
    for minor in [1, 2] {
        let handle = Handle { major: 0x10 + minor, minor: 0 };
        lab.add_as(handle, Handle { major: 1, minor }, &Options::default())?;
    }
    // The kernel selects the queue; ports of many flows use both.
    for port in 0..200 {
        lab.sender.send_all(1, &Frame::new(300).port(port))?;
    }
    lab.settle()?;
    let sent: u64 = lab.phantoms()?.iter().map(|p| p.state.sent_packets).sum();
    let bytes: u64 = lab.phantoms()?.iter().map(|p| p.state.sent_bytes).sum();
    equal("sent", sent, 200)?;
    equal("bytes sent", bytes, lab.after.total()?.bytes)?;
    equal("after", lab.after.total()?.packets, 200)?;
    let parent = find(lab, PARENT)?;
    equal("sent by mq", parent.sent_packets, 200)?;

    // Both ports hold; mq shows the sum.
    for minor in [1, 2] {
        lab.delete_at(Handle { major: 1, minor })?;
    }
    lab.forget()?;
    let held =
        Options { rate_bytes_per_s: Some(1), drain_ppm: Some(1_000_000), ..Options::default() };
    for minor in [1, 2] {
        let handle = Handle { major: 0x10 + minor, minor: 0 };
        lab.add_as(handle, Handle { major: 1, minor }, &held)?;
    }
    for port in 0..100 {
        lab.sender.send_all(1, &Frame::new(300).port(port))?;
    }
    lab.settle()?;
    let passed = lab.after.total()?.packets;
    let queued: u64 = lab.phantoms()?.iter().map(|p| p.state.backlog_packets).sum();
    equal("out + queued", passed + queued, 100)?;
    let parent = find(lab, PARENT)?;
    equal("queued by mq", (parent.backlog_packets, parent.backlog_bytes), (queued, queued * 300))?;
    ensure!(passed >= 1, "no packet passed");
    Ok(())
}

fn peeked(lab: &mut Lab) -> Result<()> {
    lab.tc("qdisc add dev DEV root handle 1: tbf rate 8kbit burst 2000 limit 10m")?;
    lab.add(CHILD, &Options { mark: Some(Mark::None), ..Options::default() })?;
    // The bucket has 2,000 bytes: two packets pass, the third is peeked at, 17 wait behind it.
    lab.sender.send_all(20, &Frame::new(1_000))?;
    lab.settle()?;
    let passed = lab.after.total()?.packets;
    let port = lab.look()?;
    same_backlog(lab, "throttled")?;
    equal("out + queued", passed + port.state.backlog_packets, 20)?;
    // The kernel's peek dequeues the packet, which the port has counted as sent, and stores it for the port.
    // All qdiscs with the kernel's peek count this way.
    equal("sent", port.state.sent_packets, passed + 1)?;
    lab.tc("qdisc change dev DEV root handle 1: tbf rate 1gbit burst 100k limit 10m")?;
    lab.sender.send_all(1, &Frame::new(1_000))?;
    lab.drain()?;
    same_backlog(lab, "released")?;
    lab.balance(0).map(|_| ())
}
