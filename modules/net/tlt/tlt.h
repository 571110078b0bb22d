/* SPDX-License-Identifier: GPL-2.0 */
/* What the C files of tlt offer to each other and to Rust. */
#ifndef _XDC_TLT_H
#define _XDC_TLT_H

#include <linux/in6.h>
#include <linux/netdevice.h>
#include <linux/netfilter.h>
#include <linux/seq_file.h>
#include <linux/workqueue.h>
#include <net/net_namespace.h>
#include <net/sock.h>

/* netfilter.c: identity of a TCP connection. Without padding, because it is hashed. */
struct xdc_flow_key {
	struct in6_addr local;
	struct in6_addr remote;
	__be16 local_port;
	__be16 remote_port;
	u32 ipv6;
};

/* A TCP segment in a hook. */
struct xdc_segment {
	struct xdc_flow_key key;
	/*
	 * Ingress devices, for the lookup of the socket. For "out": the device to which the socket is bound.
	 */
	int dif, sdif;
	u32 seq, ack;
	/* Bytes of payload, and number of network packets. */
	u32 len, segs;
	u32 tcp_offset;
	u8 dscp, ttl;
	bool out, syn, ack_flag, fin, rst;
};

int xdc_nf_register(void *priv, nf_hookfn *local_in, nf_hookfn *post_routing,
		    void (*exit)(void *priv, struct net *net), int priority);
void xdc_nf_unregister(void);
bool xdc_nf_segment(struct sk_buff *skb, const struct nf_hook_state *state,
		    struct xdc_segment *segment);
bool xdc_nf_set_dscp(struct sk_buff *skb, u8 dscp);
u32 xdc_nf_split_last(struct sk_buff *skb, const struct nf_hook_state *state,
		      u8 dscp, u8 last_dscp, bool *congested);
bool xdc_nf_is_intact(struct sk_buff *skb, const struct nf_hook_state *state,
		      const struct xdc_segment *segment);
struct sock *xdc_nf_full_sock(const struct sk_buff *skb, const struct nf_hook_state *state);
struct sock *xdc_nf_request(const struct sk_buff *skb, const struct nf_hook_state *state);
bool xdc_nf_cut_dsack(struct sk_buff *skb, const struct xdc_segment *segment, u32 seq);
u32 xdc_nf_errand(const struct sock *sk);
bool xdc_nf_make_clock(struct sk_buff *skb, const struct xdc_segment *segment, struct sock *sk);

/* counters.c: counters of each namespace, and their file in /proc/net. */
#define XDC_MAX_COUNTERS 40
struct xdc_counters {
	const char *file;
	const char *prefix;
	const char *const *names;
	unsigned int count;
	/* Index of the exact counter that can also decrease. */
	unsigned int gauge;
};
int xdc_counters_register(const struct xdc_counters *counters);
void xdc_counters_unregister(void);
void xdc_counter_add(const struct net *net, unsigned int index, u32 n);
int xdc_gauge_add(const struct net *net, int n);

/* flows.c: state per TCP connection. */
#define XDC_FLOW_BUCKETS 8192
#define XDC_FLOW_STATE_WORDS 12
struct xdc_flow;
struct xdc_flow_cpu;
struct xdc_flow_bucket {
	struct hlist_head head;
	spinlock_t lock;
};
struct xdc_flows {
	struct xdc_flow_bucket *buckets;
	struct xdc_flow_cpu __percpu *cpus;
	/* With the socket locked, in a softirq. Returns the delay of the next call in us; 0 = none. */
	u32 (*poll)(struct xdc_flows *flows, struct xdc_flow *flow, struct sock *sk, bool busy);
	/* Under the lock of the flow that is being removed. */
	void (*removed)(struct xdc_flows *flows, struct net *net);
	/* File in /proc/net: its name, its column names, and the writer of a line. */
	const char *file;
	const char *columns;
	void (*show)(const void *state, u64 now_us, struct seq_file *line);
	struct delayed_work collect;
	atomic_t count;
	u32 seed;
};
int xdc_flows_init(struct xdc_flows *flows);
void xdc_flows_flush(struct xdc_flows *flows, struct net *net);
void xdc_flows_destroy(struct xdc_flows *flows);
struct xdc_flow *xdc_flow_find(struct xdc_flows *flows, const struct net *net,
			       const struct xdc_segment *segment);
void xdc_flow_lock(struct xdc_flow *flow);
void xdc_flow_unlock(struct xdc_flow *flow);
void *xdc_flow_state(struct xdc_flow *flow);
void xdc_flow_queue(struct xdc_flow *flow);
bool xdc_flow_is_pending(const struct xdc_flow *flow);
void xdc_flow_remove(struct xdc_flow *flow);
struct xdc_flow *xdc_flow_add(struct xdc_flows *flows, struct net *net,
			      const struct xdc_segment *segment, const struct sock *sk,
			      const void *state, unsigned int size);

/* conn.c: queries and actions on a connection. */
void xdc_conn_ack_fin(struct sock *sk);
struct xdc_conn_order {
	u32 reordering;
	u32 seen;
};
struct xdc_conn_order xdc_conn_order(const struct sock *sk);
void xdc_conn_set_order(struct sock *sk, struct xdc_conn_order order);
bool xdc_conn_is_time_wait(const struct sock *sk);
void xdc_conn_send_ack(struct sock *sk, u32 errand);
bool xdc_conn_is_probing(const struct sock *sk);
bool xdc_nf_reports(struct sk_buff *skb, const struct xdc_segment *segment, u32 end_seq);
u64 xdc_conn_departure_us(const struct sock *sk);
void xdc_conn_detect(struct sock *sk, u64 mstamp_us, u32 end_seq);
void xdc_conn_retransmit(struct sock *sk);
void xdc_conn_reduce(struct sock *sk);
bool xdc_conn_is_open(const struct sock *sk);
bool xdc_conn_has_payload(struct sock *sk);
bool xdc_conn_has_lost(const struct sock *sk);
bool xdc_conn_is_held(struct sock *sk);
bool xdc_conn_is_last(const struct sock *sk, u32 end_seq, u32 segs);
bool xdc_conn_has(const struct sock *sk, u32 end_seq);
bool xdc_conn_is_near(const struct sock *sk, const struct xdc_segment *segment);
bool xdc_conn_is_in_window(const struct sock *sk, const struct xdc_segment *segment);
bool xdc_conn_is_excluded(const struct sock *sk);
u32 xdc_conn_mark(const struct sock *sk);
u8 xdc_request_dscp(const struct sock *sk);
u32 xdc_request_mark(const struct sock *sk);
bool xdc_request_is_excluded(const struct sock *sk);
struct sock *xdc_conn_find(struct net *net, const struct xdc_segment *segment);
void xdc_conn_put(struct sock *sk);
bool xdc_conn_is_full(const struct sock *sk);
bool xdc_request_is_answered(const struct sock *sk, const struct xdc_segment *segment);

#endif /* _XDC_TLT_H */
