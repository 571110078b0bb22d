// SPDX-License-Identifier: GPL-2.0
//! Connection matrices of htsim (.cm): flows between numbered hosts, some of which start when
//! others end.

use std::collections::{BTreeMap, BTreeSet};

use xdc_base::error::{Error, Result};
use xdc_base::text::short;
use xdc_base::units::Time;
use xdc_proto::gates::Gate;

use super::file::{FlowFile, Row, check_count, flow_size};
use super::spec::StartUnit;
use crate::limits::LONGEST;

const SHAPE: &str = "lines such as \"0->1 id 1 start 0 size 2000000\"";
const WORDS: &str =
    "id, start, trigger, size, send_done_trigger, recv_done_trigger, prio (without effect)";

/// A trigger starts flows.
#[derive(Default)]
struct Trigger {
    /// Line of its definition; 0 without one.
    line: u64,
    /// Line of the first flow that names it.
    used_at: u64,
    shots: Shots,
    received: Vec<usize>,
    acked: Vec<usize>,
    starts: Vec<usize>,
}

#[derive(Default, Clone, Copy)]
enum Shots {
    /// All flows at the first end.
    #[default]
    One,
    /// The next flow at each end.
    Many,
    /// All flows after this number of ends.
    Barrier(usize),
}

/// Content of a matrix so far.
#[derive(Default)]
struct Matrix {
    rows: Vec<Row>,
    ids: BTreeSet<u64>,
    triggers: BTreeMap<u64, Trigger>,
    /// Announced numbers of connections and triggers, with their lines.
    connections: Option<(u64, u64)>,
    defined: Option<(u64, u64)>,
}

/// Reads a matrix; sources and destinations are numbers.
pub fn parse(text: &str, unit: StartUnit) -> Result<FlowFile> {
    let mut matrix = Matrix::default();
    for (n, line) in text.lines().enumerate() {
        let number = n as u64 + 1;
        let line = line.split('#').next().unwrap_or_default();
        // Spaces around the arrow are optional.
        let spaced = line.replace("->", " -> ");
        let words: Vec<_> = spaced.split_whitespace().collect();
        let read = matrix.line(number, &words, unit);
        read.map_err(|err| err.about(format!("line {number}")).or_hint(SHAPE))?;
    }
    matrix.finish(text)
}

impl Matrix {
    fn line(&mut self, line: u64, words: &[&str], unit: StartUnit) -> Result<()> {
        match *words {
            [] => Ok(()),
            [from, "->", to, ref rest @ ..] => self.connection(line, [from, to], rest, unit),
            [first, ref rest @ ..] => match (first.to_ascii_lowercase().as_str(), rest) {
                ("nodes", [count]) => whole("number of nodes", count).map(drop),
                ("connections", [count]) => {
                    self.connections = Some((whole("number of connections", count)?, line));
                    Ok(())
                }
                ("triggers", [count]) => {
                    self.defined = Some((whole("number of triggers", count)?, line));
                    Ok(())
                }
                ("failures", ["0"]) => Ok(()),
                ("failures" | "failure", _) => Err(Error::usage(
                    "a matrix with failed links is not read",
                )
                .hint("no failures in the file, and [[event]] with 'down = true' for each link")),
                ("trigger", rest) => self.trigger(line, rest),
                _ => Err(Error::usage(format!("'{}' begins no line of a matrix", short(first)))),
            },
        }
    }

