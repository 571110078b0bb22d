// SPDX-License-Identifier: GPL-2.0
/*
 * Included by the C file of a module that is a tunnel over UDP.
 *
 * The module decides under the device's lock, and what it decides is done when the lock is free again:
 * what is sent or handed up may come back to the device. What goes up does so from a NAPI, in order.
 */

#include <linux/ethtool.h>
#include <linux/hrtimer.h>
#include <linux/icmpv6.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/netdevice.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/skbuff.h>
#include <net/icmp.h>
#include <net/inet_ecn.h>
#include <net/ip.h>
#include <net/ip_tunnels.h>
#include <net/netns/generic.h>
#include <net/route.h>
#include <net/rtnetlink.h>
#include <net/udp_tunnel.h>

#include "compat.h"
#include "shim.h"

/* What is before a packet of ours: IP, UDP, ours. */
#define XDC_TUNNEL_OVERHEAD (sizeof(struct iphdr) + sizeof(struct udphdr) + XDC_TUNNEL_HEADER)
/* And two bytes that a parity is longer than the longest packet. */
#define XDC_TUNNEL_MTU_LESS (XDC_TUNNEL_OVERHEAD + 2)
/* Every IPv4 host takes packets of this length (RFC 791). */
#define XDC_TUNNEL_MIN_MTU 576

/* Tunnels may be this deep in others, as IPv6 has it (RFC 2473, 4.1.1). */
#define XDC_TUNNEL_NESTED 4

static const struct xdc_tunnel_ops *xdc_tunnel_ops;
static struct rtnl_link_ops xdc_tunnel_link_ops;
static unsigned int xdc_tunnel_net_id;

/* Devices by the namespace of their sockets. */
struct xdc_tunnel_net {
	struct list_head tunnels;
};
static DEFINE_MUTEX(xdc_tunnel_lists);

struct xdc_tunnel {
	struct net_device *dev;
	/* Of the socket and of routes; the device may be elsewhere. */
	struct net *net;
	struct list_head node;
	struct xdc_tunnel_config config;
	struct sock __rcu *sk;
	/* Hands up what is in "up": one alone, or packets of one flow would overtake each other. */
	struct napi_struct napi;
	struct hrtimer timer;
	/* Of what follows. */
	spinlock_t lock;
	struct sk_buff_head up;
	/* The module's; NULL: the device is down. */
	void *state;
	/* Tunnels that packets outside were in, too, by jiffies "nested_at". */
	unsigned int nested;
	unsigned long nested_at;
	/* Longest packet inside that the route of the last packet outside carries; 0: none was sent. */
	unsigned int path_mtu;
	u64 due_us;
	u64 counters[XDC_TUNNEL_COUNTERS];
};

/* What the module decided in one callback. */
struct xdc_tunnel_out {
	struct xdc_tunnel *tunnel;
	struct sk_buff_head down;
};

struct xdc_tunnel_cb {
	u8 header[XDC_TUNNEL_HEADER];
	u16 port;
	bool is_capable;
	/* ECN outside a packet that came. */
	u8 ecn;
};

static struct xdc_tunnel_cb *xdc_tunnel_cb(struct sk_buff *skb)
{
	BUILD_BUG_ON(sizeof(struct xdc_tunnel_cb) > sizeof(skb->cb));
	return (struct xdc_tunnel_cb *)skb->cb;
}

/* A packet of zeros. */
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

/* A packet with the same bytes. */
struct sk_buff *xdc_tunnel_copy(struct sk_buff *skb)
{
	struct sk_buff *copy = skb_clone(skb, GFP_ATOMIC | __GFP_NOWARN);

