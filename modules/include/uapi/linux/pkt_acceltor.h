/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * Netlink attributes and statistics of the queue discipline acceltor.
 *
 * This header is the single source of the ids; acceltor.yaml describes them for YNL, and the Rust codec in
 * userspace-tools/netlink is tested against both.
 *
 * Sizes are bytes, rates are bytes per second as in every *_RATE64 of tc, times are nanoseconds. New
 * attributes go to the end; a struct only grows.
 */
#ifndef _UAPI_XDC_PKT_ACCELTOR_H
#define _UAPI_XDC_PKT_ACCELTOR_H

#include <linux/types.h>

/* TCA_OPTIONS of kind "acceltor", with NLA_F_NESTED. Each at most once. */
enum {
	TCA_ACCELTOR_UNSPEC,
	TCA_ACCELTOR_PAD,		/* in answers only */
	TCA_ACCELTOR_RACKS,		/* u32: N, number of racks */
	TCA_ACCELTOR_RACK,		/* u32: number of this rack, from 0 */
	TCA_ACCELTOR_DAY,		/* u64 ns: T, length of a day */
	TCA_ACCELTOR_NIGHT,		/* u64 ns: G, length of a night */
	TCA_ACCELTOR_BASE_TIME,		/* s64 ns of the clock: start of day 0 */
	TCA_ACCELTOR_CLOCKID,		/* s32 clockid_t: CLOCK_REALTIME, _MONOTONIC, _BOOTTIME or _TAI;
					 * fixed at creation */
	TCA_ACCELTOR_CIRCUIT_RATE64,	/* u64 bytes/s of a circuit */
	TCA_ACCELTOR_PACKET_RATE64,	/* u64 bytes/s of the packet network's port; 0 = not shaped */
	TCA_ACCELTOR_RTT,		/* u64 ns: Rp, round trip of the packet network */
	TCA_ACCELTOR_QUEUES,		/* u32: K, queues of the calendar */
	TCA_ACCELTOR_HIGH_LIMIT,	/* u32 bytes: size of the mice's queue */
	TCA_ACCELTOR_LOW_LIMIT,		/* u32 bytes: size of the accelerated elephants' queue */
	TCA_ACCELTOR_LIMIT,		/* u32 bytes: B, room of a queue of the calendar; of all of them
					 * with blocking, and of all queues with unblocking */
	TCA_ACCELTOR_ELEPHANTS,		/* u32: F, limit of elephants per pair of racks */
	TCA_ACCELTOR_IDLE,		/* u64 ns: idle time that ends an elephant; 0 = 2 weeks */
	TCA_ACCELTOR_SKETCH_BYTES,	/* u32: bytes in about a week from which a flow is an elephant */
	TCA_ACCELTOR_OVERFLOW,		/* u8 enum tc_acceltor_overflow */
	TCA_ACCELTOR_RESCUE,		/* u8 bool: accelerate early retransmissions */
	TCA_ACCELTOR_GUARD,		/* u64 ns: end of a day in which nothing is sent */
	TCA_ACCELTOR_LEAD,		/* u64 ns: delay to the circuit switch */
	TCA_ACCELTOR_ECN,		/* u32 bytes: packet network's mark threshold; 0 = never */
	TCA_ACCELTOR_POLICY,		/* u8 enum tc_acceltor_policy */
	TCA_ACCELTOR_DETECT,		/* u8 enum tc_acceltor_detect */
	TCA_ACCELTOR_DSCP,		/* u64 bitmap: bit n = packets of DSCP n are elephants */
	TCA_ACCELTOR_PREFIXES,		/* nested TCA_ACCELTOR_PREFIXES_*: addresses of racks */
	TCA_ACCELTOR_PEERS,		/* nested TCA_ACCELTOR_PEERS_*: the rack of each day of the week;
					 * empty = (rack + 1 + day) mod N */
	__TCA_ACCELTOR_MAX
};

#define TCA_ACCELTOR_MAX (__TCA_ACCELTOR_MAX - 1)

/* Each any number of times. */
enum {
	TCA_ACCELTOR_PREFIXES_UNSPEC,
	TCA_ACCELTOR_PREFIXES_PREFIX,	/* nested TCA_ACCELTOR_PREFIX_*, without overlaps */
	__TCA_ACCELTOR_PREFIXES_MAX
};

