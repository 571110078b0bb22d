// SPDX-License-Identifier: GPL-2.0

#include <linux/hashtable.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/netdevice.h>
#include <linux/random.h>
#include <linux/rtnetlink.h>
#include <linux/siphash.h>
#include <linux/skbuff.h>
#include <linux/tcp.h>
#include <net/gso.h>
#include <net/ipv6.h>
#include <net/inet_ecn.h>
#include <net/netlink.h>
#include <net/pkt_cls.h>

#include "helpers.h"

/* Life cycle of a qdisc */

/* Called first, so that xdc_qdisc_destroy() is valid after any later failure. */
int xdc_qdisc_init(struct Qdisc *sch, struct netlink_ext_ack *extack)
{
	struct xdc_qdisc *q = qdisc_priv(sch);

	sch->flags |= TCQ_F_DEQUEUE_DROPS;
	q->is_child = sch->parent != TC_H_ROOT && !xdc_qdisc_is_below_mq(sch);
	qdisc_watchdog_init(&q->watchdog, sch);
	return tcf_block_get(&q->block, &q->filters, sch, extack);
}

void xdc_qdisc_destroy(struct Qdisc *sch)
{
	struct xdc_qdisc *q = qdisc_priv(sch);

	qdisc_watchdog_cancel(&q->watchdog);
	tcf_block_put(q->block);
}

void xdc_qdisc_reset(struct Qdisc *sch)
{
	struct xdc_qdisc *q = qdisc_priv(sch);

	qdisc_watchdog_cancel(&q->watchdog);
	qdisc_reset_queue(sch);
}

void xdc_qdisc_lock(struct Qdisc *sch)
{
	sch_tree_lock(sch);
}

void xdc_qdisc_unlock(struct Qdisc *sch)
{
	sch_tree_unlock(sch);
}

/* The two halves of qdisc_peek_dequeued(). */
struct sk_buff *xdc_qdisc_peeked(struct Qdisc *sch)
{
	return skb_peek(&sch->gso_skb);
}

void xdc_qdisc_keep_peeked(struct Qdisc *sch, struct sk_buff *skb)
{
	__skb_queue_head(&sch->gso_skb, skb);
	qdisc_qstats_backlog_inc(sch, skb);
	qdisc_qlen_inc(sch);
}

struct net *xdc_qdisc_net(struct Qdisc *sch)
{
	return dev_net(qdisc_dev(sch));
}

struct net_device *xdc_qdisc_dev(struct Qdisc *sch)
{
	return qdisc_dev(sch);
}

/*
 * Returns whether @sch is directly below mq or similar, which is always a root. A parent that
 * cannot be found, or has no handle, is being attached and creates its default children
 * (net.core.default_qdisc); only such qdiscs do. Under RTNL.
 */
bool xdc_qdisc_is_below_mq(struct Qdisc *sch)
{
	struct net_device *dev = qdisc_dev(sch);
	struct Qdisc *root = rtnl_dereference(dev->qdisc), *parent;
	u32 handle = TC_H_MAJ(sch->parent);

	if (dev->num_tx_queues < 2 || !TC_H_MIN(sch->parent) ||
	    sch->parent == TC_H_ROOT)
		return false;
	if (!handle)
		return true;
	if (root && root->handle == handle)
		return root->flags & TCQ_F_MQROOT;
	hash_for_each_possible(dev->qdisc_hash, parent, hash, handle)
		if (parent->handle == handle)
			return false;
	return true;
}

bool xdc_qdisc_is_root(const struct Qdisc *sch)
{
	return sch->parent == TC_H_ROOT;
}

/*
 * TCQ_F_ONETXQUEUE limits a batch of dequeue_skb() by the byte limit of transmit queue 0, which is 0 only if
 * that queue was never used. Otherwise this ends the batch after one packet.
 */
static struct sk_buff *xdc_qdisc_dequeue_singly(struct Qdisc *sch)
{
	struct xdc_qdisc *own = qdisc_priv(sch);
	struct sk_buff *skb;

