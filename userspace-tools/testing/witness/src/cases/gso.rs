// SPDX-License-Identifier: GPL-2.0
//! GSO packets, split or whole, with their lengths on the wire.

use anyhow::{Result, ensure};
use xdc_netlink::{
    phantom::{Gso, Mark, MarkAt, Options},
    qdisc::Handle,
};

use super::Case;
use crate::{
    lab::{Lab, PLUG_BYTES, equal, now_ns},
    sender::{Ecn, Frame, Kind},
};

pub const CASES: &[Case] = &[
    // Segments that parents count as one packet; missing header bytes.
    ("split: each segment is a packet, UDP", |lab| split(lab, Kind::Udp4)),
    ("split: each segment is a packet, TCP", |lab| split(lab, Kind::Tcp4)),
    // A GSO packet split despite the option, or counted without the headers of its segments.
    ("whole: a bundle is not split", whole),
    // A mark on the whole GSO packet instead of a segment.
    ("split: each segment is marked separately", one_mark),
    // Segments refused despite room; a loss of all reported to the sender.
    ("split: a queue accepts the segments that fit", partly),
    ("whole: a queue accepts the whole bundle or nothing", all_or_nothing),
    ("auto: split while marking, whole otherwise", auto),
    // Length of the GSO packet in the phantom queue.
    ("phantom counts the bytes on the wire, split and whole", phantom_bytes),
];

const SEGMENT_BYTES: usize = 1_000;
const SEGMENTS: usize = 12;
/// The last segment is 300 bytes shorter.
const PAYLOAD_BYTES: usize = SEGMENT_BYTES * SEGMENTS - 300;

fn bundle(kind: Kind) -> Frame {
    Frame::new(kind.header_bytes() + PAYLOAD_BYTES).kind(kind).segments_of(SEGMENT_BYTES as u16)
}

/// Bytes with the headers of each segment.
fn wire_bytes(kind: Kind) -> u64 {
    (PAYLOAD_BYTES + SEGMENTS * kind.header_bytes()) as u64
}

fn options(gso: Gso) -> Options {
    Options {
        gso: Some(gso),
        mark: Some(Mark::None),
        line_rate_bytes_per_s: Some(1_000_000),
        drain_ppm: Some(1),
        ..Options::default()
    }
}

/// Checks the witnesses and the port after GSO packets have passed without loss.
fn passed(lab: &mut Lab, bundles: u64, kind: Kind, bundles_after: u64) -> Result<()> {
    lab.drain()?;
    lab.before.check("before")?;
    lab.after.check("after")?;
    let (before, after) = (lab.before.total()?, lab.after.total()?);
    let state = lab.look()?.state;
    let packets = bundles * SEGMENTS as u64;
    equal("bundles before", before.bundles, bundles)?;
    equal("packets before", before.packets, packets)?;
    equal("bytes before", before.bytes, bundles * wire_bytes(kind))?;
    equal("packets sent", state.sent_packets, packets)?;
    equal("bytes sent", state.sent_bytes, bundles * wire_bytes(kind))?;
    equal("packets after", after.packets, packets)?;
    equal("bytes after", after.bytes, bundles * wire_bytes(kind))?;
    equal("bundles after", after.bundles, bundles_after)?;
    equal("drops", state.drops, 0)?;
    equal("backlog", state.backlog_bytes, 0)
}

fn split(lab: &mut Lab, kind: Kind) -> Result<()> {
    lab.port(&options(Gso::Split))?;
    lab.sender.send_all(20, &bundle(kind))?;
    passed(lab, 20, kind, 20 * SEGMENTS as u64)?;
    let records = lab.after.records()?;
    for segments in records.chunks(SEGMENTS) {
        let full = (kind.header_bytes() + SEGMENT_BYTES) as u32;
        let (last, others) = segments.split_last().unwrap_or((&records[0], &[]));
        ensure!(
            others.iter().all(|r| r.bytes == full) && last.bytes == full - 300,
            "segments of {:?} bytes",
            segments.iter().map(|r| r.bytes).collect::<Vec<_>>()
        );
        ensure!(segments.iter().all(|r| r.bad_checksum == 0), "a segment with a bad checksum");
    }
    Ok(())
}

fn whole(lab: &mut Lab) -> Result<()> {
    for kind in [Kind::Udp4, Kind::Tcp4] {
        lab.port(&options(Gso::Whole))?;
        lab.sender.send_all(20, &bundle(kind))?;
        passed(lab, 20, kind, 20)?;
    }
    Ok(())
}

