// SPDX-License-Identifier: GPL-2.0
//! `xdc paths`: tunnels of kind unorc with their sessions, channels and paths, once or up to 1,000 times a
//! second. The module tells it in /proc/net/unorc: lines of a device, of its channels and of their paths,
//! in this order, each of names and values.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::net::IpAddr;
use std::str::{FromStr, SplitAsciiWhitespace};
use std::time::Duration;

use serde::Serialize;
use xdc_algo::unorc::FIRST_PORT;

use super::{Line, Pace, Place, Ticks, heading, interval, unix_time_us};
use crate::error::{Error, Result};
use crate::text::printable;

pub const EXAMPLES: &str = "\
Examples:
  xdc paths
  xdc paths u0 --netns h1
  xdc paths u0 --interval 10ms --count 100 --json > paths.jsonl";

#[derive(clap::Args)]
pub struct Args {
    /// One tunnel [default: all].
    device: Option<String>,
    #[command(flatten)]
    place: Place,
    /// Repeat at this interval, 1ms or more [default: once].
    #[arg(long, value_name = "TIME", value_parser = interval)]
    interval: Option<Duration>,
    #[command(flatten)]
    pace: Pace,
    /// JSON lines, one for each tunnel and sample.
    #[arg(long)]
    json: bool,
}

/// A tunnel; the names are keys of `xdc paths --json`.
#[derive(Debug, PartialEq, Serialize)]
struct Tunnel {
    #[serde(skip_serializing_if = "Option::is_none")]
    netns: Option<String>,
    device: String,
    local: IpAddr,
    remote: IpAddr,
    port: u16,
    /// `up`, `asked` (the peer has not answered yet), `down`; `closed`: so is the device.
    session: String,
    /// How long it has been so.
    age_us: Option<u64>,
    /// None was measured: null.
    min_rtt_us: Option<u64>,
    /// The chooser.
    paths: Option<String>,
    /// Packets that wait for a session.
    waiting: u64,
    channels: Vec<Channel>,
}

#[derive(Debug, PartialEq, Serialize)]
struct Channel {
    channel: u8,
    /// Blocks that are not done, at the sender and at the receiver.
    blocks_sent: u64,
    blocks_received: u64,
    held_bytes: u64,
    srtt_us: Option<u64>,
    reroutes: u64,
    freezes: u64,
    /// For how long `reps` stays frozen.
    frozen_us: Option<u64>,
    known: Vec<Path>,
}

#[derive(Debug, PartialEq, Serialize)]
struct Path {
    entropy: u16,
    udp_port: u16,
    state: String,
    sent_ago_us: Option<u64>,
    heard_ago_us: Option<u64>,
    penalty: Option<u8>,
}

/// The rest of a line: names and values.
struct Pairs<'a>(SplitAsciiWhitespace<'a>);

impl<'a> Pairs<'a> {
    fn word(&self, name: &str) -> Option<&'a str> {
        let mut words = self.0.clone();
        while let Some(found) = words.next() {
            let value = words.next()?;
            if found == name {
                return Some(value);
            }
        }
        None
    }

    fn get<T: FromStr>(&self, name: &str) -> Option<T> {
        self.word(name)?.parse().ok()
    }

    /// 0 stands for none.
    fn measured(&self, name: &str) -> Option<u64> {
        self.get(name).filter(|&us| us != 0)
    }
}

/// What the module says. What is not understood is a later version's, and is passed over.
fn parse(text: &str, netns: Option<&str>) -> Vec<Tunnel> {
    let mut tunnels = Vec::<Tunnel>::new();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let (kind, name) = (words.next(), words.next().unwrap_or_default());
        let pairs = Pairs(words);
        match kind {
            Some("device") => tunnels.extend(tunnel(name, &pairs, netns)),
            Some("channel") => {
                if let Some(tunnel) = tunnels.last_mut() {
                    tunnel.channels.extend(channel(name, &pairs));
                }
            }
            Some("path") => {
                let channel = tunnels.last_mut().and_then(|t| t.channels.last_mut());
                if let Some(channel) = channel {
                    channel.known.extend(path(name, &pairs));
                }
            }
            _ => {}
        }
    }
    tunnels
}

fn tunnel(device: &str, pairs: &Pairs<'_>, netns: Option<&str>) -> Option<Tunnel> {
    Some(Tunnel {
        netns: netns.map(str::to_owned),
        device: device.to_owned(),
        local: pairs.get("local")?,
        remote: pairs.get("remote")?,
        port: pairs.get("port")?,
        session: pairs.get("session")?,
        age_us: pairs.get("age_us"),
        min_rtt_us: pairs.measured("min_rtt_us"),
        paths: pairs.get("paths"),
        waiting: pairs.get("waiting").unwrap_or(0),
        channels: Vec::new(),
    })
}

