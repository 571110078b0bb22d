/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the tracepoints of trace_*.h are handed by Rust, and what those of the
 * congestion controls have in common. docs/tracing.md says what each field is.
 */
#ifndef _XDC_TRACE_H
#define _XDC_TRACE_H

#include <linux/types.h>

/* What the end of an epoch did to the window. */
enum xdc_epoch_action {
	XDC_EPOCH_NONE,
	XDC_EPOCH_RESTED,
	XDC_EPOCH_WITHHELD,
	XDC_EPOCH_ENDED_SLOW_START,
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

/* What chose a packet to be marked. */
enum xdc_mark_cause {
	XDC_MARK_PHANTOM,
	XDC_MARK_PHYSICAL,
	XDC_MARK_BOTH,
};

/* Why a packet was dropped. */
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

/* The connection. Addresses are as struct sockaddr_in or sockaddr_in6 has them. */
#define XDC_TP_SOCK_ENTRY						\
		__field(const void *, skaddr)				\
		__array(__u8, saddr, sizeof(struct sockaddr_in6))	\
		__array(__u8, daddr, sizeof(struct sockaddr_in6))	\
		__field(__u16, family)					\
		__field(__u16, sport)					\
		__field(__u16, dport)					\
		__field(__u32, netns)					\
		__field(__u32, snd_cwnd)				\
		__field(__u32, mss_bytes)				\
		__field(__u32, srtt_us)

#define XDC_TP_SOCK_ASSIGN(sk)						\
	do {								\
		const struct inet_sock *inet = inet_sk(sk);		\
		const struct tcp_sock *tp = tcp_sk(sk);			\
									\
		__entry->skaddr = sk;					\
		memset(__entry->saddr, 0, sizeof(__entry->saddr));	\
		memset(__entry->daddr, 0, sizeof(__entry->daddr));	\
		TP_STORE_ADDR_PORTS(__entry, inet, sk);			\
		__entry->family = (sk)->sk_family;			\
		__entry->sport = ntohs(inet->inet_sport);		\
		__entry->dport = ntohs(inet->inet_dport);		\
		__entry->netns = sock_net(sk)->ns.inum;			\
		__entry->snd_cwnd = tcp_snd_cwnd(tp);			\
		__entry->mss_bytes = tp->mss_cache;			\
		__entry->srtt_us = tp->srtt_us >> 3;			\
	} while (0)

#define XDC_TP_SOCK_FORMAT						\
	"src=%pISpc dest=%pISpc netns=%u snd_cwnd=%u mss_bytes=%u srtt_us=%u "

#define XDC_TP_SOCK_ARGS						\
	__entry->saddr, __entry->daddr, __entry->netns,			\
	__entry->snd_cwnd, __entry->mss_bytes, __entry->srtt_us

#endif /* _XDC_TRACE_H */
