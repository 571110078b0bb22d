/* SPDX-License-Identifier: GPL-2.0 */
/* Tracepoint of tcp_aimd, and the struct that Rust passes. Kbuild finds this header by its name. */
#ifndef _XDC_TRACE_AIMD_TYPES
#define _XDC_TRACE_AIMD_TYPES

#include <linux/types.h>

struct xdc_aimd_round {
	u64 cwnd_bytes;
	u64 acked_bytes;
	u32 marked_ppm;
	u32 srtt_us;
};

#endif /* _XDC_TRACE_AIMD_TYPES */

#undef TRACE_SYSTEM
#define TRACE_SYSTEM xdc

#if !defined(_XDC_TRACE_AIMD_H) || defined(TRACE_HEADER_MULTI_READ)
#define _XDC_TRACE_AIMD_H

#include <trace/events/tcp_common.h>

TRACE_EVENT(aimd_round,

	TP_PROTO(const struct sock *sk, const struct xdc_aimd_round *round),

	TP_ARGS(sk, round),

	TP_STRUCT__entry(
		XDC_TP_SOCK_ENTRY
		__field(__u64, cwnd_bytes)
		__field(__u64, acked_bytes)
		__field(__u32, marked_ppm)
		__field(__u32, round_srtt_us)
	),

	TP_fast_assign(
		XDC_TP_SOCK_ASSIGN(sk);
		__entry->cwnd_bytes = round->cwnd_bytes;
		__entry->acked_bytes = round->acked_bytes;
		__entry->marked_ppm = round->marked_ppm;
		__entry->round_srtt_us = round->srtt_us;
	),

	TP_printk(XDC_TP_SOCK_FORMAT
		  "cwnd_bytes=%llu acked_bytes=%llu marked_ppm=%u round_srtt_us=%u",
		  XDC_TP_SOCK_ARGS, __entry->cwnd_bytes, __entry->acked_bytes,
		  __entry->marked_ppm, __entry->round_srtt_us)
);

#endif /* _XDC_TRACE_AIMD_H */

/* Kbuild adds the folder of this file to the include path. */
#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace_aimd
#include <trace/define_trace.h>
