// SPDX-License-Identifier: GPL-2.0
/*
 * The network device: a tunnel over UDP.
 *
 * The module decides under the device's lock, and packets move once the lock is released, because sending or
 * delivering may reenter the device. A NAPI delivers, in order.
 */

#include <linux/ethtool.h>
#include <linux/hrtimer.h>
#include <linux/icmpv6.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/netdevice.h>
#include <linux/skbuff.h>
#include <net/icmp.h>
#include <net/inet_ecn.h>
#include <net/ip.h>
#include <net/ip6_route.h>
#include <net/ip_tunnels.h>
#include <net/netns/generic.h>
#include <net/route.h>
#include <net/rtnetlink.h>
#include <net/udp_tunnel.h>

#include <uapi/linux/unorc.h>

#include "../../../oot/compat.h"
#include "device.h"

/* Overhead of each packet: IPv6 or IPv4, UDP, the module's header. */
#define XDC_TUNNEL_OVERHEAD (sizeof(struct ipv6hdr) + sizeof(struct udphdr) + XDC_TUNNEL_HEADER)
#define XDC_TUNNEL_OVERHEAD_IPV4 \
	(XDC_TUNNEL_OVERHEAD - sizeof(struct ipv6hdr) + sizeof(struct iphdr))
/* Every IPv4 host accepts packets of this length (RFC 791). */
#define XDC_TUNNEL_MIN_MTU 576

/* Limit of the packets that wait for the stack, in truesize. Two channels release all that they hold at once. */
#define XDC_TUNNEL_UP_BYTES (32 << 20)
/* Limit of nested tunnels, as in IPv6 (RFC 2473, 4.1.1). */
#define XDC_TUNNEL_NESTED 4

static const struct xdc_tunnel_ops *xdc_tunnel_ops;
static struct rtnl_link_ops xdc_tunnel_link_ops;
static unsigned int xdc_tunnel_net_id;

/* Devices by the namespace of their sockets. */
struct xdc_tunnel_net {
	struct list_head tunnels;
};
static DEFINE_MUTEX(xdc_tunnel_lists);

static bool xdc_tunnel_is_ipv6(const struct xdc_tunnel_config *config)
{
	return ipv6_mod_enabled() && !ipv6_addr_v4mapped(&config->remote);
}

static unsigned int xdc_tunnel_overhead(const struct xdc_tunnel_config *config)
{
	return xdc_tunnel_is_ipv6(config) ? XDC_TUNNEL_OVERHEAD : XDC_TUNNEL_OVERHEAD_IPV4;
}

/* Returns the reduction of the MTU: a parity is two bytes longer than the longest packet. */
static unsigned int xdc_tunnel_mtu_less(const struct xdc_tunnel_config *config)
{
	return xdc_tunnel_overhead(config) + 2;
}

/* Returns the addresses of a packet, IPv4 mapped to IPv6. */
static void xdc_tunnel_addresses(const struct sk_buff *skb, struct in6_addr *from, struct in6_addr *to)
{
	if (skb->protocol == htons(ETH_P_IP)) {
		ipv6_addr_set_v4mapped(ip_hdr(skb)->saddr, from);
		ipv6_addr_set_v4mapped(ip_hdr(skb)->daddr, to);
	} else {
		*from = ipv6_hdr(skb)->saddr;
		*to = ipv6_hdr(skb)->daddr;
	}
}

struct xdc_tunnel {
	struct net_device *dev;
	/* Namespace of the socket and routes; the device may be in another. */
	struct net *net;
	struct list_head node;
	struct xdc_tunnel_config config;
	struct sock __rcu *sk;
	/* Delivers the packets of "up", alone, so that packets of a flow keep their order. */
	struct napi_struct napi;
	struct hrtimer timer;
	/* Protects the fields from here to "state", and the object of "state". */
	spinlock_t lock;
	struct sk_buff_head up;
	/* Sum of the truesize of the packets in "up". */
	unsigned int up_bytes;
	u64 due_us;
	u64 counters[XDC_TUNNEL_COUNTERS];
	/* The module's state; NULL = the device is down. */
	void *state;
	/* Number of tunnels around this one, as of jiffies "nested_at". */
	unsigned int nested;
	unsigned long nested_at;
	/* Longest inner packet that fits the last outer route; 0 = no packet was sent. */
	unsigned int path_mtu;
};

/* Output of one callback of the module. */
struct xdc_tunnel_out {
	struct xdc_tunnel *tunnel;
	struct sk_buff_head down;
};

struct xdc_tunnel_cb {
	u8 header[XDC_TUNNEL_HEADER];
	u16 port;
	bool is_capable;
	/* ECN of the outer header of a received packet. */
	u8 ecn;
};

static struct xdc_tunnel_cb *xdc_tunnel_cb(struct sk_buff *skb)
{
	BUILD_BUG_ON(sizeof(struct xdc_tunnel_cb) > sizeof(skb->cb));
	return (struct xdc_tunnel_cb *)skb->cb;
}

/* Returns a packet of zeros. */
struct sk_buff *xdc_tunnel_make(struct xdc_tunnel_out *out, unsigned int len)
{
	unsigned int room = LL_MAX_HEADER + XDC_TUNNEL_OVERHEAD;
	struct sk_buff *skb = alloc_skb(room + len, GFP_ATOMIC | __GFP_NOWARN);

	if (!skb)
		return NULL;
	skb_reserve(skb, room);
	skb_put_zero(skb, len);
	skb->dev = out->tunnel->dev;
	skb_reset_network_header(skb);
	return skb;
}

/* Returns a packet with the same bytes. */
struct sk_buff *xdc_tunnel_copy(struct sk_buff *skb)
{
	struct sk_buff *copy = skb_clone(skb, GFP_ATOMIC | __GFP_NOWARN);

	if (copy) {
		/* A copy may be kept for seconds, longer than the objects it refers to should live. */
		nf_reset_ct(copy);
		skb_ext_reset(copy);
	}
	return copy;
}

