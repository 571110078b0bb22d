// SPDX-License-Identifier: GPL-2.0
//! Costs counted by selftests/guest/bench.sh and bench-queues.sh: instructions per ACK and per packet, their
//! limits, and the tables of docs/performance.md.

use std::fmt::Write;

use csv::StringRecord;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use xdc_algo::MODULES;
use xdc_base::error::{Error, Result};

/// Counts of one run of the benchmarks.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct Costs {
    callbacks: Vec<Callback>,
    qdiscs: Vec<Qdisc>,
    queues: Vec<Queues>,
    hooks: Vec<Hook>,
    busy: Vec<Busy>,
    tunnels: Vec<Tunnel>,
    codes: Vec<Code>,
}

/// Cost of computing two parities of a block with one implementation.
#[derive(Debug, PartialEq, Deserialize, Serialize)]
struct Code {
    /// Implementation, one of [`CODES`].
    row: String,
    /// Data bytes of the block.
    bytes: u64,
    instructions: u64,
}

/// All instructions of a guest during a flow, with one kind of tunnel or none.
#[derive(Debug, PartialEq, Deserialize, Serialize)]
struct Tunnel {
    /// Kind of tunnel, one of [`TUNNELS`].
    row: String,
    /// Packets sent.
    packets: u64,
    instructions: u64,
}

/// All instructions of a guest during a flow, with tlt or without.
#[derive(Debug, PartialEq, Deserialize, Serialize)]
struct Busy {
    /// Configuration, one of [`BUSY`].
    row: String,
    instructions: u64,
}

/// Cost of tlt's hooks for one kind of packet, or of its work queue, over a flow.
#[derive(Debug, PartialEq, Deserialize, Serialize)]
struct Hook {
    /// Configuration, one of [`HOOKED`].
    row: String,
    /// Kind of packet, one of [`PACKETS`].
    packet: String,
    calls: u64,
    instructions: u64,
}

/// Cost of a qdisc below each of `queues` transmit queues, with a processor for each queue.
#[derive(Debug, PartialEq, Deserialize, Serialize)]
struct Queues {
    qdisc: String,
    queues: u32,
    packets: u64,
    /// Instructions of all processors, including making and sending the packets.
    instructions: u64,
}

/// One callback of a congestion control during a flow.
#[derive(Debug, PartialEq, Deserialize, Serialize)]
struct Callback {
    cc: String,
    acks: u64,
    callback: String,
    calls: u64,
    instructions: u64,
}

/// One qdisc, for a number of packets at constant backlog.
#[derive(Debug, PartialEq, Deserialize, Serialize)]
struct Qdisc {
    qdisc: String,
    /// Which packets are marked: one of [`MARKS`].
    marks: String,
    packets: u64,
    enqueue_instructions: u64,
    dequeue_instructions: u64,
    marked: u64,
    dropped: u64,
}

/// Variants, each with a row of its own, and their algorithm.
const VARIETIES: [(&str, &str); 1] = [("unocc", "unocc_rtt")];

fn ccs() -> Vec<&'static str> {
    let mut ccs = vec!["reno", "cubic", "bbr", "dctcp", "dctcp_rs"];
    let installed = MODULES.iter().filter(|module| module.is_installed());
    for name in installed.filter_map(|module| Some(module.algorithm?.name())) {
        ccs.push(name);
        let varieties = VARIETIES.iter().filter(|(of, _)| *of == name);
        ccs.extend(varieties.map(|(_, variety)| *variety));
    }
    ccs
}

/// Callbacks that an ACK can cause; others, such as min_tso_segs, belong to sending.
const CALLBACKS: [&str; 8] = [
    "in_ack_event",
    "pkts_acked",
    "cong_avoid",
    "cong_control",
    "cwnd_event",
    "ssthresh",
    "set_state",
    "undo_cwnd",
];

