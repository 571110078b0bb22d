/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * Netlink attributes and statistics of the queue discipline acceltor.
 *
 * Attributes and statistics come from net/sched/acceltor_table.rs and
 * userspace-tools/netlink/src/acceltor.rs: UPDATE_DOCS=1 cargo test -p xdc-netlink
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
	TCA_ACCELTOR_RACKS,		/* u32: Number of racks */
	TCA_ACCELTOR_RACK,		/* u32: Number of this rack, from 0 */
	TCA_ACCELTOR_DAY,		/* u64 ns: Duration of a circuit */
	TCA_ACCELTOR_NIGHT,		/* u64 ns: Time between two circuits */
	TCA_ACCELTOR_BASE_TIME,		/* s64: Start of day 0 on the clock, ns */
	TCA_ACCELTOR_CLOCKID,		/* s32: Clock of the schedule; cannot be changed later */
	TCA_ACCELTOR_CIRCUIT_RATE64,	/* u64 bytes/s: Rate of a circuit */
	TCA_ACCELTOR_PACKET_RATE64,	/* u64 bytes/s: Rate of the port to the packet network; 0 = not shaped */
	TCA_ACCELTOR_RTT,		/* u64 ns: RTT of the packet network */
	TCA_ACCELTOR_QUEUES,		/* u32: Number of queues of the calendar */
	TCA_ACCELTOR_HIGH_LIMIT,	/* u32 bytes: Limit of the mice's queue */
	TCA_ACCELTOR_LOW_LIMIT,		/* u32 bytes: Limit of the accelerated elephants' queue */
	TCA_ACCELTOR_LIMIT,		/* u32 bytes: Limit of a queue of the calendar */
	TCA_ACCELTOR_ELEPHANTS,		/* u32: Most elephants per pair of racks */
	TCA_ACCELTOR_IDLE,		/* u64 ns: Idle time after which an elephant is a mouse; 0 = 2 weeks */
	TCA_ACCELTOR_SKETCH_BYTES,	/* u32 bytes: Size from which the sketch takes a flow for an elephant */
	TCA_ACCELTOR_OVERFLOW,		/* u8 enum tc_acceltor_overflow: Drop or accelerate packets for a full queue */
	TCA_ACCELTOR_RESCUE,		/* u8 bool: Accelerate elephants that come too early */
	TCA_ACCELTOR_GUARD,		/* u64 ns: End of a day in which nothing is sent */
	TCA_ACCELTOR_LEAD,		/* u64 ns: Delay to the circuit switch */
	TCA_ACCELTOR_ECN,		/* u32 bytes: Backlog of the packet network's queues above which they mark; 0 = never */
	TCA_ACCELTOR_POLICY,		/* u8 enum tc_acceltor_policy: Handling of elephants without a circuit */
	TCA_ACCELTOR_DETECT,		/* u8 enum tc_acceltor_detect: Detection of elephants */
	TCA_ACCELTOR_DSCP,		/* u64 bitmap, bit n = DSCP n: DSCPs of elephants */
	TCA_ACCELTOR_PREFIXES,		/* nest: Address prefixes of racks */
	TCA_ACCELTOR_PEERS,		/* nest: Peer rack of each day of the week; by default (rack + 1 + day) mod racks */
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
	__u64 packets_in;		/* Received packets */
	__u64 bytes_in;			/* Received bytes */
	__u64 packets_high;		/* Mice sent to the packet network, packets */
	__u64 bytes_high;		/* Mice sent to the packet network, bytes */
	__u64 packets_low;		/* Accelerated elephants sent to the packet network, packets */
	__u64 bytes_low;		/* Accelerated elephants sent to the packet network, bytes */
	__u64 packets_circuit;		/* Packets sent to the circuit switch */
	__u64 bytes_circuit;		/* Bytes sent to the circuit switch */
	__u64 packets_queued;		/* Queued packets */
	__u64 backlog_high;		/* Queued bytes of mice */
	__u64 backlog_low;		/* Queued bytes of accelerated elephants */
	__u64 backlog_today;		/* Bytes queued for the current or next day */
	__u64 backlog_later;		/* Bytes queued for later days */
	__u64 drops_high;		/* Drops: mice's queue full */
	__u64 drops_low;		/* Drops: accelerated elephants' queue full */
	__u64 drops_queue;		/* Drops: calendar queue full */
	__u64 drops_blocked;		/* Drops: K days or more before their day */
	__u64 drops_stale;		/* Drops: day over */
	__u64 drops_reschedule;		/* Drops: schedule or clock changed */
	__u64 drops_reset;		/* Drops: device set down */
	__u64 drops_filter;		/* Drops: by a filter, or not splittable */
	__u64 days;			/* Days that have begun */
	__u64 missed_days;		/* Days with queued packets on which nothing was sent */
	__u64 late_max_ns;		/* Longest time from a day's start to the first packet that waited for it */
	__u64 elephants;		/* Current elephants */
	__u64 promoted;			/* Flows that became elephants */
	__u64 evicted;			/* Flows that stopped being elephants */
	__u64 rescued;			/* Early packets that were accelerated */
	__u64 clock_jumps;		/* Times that the clock was set back */
	__u64 marked;			/* Packets marked CE */
};

#endif /* _UAPI_XDC_PKT_ACCELTOR_H */