    fn connection(
        &mut self,
        line: u64,
        ends: [&str; 2],
        words: &[&str],
        unit: StartUnit,
    ) -> Result<()> {
        let [source, destination] = ends.map(|end| whole("number of a host", end));
        let flow = self.rows.len();
        let (mut start, mut bytes, mut waits) = (None, None, false);
        for pair in words.chunks(2) {
            let &[word, value] = pair else {
                let word = short(pair[0]).into_owned();
                return Err(unknown(&word, "has no value"));
            };
            match word {
                "id" => {
                    if !self.ids.insert(whole("id", value)?) {
                        return Err(Error::usage(format!("two connections have id {value}"))
                            .hint("a different id for each"));
                    }
                }
                "start" => start = Some(start_of(value, unit)?),
                // A flow of size 0 has no end in htsim, too.
                "size" if value == "0" => bytes = Some(0),
                "size" => bytes = Some(flow_size(value)?),
                "trigger" if waits => {
                    return Err(Error::usage("two triggers start the connection"));
                }
                "trigger" => {
                    self.used(line, value)?.starts.push(flow);
                    waits = true;
                }
                "send_done_trigger" => self.used(line, value)?.acked.push(flow),
                "recv_done_trigger" => self.used(line, value)?.received.push(flow),
                "prio" => drop(whole("priority", value)?),
                _ => return Err(unknown(&short(word), "is unknown")),
            }
        }
        match (start, waits) {
            (Some(_), true) => {
                let err = Error::usage("the connection has 'start' and 'trigger'");
                return Err(err.hint("one of them"));
            }
            (None, false) => {
                let err = Error::usage("the connection has neither 'start' nor 'trigger'");
                return Err(err.hint("start 0"));
            }
            _ => {}
        }
        self.rows.push(Row {
            line,
            start: start.unwrap_or_default(),
            source: source?.to_string(),
            destination: destination?.to_string(),
            bytes: bytes.ok_or_else(|| Error::usage("the connection has no 'size'"))?,
            group: None,
            after: None,
        });
        check_count(self.rows.len())
    }

    fn used(&mut self, line: u64, id: &str) -> Result<&mut Trigger> {
        let trigger = self.triggers.entry(whole("id of a trigger", id)?);
        let trigger = trigger.or_default();
        if trigger.used_at == 0 {
            trigger.used_at = line;
        }
        Ok(trigger)
    }

    fn trigger(&mut self, line: u64, words: &[&str]) -> Result<()> {
        let (mut id, mut shots, mut count) = (None, None, None);
        let mut words = words.iter();
        while let Some(&word) = words.next() {
            let mut value = || words.next().copied().unwrap_or_default();
            match word {
                "id" => id = Some(whole("id of a trigger", value())?),
                "count" => count = Some(whole("count of a barrier", value())? as usize),
                "oneshot" => shots = Some(Shots::One),
                "multishot" => shots = Some(Shots::Many),
                "barrier" => shots = Some(Shots::Barrier(0)),
                _ => {
                    let sentence = format!("'{}' is unknown in a trigger", short(word));
                    return Err(Error::usage(sentence)
                        .hint("trigger id 1 oneshot, multishot, or barrier count 4"));
                }
            }
        }
        let id = id.ok_or_else(|| Error::usage("the trigger has no 'id'").hint("trigger id 1"))?;
        let shots = match (shots, count) {
            (Some(Shots::Barrier(_)), Some(count)) if count > 0 => Shots::Barrier(count),
            (Some(Shots::Barrier(_)), _) => {
                let err = Error::usage("the barrier has no 'count'");
                return Err(err.hint("the number of flows that it waits for: barrier count 4"));
            }
            (Some(shots), _) => shots,
            (None, _) => {
                let err = Error::usage(format!("trigger {id} has no type"));
                return Err(err.hint("oneshot, multishot, or barrier count 4"));
            }
        };
        let trigger = self.triggers.entry(id).or_default();
        if trigger.line > 0 {
            let sentence = format!("trigger {id} is also defined in line {}", trigger.line);
            return Err(Error::usage(sentence).hint("one definition"));
        }
        (trigger.line, trigger.shots) = (line, shots);
        Ok(())
    }

