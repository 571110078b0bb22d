/* SPDX-License-Identifier: GPL-2.0 */
/* Tracepoint of tcp_gemini. Its fields are an interface: docs/tracing.md. */
#ifndef _XDC_TRACE_GEMINI_TYPES
#define _XDC_TRACE_GEMINI_TYPES

#include <linux/types.h>

struct xdc_gemini_round {
	u64 cwnd_bytes;
	u64 acked_bytes;
	u64 marked_bytes;
	u64 increase_bytes;
	u32 min_rtt_us;
	u32 base_rtt_us;
	u32 alpha_ppm;
	u32 dcn_cut_ppm;
	bool wan_congested;
	bool reduced;
};

#endif /* _XDC_TRACE_GEMINI_TYPES */

#undef TRACE_SYSTEM
#define TRACE_SYSTEM xdc

#if !defined(_XDC_TRACE_GEMINI_H) || defined(TRACE_HEADER_MULTI_READ)
#define _XDC_TRACE_GEMINI_H

#include <trace/events/tcp_common.h>

TRACE_EVENT(gemini_round,

	TP_PROTO(const struct sock *sk, const struct xdc_gemini_round *round),

	TP_ARGS(sk, round),

	TP_STRUCT__entry(
		XDC_TP_SOCK_ENTRY
		__field(__u32, min_rtt_us)
		__field(__u32, base_rtt_us)
		__field(__u64, cwnd_bytes)
		__field(__u64, acked_bytes)
		__field(__u64, marked_bytes)
		__field(__u64, increase_bytes)
		__field(__u32, alpha_ppm)
		__field(__u32, dcn_cut_ppm)
		__field(__u8, wan_congested)
		__field(__u8, reduced)
	),

	TP_fast_assign(
		XDC_TP_SOCK_ASSIGN(sk);
		__entry->min_rtt_us = round->min_rtt_us;
		__entry->base_rtt_us = round->base_rtt_us;
		__entry->cwnd_bytes = round->cwnd_bytes;
		__entry->acked_bytes = round->acked_bytes;
		__entry->marked_bytes = round->marked_bytes;
		__entry->increase_bytes = round->increase_bytes;
		__entry->alpha_ppm = round->alpha_ppm;
		__entry->dcn_cut_ppm = round->dcn_cut_ppm;
		__entry->wan_congested = round->wan_congested;
		__entry->reduced = round->reduced;
	),

	TP_printk(XDC_TP_SOCK_FORMAT
		  "min_rtt_us=%u base_rtt_us=%u cwnd_bytes=%llu acked_bytes=%llu marked_bytes=%llu increase_bytes=%llu alpha_ppm=%u dcn_cut_ppm=%u wan_congested=%u reduced=%u",
		  XDC_TP_SOCK_ARGS,
		  __entry->min_rtt_us, __entry->base_rtt_us,
		  __entry->cwnd_bytes, __entry->acked_bytes,
		  __entry->marked_bytes, __entry->increase_bytes,
		  __entry->alpha_ppm, __entry->dcn_cut_ppm,
		  __entry->wan_congested, __entry->reduced)
);

#endif /* _XDC_TRACE_GEMINI_H */

#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE gemini
#include <trace/define_trace.h>
