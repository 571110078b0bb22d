/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * Netlink attributes and statistics of the phantom queue discipline.
 *
 * Attributes and statistics come from net/sched/phantom_table.rs and
 * userspace-tools/netlink/src/phantom.rs: UPDATE_DOCS=1 cargo test -p xdc-netlink
 *
 * Sizes are bytes, rates are bytes per second as in every *_RATE64 of tc,
 * fractions are parts per million (ppm). PQ is the phantom queue. New
 * attributes go to the end; a struct only grows.
 */
#ifndef _UAPI_XDC_PKT_PHANTOM_H
#define _UAPI_XDC_PKT_PHANTOM_H

#include <linux/types.h>

/* TCA_OPTIONS of kind "phantom", with NLA_F_NESTED. Each at most once. */
enum {
	TCA_PHANTOM_UNSPEC,
	TCA_PHANTOM_PAD,		/* in answers only */
	TCA_PHANTOM_LIMIT,		/* u32 bytes: Limit of the physical queue */
	TCA_PHANTOM_RATE64,		/* u64 bytes/s: Rate of the shaper; 0 = not shaped */
	TCA_PHANTOM_OVERHEAD,		/* s32 bytes: Bytes that the shaper adds to each packet */
	TCA_PHANTOM_MPU,		/* u32 bytes: Minimum length of a packet in the shaper */
	TCA_PHANTOM_LINE_RATE64,	/* u64 bytes/s: Reference for drain; 0 = rate, or the device's rate */
	TCA_PHANTOM_PQ_LIMIT,		/* u64 bytes: Cap of the phantom queue */
	TCA_PHANTOM_PQ_DRAIN_PPM,	/* u32 ppm: Drain rate of the phantom queue, of line-rate */
	TCA_PHANTOM_PQ_MIN_PPM,		/* u32 ppm: Start of RED on the phantom queue, of its cap */
	TCA_PHANTOM_PQ_MAX_PPM,		/* u32 ppm: Phantom queue at which RED reaches 1, of its cap */
	TCA_PHANTOM_BACKLOG_MIN_PPM,	/* u32 ppm: Start of RED on the backlog, of the limit */
	TCA_PHANTOM_BACKLOG_MAX_PPM,	/* u32 ppm: Backlog at which RED reaches 1, of the limit */
	TCA_PHANTOM_MARK,		/* u8 enum tc_phantom_mark: Queue that chooses packets to mark */
	TCA_PHANTOM_MARK_AT,		/* u8 enum tc_phantom_mark_at: Time of marking */
	TCA_PHANTOM_ECN_DROP,		/* u8 bool: Drop Not-ECT packets that RED chooses */
	TCA_PHANTOM_COUNT_ACKS,		/* u8 bool: Count pure ACKs in the phantom queue */
	TCA_PHANTOM_COLOR_LIMIT_RED,	/* u32 bytes: Limit of red packets; 0 = none */
	TCA_PHANTOM_COLOR_LIMIT_YELLOW,	/* u32 bytes: Limit of yellow packets; 0 = none */
	TCA_PHANTOM_COLOR_TOTAL,	/* u8 bool: Apply color limits to the whole backlog */
	TCA_PHANTOM_COLOR_SOURCE,	/* u8 enum tc_phantom_color_source: Source of colors */
	TCA_PHANTOM_COLOR_DSCP_RED,	/* u64 bitmap, bit n = DSCP n: DSCPs of red packets */
	TCA_PHANTOM_COLOR_DSCP_YELLOW,	/* u64 bitmap, bit n = DSCP n: DSCPs of yellow packets; others are green */
	TCA_PHANTOM_GSO,		/* u8 enum tc_phantom_gso: Handling of GSO packets */
	TCA_PHANTOM_POOL,		/* string: Name of the buffer that ports of this namespace share; empty = none */
	TCA_PHANTOM_POOL_LIMIT,		/* u32 bytes: Size of the pool, for all its ports */
	TCA_PHANTOM_POOL_ALPHA_PPM,	/* u32 ppm: Limit of this port, as a multiple of the pool's free part */
	TCA_PHANTOM_SEED,		/* u64: Seed of RED's random numbers; random if not given */
	__TCA_PHANTOM_MAX
};

#define TCA_PHANTOM_MAX (__TCA_PHANTOM_MAX - 1)

enum tc_phantom_mark {
	TC_PHANTOM_MARK_NONE,
	TC_PHANTOM_MARK_PHANTOM,
	TC_PHANTOM_MARK_PHYSICAL,
	TC_PHANTOM_MARK_EITHER,
	TC_PHANTOM_MARK_BOTH,
};

enum tc_phantom_mark_at {
	TC_PHANTOM_MARK_AT_DEQUEUE,
	TC_PHANTOM_MARK_AT_ENQUEUE,
};

enum tc_phantom_color_source {
	TC_PHANTOM_COLOR_SOURCE_NONE,		/* every packet is green */
	TC_PHANTOM_COLOR_SOURCE_DSCP,		/* TCA_PHANTOM_COLOR_DSCP_* */
	TC_PHANTOM_COLOR_SOURCE_PRIORITY,	/* skb->priority MAJ:MIN, MAJ = this qdisc's
						 * handle, MIN 1 = green, 2 = yellow, 3 = red */
	TC_PHANTOM_COLOR_SOURCE_FILTER,		/* tc filter's classid MIN, as for priority */
};

enum tc_phantom_gso {
	TC_PHANTOM_GSO_AUTO,	/* split while packets are marked, whole else */
	TC_PHANTOM_GSO_SPLIT,
	TC_PHANTOM_GSO_WHOLE,
};

/* TCA_STATS_APP. All counters start at 0 when the qdisc is created. */
struct tc_phantom_xstats {
	__u64 phantom_bytes;		/* Current phantom occupancy, bytes */
	__u64 phantom_max_bytes;	/* Highest phantom occupancy, bytes */
	__u64 backlog_max_bytes;	/* Highest backlog, bytes */
	__u64 marked_phantom;		/* Packets marked CE because of the phantom queue alone */
	__u64 marked_physical;		/* Packets marked CE because of the backlog alone */
	__u64 marked_both;		/* Packets marked CE because of both */
	__u64 would_mark;		/* Packets selected for marking, marked or not */
	__u64 drops_limit;		/* Drops: physical queue full */
	__u64 drops_pool;		/* Drops: dynamic threshold of the shared buffer */
	__u64 drops_ecn;		/* Drops: selected for marking, but Not-ECT, with ecn-drop */
	__u64 drops_green;		/* All drops of green packets */
	__u64 drops_yellow;		/* All drops of yellow packets */
	__u64 drops_red;		/* All drops of red packets */
	__u64 drops_color;		/* Drops: above red-limit or yellow-limit */
	__u64 bytes_green;		/* Accepted green bytes */
	__u64 bytes_yellow;		/* Accepted yellow bytes */
	__u64 bytes_red;		/* Accepted red bytes */
	__u64 busy_ns;			/* Time with a packet in the queue, ns */
	__u64 phantom_drain_bytes_per_s;	/* Effective drain rate; 0 = unknown line rate */
	__u64 pool_used_bytes;		/* Current use of the shared buffer, all ports */
	__u64 packets_green;		/* Accepted green packets; 0 without a source of colors */
	__u64 packets_yellow;		/* Accepted yellow packets; likewise */
	__u64 packets_red;		/* Accepted red packets; likewise */
	__u64 red_max_bytes;		/* Most red bytes queued */
};

#endif /* _UAPI_XDC_PKT_PHANTOM_H */
