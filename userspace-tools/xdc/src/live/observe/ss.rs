// SPDX-License-Identifier: GPL-2.0
//! `xdc ss`: TCP sockets with the state of unocc, gemini and tlt, once or up to 1,000 times per
//! second.

use std::io::{self, BufWriter, Write};
use std::time::Duration;

use xdc_base::error::{Error, Result};
use xdc_base::text::printable;

use super::flows::{self, Filter, Flow};
use super::{Line, Pace, Place, Ticks, heading, interval, unix_time_us};

pub const EXAMPLES: &str = "\
Examples:
  xdc ss
  xdc ss --cc unocc,gemini --dst 10.1.0.0/16
  xdc ss --dport 5001 --interval 1ms --count 1000 --json > flow.jsonl
  xdc ss --netns all --state all";

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    filter: Filter,
    #[command(flatten)]
    place: Place,
    /// Repeat at this interval, 1ms or more [default: once].
    #[arg(long, value_name = "TIME", value_parser = interval)]
    interval: Option<Duration>,
    #[command(flatten)]
    pace: Pace,
    /// JSON lines, one per socket and sample.
    #[arg(long)]
    json: bool,
}

pub fn command(args: &Args) -> Result<bool> {
    // A count without an interval would always give one sample.
    if args.pace.count.is_some() && args.interval.is_none() {
        return Err(Error::usage("--count needs --interval").hint("xdc ss --help"));
    }
    let mut views = args.place.views()?;
    let mut out = BufWriter::new(io::stdout().lock());
    let mut ticks = Ticks::new(args.interval, &args.pace);
    let mut first_time = None;
    while let Some(sample) = ticks.wait()? {
        let time_us = unix_time_us();
        let mut found = Vec::new();
        for view in &mut views {
            found.extend(flows::sample(view, &args.filter)?);
        }
        if args.json {
            for flow in &found {
                let line = Line { time_us, sample, seen: flow };
                line.write(&mut out).map_err(|err| Error::io("standard output", &err))?;
            }
        } else {
            let since_us = time_us.saturating_sub(*first_time.get_or_insert(time_us));
            let when = args.interval.map(|_| since_us);
            write_table(&mut out, when, sample == 0, &found)
                .map_err(|err| Error::io("standard output", &err))?;
        }
        out.flush().map_err(|err| Error::io("standard output", &err))?;
    }
    Ok(true)
}

fn write_table(
    out: &mut impl Write,
    since_us: Option<u64>,
    with_header: bool,
    flows: &[Flow],
) -> io::Result<()> {
    if with_header {
        writeln!(out, "{}", heading(&flows::header()))?;
    }
    if let Some(us) = since_us {
        writeln!(out, "+{}.{:06} s", us / 1_000_000, us % 1_000_000)?;
    }
    for row in flows.iter().flat_map(Flow::rows) {
        writeln!(out, "{}", printable(&row))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::observe::flows::tests::flow;

    #[test]
    fn a_repeated_table_has_one_header_and_times() {
        let flows = [flow("cubic", None)];
        let mut out = Vec::new();
        write_table(&mut out, Some(0), true, &flows).unwrap();
        write_table(&mut out, Some(1_002_000), false, &flows).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].starts_with("CC  "));
        assert_eq!((lines[1], lines[3]), ("+0.000000 s", "+1.002000 s"));
        assert_eq!(lines.len(), 5);
    }

    #[test]
    fn a_json_line_is_flat() {
        let line = Line { time_us: 1, sample: 2, seen: &flow("cubic", None) };
        let text = serde_json::to_string(&line).unwrap();
        assert!(text.starts_with("{\"time_us\":1,\"sample\":2,\"state\":\"established\""));
    }
}