void xdc_tunnel_send(struct xdc_tunnel_out *out, struct sk_buff *skb, const u8 *header, u16 port,
		     bool is_capable)
{
	struct xdc_tunnel_cb *cb = xdc_tunnel_cb(skb);

	memcpy(cb->header, header, sizeof(cb->header));
	cb->port = port;
	cb->is_capable = is_capable;
	__skb_queue_tail(&out->down, skb);
}

void xdc_tunnel_deliver(struct xdc_tunnel_out *out, struct sk_buff *skb, bool is_marked)
{
	struct xdc_tunnel *tunnel = out->tunnel;

	if (tunnel->up_bytes + skb->truesize > XDC_TUNNEL_UP_BYTES) {
		dev_core_stats_rx_dropped_inc(tunnel->dev);
		kfree_skb_reason(skb, SKB_DROP_REASON_FULL_RING);
		return;
	}
	tunnel->up_bytes += skb->truesize;
	if (is_marked)
		xdc_tunnel_cb(skb)->ecn = INET_ECN_CE;
	__skb_queue_tail(&tunnel->up, skb);
}

/* Returns the device of the callback. */
struct net_device *xdc_tunnel_device(const struct xdc_tunnel_out *out)
{
	return out->tunnel->dev;
}

void xdc_tunnel_count(struct xdc_tunnel_out *out, unsigned int counter, u64 n)
{
	if (counter < XDC_TUNNEL_COUNTERS)
		out->tunnel->counters[counter] += n;
}

/* Most are copies after use, not drops; the module counts its drops. */
void xdc_tunnel_free(struct sk_buff *skb)
{
	consume_skb(skb);
}

/* Returns all bytes: the module gets linear packets only. */
u8 *xdc_tunnel_bytes(struct sk_buff *skb, unsigned int *len)
{
	*len = skb_headlen(skb);
	return skb->data;
}

bool xdc_tunnel_is_shared(const struct sk_buff *skb)
{
	return skb_cloned(skb) || skb_shared(skb);
}

/* Trims to "len" bytes from "start" on. */
void xdc_tunnel_cut(struct sk_buff *skb, unsigned int start, unsigned int len)
{
	if (start > skb_headlen(skb))
		return;
	__skb_pull(skb, start);
	if (len < skb->len)
		__skb_trim(skb, len);
	skb_reset_network_header(skb);
}

/* Returns the outer route and its source address. */
static struct dst_entry *xdc_tunnel_route(struct xdc_tunnel *tunnel, struct sock *sk, struct sk_buff *skb,
					  __be16 port, u8 tos, struct in6_addr *from)
{
	const struct xdc_tunnel_config *config = &tunnel->config;
	struct ip_tunnel_key key = {};
	struct rtable *rt;

	if (xdc_tunnel_is_ipv6(config)) {
		key.u.ipv6.src = config->local;
		key.u.ipv6.dst = config->remote;
		key.label = htonl(ntohs(port));
		return udp_tunnel6_dst_lookup(skb, tunnel->dev, tunnel->net, sk, 0, from, &key, port,
					      config->port, tos, NULL);
	}
	key.u.ipv4.src = config->local.s6_addr32[3];
	key.u.ipv4.dst = config->remote.s6_addr32[3];
	rt = udp_tunnel_dst_lookup(skb, tunnel->dev, tunnel->net, 0, &from->s6_addr32[3], &key, port,
				   config->port, tos, NULL);
	return IS_ERR(rt) ? ERR_CAST(rt) : &rt->dst;
}

/*
 * Returns whether an outer route leads into too many tunnels. Tunnels within each other count up. A count
 * expires after a second, in which routes may have changed.
 */
static bool xdc_tunnel_is_nested(struct xdc_tunnel *tunnel, const struct net_device *dev)
{
	const struct xdc_tunnel *lower = netdev_priv(dev);
	unsigned int nested = 0;

	if (dev->rtnl_link_ops == &xdc_tunnel_link_ops) {
		nested = 1;
		if (time_before(jiffies, READ_ONCE(lower->nested_at) + HZ))
			nested += READ_ONCE(lower->nested);
	}
	WRITE_ONCE(tunnel->nested, min(nested, XDC_TUNNEL_NESTED));
	WRITE_ONCE(tunnel->nested_at, jiffies);
	return nested > XDC_TUNNEL_NESTED;
}

static enum skb_drop_reason xdc_tunnel_loop(struct net_device *dev)
{
	DEV_STATS_INC(dev, collisions);
	net_warn_ratelimited("%s: routing loop\n", dev->name);
	return SKB_DROP_REASON_RECURSION_LIMIT;
}

