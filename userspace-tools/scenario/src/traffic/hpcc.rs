// SPDX-License-Identifier: GPL-2.0
//! Flows of HPCC's ns-3 simulator (flow.txt), and of ConWeave's, which has no column of ports.

use xdc_base::error::{Error, Result};
use xdc_base::text::short;
use xdc_base::units::Time;

use super::file::{FlowFile, Row, check_count, flow_size};
use crate::limits::LONGEST;

/// Letter before a node's number in the names of HPCC's topology.
pub const NODE: &str = "n";

const SHAPE: &str = "the number of flows, then lines of source, destination, priority, port, \
                     bytes and start in seconds: 2 1 3 100 200000000 2";

/// Reads as many flows as the first line announces; the simulator ignores the rest, too.
pub fn parse(text: &str) -> Result<FlowFile> {
    let mut lines = text.lines().enumerate().filter_map(|(n, line)| {
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<_> = line.split_whitespace().collect();
        (!words.is_empty()).then_some((n as u64 + 1, words))
    });
    let (first, words) = lines.next().unwrap_or((1, Vec::new()));
    let count = match words[..] {
        [count] => count.parse::<usize>().ok(),
        _ => None,
    };
    let count = count.filter(|&count| count > 0).ok_or_else(|| {
        Error::usage(format!("line {first} is not the number of flows")).hint(SHAPE)
    })?;
    check_count(count)?;
    let mut rows = Vec::new();
    for (line, words) in lines.by_ref().take(count) {
        let row = row(line, &words);
        rows.push(row.map_err(|err| err.about(format!("line {line}")).or_hint(SHAPE))?);
    }
    if rows.len() < count {
        let found = rows.len();
        let sentence = format!("line {first} announces {count} flows, but there are {found}");
        return Err(
            Error::usage(sentence).hint(format!("the whole file, or {found} in line {first}"))
        );
    }
    Ok(FlowFile { text: text.to_owned(), rows, gates: Vec::new() })
}

fn row(line: u64, words: &[&str]) -> Result<Row> {
    let (source, destination, rest, bytes, start) = match *words {
        [from, to, priority, port, bytes, start] => (from, to, vec![priority, port], bytes, start),
        [from, to, priority, bytes, start] => (from, to, vec![priority], bytes, start),
        _ => {
            let sentence = format!("{} fields instead of six, or five", words.len());
            return Err(Error::usage(sentence));
        }
    };
    for number in [source, destination].iter().chain(&rest) {
        if !number.bytes().all(|c| c.is_ascii_digit()) {
            return Err(Error::usage(format!("'{}' is not a whole number", short(number))));
        }
    }
    let begins = start.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    let seconds = start.parse::<f64>().ok().filter(|_| begins);
    let ns = seconds.map(|seconds| (seconds * 1e9).round());
    let ns = ns.filter(|ns| *ns <= LONGEST.0 as f64).ok_or_else(|| {
        Error::usage(format!("'{}' is not a start in seconds, within {LONGEST}", short(start)))
    })?;
    Ok(Row {
        line,
        start: Time(ns as u64),
        source: source.to_owned(),
        destination: destination.to_owned(),
        bytes: flow_size(bytes)?,
        group: None,
        after: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_flows_are_read_as_announced() {
        let text =
            "2 \r\n\r\n2 1 3 100 200000000 2\r\n3 1 3 5000 2.000000001\r\nsource, destination\r\n";
        let rows = parse(text).unwrap().rows;
        let told: Vec<_> = rows
            .iter()
            .map(|row| (row.line, row.source.as_str(), row.bytes, row.start.0))
            .collect();
        assert_eq!(told, [(3, "2", 200_000_000, 2_000_000_000), (4, "3", 5000, 2_000_000_001)]);
    }

    #[test]
    fn mistakes_have_line_cause_and_fix() {
        for (text, words) in [
            ("", "line 1 is not the number of flows try: the number of flows"),
            ("1 2\n", "line 1 is not the number"),
            ("2\n2 1 3 100 5 2\n", "line 1 announces 2 flows, but there are 1 try: the whole file"),
            ("1\n2 1 3 100\n", "line 2: 4 fields instead of six"),
            ("1\n2 1 3 100 5 -2\n", "line 2: '-2' is not a start in seconds"),
            ("1\n2 1 3 100 0 2\n", "line 2: '0' is not the size of a flow"),
            ("1\nx 1 3 100 5 2\n", "line 2: 'x' is not a whole number"),
        ] {
            let said = parse(text).map(drop).unwrap_err().lines().join(" ");
            assert!(said.contains(words), "{text:?}: {said}");
        }
    }
}