#define TCA_ACCELTOR_PREFIXES_MAX (__TCA_ACCELTOR_PREFIXES_MAX - 1)

/* Each once, but only one of the addresses. */
enum {
	TCA_ACCELTOR_PREFIX_UNSPEC,
	TCA_ACCELTOR_PREFIX_ADDR4,	/* struct in_addr */
	TCA_ACCELTOR_PREFIX_ADDR6,	/* struct in6_addr */
	TCA_ACCELTOR_PREFIX_LEN,	/* u32: bits of the address */
	TCA_ACCELTOR_PREFIX_RACK,	/* u32: number of the rack */
	__TCA_ACCELTOR_PREFIX_MAX
};

#define TCA_ACCELTOR_PREFIX_MAX (__TCA_ACCELTOR_PREFIX_MAX - 1)

/* Once per day of the week, in order. */
enum {
	TCA_ACCELTOR_PEERS_UNSPEC,
	TCA_ACCELTOR_PEERS_RACK,	/* u32: number of the rack */
	__TCA_ACCELTOR_PEERS_MAX
};

#define TCA_ACCELTOR_PEERS_MAX (__TCA_ACCELTOR_PEERS_MAX - 1)

/* Treatment of a packet whose calendar queue is full. */
enum tc_acceltor_overflow {
	TC_ACCELTOR_OVERFLOW_DROP,
	TC_ACCELTOR_OVERFLOW_LP,	/* accelerate it before its day */
};

/* Treatment of elephants without a circuit. */
enum tc_acceltor_policy {
	TC_ACCELTOR_POLICY_ACCELTOR,
	TC_ACCELTOR_POLICY_BLOCKING,	/* wait in a queue of the rack */
	TC_ACCELTOR_POLICY_UNBLOCKING,	/* use the packet network, as mice do */
	TC_ACCELTOR_POLICY_PACKET,	/* use the packet network always */
};

/* Selection of elephants. */
enum tc_acceltor_detect {
	TC_ACCELTOR_DETECT_SKETCH,	/* the largest, by a count-min sketch */
	TC_ACCELTOR_DETECT_DSCP,	/* TCA_ACCELTOR_DSCP */
	TC_ACCELTOR_DETECT_FILTER,	/* tc filter's classid MIN, or that of skb->priority of this qdisc's
					 * handle: 1 = mouse, 2 = elephant */
};

/* TCA_STATS_APP. All counters start at 0 when the qdisc is created. */
struct tc_acceltor_xstats {
	__u64 packets_in;		/* = high + low + circuit + queued + drops, at any time */
	__u64 bytes_in;
	__u64 packets_high;		/* sent to the packet network: mice */
	__u64 bytes_high;
	__u64 packets_low;		/* sent there: accelerated */
	__u64 bytes_low;
	__u64 packets_circuit;		/* sent to the circuit switch */
	__u64 bytes_circuit;
	__u64 packets_queued;
	__u64 backlog_high;		/* bytes queued now */
	__u64 backlog_low;
	__u64 backlog_today;		/* present day's queue, or at night the next day's */
	__u64 backlog_later;
	__u64 drops_high;		/* packets: no room */
	__u64 drops_low;
	__u64 drops_queue;
	__u64 drops_blocked;		/* K days or more before their day */
	__u64 drops_stale;		/* their day was over */
	__u64 drops_reschedule;		/* schedule or clock changed */
	__u64 drops_reset;		/* the device was taken down */
	__u64 drops_filter;		/* dropped by a filter, or not splittable */
	__u64 days;			/* days begun */
	__u64 missed_days;		/* days with queued packets but none sent */
	__u64 late_max_ns;		/* largest delay from a day's start to its first queued packet */
	__u64 elephants;		/* present elephants */
	__u64 promoted;			/* flows that became elephants */
	__u64 evicted;			/* elephants that became mice */
	__u64 rescued;			/* packets */
	__u64 clock_jumps;		/* times that the clock was set back */
	__u64 marked;			/* ECT turned CE */
};

#endif /* _UAPI_XDC_PKT_ACCELTOR_H */