    fn finish(self, text: &str) -> Result<FlowFile> {
        let defined = self.triggers.values().filter(|it| it.line > 0).count();
        for (announced, found, name) in [
            (self.connections, self.rows.len(), "Connections"),
            (self.defined, defined, "Triggers"),
        ] {
            if let Some((count, line)) = announced.filter(|(count, _)| *count != found as u64) {
                let sentence =
                    format!("line {line} announces '{name} {count}', but there are {found}");
                return Err(Error::usage(sentence)
                    .hint(format!("the whole file, or '{name} {found}' if these are all")));
            }
        }
        if self.rows.is_empty() {
            return Err(Error::usage("no connection").hint(SHAPE));
        }
        let mut gates = Vec::new();
        for (id, trigger) in self.triggers {
            trigger.check(id)?;
            gates.extend(trigger.gates());
        }
        Ok(FlowFile { text: text.to_owned(), rows: self.rows, gates })
    }
}

impl Trigger {
    /// Refuses a trigger that starts a flow but never opens.
    fn check(&self, id: u64) -> Result<()> {
        let wrong = |sentence: String, hint: &str| {
            let err = Error::usage(sentence).about(format!("line {}", self.used_at));
            Err(err.hint(hint))
        };
        if self.line == 0 {
            let hint = format!("a line 'trigger id {id} oneshot'");
            return wrong(format!("trigger {id} is not defined"), &hint);
        }
        let ends = self.received.len() + self.acked.len();
        let needs = match self.shots {
            Shots::One => 1,
            Shots::Many => self.starts.len(),
            Shots::Barrier(count) => count,
        };
        match self.starts.is_empty() || ends >= needs {
            true => Ok(()),
            false => wrong(
                format!("trigger {id} needs the end of {needs} flows, but {ends} name it"),
                "send_done_trigger or recv_done_trigger at more flows, or a smaller count",
            ),
        }
    }

    fn gates(self) -> Vec<Gate> {
        let gate = |needs, starts| Gate {
            needs,
            received: self.received.clone(),
            acked: self.acked.clone(),
            starts,
        };
        match self.shots {
            _ if self.starts.is_empty() => Vec::new(),
            Shots::One => vec![gate(1, self.starts.clone())],
            Shots::Barrier(count) => vec![gate(count, self.starts.clone())],
            Shots::Many => {
                let flows = self.starts.iter().enumerate();
                flows.map(|(n, &flow)| gate(n + 1, vec![flow])).collect()
            }
        }
    }
}

fn unknown(word: &str, why: &str) -> Error {
    Error::usage(format!("'{word}' {why}")).hint(WORDS)
}

/// Reads digits alone.
fn whole(name: &str, text: &str) -> Result<u64> {
    let digits = text.bytes().all(|c| c.is_ascii_digit());
    let number = text.parse().ok().filter(|_| digits);
    number.ok_or_else(|| Error::usage(format!("'{}' is not the {name}", short(text))))
}