	if (own->in_batch) {
		own->in_batch = false;
		/* The limit may have changed meanwhile, so that no other call follows. */
		__netif_schedule(sch);
		return NULL;
	}
	skb = sch->ops->dequeue(sch);
	own->in_batch = skb && qdisc_avail_bulklimit(sch->dev_queue) > (int)skb->len;
	return skb;
}

/* Makes the kernel request one packet at a time. Under RTNL, before @sch is attached. */
void xdc_qdisc_send_singly(struct Qdisc *sch)
{
	sch->flags |= TCQ_F_ONETXQUEUE;
	sch->dequeue = xdc_qdisc_dequeue_singly;
}

unsigned int xdc_qdisc_tx_queues(const struct Qdisc *sch)
{
	return qdisc_dev(sch)->real_num_tx_queues;
}

/*
 * Calls @f with @data for each qdisc of @ops on a device. Qdiscs of unused transmit queues may be
 * in no table. Under RTNL.
 */
void xdc_qdisc_for_each(struct net_device *dev, const struct Qdisc_ops *ops,
			void (*f)(struct Qdisc *sch, void *data), void *data)
{
	struct Qdisc *root = rtnl_dereference(dev->qdisc), *sch;
	unsigned int i;

	if (root && root->ops == ops)
		f(root, data);
	hash_for_each(dev->qdisc_hash, i, sch, hash)
		if (sch->ops == ops)
			f(sch, data);
	for (i = 0; i < dev->num_tx_queues; i++) {
		sch = rtnl_dereference(netdev_get_tx_queue(dev, i)->qdisc_sleeping);
		if (sch != root && sch->ops == ops && !hash_hashed(&sch->hash))
			f(sch, data);
	}
}

/* Queue: under the root's lock */

/* Like multiq: a packet for a stopped transmit queue would block those for others. */
bool xdc_qdisc_can_send(const struct Qdisc *sch, u16 queue)
{
	struct net_device *dev = qdisc_dev(sch);

	return queue >= READ_ONCE(dev->real_num_tx_queues) ||
	       !netif_xmit_stopped(netdev_get_tx_queue(dev, queue));
}

void xdc_qdisc_overlimit(struct Qdisc *sch)
{
	qdisc_qstats_overlimit(sch);
}

void xdc_qdisc_drop(struct sk_buff *skb, struct Qdisc *sch,
		    struct sk_buff **to_free, enum qdisc_drop_reason reason)
{
	qdisc_drop_reason(skb, sch, to_free, reason);
}

void xdc_qdisc_dequeue_drop(struct sk_buff *skb, struct Qdisc *sch,
			    enum qdisc_drop_reason reason)
{
	qdisc_dequeue_drop(sch, skb, reason);
	qdisc_qstats_drop(sch);
}

/* Drops with the filter's reason, if it set one. */
void xdc_qdisc_drop_filtered(struct sk_buff *skb, struct Qdisc *sch,
			     struct sk_buff **to_free)
{
	qdisc_drop(skb, sch, to_free);
}

/* Returns TC_ACT_*; TC_ACT_UNSPEC if no filter matches. */
int xdc_qdisc_classify(struct sk_buff *skb, struct Qdisc *sch, u32 *classid)
{
	struct xdc_qdisc *q = qdisc_priv(sch);
	struct tcf_proto *filters = rcu_dereference_bh(q->filters);
	struct tcf_result res = {};
	int action;

	if (!filters)
		return TC_ACT_UNSPEC;
	action = tcf_classify_qdisc(skb, filters, &res, false);
	*classid = res.classid;
	return action;
}

/* Packets */

/* Returns NULL if the packet cannot be split. The caller keeps @skb. */
struct sk_buff *xdc_skb_segments(struct sk_buff *skb)
{
	netdev_features_t features = netif_skb_features(skb);
	struct sk_buff *list = skb_gso_segment(skb, features & ~NETIF_F_GSO_MASK);

	return IS_ERR(list) ? NULL : list;
}

