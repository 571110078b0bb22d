/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Wrappers of the kernel's inline functions and macros, for Rust. Each does one operation and has
 * its name; Rust decides. bindgen reads this header after the tracepoints' headers, so it also
 * includes every type that Rust accesses.
 */
#ifndef _XDC_SHIM_H
#define _XDC_SHIM_H

#include <linux/completion.h>
#include <linux/inet_diag.h>
#include <linux/netfilter.h>
#include <linux/netdevice.h>
#include <linux/notifier.h>
#include <linux/rtnetlink.h>
#include <linux/sysctl.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include <net/net_namespace.h>
#include <net/netlink.h>
#include <net/pkt_sched.h>
#include <net/sch_generic.h>
#include <net/tcp.h>
#include <net/tcp_ecn.h>

#include <uapi/linux/pkt_acceltor.h>
#include <uapi/linux/pkt_phantom.h>
#include <uapi/linux/unorc.h>
#include <uapi/linux/xdc_diag.h>

/* Values of macros that bindgen cannot evaluate. */
enum xdc_consts {
	XDC_CA_PRIV_BYTES = sizeof_field(struct inet_connection_sock, icsk_ca_priv),
	XDC_TCP_CONG_NON_RESTRICTED = TCP_CONG_NON_RESTRICTED,
	XDC_TCP_CONG_NEEDS_ECN = TCP_CONG_NEEDS_ECN,
	XDC_TCP_CONG_NEEDS_ACCECN = TCP_CONG_NEEDS_ACCECN,
	XDC_TCP_ECN_MODE_RFC3168 = TCP_ECN_MODE_RFC3168,
	XDC_TCP_ECN_MODE_ACCECN = TCP_ECN_MODE_ACCECN,
	XDC_TCP_ECN_DEMAND_CWR = TCP_ECN_DEMAND_CWR,
	XDC_TCP_ACCECN_ACE_FAIL = TCP_ACCECN_ACE_FAIL_SEND | TCP_ACCECN_ACE_FAIL_RECV,
};

/* Result of xdc_skb_set_ce(). */
enum xdc_ecn {
	XDC_NOT_ECT,	/* no ECN, no IP, or not ours to write to */
	XDC_ECT_TO_CE,
	XDC_ALREADY_CE,
};

/* shim_module.c */
struct module *xdc_this_module(void);

/* shim_math.c */
u64 xdc_mul_u64_u64_div_u64(u64 a, u64 b, u64 divisor);

/* shim_tcp.c */
void *xdc_net_generic(const struct net *net, unsigned int id);
bool xdc_tcp_is_cwnd_limited(const struct sock *sk);
void xdc_tcp_need_pacing(struct sock *sk);
void xdc_inet_ecn_dontxmit(struct sock *sk);
void xdc_tcp_send_ack(struct sock *sk, u32 rcv_nxt);

/* shim_softirq.c */
void xdc_local_bh_disable(void);
void xdc_local_bh_enable(void);

/* shim_speeds.c: sending devices and their speeds. */
struct xdc_speeds {
	struct notifier_block block;
	struct delayed_work work;
	struct xarray mbps;
};

/* Results of xdc_speeds_of() beside Mbit/s. */
enum xdc_speed {
	XDC_SPEED_MAX = 1000000,
	/* The socket has no route at this moment. */
	XDC_SPEED_UNKNOWN,
	XDC_SPEED_LOOPBACK,
};

int xdc_speeds_register(struct xdc_speeds *speeds);
void xdc_speeds_unregister(struct xdc_speeds *speeds);
u32 xdc_speeds_of(struct xdc_speeds *speeds, const struct sock *sk);

/* shim_deferred.c: C's part of a registration by a worker. */
struct xdc_deferred {
	struct work_struct work;
	struct completion done;
	void (*run)(struct xdc_deferred *deferred);
};

void xdc_deferred_start(struct xdc_deferred *deferred,
			void (*run)(struct xdc_deferred *deferred));
long xdc_deferred_wait(struct xdc_deferred *deferred, unsigned int ms);
void xdc_deferred_flush(struct xdc_deferred *deferred);