static void xdc_tunnel_send_one(struct xdc_tunnel *tunnel, struct sk_buff *skb)
{
	const struct xdc_tunnel_config *config = &tunnel->config;
	struct xdc_tunnel_cb cb = *xdc_tunnel_cb(skb);
	struct sock *sk = rcu_dereference(tunnel->sk);
	u8 tos = READ_ONCE(config->tos);
	__be16 port = htons(cb.port);
	enum skb_drop_reason reason = SKB_DROP_REASON_DEV_READY;
	struct dst_entry *dst;
	struct in6_addr from;
	int inside;
	bool has_df;
	u32 mtu;
	u8 ttl;

	if (!sk)
		goto drop;
	/* Parities and reports have no inner IP header. */
	inside = skb_get_dsfield(skb);
	if (inside < 0)
		inside = cb.is_capable ? INET_ECN_ECT_0 : INET_ECN_NOT_ECT;
	tos = INET_ECN_encapsulate(tos & UNORC_TOS_INHERIT ? inside : tos, inside);
	skb_scrub_packet(skb, true);
	/* Below, fq paces by socket and holds 100 packets of each: too few for packets without GSO. */
	skb_set_delivery_time(skb, ktime_get_ns(), SKB_CLOCK_MONOTONIC);
	/* The inner mark, which a container may set, must not select the outer route. */
	skb->mark = READ_ONCE(config->fwmark);
	dst = xdc_tunnel_route(tunnel, sk, skb, port, tos, &from);
	if (IS_ERR(dst)) {
		DEV_STATS_INC(tunnel->dev, tx_carrier_errors);
		reason = SKB_DROP_REASON_IP_OUTNOROUTES;
		goto drop;
	}
	if (xdc_tunnel_is_nested(tunnel, dst_dev(dst))) {
		reason = xdc_tunnel_loop(tunnel->dev);
		goto put;
	}
	mtu = dst_mtu(dst);
	WRITE_ONCE(tunnel->path_mtu, mtu - xdc_tunnel_mtu_less(config));
	/* A packet that is too long travels in fragments: its parities have these bytes, too. */
	has_df = skb->len + xdc_tunnel_overhead(config) <= mtu && READ_ONCE(config->df);
	/* A router behind a veth would use the inner flow's hash for the outer ports. */
	skb_clear_hash(skb);
	reason = SKB_DROP_REASON_NOMEM;
	if (skb_cow_head(skb, LL_RESERVED_SPACE(dst_dev(dst)) + dst->header_len +
			 XDC_TUNNEL_OVERHEAD) ||
	    udp_tunnel_handle_offloads(skb, true))
		goto put;
	skb_set_inner_network_header(skb, 0);
	skb_set_inner_protocol(skb, skb->protocol);
	memcpy(__skb_push(skb, sizeof(cb.header)), cb.header, sizeof(cb.header));
	/* A packet that ends with the inner header would be counted as dropped. */
	if (skb->len == sizeof(cb.header))
		skb_set_inner_network_header(skb, 0);
	ttl = READ_ONCE(config->ttl);
	if (xdc_tunnel_is_ipv6(config)) {
		skb->ignore_df = !has_df;
		/* Switches may hash the label instead of ports. */
		udp_tunnel6_xmit_skb(dst, sk, skb, tunnel->dev, &from, &config->remote, tos,
				     ttl ?: ip6_dst_hoplimit(dst), htonl(cb.port), port,
				     config->port, false, 0);
	} else {
		udp_tunnel_xmit_skb(dst_rtable(dst), sk, skb, from.s6_addr32[3],
				    config->remote.s6_addr32[3], tos, ttl ?: ip4_dst_hoplimit(dst),
				    has_df ? htons(IP_DF) : 0, port, config->port, false, false, 0);
	}
	return;
put:
	dst_release(dst);
drop:
	DEV_STATS_INC(tunnel->dev, tx_errors);
	kfree_skb_reason(skb, reason);
}

static void xdc_tunnel_deliver_one(struct xdc_tunnel *tunnel, struct sk_buff *skb)
{
	enum skb_drop_reason reason = SKB_DROP_REASON_HDR_TRUNC;
	struct net_device *dev = tunnel->dev;

	if (!pskb_may_pull(skb, 1))
		goto bad;
	skb->protocol = skb->data[0] >> 4 == 6 ? htons(ETH_P_IPV6) : htons(ETH_P_IP);
	skb->dev = dev;
	skb->pkt_type = PACKET_HOST;
	skb->ip_summed = CHECKSUM_NONE;
	skb_reset_mac_header(skb);
	skb_reset_network_header(skb);
	reason = pskb_inet_may_pull_reason(skb);
	if (reason)
		goto bad;
	/* A copy may be kept for decoding, and code from here on does not unshare a clone before writing. */
	if (skb_unclone(skb, GFP_ATOMIC | __GFP_NOWARN)) {
		dev_dstats_rx_dropped(dev);
		kfree_skb_reason(skb, SKB_DROP_REASON_NOMEM);
		return;
	}
	if (INET_ECN_decapsulate(skb, xdc_tunnel_cb(skb)->ecn, skb_get_dsfield(skb)) > 1) {
		DEV_STATS_INC(dev, rx_frame_errors);
		reason = SKB_DROP_REASON_IP_TUNNEL_ECN;
		goto bad;
	}
	memset(skb->cb, 0, sizeof(skb->cb));
	/* Hash and offset belong to the outer packet, whose port changes with each packet. */
	skb_clear_hash(skb);
	skb_unset_transport_header(skb);
	/* With decoding, packets held by GRO must not be overtaken. */
	dev_dstats_rx_add(dev, skb->len);
	if (tunnel->config.parity)
		netif_receive_skb(skb);
	else
		napi_gro_receive(&tunnel->napi, skb);
	return;
bad:
	DEV_STATS_INC(dev, rx_errors);
	kfree_skb_reason(skb, reason);
}

static int xdc_tunnel_hand_up(struct napi_struct *napi, int budget)
{
	struct xdc_tunnel *tunnel = container_of(napi, struct xdc_tunnel, napi);
	struct sk_buff_head taken;
	struct sk_buff *skb;
	int done = 0;

	__skb_queue_head_init(&taken);
	spin_lock_bh(&tunnel->lock);
	while (done < budget && (skb = __skb_dequeue(&tunnel->up))) {
		tunnel->up_bytes -= skb->truesize;
		__skb_queue_tail(&taken, skb);
		done++;
	}
	spin_unlock_bh(&tunnel->lock);
	while ((skb = __skb_dequeue(&taken)))
		xdc_tunnel_deliver_one(tunnel, skb);
	if (done < budget)
		napi_complete_done(napi, done);
	return done;
}

static u64 xdc_tunnel_now_us(void)
{
	return ktime_to_us(ktime_get());
}

/* Takes the lock, unless the device is down. */
static bool xdc_tunnel_begin(struct xdc_tunnel *tunnel, struct xdc_tunnel_out *out)
{
	out->tunnel = tunnel;
	__skb_queue_head_init(&out->down);
	spin_lock(&tunnel->lock);
	if (tunnel->state)
		return true;
	spin_unlock(&tunnel->lock);
	return false;
}