	if (copy) {
		/* It may be kept for seconds, and those end with what they are of. */
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

	/* All that can have waited for one packet has room. */
	if (skb_queue_len(&tunnel->up) >= tunnel->config.channels * tunnel->config.window) {
		dev_core_stats_rx_dropped_inc(tunnel->dev);
		kfree_skb(skb);
		return;
	}
	if (is_marked)
		xdc_tunnel_cb(skb)->ecn = INET_ECN_CE;
	__skb_queue_tail(&tunnel->up, skb);
}

/* Of the callback. */
struct net_device *xdc_tunnel_device(const struct xdc_tunnel_out *out)
{
	return out->tunnel->dev;
}

void xdc_tunnel_count(struct xdc_tunnel_out *out, unsigned int counter, u64 n)
{
	if (counter < XDC_TUNNEL_COUNTERS)
		out->tunnel->counters[counter] += n;
}

/* Most are copies that are not needed any more, no drops; the module counts what it drops. */
void xdc_tunnel_free(struct sk_buff *skb)
{
	consume_skb(skb);
}

/* All its bytes: whoever handed it to the module has made it linear. */
u8 *xdc_tunnel_bytes(struct sk_buff *skb, unsigned int *len)
{
	*len = skb_headlen(skb);
	return skb->data;
}

bool xdc_tunnel_is_shared(const struct sk_buff *skb)
{
	return skb_cloned(skb) || skb_shared(skb);
}

/* Leaves "len" bytes from "start" on. */
void xdc_tunnel_cut(struct sk_buff *skb, unsigned int start, unsigned int len)
{
	if (start > skb_headlen(skb))
		return;
	__skb_pull(skb, start);
	if (len < skb->len)
		__skb_trim(skb, len);
	skb_reset_network_header(skb);
}

static struct rtable *xdc_tunnel_route(struct xdc_tunnel *tunnel, struct sk_buff *skb, __be16 port,
				       u8 tos, __be32 *from)
{
	struct ip_tunnel_key key = {};

	key.u.ipv4.src = tunnel->config.local;
	key.u.ipv4.dst = tunnel->config.remote;
	return udp_tunnel_dst_lookup(skb, tunnel->dev, tunnel->net, 0, from, &key, port,
				     tunnel->config.port, tos, NULL);
}

/* Whether a packet outside, of which "fits" says that its route carries it, has DF. */
static bool xdc_tunnel_has_df(const struct xdc_tunnel_config *config, const struct sk_buff *skb,
			      bool fits)
{
	switch (READ_ONCE(config->df)) {
	case UNORC_DF_UNSET:
		return false;
	case UNORC_DF_INHERIT:
		if (skb->protocol == htons(ETH_P_IP))
			return fits && ip_hdr(skb)->frag_off & htons(IP_DF);
	}
	return fits;
}

/*
 * Whether a route outside leads into too many tunnels. Tunnels that are in each other
 * count up. A count is void after a second, in which the routes may have changed.
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

static void xdc_tunnel_loop(struct net_device *dev)
{
	DEV_STATS_INC(dev, collisions);
	net_warn_ratelimited("%s: routing loop\n", dev->name);
}

static void xdc_tunnel_send_one(struct xdc_tunnel *tunnel, struct sk_buff *skb)
{
	const struct xdc_tunnel_config *config = &tunnel->config;
	bool xnet = !net_eq(tunnel->net, dev_net(tunnel->dev));
	struct xdc_tunnel_cb cb = *xdc_tunnel_cb(skb);
	struct sock *sk = rcu_dereference(tunnel->sk);
	u8 tos = READ_ONCE(config->tos);
	__be16 port = htons(cb.port);
	struct rtable *rt;
	int inside;
	__be32 from;
	bool has_df;
	u32 mtu;

	if (!sk)
		goto drop;
	/* A packet of ours has none inside. */
	inside = skb_get_dsfield(skb);
	if (inside < 0)
		inside = cb.is_capable ? INET_ECN_ECT_0 : INET_ECN_NOT_ECT;
	tos = INET_ECN_encapsulate(tos & UNORC_TOS_INHERIT ? inside : tos, inside);
	skb_scrub_packet(skb, xnet);
	/* The mark inside, which a container may set, chooses no route outside. */
	skb->mark = READ_ONCE(config->fwmark);
	rt = xdc_tunnel_route(tunnel, skb, port, tos, &from);
	if (IS_ERR(rt)) {
		DEV_STATS_INC(tunnel->dev, tx_carrier_errors);
		goto drop;
	}
	if (xdc_tunnel_is_nested(tunnel, rt->dst.dev)) {
		xdc_tunnel_loop(tunnel->dev);
		goto put;
	}
	mtu = dst_mtu(&rt->dst);
	WRITE_ONCE(tunnel->path_mtu, mtu - XDC_TUNNEL_MTU_LESS);
	/* Fragments carry a packet that is too long: its parities have these bytes, too. */
	has_df = xdc_tunnel_has_df(config, skb, skb->len + XDC_TUNNEL_OVERHEAD <= mtu);
	/* Of the flow inside, which a router behind a veth would take for that of the ports. */
	skb_clear_hash(skb);
	if (skb_cow_head(skb, LL_RESERVED_SPACE(rt->dst.dev) + rt->dst.header_len +
			 XDC_TUNNEL_OVERHEAD) ||
	    udp_tunnel_handle_offloads(skb, true))
		goto put;
	skb_set_inner_network_header(skb, 0);
	skb_set_inner_protocol(skb, skb->protocol);
	memcpy(__skb_push(skb, sizeof(cb.header)), cb.header, sizeof(cb.header));
	/* Without bytes behind the inner header it would be counted as dropped. */
	if (skb->len == sizeof(cb.header))
		skb_set_inner_network_header(skb, 0);
	udp_tunnel_xmit_skb(rt, sk, skb, from, config->remote, tos,
			    READ_ONCE(config->ttl) ?: ip4_dst_hoplimit(&rt->dst),
			    has_df ? htons(IP_DF) : 0, port, config->port, false, false, 0);
	return;
put:
	ip_rt_put(rt);
drop:
	DEV_STATS_INC(tunnel->dev, tx_errors);
	kfree_skb(skb);
}