const QDISCS: [&str; 17] = [
    "pfifo",
    "fq",
    "red",
    "fq_codel",
    "dualpi2",
    "phantom",
    "phantom-physical",
    "phantom-physical-enqueue",
    "phantom-either",
    "tbf+red",
    "phantom-shaped",
    "ets",
    "taprio",
    "acceltor-mouse",
    "acceltor-accelerated",
    "acceltor-circuit",
    "acceltor-sketch",
];

const MARKS: [&str; 3] = ["none", "some", "all"];

/// Qdiscs below each transmit queue, and numbers of queues in use.
const BELOW_MQ: [&str; 3] = ["pfifo", "red", "phantom"];
const QUEUES: [u32; 3] = [1, 2, 4];

/// Without the module, with it off, and with it on.
const BUSY: [&str; 3] = ["tlt-none", "tlt-off", "tlt-on"];
/// Configurations with the module.
const HOOKED: [&str; 2] = ["tlt-off", "tlt-on"];
/// Packets sent and received by a host, and deferred work.
const PACKETS: [&str; 5] = ["data-out", "ack-in", "data-in", "ack-out", "work"];
/// A flow without a tunnel, and through one of each kind.
const TUNNELS: [&str; 4] = ["none", "vxlan", "unorc", "unorc-8+2"];
/// Implementations of parities: `unorc`'s without vector registers, with them, and with the kernel lending
/// them for each packet; and other libraries'.
const CODES: [&str; 5] = ["words", "vectors", "vectors-lent", "isa-l", "reed-solomon-simd"];
/// Limit of a disabled module's hook: a call, a look-up of the namespace's parameters, and a test.
const OFF_AT_MOST: f64 = 40.0;

/// Limit of a cost relative to another.
struct Target {
    what: String,
    than: String,
    /// Desired ratio.
    wanted: f64,
    /// Regression limit: the achieved ratio plus a margin.
    at_most: f64,
    measured: Option<f64>,
}

impl Target {
    fn holds(&self) -> bool {
        self.measured.is_some_and(|ratio| ratio <= self.at_most)
    }
}

impl Costs {
    /// Parses a line of the guest; ignores others.
    pub fn read(&mut self, line: &str) -> Result<()> {
        let mut words = line.split_whitespace();
        let (Some("#"), Some(kind)) = (words.next(), words.next()) else {
            return Ok(());
        };
        let row: StringRecord = words.collect();
        match (kind, row.len()) {
            ("callback", 5) => self.callbacks.push(counted(&row)?),
            ("hook", 4) => self.hooks.push(counted(&row)?),
            ("busy", 2) => self.busy.push(counted(&row)?),
            ("tunnel", 3) => self.tunnels.push(counted(&row)?),
            ("code", 3) => self.codes.push(counted(&row)?),
            ("queues", 4) => self.queues.push(counted(&row)?),
            ("qdisc", 7) => self.qdiscs.push(counted(&row)?),
            _ => {}
        }
        Ok(())
    }

    fn callback(&self, cc: &str, callback: &str) -> Option<&Callback> {
        self.callbacks
            .iter()
            .find(|row| row.cc == cc && row.callback == callback && row.acks > 0 && row.calls > 0)
    }

    /// Average instructions per ACK in a congestion control.
    pub fn per_ack(&self, cc: &str) -> Option<f64> {
        CALLBACKS
            .iter()
            .filter_map(|name| self.callback(cc, name))
            .map(|row| row.instructions as f64 / row.acks as f64)
            .reduce(|a, b| a + b)
    }

    fn qdisc(&self, qdisc: &str, marks: &str) -> Option<&Qdisc> {
        self.qdiscs.iter().find(|row| row.qdisc == qdisc && row.marks == marks && row.packets > 0)
    }

    fn per_packet(&self, qdisc: &str, marks: &str) -> Option<f64> {
        self.qdisc(qdisc, marks).map(|row| {
            (row.enqueue_instructions + row.dequeue_instructions) as f64 / row.packets as f64
        })
    }

    fn by_queues(&self, qdisc: &str, queues: u32) -> Option<f64> {
        let mut rows = self.queues.iter();
        rows.find(|row| row.qdisc == qdisc && row.queues == queues && row.packets > 0)
            .map(|row| row.instructions as f64 / row.packets as f64)
    }

