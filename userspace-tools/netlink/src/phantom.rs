// SPDX-License-Identifier: GPL-2.0
//! Options and statistics of the qdisc `phantom`: `modules/include/uapi/linux/pkt_phantom.h` in Rust.
//!
//! The header defines the ids; the tests below compare.

use crate::{
    bounds::{MAX_BYTES, MAX_PPM, Refusal, bytes, ppm, rate},
    codec::{named_values, options, xstats},
    qdisc::QdiscState,
    units::{Fraction, Rate},
    words::{self, Bytes, Count, Dscps, Factor, Mistake, Name, Named, Plain, Switch},
};

/// TCA_KIND.
pub const KIND: &str = "phantom";

named_values! {
    /// Which queue's occupancy chooses packets to mark.
    Mark {
        /// Neither: drop-tail.
        None = "none",
        /// The phantom counter.
        Phantom = "phantom",
        /// The physical backlog.
        Physical = "physical",
        /// One of the two.
        Either = "either",
        /// The two together.
        Both = "both",
    }
    /// Time of marking.
    MarkAt {
        /// When the packet leaves.
        Dequeue = "dequeue",
        /// When the packet arrives.
        Enqueue = "enqueue",
    }
    /// Importance of a packet.
    Color {
        /// Most important.
        Green = "green",
        /// Less important.
        Yellow = "yellow",
        /// Least important.
        Red = "red",
    }
    /// Source of a packet's color.
    ColorSource {
        /// No source: every packet is green.
        None = "none",
        /// The DSCP table.
        Dscp = "dscp",
        /// skb->priority.
        Priority = "priority",
        /// A tc filter.
        Filter = "filter",
    }
    /// Handling of GSO packets.
    Gso {
        /// Split if marking is enabled.
        Auto = "auto",
        /// Always split.
        Split = "split",
        /// Count as one packet.
        Whole = "whole",
    }
}

include!("../../../modules/net/sched/phantom_table.rs");

xstats! {
    /// Current phantom occupancy, bytes.
    phantom_bytes,
    /// Highest phantom occupancy, bytes.
    phantom_max_bytes,
    /// Highest backlog, bytes.
    backlog_max_bytes,
    /// Packets marked CE because of the phantom queue alone.
    marked_phantom,
    /// Packets marked CE because of the backlog alone.
    marked_physical,
    /// Packets marked CE because of both.
    marked_both,
    /// Packets selected for marking, marked or not.
    would_mark,
    /// Drops: physical queue full.
    drops_limit,
    /// Drops: dynamic threshold of the shared buffer.
    drops_pool,
    /// Drops: selected for marking, but Not-ECT, with ecn-drop.
    drops_ecn,
    /// All drops of green packets.
    drops_green,
    /// All drops of yellow packets.
    drops_yellow,
    /// All drops of red packets.
    drops_red,
    /// Drops: above red-limit or yellow-limit.
    drops_color,
    /// Accepted green bytes.
    bytes_green,
    /// Accepted yellow bytes.
    bytes_yellow,
    /// Accepted red bytes.
    bytes_red,
    /// Time with a packet in the queue, ns.
    busy_ns,
    /// Effective drain rate; 0 = unknown line rate.
    phantom_drain_bytes_per_s,
    /// Current use of the shared buffer, all ports.
    pool_used_bytes,
    /// Accepted green packets; 0 without a source of colors.
    packets_green,
    /// Accepted yellow packets; likewise.
    packets_yellow,
    /// Accepted red packets; likewise.
    packets_red,
    /// Most red bytes queued.
    red_max_bytes,
}

impl Xstats {
    /// Decodes the statistics of a dumped qdisc; None for another kind.
    pub fn of(state: &QdiscState) -> Option<Self> {
        (state.kind == KIND).then(|| Self::decode(&state.xstats))
    }

    /// Returns the number of packets marked CE, for any reason.
    pub fn marked(&self) -> u64 {
        self.marked_phantom + self.marked_physical + self.marked_both
    }
}

impl Options {
    /// Reads NAME VALUE NAME VALUE...
    pub fn from_words<S: AsRef<str>>(words: &[S]) -> Result<Self, Mistake> {
        let mut options: Self = words::read(WORDS, words)?;
        // A list of DSCPs is useless without its source of colors, so select the source, too.
        if options.dscp_red.is_some() || options.dscp_yellow.is_some() {
            options.color_source.get_or_insert(ColorSource::Dscp);
        }
        Ok(options)
    }

    /// Returns whether the phantom queue chooses packets to mark.
    pub fn marks_by_phantom(&self) -> bool {
        matches!(self.mark, None | Some(Mark::Phantom | Mark::Either | Mark::Both))
    }

    /// Returns the module's default of an option with bounds.
    pub fn default_of(name: &str) -> Option<i64> {
        let word = WORDS.iter().find(|word| word.name == name)?;
        word.bounds.map(|(_, default)| default)
    }

