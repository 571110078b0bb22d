// SPDX-License-Identifier: GPL-2.0
/* Included by one C file per qdisc, since each module links its own. */

#include <linux/ethtool.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/netdevice.h>
#include <linux/prandom.h>
#include <linux/rtnetlink.h>
#include <linux/skbuff.h>
#include <linux/tcp.h>
#include <net/gso.h>
#include <net/inet_ecn.h>
#include <net/netlink.h>
#include <net/pkt_cls.h>

#include "shim.h"

/* The life of a qdisc */

/* First of all, so that xdc_qdisc_destroy() is right whatever fails later. */
int xdc_qdisc_init(struct Qdisc *sch, struct netlink_ext_ack *extack)
{
	struct xdc_qdisc *q = qdisc_priv(sch);

	sch->flags |= TCQ_F_DEQUEUE_DROPS;
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

struct sk_buff *xdc_qdisc_peek(struct Qdisc *sch)
{
	return qdisc_peek_dequeued(sch);
}

struct net *xdc_qdisc_net(struct Qdisc *sch)
{
	return dev_net(qdisc_dev(sch));
}

/* 0 = the device does not tell. Under RTNL. */
u64 xdc_qdisc_link_bytes_per_s(struct Qdisc *sch)
{
	struct ethtool_link_ksettings ecmd;

	if (netif_get_link_ksettings(qdisc_dev(sch), &ecmd) < 0 ||
	    ecmd.base.speed == SPEED_UNKNOWN)
		return 0;
	return (u64)ecmd.base.speed * (1000 * 1000 / BITS_PER_BYTE);
}

/* From what is the same in each run of the same set-up, so that a simulation
 * can be repeated, and different for each port.
 */
u64 xdc_qdisc_seed(struct Qdisc *sch)
{
	struct net_device *dev = qdisc_dev(sch);
	struct rnd_state state;
	u64 high;

	prandom_seed_state(&state, (u64)sch->handle << 32 ^
			   (u64)dev_net(dev)->ns.inum << 12 ^ dev->ifindex);
	high = prandom_u32_state(&state);
	return high << 32 | prandom_u32_state(&state);
}

/* A queue: under the root's lock */

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
	struct xdc_qdisc *q = qdisc_priv(sch);

	q->dropped_packets++;
	q->dropped_bytes += qdisc_pkt_len(skb);
	qdisc_dequeue_drop(sch, skb, reason);
	qdisc_qstats_drop(sch);
}

void xdc_qdisc_settle(struct Qdisc *sch)
{
	struct xdc_qdisc *q = qdisc_priv(sch);
	u32 packets = q->dropped_packets, bytes = q->dropped_bytes;

	q->dropped_packets = 0;
	q->dropped_bytes = 0;
	qdisc_tree_reduce_backlog(sch, packets, bytes);
}

/* Returns TC_ACT_*; TC_ACT_UNSPEC where no filter matches. */
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

/* NULL where the packet cannot be split. The caller keeps @skb. */
struct sk_buff *xdc_skb_segments(struct sk_buff *skb)
{
	netdev_features_t features = netif_skb_features(skb);
	struct sk_buff *list = skb_gso_segment(skb, features & ~NETIF_F_GSO_MASK);

	return IS_ERR(list) ? NULL : list;
}

struct sk_buff *xdc_skb_next_segment(struct sk_buff **list)
{
	struct sk_buff *skb = *list;

