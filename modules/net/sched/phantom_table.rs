// SPDX-License-Identifier: GPL-2.0

// Options of phantom, in tc's order. The module and userspace's codec include this list: per option its
// field, its type and bounds, its default, its name and form in tc, and its attribute.
options! {
    /// Limit of the physical queue.
    limit_bytes: U32(bytes(1, MAX_BYTES)) = 1_000_000, "limit" Bytes, TCA_PHANTOM_LIMIT 2;
    /// Rate of the shaper; 0 = not shaped.
    rate_bytes_per_s: U64(rate(0)) = 0, "rate" Rate, TCA_PHANTOM_RATE64 3;
    /// Bytes that the shaper adds to each packet.
    overhead_bytes: S32(bytes(-64, 256)) = 0, "overhead" Plain, TCA_PHANTOM_OVERHEAD 4;
    /// Minimum length of a packet in the shaper.
    mpu_bytes: U32(bytes(0, 256)) = 0, "mpu" Plain, TCA_PHANTOM_MPU 5;
    /// Reference for drain; 0 = rate, or the device's rate.
    line_rate_bytes_per_s: U64(rate(0)) = 0, "line-rate" Rate, TCA_PHANTOM_LINE_RATE64 6;
    /// Cap of the phantom queue.
    phantom_limit_bytes: U64(bytes(1, i64::MAX)) = 22_400_000,
        "phantom" Bytes, TCA_PHANTOM_PQ_LIMIT 7;
    /// Drain rate of the phantom queue, of line-rate.
    drain_ppm: U32(ppm(1, MAX_PPM)) = 900_000, "drain" Fraction, TCA_PHANTOM_PQ_DRAIN_PPM 8;
    /// Start of RED on the phantom queue, of its cap.
    pmin_ppm: U32(ppm(0, MAX_PPM)) = 20_000, "pmin" Fraction, TCA_PHANTOM_PQ_MIN_PPM 9;
    /// Phantom queue at which RED reaches 1, of its cap.
    pmax_ppm: U32(ppm(0, MAX_PPM)) = 600_000, "pmax" Fraction, TCA_PHANTOM_PQ_MAX_PPM 10;
    /// Queue that chooses packets to mark.
    mark: Enum(Mark, TC_PHANTOM_MARK_BOTH) = TC_PHANTOM_MARK_PHANTOM,
        "mark" Named, TCA_PHANTOM_MARK 13;
    /// Time of marking.
    mark_at: Enum(MarkAt, TC_PHANTOM_MARK_AT_ENQUEUE) = TC_PHANTOM_MARK_AT_DEQUEUE,
        "at" Named, TCA_PHANTOM_MARK_AT 14;
    /// Start of RED on the backlog, of the limit.
    min_ppm: U32(ppm(0, MAX_PPM)) = 250_000, "min" Fraction, TCA_PHANTOM_BACKLOG_MIN_PPM 11;
    /// Backlog at which RED reaches 1, of the limit.
    max_ppm: U32(ppm(0, MAX_PPM)) = 750_000, "max" Fraction, TCA_PHANTOM_BACKLOG_MAX_PPM 12;
    /// Drop Not-ECT packets that RED chooses.
    ecn_drop: Bool = 0, "ecn-drop" Switch, TCA_PHANTOM_ECN_DROP 15;
    /// Count pure ACKs in the phantom queue.
    count_acks: Bool = 1, "count-acks" Switch, TCA_PHANTOM_COUNT_ACKS 16;
    /// Limit of red packets; 0 = none.
    red_limit_bytes: U32(bytes(0, MAX_BYTES)) = 0,
        "red-limit" Bytes, TCA_PHANTOM_COLOR_LIMIT_RED 17;
    /// Limit of yellow packets; 0 = none.
    yellow_limit_bytes: U32(bytes(0, MAX_BYTES)) = 0,
        "yellow-limit" Bytes, TCA_PHANTOM_COLOR_LIMIT_YELLOW 18;
    /// Apply color limits to the whole backlog.
    color_total: Bool = 0, "color-total" Switch, TCA_PHANTOM_COLOR_TOTAL 19;
    /// Source of colors.
    color_source: Enum(ColorSource, TC_PHANTOM_COLOR_SOURCE_FILTER) = TC_PHANTOM_COLOR_SOURCE_NONE,
        "color" Named, TCA_PHANTOM_COLOR_SOURCE 20;
    /// DSCPs of red packets.
    dscp_red: Bits64(u64) = 0, "red-dscp" Dscps, TCA_PHANTOM_COLOR_DSCP_RED 21;
    /// DSCPs of yellow packets; others are green.
    dscp_yellow: Bits64(u64) = 0, "yellow-dscp" Dscps, TCA_PHANTOM_COLOR_DSCP_YELLOW 22;
    /// Handling of GSO packets.
    gso: Enum(Gso, TC_PHANTOM_GSO_WHOLE) = TC_PHANTOM_GSO_AUTO, "gso" Named, TCA_PHANTOM_GSO 23;
    /// Name of the buffer that ports of this namespace share; empty = none.
    pool: Other(String) = 0, "pool" Name, TCA_PHANTOM_POOL 24;
    /// Size of the pool, for all its ports.
    pool_limit_bytes: U32(bytes(0, MAX_BYTES)) = 0, "pool-limit" Bytes, TCA_PHANTOM_POOL_LIMIT 25;
    /// Limit of this port, as a multiple of the pool's free part.
    pool_alpha_ppm: U32(ppm(1, MAX_BYTES)) = 1_000_000,
        "pool-alpha" Factor, TCA_PHANTOM_POOL_ALPHA_PPM 26;
    /// Seed of RED's random numbers; random if not given.
    seed: Bits64(u64) = 0, "seed" Count, TCA_PHANTOM_SEED 27;
}
