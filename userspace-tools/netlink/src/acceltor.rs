// SPDX-License-Identifier: GPL-2.0
//! Options and statistics of the qdisc `acceltor`: `modules/include/uapi/linux/pkt_acceltor.h` in Rust.
//!
//! The header defines the ids; the tests below compare.

mod clock;
mod lists;

pub use clock::ClockId;
pub use lists::{NESTED_IDS, Peers, Prefix};

use xdc_algo::acceltor::MAX_QUEUES;

use crate::{
    bounds::{Bounds, MAX_BYTES, NS_PER_S, NS_PER_US, Refusal, bytes, count, ns, rate},
    codec::{named_values, options, xstats},
    qdisc::QdiscState,
    units::{Rate, Time},
    words::{self, Bytes, Dscps, Mistake, Named, Number, Switch},
};

use lists::{PeersOrAuto, Prefixes};

/// TCA_KIND.
pub const KIND: &str = "acceltor";

named_values! {
    /// Handling of a packet whose calendar queue is full.
    Overflow {
        /// Drop it.
        Drop = "drop",
        /// Before its day, accelerate it.
        Lp = "lp",
    }
    /// Handling of elephants without a circuit.
    Policy {
        /// Accelerate them before their day.
        AccelTor = "acceltor",
        /// Queue them at their rack.
        Blocking = "blocking",
        /// Send them through the packet network, as mice.
        Unblocking = "unblocking",
        /// Always send them through the packet network.
        Packet = "packet",
    }
    /// Detection of elephants.
    Detect {
        /// Largest flows, by a count-min sketch.
        Sketch = "sketch",
        /// Flows with certain DSCPs.
        Dscp = "dscp",
        /// Flows that a tc filter or the priority selects.
        Filter = "filter",
    }
}

include!("../../../modules/net/sched/acceltor_table.rs");

xstats! {
    /// Received packets.
    packets_in,
    /// Received bytes.
    bytes_in,
    /// Mice sent to the packet network, packets.
    packets_high,
    /// Mice sent to the packet network, bytes.
    bytes_high,
    /// Accelerated elephants sent to the packet network, packets.
    packets_low,
    /// Accelerated elephants sent to the packet network, bytes.
    bytes_low,
    /// Packets sent to the circuit switch.
    packets_circuit,
    /// Bytes sent to the circuit switch.
    bytes_circuit,
    /// Queued packets.
    packets_queued,
    /// Queued bytes of mice.
    backlog_high,
    /// Queued bytes of accelerated elephants.
    backlog_low,
    /// Bytes queued for the current or next day.
    backlog_today,
    /// Bytes queued for later days.
    backlog_later,
    /// Drops: mice's queue full.
    drops_high,
    /// Drops: accelerated elephants' queue full.
    drops_low,
    /// Drops: calendar queue full.
    drops_queue,
    /// Drops: K days or more before their day.
    drops_blocked,
    /// Drops: day over.
    drops_stale,
    /// Drops: schedule or clock changed.
    drops_reschedule,
    /// Drops: device set down.
    drops_reset,
    /// Drops: by a filter, or not splittable.
    drops_filter,
    /// Days that have begun.
    days,
    /// Days with queued packets on which nothing was sent.
    missed_days,
    /// Longest time from a day's start to the first packet that waited for it.
    late_max_ns,
    /// Current elephants.
    elephants,
    /// Flows that became elephants.
    promoted,
    /// Flows that stopped being elephants.
    evicted,
    /// Early packets that were accelerated.
    rescued,
    /// Times that the clock was set back.
    clock_jumps,
    /// Packets marked CE.
    marked,
}

impl Xstats {
    /// Decodes the statistics of a dumped qdisc; None for another kind.
    pub fn of(state: &QdiscState) -> Option<Self> {
        (state.kind == KIND).then(|| Self::decode(&state.xstats))
    }

    /// Returns the number of packets that are not accounted for; 0 unless the kernel is wrong.
    pub fn unaccounted(&self) -> i64 {
        let out = self.packets_high + self.packets_low + self.packets_circuit + self.packets_queued;
        let drops = self.drops_high
            + self.drops_low
            + self.drops_queue
            + self.drops_blocked
            + self.drops_stale
            + self.drops_reschedule
            + self.drops_reset
            + self.drops_filter;
        self.packets_in as i64 - out as i64 - drops as i64
    }
}

impl Options {
    /// Reads NAME VALUE NAME VALUE...
    pub fn from_words<S: AsRef<str>>(words: &[S]) -> Result<Self, Mistake> {
        words::read(WORDS, words)
    }

