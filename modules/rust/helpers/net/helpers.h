/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Wrappers of the kernel's inline functions and macros, for Rust. Each does one operation and has
 * its name; Rust decides. The C files of drivers have their own headers.
 */
#ifndef _XDC_HELPERS_H
#define _XDC_HELPERS_H

#include <linux/completion.h>
#include <linux/netdevice.h>
#include <linux/notifier.h>
#include <linux/rtnetlink.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include <net/net_namespace.h>
#include <net/netlink.h>
#include <net/pkt_sched.h>
#include <net/sch_generic.h>
#include <net/tcp.h>
#include <net/tcp_ecn.h>

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

/* module.c */
struct module *xdc_this_module(void);

/* math.c */
u64 xdc_mul_u64_u64_div_u64(u64 a, u64 b, u64 divisor);

/* net_namespace.c */
void *xdc_net_generic(const struct net *net, unsigned int id);

/* random.c */
u64 xdc_random_u64(void);

/* tcp.c */
bool xdc_tcp_is_cwnd_limited(const struct sock *sk);
void xdc_tcp_need_pacing(struct sock *sk);
void xdc_inet_ecn_dontxmit(struct sock *sk);
void xdc_tcp_send_ack(struct sock *sk, u32 rcv_nxt);

/* softirq.c */
void xdc_local_bh_disable(void);
void xdc_local_bh_enable(void);

/* speeds.c: sending devices and their speeds. */
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

/* deferred.c: C's part of a registration by a worker. */
struct xdc_deferred {
	struct work_struct work;
	struct completion done;
	void (*run)(struct xdc_deferred *deferred);
};

void xdc_deferred_start(struct xdc_deferred *deferred,
			void (*run)(struct xdc_deferred *deferred));
long xdc_deferred_wait(struct xdc_deferred *deferred, unsigned int ms);
void xdc_deferred_flush(struct xdc_deferred *deferred);

/* netdevice.c */
struct net_device *xdc_netdev_of_event(void *info);
u64 xdc_netdev_link_bytes_per_s(struct net_device *dev);

/* sched.c: C's part of a qdisc, at the beginning of its private area. */
struct xdc_qdisc {
	struct tcf_proto __rcu *filters;
	struct tcf_block *block;
	struct qdisc_watchdog watchdog;

	/* Packets dropped or stolen, and counted so, in the current callback. */
	u32 disposed;
	/* The parent has other children. */
	bool is_child;
	/* xdc_qdisc_send_singly(): the next call would belong to a batch. */
	bool in_batch;
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
void xdc_qdisc_for_each(struct net_device *dev, const struct Qdisc_ops *ops,
			void (*f)(struct Qdisc *sch, void *data), void *data);

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

/* seq.c: "show" of a file in /proc. Words have a space before them. */
struct seq_file;
void xdc_seq_text(struct seq_file *seq, const u8 *text, unsigned int len);
void xdc_seq_number(struct seq_file *seq, u64 number);

/* cycles.c */
u64 xdc_cycles(void);

#endif /* _XDC_HELPERS_H */