fn channel(number: &str, pairs: &Pairs<'_>) -> Option<Channel> {
    Some(Channel {
        channel: number.parse().ok()?,
        blocks_sent: pairs.get("blocks_sent")?,
        blocks_received: pairs.get("blocks_received")?,
        held_bytes: pairs.get("held_bytes")?,
        srtt_us: pairs.measured("srtt_us"),
        reroutes: pairs.get("reroutes")?,
        freezes: pairs.get("freezes")?,
        frozen_us: pairs.get("frozen_us"),
        known: Vec::new(),
    })
}

fn path(entropy: &str, pairs: &Pairs<'_>) -> Option<Path> {
    let entropy = entropy.parse().ok()?;
    Some(Path {
        entropy,
        udp_port: FIRST_PORT.checked_add(entropy)?,
        state: pairs.get("state")?,
        sent_ago_us: pairs.get("sent_ago_us"),
        heard_ago_us: pairs.get("heard_ago_us"),
        penalty: pairs.get("penalty"),
    })
}

pub fn command(args: &Args) -> Result<bool> {
    if args.pace.count.is_some() && args.interval.is_none() {
        return Err(Error::usage("--count needs --interval").hint("xdc paths --help"));
    }
    let views = args.place.views()?;
    let mut out = BufWriter::new(io::stdout().lock());
    let failed = |err: io::Error| Error::io("standard output", &err);
    let mut ticks = Ticks::new(args.interval, &args.pace);
    let mut first_time = None;
    while let Some(sample) = ticks.wait()? {
        let time_us = unix_time_us();
        let mut found = Vec::new();
        for view in &views {
            // None where the module is not loaded.
            let text = view.within(|| fs::read_to_string("/proc/thread-self/net/unorc").ok());
            found.extend(parse(&text.unwrap_or_default(), view.name.as_deref()));
        }
        if let Some(wanted) = &args.device {
            found.retain(|tunnel| tunnel.device == *wanted);
            if found.is_empty() {
                let why = format!("there is no tunnel '{}'", printable(wanted));
                return Err(Error::failure(why).hint("ip link show type unorc"));
            }
        }
        if args.json {
            for tunnel in &found {
                let line = Line {
                    time_us,
                    sample,
                    seen: tunnel,
                };
                line.write(&mut out).map_err(failed)?;
            }
        } else {
            if sample == 0 {
                writeln!(out, "{}", heading(&header())).map_err(failed)?;
            }
            if args.interval.is_some() {
                let us = time_us.saturating_sub(*first_time.get_or_insert(time_us));
                writeln!(out, "+{}.{:06} s", us / 1_000_000, us % 1_000_000).map_err(failed)?;
            }
            for row in found.iter().flat_map(Tunnel::rows) {
                writeln!(out, "{}", printable(&row)).map_err(failed)?;
            }
        }
        out.flush().map_err(failed)?;
    }
    Ok(true)
}

fn header() -> String {
    format!(
        "{:<15} {:<21} {:<10} {:<7} {:>10} {:>10}",
        "DEVICE", "PEER", "PATHS", "SESSION", "AGE_S", "MIN_RTT_US"
    )
}

fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

impl Tunnel {
    /// For people: the tunnel, its channels, their paths.
    fn rows(&self) -> Vec<String> {
        let age_s = self.age_us.map(|us| format!("{:.3}", us as f64 * 1e-6));
        let mut rows = vec![format!(
            "{:<15} {:<21} {:<10} {:<7} {:>10} {:>10}",
            self.device,
            format!("{}:{}", self.remote, self.port),
            or_dash(self.paths.as_ref()),
            self.session,
            or_dash(age_s),
            or_dash(self.min_rtt_us),
        )];
        let netns = self.netns.iter().map(|netns| format!("netns {netns}"));
        let waiting = (self.waiting > 0).then(|| format!("{} packets wait", self.waiting));
        let notes: Vec<_> = netns.chain(waiting).collect();
        if !notes.is_empty() {
            rows.push(format!("  {}", notes.join("  ")));
        }
        rows.extend(self.channels.iter().flat_map(Channel::rows));
        rows
    }
}

impl Channel {
    /// Nothing was sent or received.
    fn is_unused(&self) -> bool {
        self.blocks_sent == 0
            && self.blocks_received == 0
            && self.srtt_us.is_none()
            && self.known.is_empty()
    }