/* Releases the lock and moves the packets. With BH off and in an RCU section. */
static void xdc_tunnel_end(struct xdc_tunnel *tunnel, struct xdc_tunnel_out *out, u64 due_us)
{
	bool is_up = !skb_queue_empty(&tunnel->up);
	struct sk_buff *skb;

	if (due_us && (due_us < tunnel->due_us || !tunnel->due_us)) {
		tunnel->due_us = due_us;
		hrtimer_start(&tunnel->timer, ns_to_ktime(due_us * NSEC_PER_USEC),
			      HRTIMER_MODE_ABS_SOFT);
	}
	spin_unlock(&tunnel->lock);
	while ((skb = __skb_dequeue(&out->down)))
		xdc_tunnel_send_one(tunnel, skb);
	if (is_up)
		napi_schedule(&tunnel->napi);
}

static enum hrtimer_restart xdc_tunnel_timer(struct hrtimer *timer)
{
	struct xdc_tunnel *tunnel = container_of(timer, struct xdc_tunnel, timer);
	u64 now_us = xdc_tunnel_now_us();
	struct xdc_tunnel_out out;
	u64 due_us;

	rcu_read_lock();
	if (xdc_tunnel_begin(tunnel, &out)) {
		tunnel->due_us = 0;
		due_us = xdc_tunnel_ops->poll(tunnel->state, &out, now_us);
		/* Ensures progress: a due time in the past would loop. */
		if (due_us)
			due_us = max(due_us, now_us + 1);
		xdc_tunnel_end(tunnel, &out, due_us);
	}
	rcu_read_unlock();
	return HRTIMER_NORESTART;
}

/*
 * Returns whether a packet was in this tunnel before: routes may loop through queues, namespaces and hosts.
 */
static bool xdc_tunnel_is_own(const struct xdc_tunnel *tunnel, const struct sk_buff *skb)
{
	bool is_ipv4 = skb->protocol == htons(ETH_P_IP);
	unsigned int before = is_ipv4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
	const struct udphdr *udp = (const void *)skb->data + before;
	struct in6_addr from, to;

	if ((is_ipv4 ? ip_hdr(skb)->protocol : ipv6_hdr(skb)->nexthdr) != IPPROTO_UDP ||
	    skb->len < before + sizeof(*udp) || udp->dest != tunnel->config.port)
		return false;
	xdc_tunnel_addresses(skb, &from, &to);
	return ipv6_addr_equal(&from, &tunnel->config.local) &&
	       ipv6_addr_equal(&to, &tunnel->config.remote);
}

/*
 * Returns whether the path carries a packet; otherwise tells its sender the MTU, like tnl_update_pmtu(). The
 * inner MTU has a minimum, so that a forged ICMP error does no more harm than fragments.
 */
static bool xdc_tunnel_fits(struct xdc_tunnel *tunnel, struct sk_buff *skb)
{
	u32 mtu = READ_ONCE(tunnel->path_mtu);
	bool is_ipv4 = skb->protocol == htons(ETH_P_IP);

	mtu = max_t(u32, mtu, is_ipv4 ? XDC_TUNNEL_MIN_MTU : IPV6_MIN_MTU);
	if (skb->len <= mtu || !READ_ONCE(tunnel->path_mtu) ||
	    !READ_ONCE(tunnel->config.df))
		return true;
	skb_dst_update_pmtu_no_confirm(skb, mtu);
	if (!is_ipv4)
		icmpv6_ndo_send(skb, ICMPV6_PKT_TOOBIG, 0, mtu);
	else if (ip_hdr(skb)->frag_off & htons(IP_DF))
		icmp_ndo_send(skb, ICMP_DEST_UNREACH, ICMP_FRAG_NEEDED, htonl(mtu));
	else
		return true;
	return false;
}

static netdev_tx_t xdc_tunnel_xmit(struct sk_buff *skb, struct net_device *dev)
{
	struct xdc_tunnel *tunnel = netdev_priv(dev);
	enum skb_drop_reason reason = SKB_DROP_REASON_UNHANDLED_PROTO;
	u64 now_us = xdc_tunnel_now_us();
	struct xdc_tunnel_out out;

	if (skb->protocol != htons(ETH_P_IP) && skb->protocol != htons(ETH_P_IPV6))
		goto drop;
	__skb_pull(skb, skb_network_offset(skb));
	/* Parities cover the packet in its final form. */
	reason = SKB_DROP_REASON_NOMEM;
	if (skb_linearize(skb) ||
	    (skb->ip_summed == CHECKSUM_PARTIAL && skb_checksum_help(skb)))
		goto drop;
	reason = pskb_inet_may_pull_reason(skb);
	if (reason)
		goto drop;
	if (xdc_tunnel_is_own(tunnel, skb)) {
		reason = xdc_tunnel_loop(dev);
		goto drop;
	}
	if (!xdc_tunnel_fits(tunnel, skb)) {
		reason = SKB_DROP_REASON_PKT_TOO_BIG;
		goto drop;
	}
	/* A copy may be kept for seconds, and would hold the device. */
	skb_dst_drop(skb);
	rcu_read_lock();
	if (!xdc_tunnel_begin(tunnel, &out)) {
		rcu_read_unlock();
		reason = SKB_DROP_REASON_DEV_READY;
		goto drop;
	}
	xdc_tunnel_end(tunnel, &out,
		       xdc_tunnel_ops->transmit(tunnel->state, &out, skb, now_us));
	rcu_read_unlock();
	return NETDEV_TX_OK;
drop:
	dev_core_stats_tx_dropped_inc(dev);
	kfree_skb_reason(skb, reason);
	return NETDEV_TX_OK;
}