	if (!skb)
		return NULL;
	*list = skb->next;
	skb_mark_not_on_list(skb);
	qdisc_skb_cb(skb)->pkt_len = skb->len;
	qdisc_skb_cb(skb)->pkt_segs = 1;
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

/* DSCP and ECN; negative where there is neither. */
int xdc_skb_dsfield(struct sk_buff *skb)
{
	return skb_get_dsfield(skb);
}

/* The same of a packet that is only looked at; 0 where there is neither. */
u8 xdc_skb_peek_dsfield(const struct sk_buff *skb)
{
	int offset = skb_network_offset(skb);
	const struct ipv6hdr *ip6;
	const struct iphdr *ip;
	struct ipv6hdr copy;

	BUILD_BUG_ON(sizeof(*ip) > sizeof(copy));
	switch (skb_protocol(skb, true)) {
	case htons(ETH_P_IP):
		ip = skb_header_pointer(skb, offset, sizeof(*ip), &copy);
		return ip ? ipv4_get_dsfield(ip) : 0;
	case htons(ETH_P_IPV6):
		ip6 = skb_header_pointer(skb, offset, sizeof(*ip6), &copy);
		return ip6 ? ipv6_get_dsfield(ip6) : 0;
	}
	return 0;
}

/*
 * Whether the network header, of @header bytes, can be written to as it is:
 * others, such as a tap or TCP's own retransmit queue, may look at the same
 * bytes.
 */
static bool xdc_skb_header_is_ours(const struct sk_buff *skb, unsigned int header)
{
	unsigned int end = skb_network_offset(skb) + header;

	return end <= skb_headlen(skb) &&
	       (!skb_cloned(skb) || skb_clone_writable(skb, end));
}

/* The same, after a copy if need be. */
static bool xdc_skb_make_header_ours(struct sk_buff *skb, unsigned int header)
{
	return pskb_network_may_pull(skb, header) &&
	       !skb_try_make_writable(skb, skb_network_offset(skb) + header);
}

static __always_inline enum xdc_ecn xdc_ipv4_set_ce(struct iphdr *ip)
{
	if (INET_ECN_is_ce(ip->tos))
		return XDC_ALREADY_CE;
	return IP_ECN_set_ce(ip) ? XDC_ECT_TO_CE : XDC_NOT_ECT;
}

static enum xdc_ecn xdc_ipv6_set_ce(struct sk_buff *skb, struct ipv6hdr *ip)
{
	if (INET_ECN_is_ce(ipv6_get_dsfield(ip)))
		return XDC_ALREADY_CE;
	return IP6_ECN_set_ce(skb, ip) ? XDC_ECT_TO_CE : XDC_NOT_ECT;
}

/* Any packet: IPv6, behind VLAN tags, in fragments, shared. */
static noinline enum xdc_ecn xdc_skb_set_ce_slowly(struct sk_buff *skb)
{
	__be16 protocol = skb_protocol(skb, true);

	if (protocol == htons(ETH_P_IP) &&
	    xdc_skb_make_header_ours(skb, sizeof(struct iphdr)))
		return xdc_ipv4_set_ce(ip_hdr(skb));
	if (protocol == htons(ETH_P_IPV6) &&
	    xdc_skb_make_header_ours(skb, sizeof(struct ipv6hdr)))
		return xdc_ipv6_set_ce(skb, ipv6_hdr(skb));
	return XDC_NOT_ECT;
}

/* In front, what needs neither copy nor call. */
enum xdc_ecn xdc_skb_set_ce(struct sk_buff *skb)
{
	if (likely(skb->protocol == htons(ETH_P_IP) &&
		   xdc_skb_header_is_ours(skb, sizeof(struct iphdr))))
		return xdc_ipv4_set_ce(ip_hdr(skb));
	return xdc_skb_set_ce_slowly(skb);
}

/* TCP, no payload, and nothing that must not be lost: SYN, FIN or RST. */
bool xdc_skb_is_pure_ack(const struct sk_buff *skb)
{
	int offset = skb_network_offset(skb), end;
	const struct tcphdr *tcp;
	struct tcphdr tcp_copy;

	if (skb_is_gso(skb))
		return false;

	if (skb_protocol(skb, true) == htons(ETH_P_IP)) {
		struct iphdr ip_copy;
		const struct iphdr *ip;

		ip = skb_header_pointer(skb, offset, sizeof(ip_copy), &ip_copy);
		if (!ip || ip->protocol != IPPROTO_TCP || ip_is_fragment(ip))
			return false;
		end = offset + ntohs(ip->tot_len);
		offset += ip->ihl * 4;
	} else if (skb_protocol(skb, true) == htons(ETH_P_IPV6)) {
		struct ipv6hdr ip_copy;
		const struct ipv6hdr *ip;

		ip = skb_header_pointer(skb, offset, sizeof(ip_copy), &ip_copy);
		if (!ip || ip->nexthdr != IPPROTO_TCP)
			return false;
		end = offset + sizeof(*ip) + ntohs(ip->payload_len);
		offset += sizeof(*ip);
	} else {
		return false;
	}

	tcp = skb_header_pointer(skb, offset, sizeof(tcp_copy), &tcp_copy);
	return tcp && offset + tcp->doff * 4 == end &&
	       !tcp->syn && !tcp->fin && !tcp->rst;
}

/* Netlink */

struct nlattr *xdc_nla_nest_start(struct sk_buff *skb, int attrtype)
{
	return nla_nest_start_noflag(skb, attrtype);
}

void xdc_nla_nest_end(struct sk_buff *skb, struct nlattr *start)
{
	nla_nest_end(skb, start);
}

void xdc_nla_nest_cancel(struct sk_buff *skb, struct nlattr *start)
{
	nla_nest_cancel(skb, start);
}

/* A qdisc without classes of its own, to which tc filters can be attached */

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
