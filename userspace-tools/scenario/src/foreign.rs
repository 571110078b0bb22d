// SPDX-License-Identifier: GPL-2.0
//! Recognizes files of other tools, so that an error names the format and the key that takes it.

use xdc_base::error::Error;
use xdc_base::text::short;

use crate::fabric::Shape;
use crate::traffic::Kind;

/// Bytes and lines that are examined.
const MOST_BYTES: usize = 64 << 10;
const MOST_LINES: usize = 1_000;

/// Use of a file.
#[derive(Clone, Copy, PartialEq)]
pub enum Role {
    Scenario,
    Flows(Kind),
    Sizes,
    Fabric(Shape),
    Trace,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Format {
    Gzip,
    Json,
    Scenario,
    FlowTable,
    Matrix,
    Topo,
    HpccFlows,
    HpccTopology,
    Cdf,
    Packets,
    Series,
    Numbers,
}

/// Error if the file has the format of another use.
pub fn mistaken(bytes: &[u8], name: &str, role: Role) -> Option<Error> {
    // Two columns of numbers may be a series without its first line, too.
    let fits = |format: &Format| {
        format.role() == Some(role) || (role == Role::Trace && *format == Format::Cdf)
    };
    let format = recognize(bytes).filter(|format| !fits(format))?;
    let err = Error::usage(format!("this file is {}", format.name()));
    Some(err.hint(format.way(&short(name))))
}

/// Replaces an error about a file by [`mistaken`].
pub fn instead(err: Error, bytes: &[u8], name: &str, role: Role) -> Error {
    mistaken(bytes, name, role).unwrap_or(err)
}

fn recognize(bytes: &[u8]) -> Option<Format> {
    if bytes.starts_with(&[0x1f, 0x8b]) {
        return Some(Format::Gzip);
    }
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(MOST_BYTES)]);
    let text = text.trim_start_matches('\u{feff}').trim_start();
    if text.contains('\0') {
        return None;
    }
    if text.starts_with('{') {
        return Some(Format::Json);
    }
    let lines = text.lines().map(|line| {
        let line = line.split('#').next().unwrap_or_default();
        let words = line.split(|c: char| c.is_whitespace() || c == ',');
        words.filter(|word| !word.is_empty()).collect::<Vec<_>>()
    });
    let lines = lines.filter(|words| !words.is_empty());
    let mut lines: Vec<_> = lines.take(MOST_LINES).collect();
    if lines.len() > 2 && text.len() + 4 > MOST_BYTES {
        // The last one may be cut.
        lines.pop();
    }
    let begins = |word: &str| lines.iter().any(|line| line[0].eq_ignore_ascii_case(word));
    if begins("[topology]") || begins("[[traffic]]") || begins("[[flows]]") {
        return Some(Format::Scenario);
    }
    if begins("tiers") || begins("downlink_speed_gbps") {
        return Some(Format::Topo);
    }
    if lines.iter().any(|line| line[0].contains("->")) || begins("connections") {
        return Some(Format::Matrix);
    }
    let first = lines.first()?;
    if first.iter().any(|word| word.starts_with("start")) && first.contains(&"source") {
        return Some(Format::FlowTable);
    }
    const OVER_TIME: [&str; 4] = ["time", "rate", "delay", "loss"];
    let is_of_time = |word: &&str| OVER_TIME.iter().any(|start| word.starts_with(start));
    if first.len() > 1 && first.iter().any(is_of_time) {
        return Some(Format::Series);
    }
    let number = |word: &&str| word.parse::<f64>().ok();
    let is_numbers = |line: &Vec<&str>| line.iter().all(|word| number(word).is_some());
    let rows = &lines[1..];
    if first.len() == 3
        && is_numbers(first)
        && rows.iter().any(|line| line.len() == 5 && line[2].contains("bps"))
    {
        return Some(Format::HpccTopology);
    }
    if first.len() == 1
        && rows.first().is_some_and(|row| matches!(row.len(), 5 | 6) && is_numbers(row))
    {
        return Some(Format::HpccFlows);
    }
    // A first line without numbers is a header.
    let from = usize::from(!first.iter().any(|word| number(word).is_some()));
    let rows = &lines[from..];
    if rows.len() < 2 || !rows.iter().all(is_numbers) {
        return None;
    }
    let columns = |count| rows.iter().all(|line| line.len() == count);
    let values: Vec<f64> = rows.iter().filter_map(|line| number(&line[0])).collect();
    let grows = values.is_sorted() && values.iter().all(|value| value.fract() == 0.0);
    match () {
        () if columns(2) => Some(Format::Cdf),
        () if columns(1) && grows => Some(Format::Packets),
        () if columns(1) => Some(Format::Numbers),
        () => None,
    }
}