static void xdc_tunnel_deliver_one(struct xdc_tunnel *tunnel, struct sk_buff *skb)
{
	struct net_device *dev = tunnel->dev;

	if (!skb->len || !pskb_may_pull(skb, 1))
		goto bad;
	skb->protocol = skb->data[0] >> 4 == 6 ? htons(ETH_P_IPV6) : htons(ETH_P_IP);
	skb->dev = dev;
	skb->pkt_type = PACKET_HOST;
	skb->ip_summed = CHECKSUM_NONE;
	skb_reset_mac_header(skb);
	skb_reset_network_header(skb);
	if (!pskb_inet_may_pull(skb))
		goto bad;
	/* A copy may be kept for decoding. Nobody from here on copies a clone before it writes to it. */
	if (skb_unclone(skb, GFP_ATOMIC | __GFP_NOWARN)) {
		dev_dstats_rx_dropped(dev);
		kfree_skb(skb);
		return;
	}
	if (INET_ECN_decapsulate(skb, xdc_tunnel_cb(skb)->ecn, skb_get_dsfield(skb)) > 1) {
		DEV_STATS_INC(dev, rx_frame_errors);
		goto bad;
	}
	memset(skb->cb, 0, sizeof(skb->cb));
	/* Of the packet outside, whose port is another one each time. */
	skb_clear_hash(skb);
	/* It was the outer one. */
	skb_unset_transport_header(skb);
	/* With decoding others must not pass those that GRO holds. */
	dev_dstats_rx_add(dev, skb->len);
	if (tunnel->config.parity)
		netif_receive_skb(skb);
	else
		napi_gro_receive(&tunnel->napi, skb);
	return;
bad:
	DEV_STATS_INC(dev, rx_errors);
	kfree_skb(skb);
}

static int xdc_tunnel_hand_up(struct napi_struct *napi, int budget)
{
	struct xdc_tunnel *tunnel = container_of(napi, struct xdc_tunnel, napi);
	struct sk_buff_head taken;
	struct sk_buff *skb;
	int done = 0;

	/* Netpoll's, which has interrupts off. */
	if (!budget)
		return 0;
	__skb_queue_head_init(&taken);
	spin_lock_bh(&tunnel->lock);
	while (done < budget && (skb = __skb_dequeue(&tunnel->up))) {
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
	return ktime_get_ns() / NSEC_PER_USEC;
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

/* Frees the lock, and does what was decided. With BH off and in an RCU section. */
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
		/* Time passes, whatever the module says. */
		if (due_us)
			due_us = max(due_us, now_us + 1);
		xdc_tunnel_end(tunnel, &out, due_us);
	}
	rcu_read_unlock();
	return HRTIMER_NORESTART;
}

