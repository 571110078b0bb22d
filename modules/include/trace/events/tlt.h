/* SPDX-License-Identifier: GPL-2.0 */
/* Tracepoints of tlt. Their fields are an interface: docs/tracing.md. */
#ifndef _XDC_TRACE_TLT_TYPES
#define _XDC_TRACE_TLT_TYPES

#include <linux/types.h>

/* State of a sender; 0 = it takes no part. */
enum xdc_tlt_phase {
	XDC_TLT_NONE,
	XDC_TLT_FIRST,
	XDC_TLT_DATA,
	XDC_TLT_CLOCK,
	XDC_TLT_PENDING,
};

/* Meaning of an echo. */
enum xdc_tlt_seen {
	XDC_TLT_AWAITED,
	XDC_TLT_LATE,
	XDC_TLT_BAD,
};

struct xdc_tlt_send {
	u32 end_seq;
	u32 segs;
	bool important;
	bool again;
};

struct xdc_tlt_echo {
	u32 ack;
	u32 echo_us;
	bool clock;
	enum xdc_tlt_seen seen;
};

struct xdc_tlt_clock {
	u32 una;
	bool segment;
};

struct xdc_tlt_state {
	enum xdc_tlt_phase from;
	enum xdc_tlt_phase to;
};

#endif /* _XDC_TRACE_TLT_TYPES */

#undef TRACE_SYSTEM
#define TRACE_SYSTEM xdc

#if !defined(_XDC_TRACE_TLT_H) || defined(TRACE_HEADER_MULTI_READ)
#define _XDC_TRACE_TLT_H

#include <trace/events/tcp_common.h>

TRACE_DEFINE_ENUM(XDC_TLT_NONE);
TRACE_DEFINE_ENUM(XDC_TLT_FIRST);
TRACE_DEFINE_ENUM(XDC_TLT_DATA);
TRACE_DEFINE_ENUM(XDC_TLT_CLOCK);
TRACE_DEFINE_ENUM(XDC_TLT_PENDING);
TRACE_DEFINE_ENUM(XDC_TLT_AWAITED);
TRACE_DEFINE_ENUM(XDC_TLT_LATE);
TRACE_DEFINE_ENUM(XDC_TLT_BAD);

#define xdc_show_tlt_phase(phase)					\
	__print_symbolic(phase,						\
		{ XDC_TLT_NONE, "none" },				\
		{ XDC_TLT_FIRST, "first" },				\
		{ XDC_TLT_DATA, "data" },				\
		{ XDC_TLT_CLOCK, "clock" },				\
		{ XDC_TLT_PENDING, "pending" })

TRACE_EVENT(tlt_send,

	TP_PROTO(const struct sock *sk, const struct xdc_tlt_send *send),

	TP_ARGS(sk, send),

	TP_STRUCT__entry(
		XDC_TP_SOCK_ENTRY
		__field(__u32, end_seq)
		__field(__u32, segs)
		__field(__u8, important)
		__field(__u8, again)
	),

	TP_fast_assign(
		XDC_TP_SOCK_ASSIGN(sk);
		__entry->end_seq = send->end_seq;
		__entry->segs = send->segs;
		__entry->important = send->important;
		__entry->again = send->again;
	),

	TP_printk(XDC_TP_SOCK_FORMAT "end_seq=%u segs=%u important=%u again=%u",
		  XDC_TP_SOCK_ARGS, __entry->end_seq, __entry->segs,
		  __entry->important, __entry->again)
);

TRACE_EVENT(tlt_echo,

	TP_PROTO(const struct sock *sk, const struct xdc_tlt_echo *echo),

	TP_ARGS(sk, echo),

	TP_STRUCT__entry(
		XDC_TP_SOCK_ENTRY
		__field(__u32, ack)
		__field(__u32, echo_us)
		__field(__u8, clock)
		__field(__u8, seen)
	),

	TP_fast_assign(
		XDC_TP_SOCK_ASSIGN(sk);
		__entry->ack = echo->ack;
		__entry->echo_us = echo->echo_us;
		__entry->clock = echo->clock;
		__entry->seen = echo->seen;
	),

	TP_printk(XDC_TP_SOCK_FORMAT "ack=%u echo_us=%u clock=%u seen=%s",
		  XDC_TP_SOCK_ARGS, __entry->ack, __entry->echo_us,
		  __entry->clock,
		  __print_symbolic(__entry->seen,
			{ XDC_TLT_AWAITED, "awaited" },
			{ XDC_TLT_LATE, "late" },
			{ XDC_TLT_BAD, "bad" }))
);

TRACE_EVENT(tlt_clock,

	TP_PROTO(const struct sock *sk, const struct xdc_tlt_clock *clock),

	TP_ARGS(sk, clock),

	TP_STRUCT__entry(
		XDC_TP_SOCK_ENTRY
		__field(__u32, una)
		__field(__u8, segment)
	),

	TP_fast_assign(
		XDC_TP_SOCK_ASSIGN(sk);
		__entry->una = clock->una;
		__entry->segment = clock->segment;
	),

	TP_printk(XDC_TP_SOCK_FORMAT "una=%u segment=%u",
		  XDC_TP_SOCK_ARGS, __entry->una, __entry->segment)
);

TRACE_EVENT(tlt_state,

	TP_PROTO(const struct sock *sk, const struct xdc_tlt_state *state),

	TP_ARGS(sk, state),

	TP_STRUCT__entry(
		XDC_TP_SOCK_ENTRY
		__field(__u8, from)
		__field(__u8, to)
	),

	TP_fast_assign(
		XDC_TP_SOCK_ASSIGN(sk);
		__entry->from = state->from;
		__entry->to = state->to;
	),

	TP_printk(XDC_TP_SOCK_FORMAT "from=%s to=%s", XDC_TP_SOCK_ARGS,
		  xdc_show_tlt_phase(__entry->from),
		  xdc_show_tlt_phase(__entry->to))
);

#endif /* _XDC_TRACE_TLT_H */

#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE tlt
#include <trace/define_trace.h>