    fn hook(&self, row: &str, packet: &str) -> Option<&Hook> {
        let mut all = self.hooks.iter();
        all.find(|hook| hook.row == row && hook.packet == packet && hook.calls > 0)
    }

    /// Instructions per hook call, one for each packet.
    fn per_hook(&self, row: &str, packet: &str) -> Option<f64> {
        let hook = self.hook(row, packet)?;
        Some(hook.instructions as f64 / hook.calls as f64)
    }

    fn busy(&self, row: &str) -> Option<f64> {
        let busy = self.busy.iter().find(|busy| busy.row == row)?;
        Some(busy.instructions as f64)
    }

    fn tunnel(&self, row: &str) -> Option<&Tunnel> {
        let mut all = self.tunnels.iter();
        all.find(|tunnel| tunnel.row == row && tunnel.packets > 0)
    }

    /// Extra instructions per packet against no tunnel, over both ends and the ACKs.
    fn per_tunneled(&self, row: &str) -> Option<f64> {
        let (tunnel, without) = (self.tunnel(row)?, self.tunnel(TUNNELS[0])?);
        let each = |tunnel: &Tunnel| tunnel.instructions as f64 / tunnel.packets as f64;
        Some(each(tunnel) - each(without))
    }

    fn per_coded_byte(&self, row: &str) -> Option<f64> {
        let mut all = self.codes.iter();
        let code = all.find(|code| code.row == row && code.bytes > 0)?;
        Some(code.instructions as f64 / code.bytes as f64)
    }

    fn targets(&self) -> Vec<Target> {
        let ack = |what: &str, than: &str, wanted, at_most| Target {
            what: format!("an ACK of {what}"),
            than: than.to_owned(),
            wanted,
            at_most,
            measured: ratio(self.per_ack(what), self.per_ack(than)),
        };
        let packet = |what: &str, than: &str, wanted, at_most| {
            let what = what.to_owned();
            let than = than.to_owned();
            MARKS.map(move |marks| Target {
                what: format!("a packet of {what}, marks: {marks}"),
                than: than.clone(),
                wanted,
                at_most,
                measured: ratio(self.per_packet(&what, marks), self.per_packet(&than, marks)),
            })
        };
        let acks = [
            ack("dctcp_rs", "dctcp", 1.05, 1.2),
            // bbr's count varies from 377 to 438 between boots.
            ack("unocc", "bbr", 1.0, 1.08),
            ack("unocc_rtt", "bbr", 1.0, 1.25),
            ack("gemini", "bbr", 1.0, 1.04),
        ];
        let packets = [
            packet("phantom-physical", "red", 1.2, 1.27),
            packet("phantom-physical-enqueue", "red", 1.2, 1.28),
            packet("phantom", "red", 1.2, 2.12),
            packet("phantom-shaped", "tbf+red", 1.2, 1.37),
            packet("phantom", "fq_codel", 1.0, 1.29),
            packet("phantom-either", "fq_codel", 1.0, 1.04),
            packet("phantom-shaped", "fq_codel", 1.0, 1.5),
        ];
        // Includes making and sending the packet, which dominates.
        let most = QUEUES[QUEUES.len() - 1];
        let queues = Target {
            what: format!("a packet of phantom with {most} queues at once"),
            than: "a packet with one queue".to_owned(),
            wanted: 1.0,
            at_most: 1.03,
            measured: ratio(self.by_queues("phantom", most), self.by_queues("phantom", 1)),
        };
        let tunnel = Target {
            what: "the addition of unorc without code to a packet".to_owned(),
            than: "the addition of vxlan".to_owned(),
            wanted: 2.0,
            at_most: 4.5,
            measured: ratio(self.per_tunneled("unorc"), self.per_tunneled("vxlan")),
        };
        let code = |row: &str, than: &str, wanted, at_most, one| Target {
            what: format!("a byte of two parities by {row}"),
            than: than.to_owned(),
            wanted,
            at_most,
            measured: ratio(self.per_coded_byte(row), one),
        };
        let codes = [
            code("words", "an instruction", 2.2, 2.4, Some(1.0)),
            code("vectors", "an instruction", 0.4, 0.41, Some(1.0)),
            code("vectors-lent", "ISA-L's", 2.0, 1.0, self.per_coded_byte("isa-l")),
            code(
                "vectors-lent",
                "reed-solomon-simd's",
                1.0,
                1.0,
                self.per_coded_byte("reed-solomon-simd"),
            ),
        ];
        acks.into_iter()
            .chain(packets.into_iter().flatten())
            .chain([queues, tunnel])
            .chain(codes)
            .collect()
    }

