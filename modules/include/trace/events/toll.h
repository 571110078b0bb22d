/* SPDX-License-Identifier: GPL-2.0 */
/* Tracepoint of tcp_toll. Its fields are an interface: docs/tracing.md. */
#ifndef _XDC_TRACE_TOLL_TYPES
#define _XDC_TRACE_TOLL_TYPES

#include <linux/types.h>

struct xdc_toll_round {
	u64 window_bytes;
	u32 least_us;
	u32 base_rtt_us;
	u32 price_ppm;
	u32 delay_ppm;
	u32 swing_ppm;
	bool slow_start;
};

#endif /* _XDC_TRACE_TOLL_TYPES */

#undef TRACE_SYSTEM
#define TRACE_SYSTEM xdc

#if !defined(_XDC_TRACE_TOLL_H) || defined(TRACE_HEADER_MULTI_READ)
#define _XDC_TRACE_TOLL_H

#include <trace/events/tcp_common.h>

TRACE_EVENT(toll_round,

	TP_PROTO(const struct sock *sk, const struct xdc_toll_round *round),

	TP_ARGS(sk, round),

	TP_STRUCT__entry(
		XDC_TP_SOCK_ENTRY
		__field(__u32, least_us)
		__field(__u32, base_rtt_us)
		__field(__u64, window_bytes)
		__field(__u32, price_ppm)
		__field(__u32, delay_ppm)
		__field(__u32, swing_ppm)
		__field(__u8, slow_start)
	),

	TP_fast_assign(
		XDC_TP_SOCK_ASSIGN(sk);
		__entry->least_us = round->least_us;
		__entry->base_rtt_us = round->base_rtt_us;
		__entry->window_bytes = round->window_bytes;
		__entry->price_ppm = round->price_ppm;
		__entry->delay_ppm = round->delay_ppm;
		__entry->swing_ppm = round->swing_ppm;
		__entry->slow_start = round->slow_start;
	),

	TP_printk(XDC_TP_SOCK_FORMAT
		  "least_us=%u base_rtt_us=%u window_bytes=%llu "
		  "price_ppm=%u delay_ppm=%u swing_ppm=%u slow_start=%u",
		  XDC_TP_SOCK_ARGS, __entry->least_us, __entry->base_rtt_us,
		  __entry->window_bytes, __entry->price_ppm,
		  __entry->delay_ppm, __entry->swing_ppm, __entry->slow_start)
);

#endif /* _XDC_TRACE_TOLL_H */

#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE toll
#include <trace/define_trace.h>
