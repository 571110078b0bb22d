/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Wrappers of the kernel's inline functions and macros, for Rust. Each does
 * one thing and has its name; what to do is decided in Rust. This header is
 * what bindgen reads, so it also pulls in every type that Rust looks into.
 */
#ifndef _XDC_SHIM_H
#define _XDC_SHIM_H

#include <linux/inet_diag.h>
#include <linux/sysctl.h>
#include <net/net_namespace.h>
#include <net/pkt_sched.h>
#include <net/sch_generic.h>
#include <net/tcp.h>
#include <net/tcp_ecn.h>

#include "../uapi/pkt_phantom.h"
#include "../uapi/xdc_diag.h"
#include "trace_gemini.h"
#include "trace_phantom.h"
#include "trace_unocc.h"

/* Values of macros that bindgen cannot evaluate. */
enum xdc_consts {
	XDC_CA_PRIV_BYTES = sizeof_field(struct inet_connection_sock, icsk_ca_priv),
	XDC_TCP_CONG_NON_RESTRICTED = TCP_CONG_NON_RESTRICTED,
	XDC_TCP_CONG_NEEDS_ECN = TCP_CONG_NEEDS_ECN,
	XDC_TCP_CONG_NEEDS_ACCECN = TCP_CONG_NEEDS_ACCECN,
	XDC_TCP_CONG_ECT_1_NEGOTIATION = TCP_CONG_ECT_1_NEGOTIATION,
	XDC_TCP_CONG_NO_FALLBACK_RFC3168 = TCP_CONG_NO_FALLBACK_RFC3168,
	XDC_TCP_ECN_MODE_RFC3168 = TCP_ECN_MODE_RFC3168,
	XDC_TCP_ECN_MODE_ACCECN = TCP_ECN_MODE_ACCECN,
	XDC_TCP_ECN_DEMAND_CWR = TCP_ECN_DEMAND_CWR,
};

/* What xdc_skb_set_ce() found and did. */
enum xdc_ecn {
	XDC_NOT_ECT,	/* no ECN, no IP, or not ours to write to */
	XDC_ECT_TO_CE,
	XDC_ALREADY_CE,
};

/* shim_tcp.c */
void *xdc_net_generic(const struct net *net, unsigned int id);
bool xdc_tcp_is_cwnd_limited(const struct sock *sk);
void xdc_tcp_need_pacing(struct sock *sk);
void xdc_local_bh_disable(void);
void xdc_local_bh_enable(void);

/* shim_qdisc.c: what C keeps of a qdisc, at the beginning of its private area. */
struct xdc_qdisc {
	struct tcf_proto __rcu *filters;
	struct tcf_block *block;
	struct qdisc_watchdog watchdog;

	/* Dropped in dequeue: the parents think that they have these still. */
	u32 dropped_packets;
	u32 dropped_bytes;
};

extern const struct Qdisc_class_ops xdc_qdisc_class_ops;

int xdc_qdisc_init(struct Qdisc *sch, struct netlink_ext_ack *extack);
void xdc_qdisc_destroy(struct Qdisc *sch);
void xdc_qdisc_reset(struct Qdisc *sch);
void xdc_qdisc_lock(struct Qdisc *sch);
void xdc_qdisc_unlock(struct Qdisc *sch);
struct sk_buff *xdc_qdisc_peek(struct Qdisc *sch);
struct net *xdc_qdisc_net(struct Qdisc *sch);
u64 xdc_qdisc_link_bytes_per_s(struct Qdisc *sch);
u64 xdc_qdisc_seed(struct Qdisc *sch);

void xdc_qdisc_overlimit(struct Qdisc *sch);
void xdc_qdisc_drop(struct sk_buff *skb, struct Qdisc *sch,
		    struct sk_buff **to_free, enum qdisc_drop_reason reason);
void xdc_qdisc_dequeue_drop(struct sk_buff *skb, struct Qdisc *sch,
			    enum qdisc_drop_reason reason);
void xdc_qdisc_settle(struct Qdisc *sch);
int xdc_qdisc_classify(struct sk_buff *skb, struct Qdisc *sch, u32 *classid);

void xdc_skb_consume(struct sk_buff *skb);
struct sk_buff *xdc_skb_segments(struct sk_buff *skb);
struct sk_buff *xdc_skb_next_segment(struct sk_buff **list);
bool xdc_skb_is_gso(const struct sk_buff *skb);
u32 xdc_skb_priority(const struct sk_buff *skb);
int xdc_skb_dsfield(struct sk_buff *skb);
u8 xdc_skb_peek_dsfield(const struct sk_buff *skb);
enum xdc_ecn xdc_skb_set_ce(struct sk_buff *skb);
bool xdc_skb_is_pure_ack(const struct sk_buff *skb);

struct nlattr *xdc_nla_nest_start(struct sk_buff *skb, int attrtype);
void xdc_nla_nest_end(struct sk_buff *skb, struct nlattr *start);
void xdc_nla_nest_cancel(struct sk_buff *skb, struct nlattr *start);

#endif /* _XDC_SHIM_H */