/* The UDP header of an IP packet of which "len" bytes are there, and the bytes behind it. */
static const struct udphdr *xdc_tunnel_udp(const void *packet, unsigned int len, unsigned int *behind)
{
	const struct ipv6hdr *ipv6 = packet;
	const struct iphdr *ip = packet;
	unsigned int before = sizeof(*ip);

	if (len < sizeof(*ipv6) + sizeof(struct udphdr))
		return NULL;
	if (ip->version == 6) {
		before = sizeof(*ipv6);
		if (ipv6->nexthdr != IPPROTO_UDP || ntohs(ipv6->payload_len) != len - before)
			return NULL;
	} else if (ip->version != 4 || ip->ihl != 5 || ip->protocol != IPPROTO_UDP ||
		   ntohs(ip->tot_len) != len) {
		return NULL;
	}
	*behind = len - before - sizeof(struct udphdr);
	return packet + before;
}

/* Whether a packet was in this tunnel before: routes may loop over queues, namespaces and hosts. */
static bool xdc_tunnel_loops(const struct xdc_tunnel *tunnel, const struct sk_buff *skb)
{
	unsigned int len = skb->len, depth;
	const void *packet = skb->data;
	const struct udphdr *udp;

	for (depth = 0; depth <= XDC_TUNNEL_NESTED; depth++) {
		const struct iphdr *ip = packet;

		udp = xdc_tunnel_udp(packet, len, &len);
		if (!udp || len < XDC_TUNNEL_HEADER)
			return false;
		if (ip->version == 4 && ip->saddr == tunnel->config.local &&
		    ip->daddr == tunnel->config.remote && udp->dest == tunnel->config.port)
			return true;
		packet = (const void *)(udp + 1) + XDC_TUNNEL_HEADER;
		len -= XDC_TUNNEL_HEADER;
	}
	return true;
}

/*
 * Whether the path carries a packet; else its sender learns the MTU, as tnl_update_pmtu() does it. The
 * MTU inside stays above a minimum, so that a forged ICMP error does no more harm than fragments.
 */
static bool xdc_tunnel_fits(struct xdc_tunnel *tunnel, struct sk_buff *skb)
{
	u32 mtu = READ_ONCE(tunnel->path_mtu);
	bool is_ipv4 = skb->protocol == htons(ETH_P_IP);

	mtu = max_t(u32, mtu, is_ipv4 ? XDC_TUNNEL_MIN_MTU : IPV6_MIN_MTU);
	if (skb->len <= mtu || !READ_ONCE(tunnel->path_mtu) ||
	    READ_ONCE(tunnel->config.df) == UNORC_DF_UNSET)
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
	u64 now_us = xdc_tunnel_now_us();
	struct xdc_tunnel_out out;

	if (skb->protocol != htons(ETH_P_IP) && skb->protocol != htons(ETH_P_IPV6))
		goto drop;
	__skb_pull(skb, skb_network_offset(skb));
	/* The code is over the packet as it will arrive. */
	if (skb_linearize(skb) ||
	    (skb->ip_summed == CHECKSUM_PARTIAL && skb_checksum_help(skb)))
		goto drop;
	if (!pskb_inet_may_pull(skb) || !xdc_tunnel_fits(tunnel, skb))
		goto drop;
	if (xdc_tunnel_loops(tunnel, skb)) {
		xdc_tunnel_loop(dev);
		goto drop;
	}
	/* A copy may be kept for seconds, and would keep the device. */
	skb_dst_drop(skb);
	rcu_read_lock();
	if (!xdc_tunnel_begin(tunnel, &out)) {
		rcu_read_unlock();
		goto drop;
	}
	xdc_tunnel_end(tunnel, &out,
		       xdc_tunnel_ops->transmit(tunnel->state, &out, skb, now_us));
	rcu_read_unlock();
	return NETDEV_TX_OK;
drop:
	dev_core_stats_tx_dropped_inc(dev);
	kfree_skb(skb);
	return NETDEV_TX_OK;
}

