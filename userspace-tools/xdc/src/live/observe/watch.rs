// SPDX-License-Identifier: GPL-2.0
//! `xdc watch dev DEV`: one phantom queue, a line per interval.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use xdc_base::error::{Error, Result};
use xdc_base::text::printable;
use xdc_netlink::phantom;
use xdc_netlink::qdisc::{Handle, QdiscState};

use super::queues::{Queue, handle_text};
use super::{Line, Pace, Place, Ticks, View, heading, interval, short, unix_time_us};
use crate::live::qdisc::parse_handle;

pub const EXAMPLES: &str = "\
Examples:
  xdc watch dev eth1
  xdc watch dev eth1 handle 1: --interval 100ms
  xdc watch dev eth0 --netns a1 --count 10 --json";

#[derive(clap::Args)]
pub struct Args {
    /// `dev DEV`, and `handle N:` if the device has several.
    #[arg(required = true)]
    words: Vec<String>,
    #[command(flatten)]
    place: Place,
    /// Interval between lines, 1ms or more.
    #[arg(long, value_name = "TIME", value_parser = interval, default_value = "1s")]
    interval: Duration,
    #[command(flatten)]
    pace: Pace,
    /// JSON lines.
    #[arg(long)]
    json: bool,
}

pub fn command(args: &Args) -> Result<bool> {
    let (device, handle) = parse(&args.words)?;
    let mut views = args.place.views()?;
    let [view] = &mut views[..] else {
        return Err(
            Error::usage("watch needs exactly one namespace: --netns NAME").hint("ip netns list")
        );
    };
    let index = view.device_index(device)?;
    let mut out = io::stdout().lock();
    let failed = |err: io::Error| Error::io("standard output", &err);
    let mut before = (read(view, device, index, handle)?, Instant::now());
    let mut ticks = Ticks::new(Some(args.interval), &args.pace);
    // The first line is due one interval after the first reading.
    ticks.next = 1;
    let mut lines = 0u64;
    while let Some(sample) = ticks.wait()? {
        let now = (read(view, device, index, handle)?, Instant::now());
        let elapsed = now.1 - before.1;
        let queue = Queue::new(view.name.as_deref(), device, &now.0, Some(&before.0), elapsed);
        if args.json {
            let line = Line { time_us: unix_time_us(), sample, seen: &queue };
            line.write(&mut out).map_err(failed)?;
        } else {
            if lines == 0 {
                writeln!(out, "{}", heading(&header())).map_err(failed)?;
            }
            writeln!(out, "{}", printable(&row(&queue))).map_err(failed)?;
        }
        lines += 1;
        before = now;
    }
    Ok(true)
}

fn parse(words: &[String]) -> Result<(&str, Option<Handle>)> {
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["dev", device] => Ok((device, None)),
        ["dev", device, "handle", handle] => Ok((device, Some(parse_handle(handle)?))),
        _ => Err(Error::usage("the device is missing").hint("xdc watch dev eth1")),
    }
}

fn read(view: &mut View, device: &str, index: u32, handle: Option<Handle>) -> Result<QdiscState> {
    pick(view.qdiscs(index)?, device, handle)
}

/// Selects the requested phantom queue.
fn pick(found: Vec<QdiscState>, device: &str, handle: Option<Handle>) -> Result<QdiscState> {
    let mut phantoms: Vec<_> = found
        .into_iter()
        .filter(|state| state.kind == phantom::KIND)
        .filter(|state| handle.is_none_or(|handle| handle.major == state.handle.major))
        .collect();
    match (phantoms.len(), handle) {
        (1, _) => Ok(phantoms.swap_remove(0)),
        (0, Some(handle)) => {
            Err(Error::failure(format!("{device} has no phantom queue {:x}:", handle.major))
                .hint("xdc qdisc show"))
        }
        (0, None) => {
            Err(Error::failure(format!("{device} has no phantom queue")).hint("xdc qdisc show"))
        }
        _ => {
            let handles: Vec<_> = phantoms.iter().map(handle_text).collect();
            let which = format!("xdc watch dev {device} handle {}", handles[0]);
            Err(Error::usage(format!("{device} has several phantom queues: {}", handles.join(" ")))
                .hint(which))
        }
    }
}

fn header() -> String {
    format!(
        "{:>9} {:>9} {:>9} {:>8} {:>11} {:>9} {:>11}",
        "GBIT/S", "PACKET/S", "MARK/S", "DROP/S", "BACKLOG_B", "BACKLOG_P", "PHANTOM_B"
    )
}

fn row(queue: &Queue) -> String {
    let rate = |rate: Option<f64>| rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0}"));
    let gbit = queue.bits_per_s.map(|bits| bits * 1e-9);
    let gbit = gbit.map_or_else(
        || "-".to_owned(),
        |gbit| {
            if gbit < 1.0 { format!("{gbit:.4}") } else { short(gbit) }
        },
    );
    format!(
        "{:>9} {:>9} {:>9} {:>8} {:>11} {:>9} {:>11}",
        gbit,
        rate(queue.packets_per_s),
        rate(queue.marks_per_s),
        rate(queue.drops_per_s),
        queue.backlog_bytes,
        queue.backlog_packets,
        queue.phantom_bytes.unwrap_or(0),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::observe::queues::tests::state;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn words_of_tc_are_parsed() {
        let all = words("dev eth1 handle 1f:");
        let (device, handle) = parse(&all).unwrap();
        assert_eq!((device, handle.unwrap().major), ("eth1", 0x1f));
        for bad in ["", "eth1", "dev", "dev eth1 handle", "dev e handle x", "dev e root"] {
            assert!(parse(&words(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn exactly_one_queue_is_selected() {
        let with_handle = |major| {
            let mut state = state(1);
            state.handle.major = major;
            state
        };
        let handle = |major| Some(Handle { major, minor: 0 });
        let mut fifo = with_handle(3);
        fifo.kind = "pfifo".to_owned();
        let two = || vec![with_handle(1), with_handle(2), fifo.clone()];
        assert_eq!(pick(two(), "e", handle(2)).unwrap().handle.major, 2);
        assert!(pick(two(), "e", handle(3)).is_err());
        let said = pick(two(), "e", None).unwrap_err().lines().join(" ");
        assert!(said.contains("1: 2:") && said.contains("handle 1:"), "{said}");
        assert!(pick(vec![fifo.clone()], "e", None).is_err());
        assert_eq!(pick(vec![fifo, with_handle(9)], "e", None).unwrap().handle.major, 9);
    }

    #[test]
    fn columns_align_with_their_headings() {
        let elapsed = Duration::from_millis(1);
        let queue = Queue::new(None, "e", &state(900_000), Some(&state(0)), elapsed);
        assert_eq!(row(&queue).len(), header().len());
        assert!(header().len() <= 100);
        let second = Duration::from_secs(1);
        let queue = Queue::new(None, "e", &state(600), Some(&state(300)), second);
        let row = row(&queue);
        let cells: Vec<_> = row.split_whitespace().collect();
        assert_eq!(cells, ["0.0036", "300", "100", "0", "3000", "2", "7000"]);
    }
}
