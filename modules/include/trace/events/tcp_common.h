/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Common fields of congestion controls' tracepoints. Each module's own are in NAME.h beside this
 * file, with the structs that Rust fills; Kbuild finds it.
 */
#ifndef _XDC_TRACE_TCP_COMMON_H
#define _XDC_TRACE_TCP_COMMON_H

#include <linux/tcp.h>
#include <linux/tracepoint.h>
#include <net/tcp.h>
#include <trace/events/net_probe_common.h>

/* The connection. Addresses have the layout of struct sockaddr_in or sockaddr_in6. */
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

#endif /* _XDC_TRACE_TCP_COMMON_H */