    /// KTAP results of all targets.
    pub fn judge(&self) -> Vec<String> {
        let targets = self.targets();
        let of_targets = targets.iter().map(|target| {
            let verdict = if target.holds() { "ok" } else { "not ok" };
            format!(
                "{verdict} - {} costs at most {} of {}: {}",
                target.what,
                target.at_most,
                target.than,
                show(target.measured, 2),
            )
        });
        let hooks = PACKETS.iter().filter(|packet| **packet != "work");
        let of_hooks = hooks.map(|packet| {
            let each = self.per_hook(HOOKED[0], packet);
            let verdict = match each.is_some_and(|each| each <= OFF_AT_MOST) {
                true => "ok",
                false => "not ok",
            };
            format!(
                "{verdict} - tlt, when disabled, costs {packet} at most {OFF_AT_MOST}: {}",
                show(each, 1)
            )
        });
        of_targets.chain(of_hooks).collect()
    }

    /// Largest relative difference between two boots, of qdiscs that mark no packet or all. Other marking and
    /// ACK timing are random.
    pub fn furthest(&self, other: &Self) -> f64 {
        let figures = |costs: &Self| -> Vec<Option<f64>> {
            QDISCS
                .iter()
                .flat_map(|qdisc| ["none", "all"].map(|marks| costs.per_packet(qdisc, marks)))
                .collect()
        };
        let difference = |pair: (Option<f64>, Option<f64>)| match pair {
            (None, None) => 0.0,
            (Some(a), Some(b)) if a > 0.0 => (b - a).abs() / a,
            _ => f64::INFINITY,
        };
        figures(self).into_iter().zip(figures(other)).map(difference).fold(0.0, f64::max)
    }

    /// Tables for docs/performance.md.
    pub fn tables(&self) -> String {
        [
            self.acks_table(),
            self.packets_table(),
            self.queues_table(),
            self.hooks_table(),
            self.tunnels_table(),
            self.codes_table(),
            self.targets_table(),
        ]
        .join("\n")
    }

    fn acks_table(&self) -> String {
        let mut out = format!("| | per ACK | {} |\n", CALLBACKS.join(" | "));
        out += &format!("|---|---:|{}\n", "---:|".repeat(CALLBACKS.len()));
        for cc in ccs() {
            let cells = CALLBACKS.map(|name| {
                self.callback(cc, name).map_or_else(String::new, |row| {
                    format!(
                        "{:.0} x {:.2}",
                        row.instructions as f64 / row.calls as f64,
                        row.calls as f64 / row.acks as f64
                    )
                })
            });
            let sum = show(self.per_ack(cc), 0);
            let _ = writeln!(out, "| {cc} | {sum} | {} |", cells.join(" | "));
        }
        out
    }

    fn packets_table(&self) -> String {
        let mut out = "| |".to_owned();
        for marks in MARKS {
            let _ = write!(out, " {marks} | x red | share marked |");
        }
        let _ = writeln!(out, "\n|---|{}", "---:|".repeat(3 * MARKS.len()));
        for qdisc in QDISCS {
            let _ = write!(out, "| {qdisc} |");
            for marks in MARKS {
                let Some(row) = self.qdisc(qdisc, marks) else {
                    out += " | | |";
                    continue;
                };
                let per = |instructions: u64| instructions as f64 / row.packets as f64;
                let times = ratio(self.per_packet(qdisc, marks), self.per_packet("red", marks));
                let _ = write!(
                    out,
                    " {:.0} + {:.0} | {} | {:.0} % |",
                    per(row.enqueue_instructions),
                    per(row.dequeue_instructions),
                    show(times, 2),
                    per(row.marked) * 100.0,
                );
            }
            out += "\n";
        }
        out
    }