/*
 * The control block holds segmentation data, so the fields of __dev_queue_xmit() are set again.
 * Except the length by the root's size table: its function is not exported, and tbf omits it, too.
 */
struct sk_buff *xdc_skb_next_segment(struct sk_buff **list)
{
	struct sk_buff *skb = *list;

	if (!skb)
		return NULL;
	*list = skb->next;
	skb_mark_not_on_list(skb);
	qdisc_skb_cb(skb)->pkt_len = skb->len;
	qdisc_skb_cb(skb)->pkt_segs = 1;
	tcf_set_qdisc_drop_reason(skb, QDISC_DROP_GENERIC);
	return skb;
}

void xdc_skb_consume(struct sk_buff *skb)
{
	consume_skb(skb);
}

bool xdc_skb_is_gso(const struct sk_buff *skb)
{
	return skb_is_gso(skb);
}

u32 xdc_skb_priority(const struct sk_buff *skb)
{
	return skb->priority;
}

void xdc_skb_set_queue_mapping(struct sk_buff *skb, u16 queue)
{
	/* As in act_skbedit: the device may have fewer queues than before. */
	if (queue < READ_ONCE(skb->dev->real_num_tx_queues))
		skb_set_queue_mapping(skb, queue);
}

static u64 xdc_skb_flow_key(const struct xdc_skb_tcp *it, u64 seed)
{
	const siphash_key_t key = { .key = { seed, ~seed } };
	struct {
		struct in6_addr saddr, daddr;
		__be16 sport, dport;
		u32 zero;
	} __aligned(SIPHASH_ALIGNMENT) of = {};

	if (it->ip) {
		ipv6_addr_set_v4mapped(it->ip->saddr, &of.saddr);
		ipv6_addr_set_v4mapped(it->ip->daddr, &of.daddr);
	} else {
		of.saddr = it->ip6->saddr;
		of.daddr = it->ip6->daddr;
	}
	of.sport = it->tcp->source;
	of.dport = it->tcp->dest;
	return siphash(&of, sizeof(of), &key) ?: 1;
}

/* Returns whether the packet is TCP, and fills @flow. The hash is most of the cost. */
bool xdc_skb_flow(const struct sk_buff *skb, const u64 *seed, struct xdc_skb_flow *flow)
{
	struct in6_addr *daddr = (struct in6_addr *)flow->daddr;
	struct xdc_skb_tcp it;

	if (!xdc_skb_tcp(skb, &it))
		return false;
	if (it.ip)
		ipv6_addr_set_v4mapped(it.ip->daddr, daddr);
	else
		*daddr = it.ip6->daddr;
	flow->key = seed ? xdc_skb_flow_key(&it, *seed) : 0;
	flow->is_data = it.payload > 0 && !it.tcp->syn;
	return true;
}

/* A classless qdisc to which tc filters can be attached */

static struct Qdisc *xdc_class_leaf(struct Qdisc *sch, unsigned long cl)
{
	return NULL;
}

static unsigned long xdc_class_find(struct Qdisc *sch, u32 classid)
{
	return 0;
}

static unsigned long xdc_class_bind(struct Qdisc *sch, unsigned long parent,
				    u32 classid)
{
	return 0;
}

static void xdc_class_unbind(struct Qdisc *sch, unsigned long cl)
{
}

static struct tcf_block *xdc_class_block(struct Qdisc *sch, unsigned long cl,
					 struct netlink_ext_ack *extack)
{
	struct xdc_qdisc *q = qdisc_priv(sch);

	return cl ? NULL : q->block;
}

static void xdc_class_walk(struct Qdisc *sch, struct qdisc_walker *arg)
{
}

const struct Qdisc_class_ops xdc_qdisc_class_ops = {
	.leaf		= xdc_class_leaf,
	.find		= xdc_class_find,
	.tcf_block	= xdc_class_block,
	.bind_tcf	= xdc_class_bind,
	.unbind_tcf	= xdc_class_unbind,
	.walk		= xdc_class_walk,
};