static int xdc_tunnel_receive(struct sock *sk, struct sk_buff *skb)
{
	struct xdc_tunnel *tunnel = rcu_dereference_sk_user_data(sk);
	enum skb_drop_reason reason = SKB_DROP_REASON_DEV_READY;
	u64 now_us = xdc_tunnel_now_us();
	struct xdc_tunnel_out out;
	struct in6_addr from, to;
	u8 ecn;

	if (!tunnel)
		goto drop;
	xdc_tunnel_addresses(skb, &from, &to);
	if (!ipv6_addr_equal(&from, &tunnel->config.remote)) {
		DEV_STATS_INC(tunnel->dev, rx_errors);
		reason = SKB_DROP_REASON_IP_INVALID_SOURCE;
		goto drop;
	}
	ecn = skb_get_dsfield(skb) & INET_ECN_MASK;
	skb_orphan(skb);
	if (iptunnel_pull_header(skb, sizeof(struct udphdr), htons(ETH_P_IP),
				 !net_eq(tunnel->net, dev_net(tunnel->dev))) ||
	    skb_linearize(skb)) {
		dev_dstats_rx_dropped(tunnel->dev);
		reason = SKB_DROP_REASON_NOMEM;
		goto drop;
	}
	skb->ip_summed = CHECKSUM_NONE;
	xdc_tunnel_cb(skb)->ecn = ecn;
	if (!xdc_tunnel_begin(tunnel, &out))
		goto drop;
	xdc_tunnel_end(tunnel, &out,
		       xdc_tunnel_ops->receive(tunnel->state, &out, skb, INET_ECN_is_ce(ecn),
					       now_us));
	return 0;
drop:
	kfree_skb_reason(skb, reason);
	return 0;
}

/* Claims ICMP errors for packets of this tunnel. */
static int xdc_tunnel_err_lookup(struct sock *sk, struct sk_buff *skb)
{
	return 0;
}

static int xdc_tunnel_init(struct net_device *dev)
{
	struct xdc_tunnel *tunnel = netdev_priv(dev);

	__skb_queue_head_init(&tunnel->up);
	/* No busy polling, like other NAPIs without a device queue. */
	set_bit(NAPI_STATE_NO_BUSY_POLL, &tunnel->napi.state);
	netif_napi_add(dev, &tunnel->napi, xdc_tunnel_hand_up);
	napi_enable(&tunnel->napi);
	return 0;
}

static void xdc_tunnel_uninit(struct net_device *dev)
{
	struct xdc_tunnel *tunnel = netdev_priv(dev);

	napi_disable(&tunnel->napi);
	netif_napi_del(&tunnel->napi);
	__skb_queue_purge(&tunnel->up);
}

static int xdc_tunnel_open(struct net_device *dev)
{
	struct xdc_tunnel *tunnel = netdev_priv(dev);
	struct udp_tunnel_sock_cfg tunnel_config = {
		.sk_user_data = tunnel,
		.encap_type = 1,
		.encap_rcv = xdc_tunnel_receive,
		.encap_err_lookup = xdc_tunnel_err_lookup,
	};
	struct udp_port_cfg port = {
		.family = AF_INET,
		.local_ip.s_addr = tunnel->config.local.s6_addr32[3],
		.local_udp_port = tunnel->config.port,
		.use_udp_checksums = 1,
		.use_udp6_tx_checksums = 1,
		.use_udp6_rx_checksums = 1,
		.ipv6_v6only = 1,
	};
	struct socket *sock;
	void *state;
	int err;

	if (xdc_tunnel_is_ipv6(&tunnel->config)) {
		port.family = AF_INET6;
		port.local_ip6 = tunnel->config.local;
	}
	tunnel->config.mtu = dev->mtu;
	state = xdc_tunnel_ops->open(&tunnel->config);
	if (!state)
		return -ENOMEM;
	err = udp_sock_create(tunnel->net, &port, &sock);
	if (err) {
		xdc_tunnel_ops->close(state);
		return err;
	}
	spin_lock_bh(&tunnel->lock);
	tunnel->due_us = 0;
	tunnel->path_mtu = 0;
	tunnel->state = state;
	spin_unlock_bh(&tunnel->lock);
	rcu_assign_pointer(tunnel->sk, sock->sk);
	setup_udp_tunnel_sock(tunnel->net, sock->sk, &tunnel_config);
	return 0;
}

static int xdc_tunnel_stop(struct net_device *dev)
{
	struct xdc_tunnel *tunnel = netdev_priv(dev);
	struct sock *sk = rtnl_dereference(tunnel->sk);
	void *state;

	RCU_INIT_POINTER(tunnel->sk, NULL);
	/* Other code may still send on the socket. */
	synchronize_net();
	udp_tunnel_sock_release(sk);
	spin_lock_bh(&tunnel->lock);
	state = tunnel->state;
	tunnel->state = NULL;
	__skb_queue_purge(&tunnel->up);
	tunnel->up_bytes = 0;
	spin_unlock_bh(&tunnel->lock);
	/* The timer does not start without a state. */
	hrtimer_cancel(&tunnel->timer);
	xdc_tunnel_ops->close(state);
	return 0;
}

/* The module's memory has the packet length from when the device went up. */
static int xdc_tunnel_change_mtu(struct net_device *dev, int mtu)
{
	const struct xdc_tunnel *tunnel = netdev_priv(dev);

	if (netif_running(dev) && mtu > tunnel->config.mtu)
		return -EBUSY;
	WRITE_ONCE(dev->mtu, mtu);
	return 0;
}

static const struct net_device_ops xdc_tunnel_netdev_ops = {
	.ndo_init	= xdc_tunnel_init,
	.ndo_uninit	= xdc_tunnel_uninit,
	.ndo_open	= xdc_tunnel_open,
	.ndo_stop	= xdc_tunnel_stop,
	.ndo_start_xmit	= xdc_tunnel_xmit,
	.ndo_change_mtu	= xdc_tunnel_change_mtu,
};

static int xdc_tunnel_sset_count(struct net_device *dev, int set)
{
	return set == ETH_SS_STATS ? xdc_tunnel_ops->counter_count : -EOPNOTSUPP;
}

