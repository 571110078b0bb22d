// SPDX-License-Identifier: GPL-2.0

//! [`Options`] in the form that packets need.

use crate::{
    algo::{
        color::{DscpTable, Limits},
        phantom::{self, Red},
    },
    kernel_api::uapi::*,
    phantom_options::Options,
};

/// Source of a packet's color.
#[derive(Clone, Copy)]
pub(crate) enum Source {
    None,
    Dscp(DscpTable),
    Priority,
    Filter,
}

/// [`Options`] in the form that packets need.
pub(crate) struct Config {
    // Physical queue
    pub(crate) limit_bytes: u64,
    /// 0 = not shaped.
    pub(crate) rate_bytes_per_s: u64,
    pub(crate) overhead_bytes: i64,
    pub(crate) mpu_bytes: i64,

    // Phantom queue; without a line rate it neither drains nor counts packets.
    pub(crate) phantom: phantom::Config,
    pub(crate) count_acks: bool,

    // Marks
    pub(crate) phantom_red: Red,
    pub(crate) physical_red: Red,
    /// Lowest occupancies that may mark; `u64::MAX` if the queue does not mark.
    pub(crate) phantom_from_bytes: u64,
    pub(crate) physical_from_bytes: u64,
    /// Mark only if both queues choose the packet.
    pub(crate) both: bool,
    pub(crate) mark_at_enqueue: bool,
    pub(crate) ecn_drop: bool,
    /// The phantom queue should mark, but its drain rate is unknown.
    pub(crate) lacks_line_rate: bool,

    // Colors
    pub(crate) source: Source,
    pub(crate) limits: Limits,

    pub(crate) split: bool,
    pub(crate) pool_alpha_ppm: u32,

    /// No colors, no pool, and each packet enters a phantom queue of this port.
    pub(crate) plain: bool,
    /// No shaper, and no shared phantom queue.
    pub(crate) plain_dequeue: bool,
}

impl Config {
    /// Converts options. `link_bytes_per_s`, 0 if unknown, is used if no option sets a rate.
    pub(crate) fn new(options: &Options, link_bytes_per_s: u64, shares_phantom: bool) -> Self {
        let number = |id| options.unsigned(id);
        let ppm = |id| number(id) as u32;
        let on = |id| number(id) != 0;

        let limit_bytes = number(TCA_PHANTOM_LIMIT);
        let phantom_limit_bytes = number(TCA_PHANTOM_PQ_LIMIT);
        let rate_bytes_per_s = number(TCA_PHANTOM_RATE64);
        let line_bytes_per_s = match number(TCA_PHANTOM_LINE_RATE64) {
            0 if rate_bytes_per_s != 0 => rate_bytes_per_s,
            0 => link_bytes_per_s,
            line_bytes_per_s => line_bytes_per_s,
        };
        let phantom = phantom::Config::new(
            line_bytes_per_s,
            ppm(TCA_PHANTOM_PQ_DRAIN_PPM),
            phantom_limit_bytes,
        );
        let has_phantom = phantom.drain_bytes_per_s != 0;
        let (by_phantom, by_physical) = match number(TCA_PHANTOM_MARK) as u32 {
            TC_PHANTOM_MARK_PHANTOM => (true, false),
            TC_PHANTOM_MARK_PHYSICAL => (false, true),
            TC_PHANTOM_MARK_EITHER | TC_PHANTOM_MARK_BOTH => (true, true),
            _ => (false, false),
        };
        let phantom_red = Red::new(
            phantom_limit_bytes,
            ppm(TCA_PHANTOM_PQ_MIN_PPM),
            ppm(TCA_PHANTOM_PQ_MAX_PPM),
        );
        let physical_red = Red::new(
            limit_bytes,
            ppm(TCA_PHANTOM_BACKLOG_MIN_PPM),
            ppm(TCA_PHANTOM_BACKLOG_MAX_PPM),
        );
        let from_bytes = |marks: bool, red: &Red| match marks {
            true => red.lowest_bytes(),
            false => u64::MAX,
        };
        let source = match number(TCA_PHANTOM_COLOR_SOURCE) as u32 {
            TC_PHANTOM_COLOR_SOURCE_DSCP => Source::Dscp(options.dscp_table()),
            TC_PHANTOM_COLOR_SOURCE_PRIORITY => Source::Priority,
            TC_PHANTOM_COLOR_SOURCE_FILTER => Source::Filter,
            _ => Source::None,
        };
        let count_acks = on(TCA_PHANTOM_COUNT_ACKS);
        Self {
            limit_bytes,
            rate_bytes_per_s,
            overhead_bytes: options.number(TCA_PHANTOM_OVERHEAD),
            mpu_bytes: options.number(TCA_PHANTOM_MPU),
            phantom,
            count_acks,
            phantom_from_bytes: from_bytes(by_phantom && has_phantom, &phantom_red),
            physical_from_bytes: from_bytes(by_physical, &physical_red),
            phantom_red,
            physical_red,
            both: number(TCA_PHANTOM_MARK) as u32 == TC_PHANTOM_MARK_BOTH,
            mark_at_enqueue: number(TCA_PHANTOM_MARK_AT) as u32 == TC_PHANTOM_MARK_AT_ENQUEUE,
            ecn_drop: on(TCA_PHANTOM_ECN_DROP),
            lacks_line_rate: by_phantom && !has_phantom,
            plain: matches!(source, Source::None)
                && count_acks
                && !options.has_pool()
                && !shares_phantom,
            plain_dequeue: rate_bytes_per_s == 0 && !shares_phantom,
            source,
            limits: Limits {
                yellow_bytes: number(TCA_PHANTOM_COLOR_LIMIT_YELLOW),
                red_bytes: number(TCA_PHANTOM_COLOR_LIMIT_RED),
                count_total: on(TCA_PHANTOM_COLOR_TOTAL),
            },
            split: match number(TCA_PHANTOM_GSO) as u32 {
                TC_PHANTOM_GSO_SPLIT => true,
                TC_PHANTOM_GSO_WHOLE => false,
                _ => by_phantom || by_physical,
            },
            pool_alpha_ppm: ppm(TCA_PHANTOM_POOL_ALPHA_PPM),
        }
    }

    pub(crate) fn has_phantom(&self) -> bool {
        self.phantom.drain_bytes_per_s != 0
    }
}