fn one_mark(lab: &mut Lab) -> Result<()> {
    // Marks half of all packets.
    let half = Options {
        phantom_limit_bytes: Some(1 << 40),
        pmin_ppm: Some(0),
        pmax_ppm: Some(1),
        mark: Some(Mark::Phantom),
        mark_at: Some(MarkAt::Enqueue),
        ..options(Gso::Split)
    };
    lab.port(&half)?;
    // 550,000 of 1,099,511 bytes: every segment finds p = 0.5 or slightly more.
    let filler = Frame::new(55_000).ecn(Ecn::NotEct);
    lab.sender.send_all(10, &filler)?;
    lab.drain()?;
    lab.forget()?;
    lab.sender.send_all(10, &bundle(Kind::Udp4))?;
    lab.drain()?;
    let records = lab.after.records()?;
    equal("packets after", records.len(), 10 * SEGMENTS)?;
    let marks: Vec<usize> = records
        .chunks(SEGMENTS)
        .map(|segments| segments.iter().filter(|r| r.is_ce()).count())
        .collect();
    println!("# marks by bundle of {SEGMENTS}: {marks:?}");
    // A GSO packet marked as a whole has all or no marks; twelve random marks agree once in 2048.
    let mixed = marks.iter().filter(|n| (1..SEGMENTS).contains(*n)).count();
    ensure!(mixed >= 9, "marks by bundle: {marks:?}");
    let total: usize = marks.iter().sum();
    equal("marked", lab.look()?.x.marked(), total as u64)
}

fn partly(lab: &mut Lab) -> Result<()> {
    let room = 5 * (SEGMENT_BYTES + Kind::Udp4.header_bytes()) as u64;
    let options = Options {
        // The plug needs room too.
        limit_bytes: Some(room.max(PLUG_BYTES) as u32),
        ..options(Gso::Split)
    };
    lab.hold(Handle::ROOT, &options, |lab| {
        lab.sender.send_all(1, &bundle(Kind::Udp4))?;
        Ok(room)
    })?;
    // The last segment is shorter, but still too long.
    let port = lab.look()?;
    equal("queued", port.state.backlog_packets, 5)?;
    equal("dropped", port.state.drops, SEGMENTS as u64 - 5)?;
    lab.release(0)?;
    equal("after", lab.after.total()?.packets, 1 + 5)?;
    equal("bytes after", lab.after.total()?.bytes, 1_000 + room)
}

fn all_or_nothing(lab: &mut Lab) -> Result<()> {
    let bytes = wire_bytes(Kind::Udp4);
    let options = Options { limit_bytes: Some(2 * bytes as u32 - 1), ..options(Gso::Whole) };
    let mut fates = Vec::new();
    lab.hold(Handle::ROOT, &options, |lab| {
        fates.clear();
        for _ in 0..2 {
            fates.push(lab.sender.send(&bundle(Kind::Udp4))?);
        }
        Ok(bytes)
    })?;
    use crate::sender::Fate::{Refused, Taken};
    equal("fates", fates, vec![Taken, Refused])?;
    lab.release(0)?;
    equal("after", lab.after.total()?.packets, 1 + SEGMENTS as u64)?;
    equal("bundles after", lab.after.total()?.bundles, 2)
}

fn auto(lab: &mut Lab) -> Result<()> {
    for (mark, bundles) in [(Mark::None, 3), (Mark::Physical, 3 * SEGMENTS as u64)] {
        lab.port(&Options { mark: Some(mark), ..options(Gso::Auto) })?;
        lab.sender.send_all(3, &bundle(Kind::Udp4))?;
        passed(lab, 3, Kind::Udp4, bundles)?;
    }
    Ok(())
}

fn phantom_bytes(lab: &mut Lab) -> Result<()> {
    for gso in [Gso::Split, Gso::Whole] {
        lab.port(&options(gso))?;
        lab.sender.send_all(4, &bundle(Kind::Tcp4))?;
        lab.drain()?;
        // One byte per second drains, and the counter rounds up.
        let counted = lab.look()?.x.phantom_max_bytes;
        let sent = 4 * wire_bytes(Kind::Tcp4);
        let since_ns = now_ns()? - lab.before.records()?[0].at_ns;
        let drained = since_ns / 1_000_000_000;
        ensure!(
            (sent - drained..=sent).contains(&counted),
            "{counted} of {sent} bytes with gso {gso}"
        );
    }
    Ok(())
}