static void xdc_tunnel_strings(struct net_device *dev, u32 set, u8 *data)
{
	unsigned int i;

	if (set != ETH_SS_STATS)
		return;
	for (i = 0; i < xdc_tunnel_ops->counter_count; i++)
		ethtool_puts(&data, xdc_tunnel_ops->counters[i]);
}

/* @data need not be aligned to 8 bytes. */
static void xdc_tunnel_read_counters(struct xdc_tunnel *tunnel, void *data)
{
	spin_lock_bh(&tunnel->lock);
	memcpy(data, tunnel->counters, xdc_tunnel_ops->counter_count * sizeof(u64));
	spin_unlock_bh(&tunnel->lock);
}

static void xdc_tunnel_stats(struct net_device *dev, struct ethtool_stats *stats, u64 *data)
{
	xdc_tunnel_read_counters(netdev_priv(dev), data);
}

static const struct ethtool_ops xdc_tunnel_ethtool_ops = {
	.get_link		= ethtool_op_get_link,
	.get_sset_count		= xdc_tunnel_sset_count,
	.get_strings		= xdc_tunnel_strings,
	.get_ethtool_stats	= xdc_tunnel_stats,
};

static struct device_type xdc_tunnel_type;

static void xdc_tunnel_setup(struct net_device *dev)
{
	dev->netdev_ops = &xdc_tunnel_netdev_ops;
	dev->ethtool_ops = &xdc_tunnel_ethtool_ops;
	/* Lets packet sockets send without a protocol. */
	dev->header_ops = &ip_tunnel_header_ops;
	dev->needs_free_netdev = true;
	SET_NETDEV_DEVTYPE(dev, &xdc_tunnel_type);
	dev->min_mtu = IPV4_MIN_MTU;
	dev->max_mtu = IP_MAX_MTU - XDC_TUNNEL_OVERHEAD - 2;
	dev->type = ARPHRD_NONE;
	dev->flags = IFF_POINTOPOINT | IFF_NOARP | IFF_MULTICAST;
	/* Netpoll sends with interrupts off. */
	dev->priv_flags |= IFF_NO_QUEUE | IFF_DISABLE_NETPOLL;
	/* The inner route learns the path's MTU. */
	netif_keep_dst(dev);
	dev->needed_headroom = XDC_TUNNEL_OVERHEAD;
	dev->lltx = true;
	dev->pcpu_stat_type = NETDEV_PCPU_STAT_DSTATS;
}

static const struct nla_policy xdc_tunnel_policy[IFLA_UNORC_MAX + 1] = {
	[IFLA_UNORC_LOCAL]	= { .type = NLA_U32 },
	[IFLA_UNORC_REMOTE]	= { .type = NLA_U32 },
	[IFLA_UNORC_PORT]	= { .type = NLA_U16 },
	[IFLA_UNORC_DATA]	= { .type = NLA_U8 },
	[IFLA_UNORC_PARITY]	= { .type = NLA_U8 },
	[IFLA_UNORC_PATHS]	= { .type = NLA_U8 },
	[IFLA_UNORC_FREEZE]	= { .type = NLA_U8 },
	[IFLA_UNORC_TIMER]	= NLA_POLICY_RANGE(NLA_U32, 0, 30000),
	[IFLA_UNORC_FLUSH]	= NLA_POLICY_RANGE(NLA_U32, 1, 30000),
	[IFLA_UNORC_CHANNELS]	= { .type = NLA_U8 },
	[IFLA_UNORC_WINDOW]	= { .type = NLA_U16 },
	[IFLA_UNORC_FWMARK]	= { .type = NLA_U32 },
	[IFLA_UNORC_TOS]	= NLA_POLICY_MASK(NLA_U8, (u8)~INET_ECN_MASK | UNORC_TOS_INHERIT),
	[IFLA_UNORC_TTL]	= { .type = NLA_U8 },
	[IFLA_UNORC_LOCAL6]	= NLA_POLICY_EXACT_LEN(sizeof(struct in6_addr)),
	[IFLA_UNORC_REMOTE6]	= NLA_POLICY_EXACT_LEN(sizeof(struct in6_addr)),
	[IFLA_UNORC_DF]		= NLA_POLICY_MAX(NLA_U8, UNORC_DF_SET),
};

static const struct xdc_tunnel_config xdc_tunnel_defaults = {
	.port = htons(UNORC_PORT),
	.data = 8,
	.parity = 2,
	.paths = 4,
	.flush_us = 50,
	.channels = 8,
	.window = 8192,
	.df = UNORC_DF_SET,
};

static void xdc_tunnel_parse_address(struct in6_addr *address, const struct nlattr *ipv4,
				     const struct nlattr *ipv6)
{
	if (ipv4)
		ipv6_addr_set_v4mapped(nla_get_in_addr(ipv4), address);
	if (ipv6)
		*address = nla_get_in6_addr(ipv6);
}

/* Missing options keep their values. */
static void xdc_tunnel_parse(struct xdc_tunnel_config *config, struct nlattr *data[])
{
	xdc_tunnel_parse_address(&config->local, data[IFLA_UNORC_LOCAL], data[IFLA_UNORC_LOCAL6]);
	xdc_tunnel_parse_address(&config->remote, data[IFLA_UNORC_REMOTE], data[IFLA_UNORC_REMOTE6]);
	config->port = nla_get_be16_default(data[IFLA_UNORC_PORT], config->port);
	config->data = nla_get_u8_default(data[IFLA_UNORC_DATA], config->data);
	config->parity = nla_get_u8_default(data[IFLA_UNORC_PARITY], config->parity);
	config->paths = nla_get_u8_default(data[IFLA_UNORC_PATHS], config->paths);
	config->freeze = nla_get_u8_default(data[IFLA_UNORC_FREEZE], config->freeze);
	config->timer_us = nla_get_u32_default(data[IFLA_UNORC_TIMER], config->timer_us);
	config->flush_us = nla_get_u32_default(data[IFLA_UNORC_FLUSH], config->flush_us);
	config->channels = nla_get_u8_default(data[IFLA_UNORC_CHANNELS], config->channels);
	config->window = nla_get_u16_default(data[IFLA_UNORC_WINDOW], config->window);
	config->fwmark = nla_get_u32_default(data[IFLA_UNORC_FWMARK], config->fwmark);
	config->tos = nla_get_u8_default(data[IFLA_UNORC_TOS], config->tos);
	config->ttl = nla_get_u8_default(data[IFLA_UNORC_TTL], config->ttl);
	config->df = nla_get_u8_default(data[IFLA_UNORC_DF], config->df);
}

