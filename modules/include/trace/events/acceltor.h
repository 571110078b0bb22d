/* SPDX-License-Identifier: GPL-2.0 */
/* Tracepoints of sch_acceltor. Their fields are an interface: docs/tracing.md. */
#ifndef _XDC_TRACE_ACCELTOR_TYPES
#define _XDC_TRACE_ACCELTOR_TYPES

#include <linux/types.h>

/* Reason for sending an elephant's packet by the packet network. */
enum xdc_acceltor_cause {
	XDC_ACCELTOR_EARLY,
	XDC_ACCELTOR_BASE,
	XDC_ACCELTOR_FULL,
	XDC_ACCELTOR_RESCUE,
};

/* Reason for a drop. */
enum xdc_acceltor_reason {
	XDC_ACCELTOR_DROP_HIGH,
	XDC_ACCELTOR_DROP_LOW,
	XDC_ACCELTOR_DROP_QUEUE,
	XDC_ACCELTOR_DROP_BLOCKED,
	XDC_ACCELTOR_DROP_STALE,
	XDC_ACCELTOR_DROP_RESCHEDULE,
	XDC_ACCELTOR_DROP_FILTER,
};

struct xdc_acceltor_day {
	u64 label;
	u64 queued_bytes;
	u64 sent_bytes;
	u64 since_ns;
	bool begins;
};

struct xdc_acceltor_accelerate {
	u64 label;
	u64 left_ns;
	u64 queue_bytes;
	u32 len_bytes;
	enum xdc_acceltor_cause cause;
};

struct xdc_acceltor_elephant {
	u64 sent_bytes;
	u64 elephants;
	u16 rack;
};

struct xdc_acceltor_drop {
	u64 label;
	u64 high_bytes;
	u64 low_bytes;
	u64 later_bytes;
	u32 len_bytes;
	enum xdc_acceltor_reason reason;
};

#endif /* _XDC_TRACE_ACCELTOR_TYPES */

#undef TRACE_SYSTEM
#define TRACE_SYSTEM xdc

#if !defined(_XDC_TRACE_ACCELTOR_H) || defined(TRACE_HEADER_MULTI_READ)
#define _XDC_TRACE_ACCELTOR_H

#include <trace/events/qdisc_common.h>

TRACE_DEFINE_ENUM(XDC_ACCELTOR_EARLY);
TRACE_DEFINE_ENUM(XDC_ACCELTOR_BASE);
TRACE_DEFINE_ENUM(XDC_ACCELTOR_FULL);
TRACE_DEFINE_ENUM(XDC_ACCELTOR_RESCUE);
TRACE_DEFINE_ENUM(XDC_ACCELTOR_DROP_HIGH);
TRACE_DEFINE_ENUM(XDC_ACCELTOR_DROP_LOW);
TRACE_DEFINE_ENUM(XDC_ACCELTOR_DROP_QUEUE);
TRACE_DEFINE_ENUM(XDC_ACCELTOR_DROP_BLOCKED);
TRACE_DEFINE_ENUM(XDC_ACCELTOR_DROP_STALE);
TRACE_DEFINE_ENUM(XDC_ACCELTOR_DROP_RESCHEDULE);
TRACE_DEFINE_ENUM(XDC_ACCELTOR_DROP_FILTER);

TRACE_EVENT(acceltor_day,

	TP_PROTO(const struct Qdisc *sch, const struct xdc_acceltor_day *day),

	TP_ARGS(sch, day),

	TP_STRUCT__entry(
		XDC_TP_QDISC_ENTRY
		__field(__u64, label)
		__field(__u64, queued_bytes)
		__field(__u64, sent_bytes)
		__field(__u64, since_ns)
		__field(__u8, begins)
	),

	TP_fast_assign(
		XDC_TP_QDISC_ASSIGN(sch);
		__entry->label = day->label;
		__entry->queued_bytes = day->queued_bytes;
		__entry->sent_bytes = day->sent_bytes;
		__entry->since_ns = day->since_ns;
		__entry->begins = day->begins;
	),

	TP_printk(XDC_TP_QDISC_FORMAT "label=%llu queued_bytes=%llu sent_bytes=%llu since_ns=%llu begins=%u",
		  XDC_TP_QDISC_ARGS, __entry->label, __entry->queued_bytes,
		  __entry->sent_bytes, __entry->since_ns, __entry->begins)
);