static int xdc_tunnel_receive(struct sock *sk, struct sk_buff *skb)
{
	struct xdc_tunnel *tunnel = rcu_dereference_sk_user_data(sk);
	u64 now_us = xdc_tunnel_now_us();
	struct xdc_tunnel_out out;
	u8 ecn;

	if (!tunnel)
		goto drop;
	if (skb->protocol != htons(ETH_P_IP) || ip_hdr(skb)->saddr != tunnel->config.remote) {
		DEV_STATS_INC(tunnel->dev, rx_errors);
		goto drop;
	}
	ecn = ip_hdr(skb)->tos & INET_ECN_MASK;
	skb_orphan(skb);
	if (iptunnel_pull_header(skb, sizeof(struct udphdr), htons(ETH_P_IP),
				 !net_eq(tunnel->net, dev_net(tunnel->dev))) ||
	    skb_linearize(skb)) {
		dev_dstats_rx_dropped(tunnel->dev);
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
	kfree_skb(skb);
	return 0;
}

/* What comes back for a packet of ours is no other code's. */
static int xdc_tunnel_err_lookup(struct sock *sk, struct sk_buff *skb)
{
	return 0;
}

static int xdc_tunnel_init(struct net_device *dev)
{
	struct xdc_tunnel *tunnel = netdev_priv(dev);

	__skb_queue_head_init(&tunnel->up);
	/* As with others that are no queue of a device. */
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
		.local_ip.s_addr = tunnel->config.local,
		.local_udp_port = tunnel->config.port,
		.use_udp_checksums = 1,
	};
	struct socket *sock;
	void *state;
	int err;

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
	/* Holders of the socket may still send with it. */
	synchronize_net();
	udp_tunnel_sock_release(sk);
	spin_lock_bh(&tunnel->lock);
	state = tunnel->state;
	tunnel->state = NULL;
	__skb_queue_purge(&tunnel->up);
	spin_unlock_bh(&tunnel->lock);
	/* Without a state it is not started. */
	hrtimer_cancel(&tunnel->timer);
	xdc_tunnel_ops->close(state);
	return 0;
}

/* While it is up the module has memory for packets of the length that it had when it went up. */
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

/* To an address that need not be a multiple of 8. */
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

static void xdc_tunnel_drvinfo(struct net_device *dev, struct ethtool_drvinfo *info)
{
	strscpy(info->driver, xdc_tunnel_ops->kind, sizeof(info->driver));
}

static const struct ethtool_ops xdc_tunnel_ethtool_ops = {
	.get_drvinfo		= xdc_tunnel_drvinfo,
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
	dev->needs_free_netdev = true;
	SET_NETDEV_DEVTYPE(dev, &xdc_tunnel_type);
	dev->mtu = ETH_DATA_LEN - XDC_TUNNEL_MTU_LESS;
	dev->min_mtu = IPV4_MIN_MTU;
	dev->max_mtu = IP_MAX_MTU - XDC_TUNNEL_MTU_LESS;
	dev->type = ARPHRD_NONE;
	dev->flags = IFF_POINTOPOINT | IFF_NOARP | IFF_MULTICAST;
	dev->priv_flags |= IFF_NO_QUEUE;
	/* The route inside learns the path's MTU. */
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
	[IFLA_UNORC_TIMER]	= NLA_POLICY_RANGE(NLA_U32, 1, 30000),
	[IFLA_UNORC_FLUSH]	= NLA_POLICY_RANGE(NLA_U32, 1, 30000),
	[IFLA_UNORC_CHANNELS]	= { .type = NLA_U8 },
	[IFLA_UNORC_WINDOW]	= { .type = NLA_U16 },
	[IFLA_UNORC_FWMARK]	= { .type = NLA_U32 },
	[IFLA_UNORC_TOS]	= NLA_POLICY_MASK(NLA_U8, (u8)~INET_ECN_MASK | UNORC_TOS_INHERIT),
	[IFLA_UNORC_TTL]	= { .type = NLA_U8 },
	[IFLA_UNORC_DF]		= NLA_POLICY_MAX(NLA_U8, UNORC_DF_INHERIT),
};