/* shim_notifier.c */
struct net_device *xdc_netdev_of_event(void *info);
u64 xdc_netdev_link_bytes_per_s(struct net_device *dev);

/* shim_qdisc.c: C's part of a qdisc, at the beginning of its private area. */
struct xdc_qdisc {
	struct tcf_proto __rcu *filters;
	struct tcf_block *block;
	struct qdisc_watchdog watchdog;

	/* Packets dropped or stolen, and counted so, in the current callback. */
	u32 disposed;
	/* The parent has other children. */
	bool is_child;
};

extern const struct Qdisc_class_ops xdc_qdisc_class_ops;

int xdc_qdisc_init(struct Qdisc *sch, struct netlink_ext_ack *extack);
void xdc_qdisc_destroy(struct Qdisc *sch);
void xdc_qdisc_reset(struct Qdisc *sch);
void xdc_qdisc_lock(struct Qdisc *sch);
void xdc_qdisc_unlock(struct Qdisc *sch);
struct sk_buff *xdc_qdisc_peeked(struct Qdisc *sch);
void xdc_qdisc_keep_peeked(struct Qdisc *sch, struct sk_buff *skb);
struct net *xdc_qdisc_net(struct Qdisc *sch);
struct net_device *xdc_qdisc_dev(struct Qdisc *sch);
bool xdc_qdisc_is_below_mq(struct Qdisc *sch);
bool xdc_qdisc_is_root(const struct Qdisc *sch);
void xdc_qdisc_send_singly(struct Qdisc *sch);
unsigned int xdc_qdisc_tx_queues(const struct Qdisc *sch);
u64 xdc_ktime_get_tai(void);
void xdc_qdisc_for_each(struct net_device *dev, const struct Qdisc_ops *ops,
			void (*f)(struct Qdisc *sch, void *data), void *data);
u64 xdc_random_u64(void);

void xdc_qdisc_overlimit(struct Qdisc *sch);
bool xdc_qdisc_can_send(const struct Qdisc *sch, u16 queue);
void xdc_qdisc_drop(struct sk_buff *skb, struct Qdisc *sch,
		    struct sk_buff **to_free, enum qdisc_drop_reason reason);
void xdc_qdisc_dequeue_drop(struct sk_buff *skb, struct Qdisc *sch,
			    enum qdisc_drop_reason reason);
void xdc_qdisc_drop_filtered(struct sk_buff *skb, struct Qdisc *sch,
			     struct sk_buff **to_free);
int xdc_qdisc_classify(struct sk_buff *skb, struct Qdisc *sch, u32 *classid);

void xdc_skb_consume(struct sk_buff *skb);
struct sk_buff *xdc_skb_segments(struct sk_buff *skb);
struct sk_buff *xdc_skb_next_segment(struct sk_buff **list);
bool xdc_skb_is_gso(const struct sk_buff *skb);
u32 xdc_skb_priority(const struct sk_buff *skb);
int xdc_skb_dsfield(const struct sk_buff *skb);
enum xdc_ecn xdc_skb_set_ce(struct sk_buff *skb);
bool xdc_skb_is_pure_ack(const struct sk_buff *skb);
void xdc_skb_set_queue_mapping(struct sk_buff *skb, u16 queue);

/* Flow of a packet. */
struct xdc_skb_flow {
	/* Key of addresses and ports; 0 exactly without a seed. */
	u64 key;
	/* IPv4 addresses are mapped to IPv6. */
	u8 daddr[16];
	/* TCP with payload and without SYN. */
	u32 is_data;
};
bool xdc_skb_flow(const struct sk_buff *skb, const u64 *seed, struct xdc_skb_flow *flow);

struct nlattr *xdc_nla_nest_start(struct sk_buff *skb, int attrtype);
void xdc_nla_nest_end(struct sk_buff *skb, struct nlattr *start);
void xdc_nla_nest_cancel(struct sk_buff *skb, struct nlattr *start);
int xdc_nla_parse_nested(struct nlattr **table, int max, const struct nlattr *nest,
			 const struct nla_policy *policy,
			 struct netlink_ext_ack *extack);