    /// Returns the option that the kernel would refuse, and the reason.
    pub fn check(&self) -> Result<(), (&'static str, Refusal)> {
        words::check(WORDS, self)?;
        for (low, high) in [("pmin", "pmax"), ("min", "max")] {
            let value = |name: &str| {
                let word = WORDS.iter().find(|word| word.name == name)?;
                let set = (word.number)(self);
                Some((set.or(Self::default_of(name))?, set.is_none(), word.print))
            };
            let (Some((least, is_low_default, print)), Some((most, is_default, _))) =
                (value(low), value(high))
            else {
                continue;
            };
            if least > most {
                let by = if is_default { ", its default" } else { "" };
                let refusal = Refusal {
                    sentence: format!(
                        "'{low}' is {}, above '{high}', {}{by}",
                        print(least),
                        print(most)
                    ),
                    range: format!("'{low}' at or below '{high}'"),
                };
                return Err((if is_low_default { high } else { low }, refusal));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::Attributes;

    #[test]
    fn options_survive_a_round_trip() {
        let options = Options {
            limit_bytes: Some(1_000_000),
            overhead_bytes: Some(-14),
            mark: Some(Mark::Both),
            mark_at: Some(MarkAt::Enqueue),
            ecn_drop: Some(true),
            dscp_red: Some(1 << 8),
            seed: Some(u64::MAX),
            pool: Some("tor".to_string()),
            pool_alpha_ppm: Some(1),
            ..Default::default()
        };
        assert_eq!(Options::decode(&options.encode()).unwrap(), options);
        assert_eq!(Options::decode(&[]).unwrap(), Options::default());
    }

    #[test]
    fn invalid_utf8_in_a_name_is_replaced() {
        let mut attributes = Attributes::default();
        attributes.push(24, b"to\xffr\0");
        let options = Options::decode(&attributes.into_bytes()).unwrap();
        assert_eq!(options.pool.as_deref(), Some("to\u{fffd}r"));
    }

    #[test]
    fn a_value_out_of_range_is_an_error() {
        let mut attributes = Attributes::default();
        attributes.push(13, &[99]);
        assert!(Options::decode(&attributes.into_bytes()).is_err());
    }

    #[test]
    fn xstats_may_grow_and_shrink() {
        let bytes: Vec<u8> = (1..=40u64).flat_map(u64::to_ne_bytes).collect();
        assert_eq!(Xstats::decode(&bytes).pool_used_bytes, 20);
        assert_eq!(Xstats::decode(&bytes[..8]).phantom_bytes, 1);
        assert_eq!(Xstats::decode(&bytes).red_max_bytes, 24);
        assert_eq!(Xstats::decode(&bytes[..8]).pool_used_bytes, 0);
    }

    #[test]
    fn names_parse_back() {
        for color in Color::ALL {
            assert_eq!(color.to_string().parse(), Ok(*color));
        }
        assert!("pink".parse::<Color>().is_err());
    }

    /// A value for each word that differs from its default text.
    const EVERY: &str = "limit 1000001b rate 8kbit overhead -14 mpu 64 line-rate 10gbit \
        phantom 22400kb drain 0.9 pmin 2% pmax 60% mark either at enqueue min 25% max 75% \
        ecn-drop on count-acks off red-limit 400kb yellow-limit 600kb color-total on \
        color priority red-dscp 8 yellow-dscp 10 gso whole pool tor pool-limit 4mb \
        pool-alpha 0.5 seed 18446744073709551615";

    #[test]
    fn printed_words_parse_back() {
        let words: Vec<_> = EVERY.split_whitespace().collect();
        let options = Options::from_words(&words).unwrap();
        let printed = options.word_list();
        assert_eq!(printed.len(), 2 * WORDS.len());
        assert_eq!(Options::from_words(&printed), Ok(options.clone()));
        assert_eq!(Options::decode(&options.encode()).unwrap(), options);
        let json: serde_json::Map<_, _> =
            options.to_json().map(|(k, v)| (k.to_owned(), v)).collect();
        assert_eq!(json.len(), WORDS.len());
        assert_eq!(json["rate_bytes_per_s"], 1000);
        assert_eq!(json["dscp_red"], "8");
    }

    #[test]
    fn each_mistake_has_its_variant() {
        let mistake = |words: &[&str]| Options::from_words(words).unwrap_err();
        assert_eq!(mistake(&["speed", "1gbit"]), Mistake::Unknown("speed".into()));
        assert_eq!(mistake(&["limit"]), Mistake::NoValue("limit".into()));
        let long = "x".repeat(70_000);
        for (name, value) in [
            ("mark", "maybe"),
            ("drain", "1.5"),
            ("pool", long.as_str()),
            ("limit", "4gb"),
            ("rate", "7bit"),
            ("seed", "-1"),
            ("red-dscp", "64"),
        ] {
            assert!(matches!(mistake(&[name, value]), Mistake::Value(n, v, _)
                if n == name && v == value));
        }
    }

    #[test]
    fn check_refuses_what_the_kernel_refuses() {
        let check = |line: &str| {
            let words: Vec<_> = line.split_whitespace().collect();
            Options::from_words(&words).unwrap().check()
        };
        for line in ["", "drain 90% pmin 2% pmax 2%", "min 0% max 0%", "limit 1b"] {
            assert_eq!(check(line), Ok(()), "{line}");
        }
        for (line, word) in [
            ("drain 0", "drain"),
            ("phantom 0b", "phantom"),
            ("limit 0b", "limit"),
            ("pmin 60% pmax 2%", "pmin"),
            ("pmin 61%", "pmin"),
            ("max 24%", "max"),
            ("overhead 300", "overhead"),
            ("pool-alpha 0", "pool-alpha"),
        ] {
            assert_eq!(check(line).unwrap_err().0, word, "{line}");
        }
    }
}
