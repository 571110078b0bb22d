/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * Netlink attributes and statistics of the phantom queue discipline.
 *
 * This header is the one home of the ids; phantom.yaml describes them for
 * YNL, and the Rust codec in userspace-tools/netlink is tested against both.
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
	TCA_PHANTOM_PAD,		/* of answers only */
	TCA_PHANTOM_LIMIT,		/* u32 bytes: the physical queue */
	TCA_PHANTOM_RATE64,		/* u64 bytes/s: shape to this; 0 = do not shape */
	TCA_PHANTOM_OVERHEAD,		/* s32 bytes added to each packet's length by the shaper */
	TCA_PHANTOM_MPU,		/* u32 bytes: the shaper counts no packet for less */
	TCA_PHANTOM_LINE_RATE64,	/* u64 bytes/s: what the phantom queue drains relative to;
					 * 0 = rate, or the device's speed where nothing is shaped */
	TCA_PHANTOM_PQ_LIMIT,		/* u64 bytes: cap of the phantom queue */
	TCA_PHANTOM_PQ_DRAIN_PPM,	/* u32 ppm of the line rate */
	TCA_PHANTOM_PQ_MIN_PPM,		/* u32 ppm of PQ_LIMIT: RED on the phantom queue starts */
	TCA_PHANTOM_PQ_MAX_PPM,		/* u32 ppm of PQ_LIMIT: it reaches 1 */
	TCA_PHANTOM_BACKLOG_MIN_PPM,	/* u32 ppm of LIMIT: RED on the backlog starts */
	TCA_PHANTOM_BACKLOG_MAX_PPM,	/* u32 ppm of LIMIT: it reaches 1 */
	TCA_PHANTOM_MARK,		/* u8 enum tc_phantom_mark */
	TCA_PHANTOM_MARK_AT,		/* u8 enum tc_phantom_mark_at */
	TCA_PHANTOM_ECN_DROP,		/* u8 bool: drop a chosen packet that is Not-ECT */
	TCA_PHANTOM_COUNT_ACKS,		/* u8 bool: pure ACKs enter the phantom queue too */
	TCA_PHANTOM_COLOR_LIMIT_RED,	/* u32 bytes; 0 = none */
	TCA_PHANTOM_COLOR_LIMIT_YELLOW,	/* u32 bytes; 0 = none */
	TCA_PHANTOM_COLOR_TOTAL,	/* u8 bool: color limits count the whole backlog */
	TCA_PHANTOM_COLOR_SOURCE,	/* u8 enum tc_phantom_color_source */
	TCA_PHANTOM_COLOR_DSCP_RED,	/* u64 bitmap: bit n = packets of DSCP n are red */
	TCA_PHANTOM_COLOR_DSCP_YELLOW,	/* u64 bitmap: the same for yellow; those of neither are green */
	TCA_PHANTOM_GSO,		/* u8 enum tc_phantom_gso */
	TCA_PHANTOM_POOL,		/* string, up to 15 characters; "" = none: shared buffer
					 * of this network namespace */
	TCA_PHANTOM_POOL_LIMIT,		/* u32 bytes: size of the shared buffer, of which a port that
					 * joins needs to name none or the same; changed by a port
					 * that is in it, it is changed for all */
	TCA_PHANTOM_POOL_ALPHA_PPM,	/* u32 ppm: this port may hold alpha x (pool limit - pool used) */
	TCA_PHANTOM_SEED,		/* u64: where the random numbers start; random unless given */
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
	__u64 phantom_bytes;		/* phantom occupancy now */
	__u64 phantom_max_bytes;
	__u64 backlog_max_bytes;
	__u64 marked_phantom;		/* ECT turned CE: only the phantom queue chose it */
	__u64 marked_physical;		/* only the backlog chose it */
	__u64 marked_both;		/* both chose it */
	__u64 would_mark;		/* packets chosen, marked or not: already CE, Not-ECT too */
	__u64 drops_limit;		/* physical queue full */
	__u64 drops_pool;		/* dynamic threshold of the shared buffer */
	__u64 drops_ecn;		/* chosen, Not-ECT, ecn-drop on */
	__u64 drops_green;		/* every drop above and below, by color */
	__u64 drops_yellow;
	__u64 drops_red;
	__u64 drops_color;		/* over red-limit or yellow-limit */
	__u64 bytes_green;		/* accepted into the queue, by color */
	__u64 bytes_yellow;
	__u64 bytes_red;
	__u64 busy_ns;			/* time with a packet in the queue */
	__u64 phantom_drain_bytes_per_s;	/* effective; 0 = line rate unknown */
	__u64 pool_used_bytes;		/* shared buffer now, all ports */
	__u64 packets_green;		/* accepted into the queue, by color; not counted */
	__u64 packets_yellow;		/* while the colors' source is none */
	__u64 packets_red;
	__u64 red_max_bytes;		/* most red bytes in the queue */
};

#endif /* _UAPI_XDC_PKT_PHANTOM_H */