    /// Returns the option that the kernel would refuse, and the reason.
    pub fn check(&self) -> Result<(), (&'static str, Refusal)> {
        words::check(WORDS, self)?;
        let half_day_ns = self.day_ns.unwrap_or(u64::MAX) / 2;
        for (word, time_ns) in [("guard", self.guard_ns), ("lead", self.lead_ns)] {
            if time_ns.is_some_and(|time_ns| time_ns > half_day_ns) {
                let refusal = Refusal {
                    sentence: format!("'{word}' is longer than half a day"),
                    range: format!("at most {half_day_ns} ns"),
                };
                return Err((word, refusal));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unaccounted_packets_are_counted() {
        let xstats = Xstats {
            packets_in: 10,
            packets_circuit: 3,
            packets_queued: 2,
            drops_stale: 4,
            ..Default::default()
        };
        assert_eq!(xstats.unaccounted(), 1);
    }

    const EVERY: &str = "racks 8 rack 3 prefix 10.0.1.0/24=1,fd00:2::/32=2 day 240us night 20us \
        base-time -5 clockid TAI peers 4,5,6,7,0,1,2 ocs-rate 80gbit eps-rate 50gbit rtt 60us k 4 \
        hp 150000b lp 150000b limit 500000b policy blocking detect dscp dscp 8,46 elephants 37 \
        idle 1s sketch-bytes 225000b overflow lp rescue on guard 1us lead 500ns ecn 97500b";

    #[test]
    fn printed_words_parse_back() {
        let words: Vec<_> = EVERY.split_whitespace().collect();
        let options = Options::from_words(&words).unwrap();
        let printed = options.word_list();
        assert_eq!(printed.len(), 2 * WORDS.len());
        assert_eq!(Options::from_words(&printed), Ok(options.clone()));
        assert_eq!(Options::decode(&options.encode()).unwrap(), options);
        assert_eq!(options.to_json().count(), WORDS.len());
        for (name, none) in [("prefix", "none"), ("dscp", "none"), ("peers", "auto")] {
            let options = Options::from_words(&[name, none]).unwrap();
            assert_eq!(options.to_words().next(), Some((name, none.to_owned())));
        }
    }

    #[test]
    fn each_mistake_has_its_variant() {
        for (name, value) in [
            ("prefix", "10.0.0.0=1"),
            ("prefix", "10.0.0.0/33=1"),
            ("prefix", "10.0.0.0/8"),
            ("peers", "1,two"),
            ("dscp", "64"),
            ("k", "-1"),
            ("base-time", "soon"),
            ("day", "5"),
            ("policy", "none"),
        ] {
            let mistake = Options::from_words(&[name, value]).unwrap_err();
            assert!(matches!(mistake, Mistake::Value(n, v, _) if n == name && v == value));
        }
    }

    /// Output of `tc qdisc show` for the defaults, as a guest checks it.
    fn defaults() -> Vec<&'static str> {
        let cases = include_str!("../../../selftests/guest/tdc/acceltor.json");
        let shown = cases.split("\"matchPattern\": \"").find_map(|case| {
            let pattern = case.split('"').next()?;
            pattern.split_once("+ racks 8 ").filter(|(_, it)| it.contains(" ecn "))
        });
        shown.unwrap().1.split_whitespace().collect()
    }

    #[test]
    fn the_manual_page_has_each_default_and_range() {
        let page = include_str!("../../../docs/man/tc-acceltor.8");
        let entry = |word: &str| {
            let starts = [format!(".BI {word} "), format!(".BR \"{word} ")];
            let entry =
                page.split(".TP\n").find(|it| starts.iter().any(|start| it.starts_with(start)));
            let words = entry.expect(word).split_whitespace();
            words.collect::<Vec<_>>().join(" ")
        };
        for pair in defaults().chunks_exact(2) {
            let default = format!("Default {}", pair[1]);
            assert!(entry(pair[0]).contains(&default), "{pair:?}");
        }
        for word in WORDS {
            let Some((Bounds { min, max, .. }, _)) = word.bounds else { continue };
            let range = format!(" Range {} to {}.", (word.print)(min), (word.print)(max));
            assert!(entry(word.name).contains(&range), "{}{range}", word.name);
        }
    }

    #[test]
    fn check_refuses_what_the_kernel_refuses() {
        let check = |line: &str| {
            let words: Vec<_> = line.split_whitespace().collect();
            Options::from_words(&words).unwrap().check()
        };
        for line in ["", "hp 2000b", "day 240us guard 120us", "guard 1s"] {
            assert_eq!(check(line), Ok(()), "{line}");
        }
        for (line, word) in [
            ("hp 1999b", "hp"),
            ("limit 2gb", "limit"),
            ("elephants 4097", "elephants"),
            ("rtt 2s", "rtt"),
            ("day 240us guard 121us", "guard"),
            ("day 240us lead 121us", "lead"),
        ] {
            assert_eq!(check(line).unwrap_err().0, word, "{line}");
        }
    }
}