    fn queues_table(&self) -> String {
        let heads = QUEUES.map(|queues| format!(" {queues} |")).concat();
        let mut out = format!("| below mq, queues in use |{heads}\n");
        out += &format!("|---|{}\n", "---:|".repeat(QUEUES.len()));
        for qdisc in BELOW_MQ {
            let cells =
                QUEUES.map(|queues| format!(" {} |", show(self.by_queues(qdisc, queues), 0)));
            let _ = writeln!(out, "| {qdisc} |{}", cells.concat());
        }
        out
    }

    fn hooks_table(&self) -> String {
        let mut out = format!("| instructions x number | {} |\n", PACKETS.join(" | "));
        out += &format!("|---|{}\n", "---:|".repeat(PACKETS.len()));
        for row in HOOKED {
            let cells = PACKETS.map(|packet| {
                let calls = self.hook(row, packet).map_or(0, |hook| hook.calls);
                let each = self.per_hook(row, packet);
                match each {
                    Some(_) => format!(" {} x {calls} |", show(each, 0)),
                    // A disabled module queues no work.
                    None if packet == "work" && row == HOOKED[0] => " - |".to_owned(),
                    None => " ? |".to_owned(),
                }
            });
            let _ = writeln!(out, "| {row} |{}", cells.concat());
        }
        out += "\n| | instructions of the guest | more than without tlt |\n|---|---:|---:|\n";
        let without = self.busy(BUSY[0]);
        for row in BUSY {
            let all = self.busy(row);
            let more = all.zip(without).map(|(all, without)| all / without - 1.0);
            let more = more.map_or("?".to_owned(), |more| format!("{:.1} %", more * 100.0));
            let _ = writeln!(out, "| {row} | {} | {more} |", show(all, 0));
        }
        out
    }

    fn tunnels_table(&self) -> String {
        let mut out =
            "| tunnel | packets sent | instructions of the guest | added per packet |\n".to_owned();
        out += "|---|---:|---:|---:|\n";
        for row in TUNNELS {
            let tunnel = self.tunnel(row);
            let _ = writeln!(
                out,
                "| {row} | {} | {} | {} |",
                show(tunnel.map(|tunnel| tunnel.packets as f64), 0),
                show(tunnel.map(|tunnel| tunnel.instructions as f64), 0),
                show(self.per_tunneled(row), 0),
            );
        }
        out
    }

    fn codes_table(&self) -> String {
        let mut out = "| two parities by | bytes | instructions | per byte |\n".to_owned();
        out += "|---|---:|---:|---:|\n";
        for row in CODES {
            let code = self.codes.iter().find(|code| code.row == row);
            let _ = writeln!(
                out,
                "| {row} | {} | {} | {} |",
                show(code.map(|code| code.bytes as f64), 0),
                show(code.map(|code| code.instructions as f64), 0),
                show(self.per_coded_byte(row), 3),
            );
        }
        out
    }

    fn targets_table(&self) -> String {
        let mut out = "| | goal | bound | measured |\n|---|---:|---:|---:|\n".to_owned();
        for target in self.targets() {
            let _ = writeln!(
                out,
                "| {} | {} x {} | {} | {} |",
                target.what,
                target.wanted,
                target.than,
                target.at_most,
                show(target.measured, 2),
            );
        }
        out
    }
}

/// Converts the words of a line to the fields of a row, in their order.
fn counted<T: DeserializeOwned>(row: &StringRecord) -> Result<T> {
    row.deserialize(None)
        .map_err(|err| Error::failure(format!("the guest counted '{}': {err}", row.as_slice())))
}

fn ratio(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    Some(a? / b.filter(|b| *b > 0.0)?)
}

fn show(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "?".to_owned(), |value| format!("{value:.decimals$}"))
}

#[cfg(test)]
mod tests;
