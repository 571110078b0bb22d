// SPDX-License-Identifier: GPL-2.0

//! [`Options`] as the rules of a port.

use crate::{
    algo::{
        color::Limits,
        phantom::{self, Red},
        port::{Config, Source},
    },
    kernel_api::uapi::*,
    phantom_options::Options,
};

/// Converts the options. `link_bytes_per_s`, 0 if unknown, is used if no option sets a rate.
pub(crate) fn config(options: &Options, link_bytes_per_s: u64, shares_phantom: bool) -> Config {
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
    Config {
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