/// Start to the nanosecond.
fn start_of(text: &str, unit: StartUnit) -> Result<Time> {
    let per_ns = match unit {
        StartUnit::Ps => 1e-3,
        StartUnit::Us => 1e3,
    };
    let begins = text.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    let number = text.parse::<f64>().ok().filter(|_| begins);
    let ns = number.map(|number| (number * per_ns).round());
    let ns = ns.filter(|ns| *ns <= LONGEST.0 as f64).ok_or_else(|| {
        let sentence = format!("'{}' is not a start within {LONGEST}", short(text));
        Error::usage(sentence).hint("a number; start_unit says its unit")
    })?;
    Ok(Time(ns as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> FlowFile {
        parse(text, StartUnit::Ps).unwrap()
    }

    const BARRIER: &str = "Nodes 8\r\nConnections 5\r\nTriggers 3\r\n\r\n# two phases\r\n\
        0->1 id 1 start 0 size 100 send_done_trigger 1\r\n\
        2 -> 3\tid 2  start 2500 size 200 recv_done_trigger 1\r\n\
        1->0 id 3 trigger 1 size 300 send_done_trigger 2 prio 5\r\n\
        3->2 id 4 trigger 2 size 400 send_done_trigger 3\r\n\
        4->5 id 5 trigger 1 size 500 # last\r\n\
        trigger id 1 barrier count 2\r\n\
        trigger id 2 multishot\r\n\
        trigger id 3 oneshot\r\n";

    #[test]
    fn connections_and_triggers_are_read() {
        let file = read(BARRIER);
        let row = &file.rows[1];
        assert_eq!((row.line, row.start, row.source.as_str(), row.bytes), (7, Time(3), "2", 200));
        let gate = |needs, received: &[usize], acked: &[usize], starts: &[usize]| Gate {
            needs,
            received: received.to_vec(),
            acked: acked.to_vec(),
            starts: starts.to_vec(),
        };
        assert_eq!(file.gates, [gate(2, &[1], &[0], &[2, 4]), gate(1, &[], &[2], &[3])]);
    }

    #[test]
    fn the_unit_of_starts_is_the_callers() {
        let text = "0->1 start 1500000 size 1\n0->1 start 0.5 size 1\n";
        let starts = |unit| {
            let rows = parse(text, unit).unwrap().rows;
            rows.iter().map(|row| row.start.0).collect::<Vec<_>>()
        };
        assert_eq!(starts(StartUnit::Ps), [1_500, 0]);
        assert_eq!(starts(StartUnit::Us), [1_500_000_000, 500]);
    }

    #[test]
    fn a_multishot_trigger_starts_one_flow_at_each_end() {
        let file = read(
            "0->1 start 0 size 1 send_done_trigger 9\n1->2 start 0 size 1 send_done_trigger 9\n\
             2->3 id 3 trigger 9 size 1\n3->4 id 4 trigger 9 size 1\ntrigger id 9 multishot\n",
        );
        let starts = file.gates.iter().map(|gate| (gate.needs, &gate.starts[..]));
        assert_eq!(starts.collect::<Vec<_>>(), [(1, &[2][..]), (2, &[3][..])]);
    }

    #[test]
    fn mistakes_have_line_cause_and_fix() {
        for (text, words) in [
            ("", "no connection"),
            ("0->1 start 0\n", "line 1: the connection has no 'size'"),
            ("0->1 size 5\n", "neither 'start' nor 'trigger'"),
            ("0->1 start 0 trigger 1 size 5\n", "'start' and 'trigger'"),
            ("0->x start 0 size 5\n", "'x' is not the number of a host"),
            ("0->1 start 0 size 5kB\n", "'5kB' is not the size of a flow"),
            ("0->1 start -1 size 5\n", "'-1' is not a start"),
            ("0->1 start 0 size 5 sise 9\n", "'sise' is unknown try: id, start"),
            ("0->1 start 0 size\n", "'size' has no value"),
            (
                "Connections 2\n0->1 start 0 size 1\n",
                "line 1 announces 'Connections 2', but there are 1",
            ),
            ("Failures 1\n0->1 start 0 size 1\n", "failed links is not read try: no failures"),
            (
                "0->1 id 1 start 0 size 1\n0->2 id 1 start 0 size 1\n",
                "line 2: two connections have id 1",
            ),
            ("0->1 trigger 4 size 1\n", "line 1: trigger 4 is not defined"),
            (
                "0->1 trigger 4 size 1\ntrigger id 4 oneshot\n",
                "needs the end of 1 flows, but 0 name it",
            ),
            ("trigger id 4 barrier\n", "line 1: the barrier has no 'count'"),
            ("trigger id 4\n", "trigger 4 has no type"),
            ("trigger id 4 oneshot\ntrigger id 4 oneshot\n", "also defined in line 1"),
            ("a,b,c\n", "begins no line of a matrix"),
        ] {
            let said = parse(text, StartUnit::Ps).map(drop).unwrap_err().lines().join(" ");
            assert!(said.contains(words), "{text:?}: {said}");
        }
    }
}
