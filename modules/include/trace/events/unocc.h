/* SPDX-License-Identifier: GPL-2.0 */
/* Tracepoints of tcp_unocc. Their fields are an interface: docs/tracing.md. */
#ifndef _XDC_TRACE_UNOCC_TYPES
#define _XDC_TRACE_UNOCC_TYPES

#include <linux/types.h>

/* Effect of an epoch's end on the window. */
enum xdc_epoch_action {
	XDC_EPOCH_NONE,
	XDC_EPOCH_RESTED,
	XDC_EPOCH_INCREASED,
	XDC_EPOCH_DECREASED,
};

struct xdc_unocc_epoch {
	u64 cwnd_before_bytes;
	u64 cwnd_bytes;
	u64 period_ns;
	u32 rtt_us;
	u32 base_rtt_us;
	u32 acked_bytes;
	u32 marked_bytes;
	u32 e_ppm;
	u32 md_ppm;
	enum xdc_epoch_action action;
	bool gentle;
};

struct xdc_unocc_qa {
	u64 cwnd_before_bytes;
	u64 cwnd_bytes;
	u64 delivered_bytes;
	u64 promised_bytes;
	u32 base_rtt_us;
	bool adapted;
};

#endif /* _XDC_TRACE_UNOCC_TYPES */

#undef TRACE_SYSTEM
#define TRACE_SYSTEM xdc

#if !defined(_XDC_TRACE_UNOCC_H) || defined(TRACE_HEADER_MULTI_READ)
#define _XDC_TRACE_UNOCC_H

#include <trace/events/tcp_common.h>

TRACE_DEFINE_ENUM(XDC_EPOCH_NONE);
TRACE_DEFINE_ENUM(XDC_EPOCH_RESTED);
TRACE_DEFINE_ENUM(XDC_EPOCH_INCREASED);
TRACE_DEFINE_ENUM(XDC_EPOCH_DECREASED);

TRACE_EVENT(unocc_epoch,

	TP_PROTO(const struct sock *sk, const struct xdc_unocc_epoch *epoch),

	TP_ARGS(sk, epoch),

	TP_STRUCT__entry(
		XDC_TP_SOCK_ENTRY
		__field(__u32, rtt_us)
		__field(__u32, base_rtt_us)
		__field(__u64, cwnd_before_bytes)
		__field(__u64, cwnd_bytes)
		__field(__u64, period_ns)
		__field(__u32, acked_bytes)
		__field(__u32, marked_bytes)
		__field(__u32, e_ppm)
		__field(__u32, md_ppm)
		__field(__u8, gentle)
		__field(__u8, action)
	),

	TP_fast_assign(
		XDC_TP_SOCK_ASSIGN(sk);
		__entry->rtt_us = epoch->rtt_us;
		__entry->base_rtt_us = epoch->base_rtt_us;
		__entry->cwnd_before_bytes = epoch->cwnd_before_bytes;
		__entry->cwnd_bytes = epoch->cwnd_bytes;
		__entry->period_ns = epoch->period_ns;
		__entry->acked_bytes = epoch->acked_bytes;
		__entry->marked_bytes = epoch->marked_bytes;
		__entry->e_ppm = epoch->e_ppm;
		__entry->md_ppm = epoch->md_ppm;
		__entry->gentle = epoch->gentle;
		__entry->action = epoch->action;
	),

	TP_printk(XDC_TP_SOCK_FORMAT
		  "rtt_us=%u base_rtt_us=%u cwnd_before_bytes=%llu cwnd_bytes=%llu period_ns=%llu acked_bytes=%u marked_bytes=%u e_ppm=%u md_ppm=%u gentle=%u action=%s",
		  XDC_TP_SOCK_ARGS,
		  __entry->rtt_us, __entry->base_rtt_us,
		  __entry->cwnd_before_bytes, __entry->cwnd_bytes,
		  __entry->period_ns, __entry->acked_bytes,
		  __entry->marked_bytes, __entry->e_ppm, __entry->md_ppm,
		  __entry->gentle,
		  __print_symbolic(__entry->action,
			{ XDC_EPOCH_NONE, "none" },
			{ XDC_EPOCH_RESTED, "rested" },
			{ XDC_EPOCH_INCREASED, "increased" },
			{ XDC_EPOCH_DECREASED, "decreased" }))
);

TRACE_EVENT(unocc_qa,

	TP_PROTO(const struct sock *sk, const struct xdc_unocc_qa *qa),

	TP_ARGS(sk, qa),

	TP_STRUCT__entry(
		XDC_TP_SOCK_ENTRY
		__field(__u32, base_rtt_us)
		__field(__u64, cwnd_before_bytes)
		__field(__u64, cwnd_bytes)
		__field(__u64, delivered_bytes)
		__field(__u64, promised_bytes)
		__field(__u8, adapted)
	),

	TP_fast_assign(
		XDC_TP_SOCK_ASSIGN(sk);
		__entry->base_rtt_us = qa->base_rtt_us;
		__entry->cwnd_before_bytes = qa->cwnd_before_bytes;
		__entry->cwnd_bytes = qa->cwnd_bytes;
		__entry->delivered_bytes = qa->delivered_bytes;
		__entry->promised_bytes = qa->promised_bytes;
		__entry->adapted = qa->adapted;
	),

	TP_printk(XDC_TP_SOCK_FORMAT
		  "base_rtt_us=%u cwnd_before_bytes=%llu cwnd_bytes=%llu delivered_bytes=%llu promised_bytes=%llu adapted=%u",
		  XDC_TP_SOCK_ARGS, __entry->base_rtt_us,
		  __entry->cwnd_before_bytes, __entry->cwnd_bytes,
		  __entry->delivered_bytes, __entry->promised_bytes,
		  __entry->adapted)
);

#endif /* _XDC_TRACE_UNOCC_H */

#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE unocc
#include <trace/define_trace.h>