TRACE_EVENT(acceltor_accelerate,

	TP_PROTO(const struct Qdisc *sch, const struct sk_buff *skb,
		 const struct xdc_acceltor_accelerate *it),

	TP_ARGS(sch, skb, it),

	TP_STRUCT__entry(
		__field(const void *, skbaddr)
		XDC_TP_QDISC_ENTRY
		__field(__u64, label)
		__field(__u64, left_ns)
		__field(__u64, queue_bytes)
		__field(__u32, len_bytes)
		__field(__u8, cause)
	),

	TP_fast_assign(
		__entry->skbaddr = skb;
		XDC_TP_QDISC_ASSIGN(sch);
		__entry->label = it->label;
		__entry->left_ns = it->left_ns;
		__entry->queue_bytes = it->queue_bytes;
		__entry->len_bytes = it->len_bytes;
		__entry->cause = it->cause;
	),

	TP_printk(XDC_TP_QDISC_FORMAT "label=%llu left_ns=%llu queue_bytes=%llu len_bytes=%u cause=%s",
		  XDC_TP_QDISC_ARGS, __entry->label, __entry->left_ns,
		  __entry->queue_bytes, __entry->len_bytes,
		  __print_symbolic(__entry->cause,
			{ XDC_ACCELTOR_EARLY, "early" },
			{ XDC_ACCELTOR_BASE, "base" },
			{ XDC_ACCELTOR_FULL, "full" },
			{ XDC_ACCELTOR_RESCUE, "rescue" }))
);

TRACE_EVENT(acceltor_elephant,

	TP_PROTO(const struct Qdisc *sch, const struct sk_buff *skb,
		 const struct xdc_acceltor_elephant *it),

	TP_ARGS(sch, skb, it),

	TP_STRUCT__entry(
		__field(const void *, skbaddr)
		XDC_TP_QDISC_ENTRY
		__field(__u64, sent_bytes)
		__field(__u64, elephants)
		__field(__u16, rack)
	),

	TP_fast_assign(
		__entry->skbaddr = skb;
		XDC_TP_QDISC_ASSIGN(sch);
		__entry->sent_bytes = it->sent_bytes;
		__entry->elephants = it->elephants;
		__entry->rack = it->rack;
	),

	TP_printk(XDC_TP_QDISC_FORMAT "sent_bytes=%llu elephants=%llu rack=%u",
		  XDC_TP_QDISC_ARGS, __entry->sent_bytes, __entry->elephants,
		  __entry->rack)
);

TRACE_EVENT(acceltor_drop,

	TP_PROTO(const struct Qdisc *sch, const struct sk_buff *skb,
		 const struct xdc_acceltor_drop *it),

	TP_ARGS(sch, skb, it),

	TP_STRUCT__entry(
		__field(const void *, skbaddr)
		XDC_TP_QDISC_ENTRY
		__field(__u64, label)
		__field(__u64, high_bytes)
		__field(__u64, low_bytes)
		__field(__u64, later_bytes)
		__field(__u32, len_bytes)
		__field(__u8, reason)
	),

	TP_fast_assign(
		__entry->skbaddr = skb;
		XDC_TP_QDISC_ASSIGN(sch);
		__entry->label = it->label;
		__entry->high_bytes = it->high_bytes;
		__entry->low_bytes = it->low_bytes;
		__entry->later_bytes = it->later_bytes;
		__entry->len_bytes = it->len_bytes;
		__entry->reason = it->reason;
	),

	TP_printk(XDC_TP_QDISC_FORMAT "label=%llu high_bytes=%llu low_bytes=%llu later_bytes=%llu len_bytes=%u reason=%s",
		  XDC_TP_QDISC_ARGS, __entry->label, __entry->high_bytes,
		  __entry->low_bytes, __entry->later_bytes, __entry->len_bytes,
		  __print_symbolic(__entry->reason,
			{ XDC_ACCELTOR_DROP_HIGH, "high" },
			{ XDC_ACCELTOR_DROP_LOW, "low" },
			{ XDC_ACCELTOR_DROP_QUEUE, "queue" },
			{ XDC_ACCELTOR_DROP_BLOCKED, "blocked" },
			{ XDC_ACCELTOR_DROP_STALE, "stale" },
			{ XDC_ACCELTOR_DROP_RESCHEDULE, "reschedule" },
			{ XDC_ACCELTOR_DROP_FILTER, "filter" }))
);

#endif /* _XDC_TRACE_ACCELTOR_H */

#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE acceltor
#include <trace/define_trace.h>