impl Format {
    /// The use that takes it.
    fn role(self) -> Option<Role> {
        match self {
            Self::Scenario => Some(Role::Scenario),
            Self::FlowTable => Some(Role::Flows(Kind::File)),
            Self::Matrix => Some(Role::Flows(Kind::Htsim)),
            Self::HpccFlows => Some(Role::Flows(Kind::Hpcc)),
            Self::Cdf => Some(Role::Sizes),
            Self::Topo => Some(Role::Fabric(Shape::Htsim)),
            Self::HpccTopology => Some(Role::Fabric(Shape::Hpcc)),
            Self::Packets | Self::Series => Some(Role::Trace),
            Self::Gzip | Self::Json | Self::Numbers => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Gzip => "compressed by gzip, as results of flent are",
            Self::Json => "JSON, as results of iperf3 are",
            Self::Scenario => "a scenario",
            Self::FlowTable => "a table of flows",
            Self::Matrix => "a connection matrix of htsim",
            Self::Topo => "a topology of htsim",
            Self::HpccFlows => "a list of flows of HPCC's simulator",
            Self::HpccTopology => "a topology of HPCC's simulator",
            Self::Cdf => "a distribution of sizes",
            Self::Packets => {
                "a trace of packets, one time in ms a line, as mahimahi and rattan read it"
            }
            Self::Series => "a series of a link's rates, delays or losses",
            Self::Numbers => "a series of numbers without times",
        }
    }

    /// Keys that take the file, or the nearest ones.
    fn way(self, name: &str) -> String {
        let traffic =
            |kind: &str| format!("[[traffic]] with kind = \"{kind}\" and file = \"{name}\"");
        match self {
            Self::Gzip | Self::Json => {
                "results are no input: [[run]] runs iperf3 or netperf, [[flows]] describes their flows"
                    .to_owned()
            }
            Self::Scenario => format!("xdc run {name}, or extends = \"{name}\" in another scenario"),
            Self::FlowTable => traffic("file"),
            Self::Matrix => format!(
                "{}, and start_unit = \"ps\" (csg-htsim since 2023) or \"us\" (Uno_SC25)",
                traffic("htsim")
            ),
            Self::Topo => format!("[topology.fabric] with kind = \"htsim\" and file = \"{name}\""),
            Self::HpccFlows => traffic("hpcc"),
            Self::HpccTopology => {
                format!("[topology.fabric] with kind = \"hpcc\" and file = \"{name}\"")
            }
            Self::Cdf => format!("[[traffic]] of kind poisson, incast or rpc, with sizes = \"{name}\""),
            Self::Packets | Self::Series => format!("[[topology.links]] with trace = \"{name}\""),
            Self::Numbers => "a trace of delays has a first line time_ms,delay_ms and then a time and a delay \
                              in each line; a trace of packets has one whole ms a line, in order"
                .to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_recognized_by_their_content() {
        for (text, format) in [
            ("\u{1f}\u{8b}", None),
            ("{\"start\": {}}", Some(Format::Json)),
            ("title = \"x\"\n[topology]\n", Some(Format::Scenario)),
            ("start_us,source,destination,bytes\n", Some(Format::FlowTable)),
            ("Nodes 2\r\nConnections 1\r\n0->1 start 0 size 1\r\n", Some(Format::Matrix)),
            ("# x\nNodes 2\nTiers 2\n", Some(Format::Topo)),
            ("1\n2 1 3 100 5 2\n", Some(Format::HpccFlows)),
            ("2 1 1\n0\n0 1 100Gbps 1us 0\n", Some(Format::HpccTopology)),
            ("size,cdf\n0,0\n1,100\n", Some(Format::Cdf)),
            ("0\n48\n57\n", Some(Format::Packets)),
            ("12\n12\n16\n14\n", Some(Format::Numbers)),
            ("time_s,rate_kbps\n0,5\n", Some(Format::Series)),
            ("a b\nc d\n", None),
            ("", None),
        ] {
            assert_eq!(recognize(text.as_bytes()), format, "{text}");
        }
        assert_eq!(recognize(&[0x1f, 0x8b, 8, 0]), Some(Format::Gzip));
    }

    #[test]
    fn an_error_about_the_right_format_stays() {
        let said = |text: &str, role| {
            let err = instead(Error::usage("bad"), text.as_bytes(), "x", role);
            err.lines().join(" ")
        };
        assert!(said("0 0\n5 4\n", Role::Sizes).contains("bad"));
        let said = said("0 0\n5 4\n", Role::Scenario);
        assert!(said.contains("distribution of sizes") && said.contains("sizes = \"x\""), "{said}");
    }
}