const struct nlattr *xdc_nla_find_twice(const struct nlattr *nest,
					struct nlattr *const *table);
void xdc_extack_set(struct netlink_ext_ack *extack, const char *text);

/* shim_netfilter.c: identity of a TCP connection. Without padding, because it is hashed. */
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

/* shim_counters.c: counters of each namespace, and their file in /proc/net. */
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

/* shim_flows.c: state per TCP connection. */
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

/* shim_conn.c: queries and actions on a connection. */
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

/* shim_seq.c: "show" of a file in /proc. Words have a space before them. */
struct seq_file;
void xdc_seq_text(struct seq_file *seq, const u8 *text, unsigned int len);
void xdc_seq_number(struct seq_file *seq, u64 number);

/* shim_udp_tunnel.c: a network device whose packets go to one peer over UDP. */
#define XDC_TUNNEL_COUNTERS 32
#define XDC_TUNNEL_HEADER 16
struct xdc_tunnel;
struct xdc_tunnel_out;

/* Settings of a device. */
struct xdc_tunnel_config {
	/* IPv4 is mapped to IPv6. */
	struct in6_addr local, remote;
	__be16 port;
	u16 mtu;
	u8 data, parity, paths, freeze;
	u32 timer_us, flush_us;
	u8 channels;
	u16 window;
	/* Fields of outer packets. */
	u32 fwmark;
	u8 tos, ttl, df;
};

/*
 * Operations of the module. "state" is from open(); transmit(), receive() and poll() have exclusive access,
 * with BH off, and return the time of the next poll() in us; 0 = none. They own the packet.
 */
struct xdc_tunnel_ops {
	const char *kind;
	const char *const *counters;
	unsigned int counter_count;
	/* Returns NULL, or the reason for a refusal. */
	const char *(*check)(const struct xdc_tunnel_config *config);
	void *(*open)(const struct xdc_tunnel_config *config);
	void (*close)(void *state);
	/* Called with settings that passed check() and a locked "state". */
	void (*change)(void *state, const struct xdc_tunnel_config *config);
	u64 (*transmit)(void *state, struct xdc_tunnel_out *out, struct sk_buff *skb, u64 now_us);
	u64 (*receive)(void *state, struct xdc_tunnel_out *out, struct sk_buff *skb, bool is_marked,
		       u64 now_us);
	u64 (*poll)(void *state, struct xdc_tunnel_out *out, u64 now_us);
};

int xdc_tunnel_register(const struct xdc_tunnel_ops *ops);
void xdc_tunnel_unregister(void);
struct sk_buff *xdc_tunnel_make(struct xdc_tunnel_out *out, unsigned int len);
struct sk_buff *xdc_tunnel_copy(struct sk_buff *skb);
void xdc_tunnel_send(struct xdc_tunnel_out *out, struct sk_buff *skb, const u8 *header, u16 port,
		     bool is_capable);
void xdc_tunnel_deliver(struct xdc_tunnel_out *out, struct sk_buff *skb, bool is_marked);
struct net_device *xdc_tunnel_device(const struct xdc_tunnel_out *out);
void xdc_tunnel_count(struct xdc_tunnel_out *out, unsigned int counter, u64 n);
void xdc_tunnel_free(struct sk_buff *skb);
u8 *xdc_tunnel_bytes(struct sk_buff *skb, unsigned int *len);
bool xdc_tunnel_is_shared(const struct sk_buff *skb);
void xdc_tunnel_cut(struct sk_buff *skb, unsigned int start, unsigned int len);

/* shim_test.c */

u64 xdc_cycles(void);

/* shim_vectors.c: GF(256) arithmetic with vector registers. */

bool xdc_vectors_begin(void);
void xdc_vectors_end(void);
size_t xdc_vectors_step(u8 *row, unsigned int doublings, const u8 *data, size_t bytes);
size_t xdc_vectors_scale(u8 *row, unsigned int doublings, size_t bytes);
void xdc_vectors_pair(u8 *p, u8 *q, const u8 *data, size_t bytes);

#endif /* _XDC_SHIM_H */
