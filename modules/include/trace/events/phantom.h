/* SPDX-License-Identifier: GPL-2.0 */
/* Tracepoints of sch_phantom. Their fields are an interface: docs/tracing.md. */
#ifndef _XDC_TRACE_PHANTOM_TYPES
#define _XDC_TRACE_PHANTOM_TYPES

#include <linux/types.h>

/* Queue that chose a packet for a mark. */
enum xdc_mark_cause {
	XDC_MARK_PHANTOM,
	XDC_MARK_PHYSICAL,
	XDC_MARK_BOTH,
};

/* Cause of a drop. */
enum xdc_drop_reason {
	XDC_DROP_LIMIT,
	XDC_DROP_COLOR,
	XDC_DROP_POOL,
	XDC_DROP_ECN,
	XDC_DROP_FILTER,
	XDC_DROP_SPLIT,
};

/* @why is one of enum xdc_mark_cause or enum xdc_drop_reason. */
struct xdc_phantom_packet {
	u64 queue_bytes;
	u64 phantom_bytes;
	u32 len_bytes;
	u32 why;
	u8 color;
	u8 dsfield;
};

#endif /* _XDC_TRACE_PHANTOM_TYPES */

#undef TRACE_SYSTEM
#define TRACE_SYSTEM xdc

#if !defined(_XDC_TRACE_PHANTOM_H) || defined(TRACE_HEADER_MULTI_READ)
#define _XDC_TRACE_PHANTOM_H

#include <trace/events/qdisc_common.h>

TRACE_DEFINE_ENUM(XDC_MARK_PHANTOM);
TRACE_DEFINE_ENUM(XDC_MARK_PHYSICAL);
TRACE_DEFINE_ENUM(XDC_MARK_BOTH);
TRACE_DEFINE_ENUM(XDC_DROP_LIMIT);
TRACE_DEFINE_ENUM(XDC_DROP_COLOR);
TRACE_DEFINE_ENUM(XDC_DROP_POOL);
TRACE_DEFINE_ENUM(XDC_DROP_ECN);
TRACE_DEFINE_ENUM(XDC_DROP_FILTER);
TRACE_DEFINE_ENUM(XDC_DROP_SPLIT);

#define XDC_TP_PACKET_ENTRY						\
		__field(const void *, skbaddr)				\
		XDC_TP_QDISC_ENTRY					\
		__field(__u32, parent)					\
		__field(__u64, queue_bytes)				\
		__field(__u64, phantom_bytes)				\
		__field(__u32, len_bytes)				\
		__field(__u16, protocol)				\
		__field(__u8, dscp)					\
		__field(__u8, ecn)					\
		__field(__u8, color)

#define XDC_TP_PACKET_ASSIGN(sch, skb, packet)				\
	do {								\
		__entry->skbaddr = skb;					\
		XDC_TP_QDISC_ASSIGN(sch);				\
		__entry->parent = (sch)->parent;			\
		__entry->queue_bytes = (packet)->queue_bytes;		\
		__entry->phantom_bytes = (packet)->phantom_bytes;	\
		__entry->len_bytes = (packet)->len_bytes;		\
		__entry->protocol = ntohs((skb)->protocol);		\
		__entry->dscp = (packet)->dsfield >> 2;			\
		__entry->ecn = (packet)->dsfield & 3;			\
		__entry->color = (packet)->color;			\
	} while (0)

#define XDC_TP_PACKET_FORMAT						\
	XDC_TP_QDISC_FORMAT "parent=%x:%x queue_bytes=%llu phantom_bytes=%llu len_bytes=%u protocol=0x%04x dscp=%u ecn=%s color=%s "

#define XDC_TP_PACKET_ARGS						\
	XDC_TP_QDISC_ARGS,						\
	__entry->parent >> 16, __entry->parent & 0xffff,		\
	__entry->queue_bytes, __entry->phantom_bytes,			\
	__entry->len_bytes, __entry->protocol, __entry->dscp,		\
	__print_symbolic(__entry->ecn,					\
		{ 0, "not_ect" }, { 1, "ect1" }, { 2, "ect0" }, { 3, "ce" }), \
	__print_symbolic(__entry->color,				\
		{ 0, "green" }, { 1, "yellow" }, { 2, "red" })

TRACE_EVENT(phantom_mark,

	TP_PROTO(const struct Qdisc *sch, const struct sk_buff *skb,
		 const struct xdc_phantom_packet *packet),

	TP_ARGS(sch, skb, packet),

	TP_STRUCT__entry(
		XDC_TP_PACKET_ENTRY
		__field(__u8, cause)
	),

	TP_fast_assign(
		XDC_TP_PACKET_ASSIGN(sch, skb, packet);
		__entry->cause = packet->why;
	),

	TP_printk(XDC_TP_PACKET_FORMAT "cause=%s",
		  XDC_TP_PACKET_ARGS,
		  __print_symbolic(__entry->cause,
			{ XDC_MARK_PHANTOM, "phantom" },
			{ XDC_MARK_PHYSICAL, "physical" },
			{ XDC_MARK_BOTH, "both" }))
);

TRACE_EVENT(phantom_drop,

	TP_PROTO(const struct Qdisc *sch, const struct sk_buff *skb,
		 const struct xdc_phantom_packet *packet),

	TP_ARGS(sch, skb, packet),

	TP_STRUCT__entry(
		XDC_TP_PACKET_ENTRY
		__field(__u8, reason)
	),

	TP_fast_assign(
		XDC_TP_PACKET_ASSIGN(sch, skb, packet);
		__entry->reason = packet->why;
	),

	TP_printk(XDC_TP_PACKET_FORMAT "reason=%s",
		  XDC_TP_PACKET_ARGS,
		  __print_symbolic(__entry->reason,
			{ XDC_DROP_LIMIT, "limit" },
			{ XDC_DROP_COLOR, "color" },
			{ XDC_DROP_POOL, "pool" },
			{ XDC_DROP_ECN, "ecn" },
			{ XDC_DROP_FILTER, "filter" },
			{ XDC_DROP_SPLIT, "split" }))
);

#endif /* _XDC_TRACE_PHANTOM_H */

#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE phantom
#include <trace/define_trace.h>
