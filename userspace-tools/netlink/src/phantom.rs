// SPDX-License-Identifier: GPL-2.0
//! Options and statistics of the qdisc `phantom`: `modules/include/uapi/linux/pkt_phantom.h` in Rust.
//!
//! The header defines the ids; the tests below compare.

mod bounds;
pub mod words;

use crate::{
    codec::{named_values, options, xstats},
    qdisc::QdiscState,
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

options! {
    /// Limit of the physical queue, bytes.
    limit_bytes: u32 = 2 "TCA_PHANTOM_LIMIT",
    /// Shaper, bytes per second; 0 = none.
    rate_bytes_per_s: u64 = 3 "TCA_PHANTOM_RATE64",
    /// Bytes that the shaper adds to each packet's length.
    overhead_bytes: i32 = 4 "TCA_PHANTOM_OVERHEAD",
    /// Minimum packet length for the shaper, bytes.
    mpu_bytes: u32 = 5 "TCA_PHANTOM_MPU",
    /// Reference of the phantom drain rate, bytes per second; 0 = the shaper's rate, or the
    /// device's speed.
    line_rate_bytes_per_s: u64 = 6 "TCA_PHANTOM_LINE_RATE64",
    /// Cap of the phantom queue, bytes.
    phantom_limit_bytes: u64 = 7 "TCA_PHANTOM_PQ_LIMIT",
    /// Drain rate, ppm of the line rate.
    drain_ppm: u32 = 8 "TCA_PHANTOM_PQ_DRAIN_PPM",
    /// Start of RED on the phantom counter, ppm of its cap.
    pmin_ppm: u32 = 9 "TCA_PHANTOM_PQ_MIN_PPM",
    /// Phantom counter at which RED reaches 1, ppm of its cap.
    pmax_ppm: u32 = 10 "TCA_PHANTOM_PQ_MAX_PPM",
    /// Start of RED on the backlog, ppm of the limit.
    min_ppm: u32 = 11 "TCA_PHANTOM_BACKLOG_MIN_PPM",
    /// Backlog at which RED reaches 1, ppm of the limit.
    max_ppm: u32 = 12 "TCA_PHANTOM_BACKLOG_MAX_PPM",
    /// Queue whose occupancy decides on marks.
    mark: Mark = 13 "TCA_PHANTOM_MARK",
    /// Time of marking.
    mark_at: MarkAt = 14 "TCA_PHANTOM_MARK_AT",
    /// Drop instead of mark, if a packet is Not-ECT.
    ecn_drop: bool = 15 "TCA_PHANTOM_ECN_DROP",
    /// Count pure ACKs in the phantom queue.
    count_acks: bool = 16 "TCA_PHANTOM_COUNT_ACKS",
    /// Limit of red bytes; 0 = none.
    red_limit_bytes: u32 = 17 "TCA_PHANTOM_COLOR_LIMIT_RED",
    /// Limit of yellow bytes; 0 = none.
    yellow_limit_bytes: u32 = 18 "TCA_PHANTOM_COLOR_LIMIT_YELLOW",
    /// Apply color limits to the whole backlog.
    color_total: bool = 19 "TCA_PHANTOM_COLOR_TOTAL",
    /// Source of colors.
    color_source: ColorSource = 20 "TCA_PHANTOM_COLOR_SOURCE",
    /// DSCPs whose packets are red: bit n is DSCP n.
    dscp_red: u64 = 21 "TCA_PHANTOM_COLOR_DSCP_RED",
    /// DSCPs whose packets are yellow. Packets with other DSCPs are green.
    dscp_yellow: u64 = 22 "TCA_PHANTOM_COLOR_DSCP_YELLOW",
    /// Handling of GSO packets.
    gso: Gso = 23 "TCA_PHANTOM_GSO",
    /// Name of the shared buffer; empty = none.
    pool: String = 24 "TCA_PHANTOM_POOL",
    /// Size of the shared buffer, bytes.
    pool_limit_bytes: u32 = 25 "TCA_PHANTOM_POOL_LIMIT",
    /// Share of the free buffer that this port may use, ppm.
    pool_alpha_ppm: u32 = 26 "TCA_PHANTOM_POOL_ALPHA_PPM",
    /// Seed of RED's random numbers.
    seed: u64 = 27 "TCA_PHANTOM_SEED",
}

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
    /// Accepted green packets. This and the next two counters need a source of colors.
    packets_green,
    /// Accepted yellow packets.
    packets_yellow,
    /// Accepted red packets.
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

#[cfg(test)]
mod tests {
    use saphyr::{LoadableYamlNode as _, Yaml};

    use super::*;
    use crate::attributes::Attributes;
    use crate::codec::tests::{members_of, of, text};

    const HEADER: &str = include_str!("../../../modules/include/uapi/linux/pkt_phantom.h");

    fn members(declaration: &str) -> Vec<&'static str> {
        members_of(HEADER, declaration)
    }

    #[test]
    fn ids_match_the_header() {
        let mut ids = members("enum {").into_iter().enumerate().skip(2);
        for (name, id) in IDS {
            assert_eq!(ids.next(), Some((usize::from(*id), *name)));
        }
        assert_eq!(ids.next().map(|(_, name)| name), Some("__TCA_PHANTOM_MAX"));
    }

    #[test]
    fn xstats_match_the_header() {
        assert_eq!(members("struct tc_phantom_xstats {"), Xstats::FIELDS);
    }

    #[test]
    fn enums_match_the_header() {
        let check = |declaration: &str, prefix: &str, names: &[&str]| {
            let expected = names.iter().map(|name| format!("{prefix}{}", name.to_uppercase()));
            assert!(members(declaration).into_iter().eq(expected), "{declaration}");
        };
        check("enum tc_phantom_mark {", "TC_PHANTOM_MARK_", Mark::NAMES);
        check("enum tc_phantom_mark_at {", "TC_PHANTOM_MARK_AT_", MarkAt::NAMES);
        check("enum tc_phantom_color_source {", "TC_PHANTOM_COLOR_SOURCE_", ColorSource::NAMES);
        check("enum tc_phantom_gso {", "TC_PHANTOM_GSO_", Gso::NAMES);
    }

    #[test]
    fn the_ynl_specification_matches_the_options() {
        const SPECIFICATION: &str =
            include_str!("../../../modules/Documentation/netlink/specs/phantom.yaml");
        let documents = Yaml::load_from_str(SPECIFICATION).unwrap();
        let specification = &documents[0];

        // Ids count from 1; the first is for padding.
        let attributes = of(&specification["attribute-sets"], "phantom-attrs", "attributes");
        assert_eq!(text(attributes[0], "name"), Some("pad"));
        assert_eq!(attributes.len(), IDS.len() + 1);
        for (((name, id), ynl_type), described) in IDS.iter().zip(YNL_TYPES).zip(&attributes[1..]) {
            assert_eq!(attributes[usize::from(*id) - 1], *described);
            let described_as = text(described, "name").unwrap().to_uppercase();
            assert_eq!(format!("TCA_PHANTOM_{}", described_as.replace('-', "_")), *name);
            assert_eq!(text(described, "type"), Some(*ynl_type), "{name}");
        }

        let definitions = &specification["definitions"];
        for (name, names) in [
            ("phantom-mark", Mark::NAMES),
            ("phantom-mark-at", MarkAt::NAMES),
            ("phantom-color-source", ColorSource::NAMES),
            ("phantom-gso", Gso::NAMES),
        ] {
            let entries: Vec<_> = of(definitions, name, "entries")
                .into_iter()
                .filter_map(|entry| entry.as_str())
                .collect();
            assert_eq!(entries, names, "{name}");
        }
        let fields: Vec<_> = of(definitions, "tc-phantom-xstats", "members")
            .into_iter()
            .map(|field| {
                assert_eq!(text(field, "type"), Some("u64"));
                text(field, "name").unwrap().replace('-', "_")
            })
            .collect();
        assert_eq!(fields, Xstats::FIELDS);
    }

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
}