/* Link-local addresses are excluded: a socket without a device cannot use them. */
static bool xdc_tunnel_is_host(const struct in6_addr *address)
{
	__be32 ipv4 = address->s6_addr32[3];

	if (ipv6_addr_v4mapped(address))
		return ipv4 && !ipv4_is_multicast(ipv4) && !ipv4_is_lbcast(ipv4);
	return ipv6_mod_enabled() && ipv6_addr_type(address) & IPV6_ADDR_UNICAST &&
	       !(ipv6_addr_type(address) & IPV6_ADDR_LINKLOCAL);
}

static int xdc_tunnel_check(const struct xdc_tunnel_config *config, struct netlink_ext_ack *extack)
{
	const char *why = xdc_tunnel_ops->check(config);

	if (!why)
		return 0;
	/* A copy, because the module may be gone when the text is read. */
	NL_SET_ERR_MSG_FMT(extack, "%s", why);
	return -EINVAL;
}

/* The other options are agreed with the peer. */
static int xdc_tunnel_changelink(struct net_device *dev, struct nlattr *tb[],
				 struct nlattr *data[], struct netlink_ext_ack *extack)
{
	struct xdc_tunnel *tunnel = netdev_priv(dev);
	struct xdc_tunnel_config new = tunnel->config;
	int err;

	if (!data)
		return 0;
	xdc_tunnel_parse(&new, data);
	if (!ipv6_addr_equal(&new.local, &tunnel->config.local) ||
	    !ipv6_addr_equal(&new.remote, &tunnel->config.remote) ||
	    new.port != tunnel->config.port || new.data != tunnel->config.data ||
	    new.parity != tunnel->config.parity || new.channels != tunnel->config.channels ||
	    new.window != tunnel->config.window) {
		NL_SET_ERR_MSG(extack, "only paths, freeze, timer, flush, fwmark, tos, ttl and df can change");
		return -EOPNOTSUPP;
	}
	err = xdc_tunnel_check(&new, extack);
	if (err)
		return err;
	spin_lock_bh(&tunnel->lock);
	tunnel->config = new;
	if (tunnel->state)
		xdc_tunnel_ops->change(tunnel->state, &tunnel->config);
	spin_unlock_bh(&tunnel->lock);
	return 0;
}

static int xdc_tunnel_newlink(struct net_device *dev, struct rtnl_newlink_params *params,
			      struct netlink_ext_ack *extack)
{
	struct net *net = rtnl_newlink_link_net(params);
	struct xdc_tunnel_net *own = net_generic(net, xdc_tunnel_net_id);
	struct xdc_tunnel *tunnel = netdev_priv(dev);
	struct xdc_tunnel_config *config = &tunnel->config;
	struct nlattr **data = params->data;
	int err;

	*config = xdc_tunnel_defaults;
	if (data)
		xdc_tunnel_parse(config, data);
	if (ipv6_addr_any(&config->local) || ipv6_addr_any(&config->remote)) {
		NL_SET_ERR_MSG(extack, "local and remote must be given");
		return -EINVAL;
	}
	if (!xdc_tunnel_is_host(&config->local) || !xdc_tunnel_is_host(&config->remote) ||
	    ipv6_addr_v4mapped(&config->local) != ipv6_addr_v4mapped(&config->remote) ||
	    ipv6_addr_equal(&config->local, &config->remote) || !config->port) {
		NL_SET_ERR_MSG(extack, "local and remote must be two hosts of one family, and port must not be 0");
		return -EINVAL;
	}
	err = xdc_tunnel_check(&tunnel->config, extack);
	if (err)
		return err;
	if (!params->tb[IFLA_MTU])
		dev->mtu = ETH_DATA_LEN - xdc_tunnel_mtu_less(config);
	tunnel->dev = dev;
	tunnel->net = net;
	spin_lock_init(&tunnel->lock);
	hrtimer_setup(&tunnel->timer, xdc_tunnel_timer, CLOCK_MONOTONIC, HRTIMER_MODE_ABS_SOFT);
	INIT_LIST_HEAD(&tunnel->node);
	err = register_netdevice(dev);
	if (err)
		return err;
	mutex_lock(&xdc_tunnel_lists);
	list_add(&tunnel->node, &own->tunnels);
	mutex_unlock(&xdc_tunnel_lists);
	return 0;
}

static void xdc_tunnel_dellink(struct net_device *dev, struct list_head *head)
{
	struct xdc_tunnel *tunnel = netdev_priv(dev);

	mutex_lock(&xdc_tunnel_lists);
	if (!list_empty(&tunnel->node)) {
		list_del_init(&tunnel->node);
		unregister_netdevice_queue_net(dev_net(dev), dev, head);
	}
	mutex_unlock(&xdc_tunnel_lists);
}

static size_t xdc_tunnel_get_size(const struct net_device *dev)
{
	return 2 * nla_total_size(sizeof(struct in6_addr)) + 2 * nla_total_size(sizeof(u16)) +
	       8 * nla_total_size(sizeof(u8)) + 3 * nla_total_size(sizeof(u32));
}

