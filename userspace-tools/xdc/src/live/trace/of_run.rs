// SPDX-License-Identifier: GPL-2.0
//! `xdc run --trace`: converts the agent's recording to the format of `xdc trace`.

use std::collections::BTreeMap;

use serde_json::json;
use xdc_base::error::{Error, Result};
use xdc_measure::record::RawTrace;
use xdc_view::report::Traced;

use super::format::Format;
use super::{Counts, EVENTS, begin_line, end_line, event_line, pages, plot};

/// Output limit, bytes. Further events count as missed: a guest's small event can be a long line.
const MOST_BYTES: usize = 1 << 30;

/// A recording in JSON lines, and its summary.
pub struct Recording {
    pub lines: Vec<u8>,
    pub shown: Traced,
}

/// Merges the events of all processors by time; drops those outside the run's namespaces.
pub fn read(raw: &RawTrace, kernel: &str) -> Result<Recording> {
    read_up_to(MOST_BYTES, raw, kernel)
}

fn read_up_to(most_bytes: usize, raw: &RawTrace, kernel: &str) -> Result<Recording> {
    let broken = |what: &str| Error::failure(format!("the recorded trace: {what}"));
    let mut formats = BTreeMap::new();
    for (name, text) in &raw.head.formats {
        let event = EVENTS.iter().position(|known| known == name);
        let format = Format::parse(text).map_err(|why| broken(&format!("{name}: {why}")))?;
        formats.insert(format.id, (event.ok_or_else(|| broken(name))?, format));
    }
    let nodes: BTreeMap<u64, &str> =
        raw.head.nodes.iter().map(|(inode, name)| (*inode, name.as_str())).collect();

    let mut events = Vec::new();
    for (cpu, page) in &raw.pages {
        let of_page = pages::events(page).ok_or_else(|| broken("a page is damaged"))?;
        events.extend(of_page.into_iter().map(|(at_ns, event)| (at_ns, *cpu, event)));
    }
    events.sort_by_key(|(at_ns, cpu, _)| (*at_ns, *cpu));

    let names: Vec<_> = formats.values().map(|(event, _)| EVENTS[*event]).collect();
    let mut begin = begin_line(kernel, &names);
    begin["origin_ns"] = json!(raw.head.origin_ns);
    let mut lines = format!("{begin}\n").into_bytes();
    let mut counts = Counts::default();
    let mut missed = raw.head.missed;
    for (at_ns, cpu, bytes) in events {
        let id = bytes.first_chunk().map(|id| u16::from_ne_bytes(*id));
        let (event, format) = id
            .and_then(|id| formats.get(&u32::from(id)))
            .ok_or_else(|| broken("an event that was not requested"))?;
        let fields: Vec<_> = format.decode(bytes).collect();
        let inode = fields.iter().find(|(name, _)| *name == "netns");
        let inode = inode.and_then(|(_, inode)| inode.as_u64());
        let Some(node) = inode.and_then(|inode| nodes.get(&inode)) else {
            continue;
        };
        if lines.len() > most_bytes {
            missed = missed.saturating_add(1);
            continue;
        }
        counts[*event] += 1;
        let place = [("node", (*node).into())];
        let fields = place.into_iter().chain(fields);
        event_line(&mut lines, *event, at_ns, cpu, fields)?;
    }
    let recorded = formats.values().map(|(event, _)| *event).collect::<Vec<_>>();
    let end = end_line(&recorded, &counts, missed);
    lines.extend(format!("{end}\n").into_bytes());
    Ok(Recording {
        shown: Traced { events: counts.iter().sum(), charts: plot::of(lines.as_slice())? },
        lines,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use xdc_proto::TraceHead;

    const FORMAT: &str = "name: phantom_mark
ID: 1234
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:char dev[4];\toffset:8;\tsize:4;\tsigned:0;
\tfield:__u32 netns;\toffset:12;\tsize:4;\tsigned:0;
\tfield:__u32 handle;\toffset:16;\tsize:4;\tsigned:0;
\tfield:__u32 queue_bytes;\toffset:20;\tsize:4;\tsigned:0;

print fmt: \"dev=%s\", REC->dev
";

    /// A page with one event.
    fn page(at_ns: u64, id: u16, netns: u32) -> Vec<u8> {
        let mut event = vec![0; 24];
        event[..2].copy_from_slice(&id.to_ne_bytes());
        event[8..11].copy_from_slice(b"eth");
        event[12..16].copy_from_slice(&netns.to_ne_bytes());
        event[16..20].copy_from_slice(&0x10_0000_u32.to_ne_bytes());
        event[20..24].copy_from_slice(&1500_u32.to_ne_bytes());
        let used = 4 + event.len() as u64;
        let mut page = [at_ns.to_ne_bytes(), used.to_ne_bytes()].concat();
        page.extend(6_u32.to_ne_bytes());
        page.extend(event);
        page
    }

    fn raw(pages: Vec<(u32, Vec<u8>)>) -> RawTrace {
        RawTrace {
            head: TraceHead {
                formats: vec![("phantom_mark".to_owned(), FORMAT.to_owned())],
                nodes: vec![(77, "r1".to_owned())],
                origin_ns: 1_000_000,
                missed: 0,
            },
            pages,
        }
    }

    #[test]
    fn events_of_a_run_are_written_in_order() {
        let pages = vec![
            (0, page(3_000_000, 1234, 77)),
            (1, page(2_000_000, 1234, 77)),
            (1, page(2_500_000, 1234, 78)),
        ];
        let raw = raw(pages);
        let recording = read(&raw, "7.3.4").unwrap();
        assert_eq!(recording.shown.events, 2);
        let text = String::from_utf8(recording.lines).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        assert_eq!(
            lines[1],
            "{\"event\":\"phantom_mark\",\"at_ns\":2000000,\"cpu\":1,\"node\":\"r1\",\"dev\":\"eth\",\
             \"netns\":77,\"handle\":\"10:\",\"queue_bytes\":1500}"
        );
        assert!(lines[3].contains("\"phantom_mark\":2"));
        // Relative to the traffic's start, named by the port's node.
        let queue = &recording.shown.charts[0].lines[0];
        assert_eq!(queue.name, "r1 eth 10:");
        assert_eq!(queue.points, [(1000.0, 1500.0), (2000.0, 1500.0)]);
        let cut = read_up_to(0, &raw, "7.3.4").unwrap();
        assert_eq!(cut.shown.events, 0);
        let text = String::from_utf8(cut.lines).unwrap();
        assert!(text.contains("\"missed\":2"), "{text}");
    }

    #[test]
    fn malformed_recordings_are_refused() {
        assert!(read(&raw(vec![(0, page(0, 9, 77))]), "").is_err());
        assert!(read(&raw(vec![(0, vec![1; 20])]), "").is_err());
        let mut raw = raw(Vec::new());
        assert_eq!(read(&raw, "").unwrap().shown.events, 0);
        raw.head.formats[0].1.clear();
        assert!(read(&raw, "").is_err());
    }
}