    fn rows(&self) -> Vec<String> {
        if self.is_unused() {
            return Vec::new();
        }
        let mut words = vec![format!("  channel {}", self.channel)];
        words.extend(self.srtt_us.map(|us| format!("RTT {us} us")));
        words.push(format!(
            "blocks {} sent {} received",
            self.blocks_sent, self.blocks_received
        ));
        let kilobytes = |bytes: u64| format!("{:.1} kB held", bytes as f64 * 1e-3);
        words.extend((self.held_bytes > 0).then(|| kilobytes(self.held_bytes)));
        words.extend((self.reroutes > 0).then(|| format!("{} reroutes", self.reroutes)));
        words.extend((self.freezes > 0).then(|| format!("{} freezes", self.freezes)));
        words.extend(self.frozen_us.map(|us| format!("[frozen for {us} us]")));
        let mut rows = vec![words.join("  ")];
        // Of the same state in one row, but for those whose times are known.
        let mut states: Vec<(&str, Vec<String>)> = Vec::new();
        for path in &self.known {
            let text = path.text();
            match states.last_mut() {
                Some((state, texts)) if *state == path.state && path.sent_ago_us.is_none() => {
                    texts.push(text);
                }
                _ => states.push((&path.state, vec![text])),
            }
        }
        rows.extend(states.iter().map(|(state, texts)| {
            let state = state.replace('_', " ");
            format!("    {state} {}", texts.join(" "))
        }));
        rows
    }
}

impl Path {
    /// Without its state.
    fn text(&self) -> String {
        let penalty = self.penalty.map(|penalty| format!(":{penalty}"));
        let sent = self.sent_ago_us.map(|us| format!("  sent {us} us ago"));
        let heard = self.heard_ago_us.map(|us| format!("  heard {us} us ago"));
        let parts = [penalty, sent, heard].into_iter().flatten();
        self.entropy.to_string() + &parts.collect::<String>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
device u0 local 10.9.0.1 remote 10.9.0.2 port 4796 paths unolb session up age_us 1500000 min_rtt_us 210 waiting 0
channel 0 blocks_sent 2 blocks_received 0 held_bytes 0 srtt_us 230 reroutes 3 freezes 0
path 17 state in_use sent_ago_us 12 heard_ago_us 240
path 9000 state in_use sent_ago_us 13
channel 1 blocks_sent 0 blocks_received 0 held_bytes 0 srtt_us 0 reroutes 0 freezes 0
device u1 local 10.9.0.1 remote 10.9.0.3 port 4797 paths reps session asked age_us 7 min_rtt_us 0 waiting 4
channel 0 blocks_sent 0 blocks_received 1 held_bytes 2908 srtt_us 300 reroutes 0 freezes 1 frozen_us 8120 new 1
path 3 state used
path 4 state fresh
path 5 state fresh
device u2 local 10.9.0.1 remote 10.9.0.4 port 4798 session closed
nonsense
device u3 local x
";

    #[test]
    fn lines_belong_to_the_device_before_them() {
        let tunnels = parse(TEXT, Some("h1"));
        assert_eq!(tunnels.len(), 3);
        let [u0, u1, u2] = &tunnels[..] else {
            unreachable!()
        };
        assert_eq!(
            (&*u0.device, u0.age_us, u0.min_rtt_us),
            ("u0", Some(1_500_000), Some(210))
        );
        assert_eq!((u0.channels.len(), u0.channels[0].known.len()), (2, 2));
        let path = &u0.channels[0].known[1];
        assert_eq!((path.udp_port, path.heard_ago_us), (58_152, None));
        assert_eq!((u1.min_rtt_us, u1.waiting), (None, 4));
        assert_eq!(u1.channels[0].frozen_us, Some(8_120));
        assert_eq!(
            (&*u2.session, &u2.paths, u2.channels.len()),
            ("closed", &None, 0)
        );
        assert_eq!(u2.netns.as_deref(), Some("h1"));
        assert!(parse("", None).is_empty());
    }

    #[test]
    fn people_see_what_is_used() {
        let tunnels = parse(TEXT, None);
        let rows: Vec<_> = tunnels.iter().flat_map(Tunnel::rows).collect();
        assert_eq!(
            rows,
            [
                "u0              10.9.0.2:4796         unolb      up           1.500        210",
                "  channel 0  RTT 230 us  blocks 2 sent 0 received  3 reroutes",
                "    in use 17  sent 12 us ago  heard 240 us ago",
                "    in use 9000  sent 13 us ago",
                "u1              10.9.0.3:4797         reps       asked        0.000          -",
                "  4 packets wait",
                "  channel 0  RTT 300 us  blocks 0 sent 1 received  2.9 kB held  1 freezes  [frozen for 8120 us]",
                "    used 3",
                "    fresh 4 5",
                "u2              10.9.0.4:4798         -          closed           -          -",
            ]
        );
        assert_eq!(header().len(), rows[0].len());
    }

    #[test]
    fn keys_have_units() {
        let line = serde_json::to_string(&parse(TEXT, None)[0]).unwrap();
        for key in [
            "\"age_us\":1500000",
            "\"min_rtt_us\":210",
            "\"held_bytes\":0",
            "\"entropy\":17",
        ] {
            assert!(line.contains(key), "{line}");
        }
    }
}