static int xdc_tunnel_fill_address(struct sk_buff *skb, int ipv4, int ipv6, const struct in6_addr *address)
{
	return ipv6_addr_v4mapped(address) ? nla_put_in_addr(skb, ipv4, address->s6_addr32[3]) :
	       nla_put_in6_addr(skb, ipv6, address);
}

static int xdc_tunnel_fill_info(struct sk_buff *skb, const struct net_device *dev)
{
	const struct xdc_tunnel *tunnel = netdev_priv(dev);
	const struct xdc_tunnel_config *config = &tunnel->config;

	if (xdc_tunnel_fill_address(skb, IFLA_UNORC_LOCAL, IFLA_UNORC_LOCAL6, &config->local) ||
	    xdc_tunnel_fill_address(skb, IFLA_UNORC_REMOTE, IFLA_UNORC_REMOTE6, &config->remote) ||
	    nla_put_be16(skb, IFLA_UNORC_PORT, config->port) ||
	    nla_put_u8(skb, IFLA_UNORC_DATA, config->data) ||
	    nla_put_u8(skb, IFLA_UNORC_PARITY, config->parity) ||
	    nla_put_u8(skb, IFLA_UNORC_PATHS, config->paths) ||
	    nla_put_u8(skb, IFLA_UNORC_FREEZE, config->freeze) ||
	    nla_put_u32(skb, IFLA_UNORC_TIMER, config->timer_us) ||
	    nla_put_u32(skb, IFLA_UNORC_FLUSH, config->flush_us) ||
	    nla_put_u8(skb, IFLA_UNORC_CHANNELS, config->channels) ||
	    nla_put_u16(skb, IFLA_UNORC_WINDOW, config->window) ||
	    nla_put_u32(skb, IFLA_UNORC_FWMARK, config->fwmark) ||
	    nla_put_u8(skb, IFLA_UNORC_TOS, config->tos) ||
	    nla_put_u8(skb, IFLA_UNORC_TTL, config->ttl) ||
	    nla_put_u8(skb, IFLA_UNORC_DF, config->df))
		return -EMSGSIZE;
	return 0;
}

/* Statistics for "ip -s -d link": a struct unorc_xstats. */
static size_t xdc_tunnel_get_xstats_size(const struct net_device *dev)
{
	return xdc_tunnel_ops->counter_count * sizeof(u64);
}

static int xdc_tunnel_fill_xstats(struct sk_buff *skb, const struct net_device *dev)
{
	struct xdc_tunnel *tunnel = netdev_priv(dev);
	struct nlattr *attr = nla_reserve(skb, IFLA_INFO_XSTATS, xdc_tunnel_get_xstats_size(dev));

	if (!attr)
		return -EMSGSIZE;
	xdc_tunnel_read_counters(tunnel, nla_data(attr));
	return 0;
}

static struct net *xdc_tunnel_link_net(const struct net_device *dev)
{
	const struct xdc_tunnel *tunnel = netdev_priv(dev);

	return READ_ONCE(tunnel->net);
}

static struct rtnl_link_ops xdc_tunnel_link_ops = {
	.maxtype	= IFLA_UNORC_MAX,
	.policy		= xdc_tunnel_policy,
	.priv_size	= sizeof(struct xdc_tunnel),
	.setup		= xdc_tunnel_setup,
	.newlink	= xdc_tunnel_newlink,
	.changelink	= xdc_tunnel_changelink,
	.dellink	= xdc_tunnel_dellink,
	.get_size	= xdc_tunnel_get_size,
	.fill_info	= xdc_tunnel_fill_info,
	.get_xstats_size	= xdc_tunnel_get_xstats_size,
	.fill_xstats	= xdc_tunnel_fill_xstats,
	.get_link_net	= xdc_tunnel_link_net,
};

static int __net_init xdc_tunnel_net_init(struct net *net)
{
	struct xdc_tunnel_net *own = net_generic(net, xdc_tunnel_net_id);

	INIT_LIST_HEAD(&own->tunnels);
	return 0;
}

/* Removes the devices of a namespace of sockets, whatever namespace they are in. */
static void __net_exit xdc_tunnel_net_exit(struct net *net, struct list_head *head)
{
	struct xdc_tunnel_net *own = net_generic(net, xdc_tunnel_net_id);
	struct xdc_tunnel *tunnel, *next;

	mutex_lock(&xdc_tunnel_lists);
	list_for_each_entry_safe(tunnel, next, &own->tunnels, node) {
		list_del_init(&tunnel->node);
		unregister_netdevice_queue_net(net, tunnel->dev, head);
	}
	mutex_unlock(&xdc_tunnel_lists);
}

static struct pernet_operations xdc_tunnel_net_ops = {
	.init		= xdc_tunnel_net_init,
	.exit_rtnl	= xdc_tunnel_net_exit,
	.id		= &xdc_tunnel_net_id,
	.size		= sizeof(struct xdc_tunnel_net),
};

int xdc_tunnel_register(const struct xdc_tunnel_ops *ops)
{
	int err;

	/* One per module: the link and namespace operations are static. */
	if (cmpxchg(&xdc_tunnel_ops, NULL, ops))
		return -EBUSY;
	xdc_tunnel_link_ops.kind = ops->kind;
	xdc_tunnel_type.name = ops->kind;
	err = register_pernet_subsys(&xdc_tunnel_net_ops);
	if (err)
		goto none;
	err = rtnl_link_register(&xdc_tunnel_link_ops);
	if (err)
		goto unregister;
	return 0;
unregister:
	unregister_pernet_subsys(&xdc_tunnel_net_ops);
none:
	WRITE_ONCE(xdc_tunnel_ops, NULL);
	return err;
}

/* Removes the remaining devices. */
void xdc_tunnel_unregister(void)
{
	rtnl_link_unregister(&xdc_tunnel_link_ops);
	unregister_pernet_subsys(&xdc_tunnel_net_ops);
	WRITE_ONCE(xdc_tunnel_ops, NULL);
}