static const struct xdc_tunnel_config xdc_tunnel_defaults = {
	.port = htons(UNORC_PORT),
	.data = 8,
	.parity = 2,
	.paths = 4,
	.timer_us = 640,
	.flush_us = 50,
	.channels = 8,
	.window = 8192,
	.df = UNORC_DF_SET,
};

/* What is not said stays as it is. */
static void xdc_tunnel_parse(struct xdc_tunnel_config *config, struct nlattr *data[])
{
	if (data[IFLA_UNORC_LOCAL])
		config->local = nla_get_in_addr(data[IFLA_UNORC_LOCAL]);
	if (data[IFLA_UNORC_REMOTE])
		config->remote = nla_get_in_addr(data[IFLA_UNORC_REMOTE]);
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

static bool xdc_tunnel_is_host(__be32 address)
{
	return address && !ipv4_is_multicast(address) && !ipv4_is_lbcast(address);
}

static int xdc_tunnel_check(const struct xdc_tunnel_config *config, struct netlink_ext_ack *extack)
{
	const char *why = xdc_tunnel_ops->check(config);

	if (!why)
		return 0;
	/* Whoever reads it may do so when the module is gone. */
	NL_SET_ERR_MSG_FMT(extack, "%s", why);
	return -EINVAL;
}

/* The peer knows of the other options. */
static int xdc_tunnel_changelink(struct net_device *dev, struct nlattr *tb[],
				 struct nlattr *data[], struct netlink_ext_ack *extack)
{
	struct xdc_tunnel *tunnel = netdev_priv(dev);
	struct xdc_tunnel_config new = tunnel->config;
	int err;

	if (!data)
		return 0;
	xdc_tunnel_parse(&new, data);
	if (new.local != tunnel->config.local || new.remote != tunnel->config.remote ||
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
	tunnel->config.paths = new.paths;
	tunnel->config.freeze = new.freeze;
	tunnel->config.timer_us = new.timer_us;
	tunnel->config.flush_us = new.flush_us;
	WRITE_ONCE(tunnel->config.fwmark, new.fwmark);
	WRITE_ONCE(tunnel->config.tos, new.tos);
	WRITE_ONCE(tunnel->config.ttl, new.ttl);
	WRITE_ONCE(tunnel->config.df, new.df);
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
	struct nlattr **data = params->data;
	int err;

	if (!data || !data[IFLA_UNORC_LOCAL] || !data[IFLA_UNORC_REMOTE]) {
		NL_SET_ERR_MSG(extack, "local and remote are needed");
		return -EINVAL;
	}
	tunnel->config = xdc_tunnel_defaults;
	xdc_tunnel_parse(&tunnel->config, data);
	if (!xdc_tunnel_is_host(tunnel->config.local) ||
	    !xdc_tunnel_is_host(tunnel->config.remote) ||
	    tunnel->config.local == tunnel->config.remote || !tunnel->config.port) {
		NL_SET_ERR_MSG(extack, "local and remote are two hosts, and the port is not 0");
		return -EINVAL;
	}
	err = xdc_tunnel_check(&tunnel->config, extack);
	if (err)
		return err;
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
	return 2 * nla_total_size(sizeof(__be32)) + 2 * nla_total_size(sizeof(u16)) +
	       8 * nla_total_size(sizeof(u8)) + 3 * nla_total_size(sizeof(u32));
}

static int xdc_tunnel_fill_info(struct sk_buff *skb, const struct net_device *dev)
{
	const struct xdc_tunnel *tunnel = netdev_priv(dev);
	const struct xdc_tunnel_config *config = &tunnel->config;

	if (nla_put_in_addr(skb, IFLA_UNORC_LOCAL, config->local) ||
	    nla_put_in_addr(skb, IFLA_UNORC_REMOTE, config->remote) ||
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

/* "ip -s -d link": a struct unorc_xstats. */
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

/*
 * /proc/net/KIND: of each device of the namespace its session, and if it is up its channels. A position
 * is the device's index and a part of it. One part is written under one hold of the device's lock, so
 * that a reader of whatever many devices holds none for long.
 */
#define XDC_TUNNEL_PART_BITS 4
#define XDC_TUNNEL_PART(pos) ((unsigned int)((pos) & ((1 << XDC_TUNNEL_PART_BITS) - 1)))

static void *xdc_tunnel_seq_at(struct seq_file *seq, loff_t *pos)
{
	unsigned long index = *pos >> XDC_TUNNEL_PART_BITS;
	const struct xdc_tunnel *tunnel;
	struct net_device *dev;

	for_each_netdev_dump(seq_file_net(seq), dev, index) {
		if (dev->rtnl_link_ops != &xdc_tunnel_link_ops)
			continue;
		tunnel = netdev_priv(dev);
		if (index != *pos >> XDC_TUNNEL_PART_BITS)
			*pos = (loff_t)index << XDC_TUNNEL_PART_BITS;
		if (XDC_TUNNEL_PART(*pos) <= tunnel->config.channels)
			return dev;
	}
	return NULL;
}

static void *xdc_tunnel_seq_start(struct seq_file *seq, loff_t *pos)
	__acquires(RCU)
{
	rcu_read_lock();
	return xdc_tunnel_seq_at(seq, pos);
}

static void *xdc_tunnel_seq_next(struct seq_file *seq, void *v, loff_t *pos)
{
	++*pos;
	return xdc_tunnel_seq_at(seq, pos);
}

static void xdc_tunnel_seq_stop(struct seq_file *seq, void *v)
	__releases(RCU)
{
	rcu_read_unlock();
}

static int xdc_tunnel_seq_show(struct seq_file *seq, void *v)
{
	struct net_device *dev = v;
	struct xdc_tunnel *tunnel = netdev_priv(dev);
	unsigned int part = XDC_TUNNEL_PART(seq->index);

	spin_lock_bh(&tunnel->lock);
	if (part && !tunnel->state)
		goto unlock;
	if (part)
		seq_printf(seq, "channel %u", part - 1);
	else
		seq_printf(seq, "device %s local %pI4 remote %pI4 port %u", dev->name,
			   &tunnel->config.local, &tunnel->config.remote,
			   ntohs(tunnel->config.port));
	if (tunnel->state)
		xdc_tunnel_ops->show(tunnel->state, part, xdc_tunnel_now_us(), seq);
	else
		seq_puts(seq, " session closed");
	seq_putc(seq, '\n');
unlock:
	spin_unlock_bh(&tunnel->lock);
	return 0;
}

static const struct seq_operations xdc_tunnel_seq_ops = {
	.start	= xdc_tunnel_seq_start,
	.next	= xdc_tunnel_seq_next,
	.stop	= xdc_tunnel_seq_stop,
	.show	= xdc_tunnel_seq_show,
};

static int __net_init xdc_tunnel_net_init(struct net *net)
{
	struct xdc_tunnel_net *own = net_generic(net, xdc_tunnel_net_id);

	INIT_LIST_HEAD(&own->tunnels);
	return proc_create_net(xdc_tunnel_ops->kind, 0444, net->proc_net, &xdc_tunnel_seq_ops,
			       sizeof(struct seq_net_private)) ? 0 : -ENOMEM;
}

/* Returns when no reader is left. */
static void __net_exit xdc_tunnel_net_gone(struct net *net)
{
	remove_proc_entry(xdc_tunnel_ops->kind, net->proc_net);
}

/* Without its socket's namespace a device goes, wherever it is. */
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
	.exit		= xdc_tunnel_net_gone,
	.id		= &xdc_tunnel_net_id,
	.size		= sizeof(struct xdc_tunnel_net),
};

int xdc_tunnel_register(const struct xdc_tunnel_ops *ops)
{
	int err;

	xdc_tunnel_ops = ops;
	xdc_tunnel_link_ops.kind = ops->kind;
	xdc_tunnel_type.name = ops->kind;
	err = register_pernet_subsys(&xdc_tunnel_net_ops);
	if (err)
		return err;
	err = rtnl_link_register(&xdc_tunnel_link_ops);
	if (err)
		unregister_pernet_subsys(&xdc_tunnel_net_ops);
	return err;
}

/* Devices that are left go. */
void xdc_tunnel_unregister(void)
{
	rtnl_link_unregister(&xdc_tunnel_link_ops);
	unregister_pernet_subsys(&xdc_tunnel_net_ops);
}
