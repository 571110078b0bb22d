// SPDX-License-Identifier: GPL-2.0
/*
 * Packets of the tunnel.
 *
 * The module decides under the lock of a channel or a session, and packets move once the lock is released,
 * because sending or delivering may reenter the device. A NAPI of each channel delivers, in order.
 */

#include <linux/icmpv6.h>
#include <linux/unaligned.h>
#include <net/icmp.h>
#include <net/inet_ecn.h>
#include <net/ip6_route.h>
#include <net/ip_tunnels.h>
#include <net/route.h>

#include <uapi/linux/unorc.h>

#include "tunnel.h"

/* Every IPv4 host accepts packets of this length (RFC 791). */
#define XDC_TUNNEL_MIN_MTU 576
/* Limit of a channel's packets that wait for the stack, in truesize: more than a channel holds and releases. */
#define XDC_TUNNEL_UP_BYTES (24 << 20)
/* Limit of nested tunnels, as in IPv6 (RFC 2473, 4.1.1). */
#define XDC_TUNNEL_NESTED 4

/* Output of one call of the module. */
struct xdc_tunnel_out {
	struct xdc_peer *peer;
	/* NULL in calls of the session. */
	struct xdc_channel *channel;
	struct sk_buff_head down, again;
};

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
	skb->dev = out->peer->tunnel->dev;
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

/* Takes back a packet from the stack, which has a session now. */
void xdc_tunnel_again(struct xdc_tunnel_out *out, struct sk_buff *skb)
{
	__skb_queue_tail(&out->again, skb);
}

void xdc_tunnel_deliver(struct xdc_tunnel_out *out, struct sk_buff *skb, bool is_marked)
{
	struct xdc_channel *channel = out->channel;

	if (!channel || channel->up_bytes + skb->truesize > XDC_TUNNEL_UP_BYTES) {
		dev_core_stats_rx_dropped_inc(out->peer->tunnel->dev);
		kfree_skb_reason(skb, SKB_DROP_REASON_FULL_RING);
		return;
	}
	channel->up_bytes += skb->truesize;
	if (is_marked)
		xdc_tunnel_cb(skb)->ecn = INET_ECN_CE;
	__skb_queue_tail(&channel->up, skb);
}

/* Returns the device of the call. */
struct net_device *xdc_tunnel_device(const struct xdc_tunnel_out *out)
{
	return out->peer->tunnel->dev;
}

void xdc_tunnel_count(struct xdc_tunnel_out *out, unsigned int counter, u64 n)
{
	struct xdc_tunnel_counters *counters = this_cpu_ptr(out->peer->tunnel->counters);

	if (counter >= XDC_TUNNEL_COUNTERS)
		return;
	u64_stats_update_begin(&counters->syncp);
	u64_stats_add(&counters->values[counter], n);
	u64_stats_update_end(&counters->syncp);
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
static struct dst_entry *xdc_tunnel_route(struct xdc_peer *peer, struct sock *sk, struct sk_buff *skb,
					  __be16 port, u8 tos, struct in6_addr *from)
{
	struct xdc_tunnel *tunnel = peer->tunnel;
	const struct xdc_tunnel_config *config = &tunnel->config;
	struct ip_tunnel_key key = {};
	struct rtable *rt;

	if (xdc_tunnel_is_ipv6(config)) {
		key.u.ipv6.src = config->local;
		key.u.ipv6.dst = peer->remote;
		key.label = htonl(ntohs(port));
		return udp_tunnel6_dst_lookup(skb, tunnel->dev, tunnel->net, sk, 0, from, &key, port,
					      config->port, tos, NULL);
	}
	key.u.ipv4.src = config->local.s6_addr32[3];
	key.u.ipv4.dst = peer->remote.s6_addr32[3];
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

static siphash_key_t xdc_peer_key(const struct xdc_peer *peer)
{
	return (siphash_key_t){ { READ_ONCE(peer->key.key[0]), READ_ONCE(peer->key.key[1]) } };
}

/* Returns the tag field of a packet: the receiver's tag, or a code of it, the header and the body. */
static u64 xdc_peer_sign(const struct xdc_peer *peer, u64 tag, const u8 *header, const u8 *body,
			 unsigned int len)
{
	siphash_key_t key = xdc_peer_key(peer);

	if (siphash_key_is_zero(&key))
		return tag;
	return siphash_3u64(get_unaligned_be64(header), tag, siphash(body, len, &key), &key);
}

static void xdc_peer_send_one(struct xdc_peer *peer, struct sk_buff *skb)
{
	struct xdc_tunnel *tunnel = peer->tunnel;
	const struct xdc_tunnel_config *config = &tunnel->config;
	struct xdc_tunnel_cb cb = *xdc_tunnel_cb(skb);
	struct sock *sk = rcu_dereference(tunnel->sk);
	u8 tos = READ_ONCE(config->tos);
	__be16 port = htons(cb.port);
	bool is_hello = cb.header[0] == XDC_TUNNEL_HELLO;
	u64 tag = is_hello ? 0 : atomic64_read(&peer->theirs);
	enum skb_drop_reason reason = SKB_DROP_REASON_DEV_READY;
	struct dst_entry *dst;
	struct in6_addr from;
	int inside;
	bool has_df;
	u32 mtu;
	u8 ttl;

	if (!sk || (!tag && !is_hello))
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
	dst = xdc_tunnel_route(peer, sk, skb, port, tos, &from);
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
	WRITE_ONCE(peer->path_mtu, mtu - xdc_tunnel_mtu_less(config));
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
	tag = xdc_peer_sign(peer, tag, cb.header, skb->data, skb->len);
	put_unaligned_be64(tag, cb.header + sizeof(u64));
	memcpy(__skb_push(skb, sizeof(cb.header)), cb.header, sizeof(cb.header));
	/* A packet that ends with the inner header would be counted as dropped. */
	if (skb->len == sizeof(cb.header))
		skb_set_inner_network_header(skb, 0);
	ttl = READ_ONCE(config->ttl);
	if (xdc_tunnel_is_ipv6(config)) {
		skb->ignore_df = !has_df;
		/* Switches may hash the label instead of ports. */
		udp_tunnel6_xmit_skb(dst, sk, skb, tunnel->dev, &from, &peer->remote, tos,
				     ttl ?: ip6_dst_hoplimit(dst), htonl(cb.port), port,
				     config->port, false, 0);
	} else {
		udp_tunnel_xmit_skb(dst_rtable(dst), sk, skb, from.s6_addr32[3],
				    peer->remote.s6_addr32[3], tos, ttl ?: ip4_dst_hoplimit(dst),
				    has_df ? htons(IP_DF) : 0, port, config->port, false, false, 0);
	}
	return;
put:
	dst_release(dst);
drop:
	DEV_STATS_INC(tunnel->dev, tx_errors);
	kfree_skb_reason(skb, reason);
}

static void xdc_channel_deliver_one(struct xdc_channel *channel, struct sk_buff *skb)
{
	enum skb_drop_reason reason = SKB_DROP_REASON_HDR_TRUNC;
	struct xdc_tunnel *tunnel = channel->peer->tunnel;
	struct net_device *dev = tunnel->dev;
	struct in6_addr from, to;

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
	xdc_tunnel_addresses(skb, &from, &to);
	if (xdc_allowed_find(tunnel, &from) != channel->peer) {
		reason = SKB_DROP_REASON_IP_INVALID_SOURCE;
		goto bad;
	}
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
	dev_dstats_rx_add(dev, skb->len);
	napi_gro_receive(&channel->napi, skb);
	return;
bad:
	DEV_STATS_INC(dev, rx_errors);
	kfree_skb_reason(skb, reason);
}

static int xdc_channel_hand_up(struct napi_struct *napi, int budget)
{
	struct xdc_channel *channel = container_of(napi, struct xdc_channel, napi);
	struct sk_buff_head taken;
	struct sk_buff *skb;
	int done = 0;

	__skb_queue_head_init(&taken);
	spin_lock_bh(&channel->lock);
	while (done < budget && (skb = __skb_dequeue(&channel->up))) {
		channel->up_bytes -= skb->truesize;
		__skb_queue_tail(&taken, skb);
		done++;
	}
	spin_unlock_bh(&channel->lock);
	rcu_read_lock();
	while ((skb = __skb_dequeue(&taken)))
		xdc_channel_deliver_one(channel, skb);
	rcu_read_unlock();
	if (done < budget)
		napi_complete_done(napi, done);
	return done;
}

static u64 xdc_tunnel_now_us(void)
{
	return ktime_to_us(ktime_get());
}

static void xdc_tunnel_start(struct hrtimer *timer, u64 *next_us, u64 due_us)
{
	if (due_us && (due_us < *next_us || !*next_us)) {
		*next_us = due_us;
		hrtimer_start(timer, ns_to_ktime(due_us * NSEC_PER_USEC), HRTIMER_MODE_ABS_SOFT);
	}
}

/* Takes the lock, unless the device is down. With BH off and in an RCU section, like the functions below. */
static bool xdc_channel_begin(struct xdc_channel *channel, struct xdc_tunnel_out *out)
{
	out->peer = channel->peer;
	out->channel = channel;
	__skb_queue_head_init(&out->down);
	__skb_queue_head_init(&out->again);
	spin_lock(&channel->lock);
	if (channel->state)
		return true;
	spin_unlock(&channel->lock);
	return false;
}

/* Releases the lock and moves the packets. */
static void xdc_channel_end(struct xdc_tunnel_out *out, u64 due_us)
{
	struct xdc_channel *channel = out->channel;
	bool is_up = !skb_queue_empty(&channel->up);
	struct sk_buff *skb;

	xdc_tunnel_start(&channel->timer, &channel->due_us, due_us);
	spin_unlock(&channel->lock);
	while ((skb = __skb_dequeue(&out->down)))
		xdc_peer_send_one(channel->peer, skb);
	if (is_up)
		napi_schedule(&channel->napi);
}

static bool xdc_peer_begin(struct xdc_peer *peer, struct xdc_tunnel_out *out)
{
	out->peer = peer;
	out->channel = NULL;
	__skb_queue_head_init(&out->down);
	__skb_queue_head_init(&out->again);
	spin_lock(&peer->lock);
	if (peer->session)
		return true;
	spin_unlock(&peer->lock);
	return false;
}

static void xdc_peer_transmit(struct xdc_peer *peer, struct sk_buff *skb);

static void xdc_peer_end(struct xdc_tunnel_out *out, u64 due_us)
{
	struct xdc_peer *peer = out->peer;
	struct sk_buff *skb;

	atomic64_set(&peer->theirs, xdc_tunnel_ops->theirs(peer->session));
	xdc_tunnel_start(&peer->timer, &peer->due_us, due_us);
	spin_unlock(&peer->lock);
	while ((skb = __skb_dequeue(&out->down)))
		xdc_peer_send_one(peer, skb);
	while ((skb = __skb_dequeue(&out->again)))
		xdc_peer_transmit(peer, skb);
}

/* Sends a packet of the stack, or keeps it until there is a session. */
static void xdc_peer_transmit(struct xdc_peer *peer, struct sk_buff *skb)
{
	const struct xdc_tunnel_config *config = &peer->tunnel->config;
	u64 theirs = atomic64_read(&peer->theirs);
	u64 now_us = xdc_tunnel_now_us();
	struct xdc_channel *channel;
	struct xdc_tunnel_out out;

	if (!theirs) {
		if (!xdc_peer_begin(peer, &out))
			goto drop;
		xdc_peer_end(&out, xdc_tunnel_ops->wait(peer->session, &out, skb, now_us));
		return;
	}
	channel = &peer->channels[skb_get_hash(skb) & (config->channels - 1)];
	if (!xdc_channel_begin(channel, &out))
		goto drop;
	xdc_channel_end(&out, xdc_tunnel_ops->transmit(channel->state, &out, skb, theirs, now_us));
	return;
drop:
	dev_core_stats_tx_dropped_inc(peer->tunnel->dev);
	kfree_skb_reason(skb, SKB_DROP_REASON_DEV_READY);
}

/* Ensures progress: a due time in the past would loop. */
static u64 xdc_tunnel_later(u64 due_us, u64 now_us)
{
	return due_us ? max(due_us, now_us + 1) : 0;
}

static enum hrtimer_restart xdc_channel_timer(struct hrtimer *timer)
{
	struct xdc_channel *channel = container_of(timer, struct xdc_channel, timer);
	u64 theirs = atomic64_read(&channel->peer->theirs);
	u64 now_us = xdc_tunnel_now_us();
	struct xdc_tunnel_out out;
	u64 due_us;

	rcu_read_lock();
	if (xdc_channel_begin(channel, &out)) {
		channel->due_us = 0;
		due_us = xdc_tunnel_ops->poll(channel->state, &out, theirs, now_us);
		xdc_channel_end(&out, xdc_tunnel_later(due_us, now_us));
	}
	rcu_read_unlock();
	return HRTIMER_NORESTART;
}

static enum hrtimer_restart xdc_peer_timer(struct hrtimer *timer)
{
	struct xdc_peer *peer = container_of(timer, struct xdc_peer, timer);
	u64 now_us = xdc_tunnel_now_us();
	struct xdc_tunnel_out out;
	u64 due_us;

	rcu_read_lock();
	if (xdc_peer_begin(peer, &out)) {
		peer->due_us = 0;
		due_us = xdc_tunnel_ops->poll_session(peer->session, &out, now_us);
		xdc_peer_end(&out, xdc_tunnel_later(due_us, now_us));
	}
	rcu_read_unlock();
	return HRTIMER_NORESTART;
}

/*
 * Returns whether a packet was in this tunnel before: routes may loop through queues, namespaces and hosts.
 */
static bool xdc_tunnel_is_own(struct xdc_tunnel *tunnel, const struct sk_buff *skb)
{
	bool is_ipv4 = skb->protocol == htons(ETH_P_IP);
	unsigned int before = is_ipv4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
	const struct udphdr *udp = (const void *)skb->data + before;
	struct in6_addr from, to;

	if ((is_ipv4 ? ip_hdr(skb)->protocol : ipv6_hdr(skb)->nexthdr) != IPPROTO_UDP ||
	    skb->len < before + sizeof(*udp) || udp->dest != tunnel->config.port)
		return false;
	xdc_tunnel_addresses(skb, &from, &to);
	return ipv6_addr_equal(&from, &tunnel->config.local) && xdc_peer_find(tunnel, &to);
}

/*
 * Returns whether the path carries a packet; otherwise tells its sender the MTU, like tnl_update_pmtu(). The
 * inner MTU has a minimum, so that a forged ICMP error does no more harm than fragments.
 */
static bool xdc_peer_fits(const struct xdc_peer *peer, struct sk_buff *skb)
{
	u32 mtu = READ_ONCE(peer->path_mtu);
	bool is_ipv4 = skb->protocol == htons(ETH_P_IP);

	mtu = max_t(u32, mtu, is_ipv4 ? XDC_TUNNEL_MIN_MTU : IPV6_MIN_MTU);
	if (skb->len <= mtu || !READ_ONCE(peer->path_mtu) ||
	    !READ_ONCE(peer->tunnel->config.df))
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

netdev_tx_t xdc_tunnel_xmit(struct sk_buff *skb, struct net_device *dev)
{
	struct xdc_tunnel *tunnel = netdev_priv(dev);
	enum skb_drop_reason reason = SKB_DROP_REASON_UNHANDLED_PROTO;
	struct in6_addr from, to;
	struct xdc_peer *peer;

	rcu_read_lock();
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
	xdc_tunnel_addresses(skb, &from, &to);
	peer = xdc_allowed_find(tunnel, &to);
	if (!peer) {
		reason = SKB_DROP_REASON_IP_OUTNOROUTES;
		if (skb->protocol == htons(ETH_P_IP))
			icmp_ndo_send(skb, ICMP_DEST_UNREACH, ICMP_HOST_UNREACH, 0);
		else
			icmpv6_ndo_send(skb, ICMPV6_DEST_UNREACH, ICMPV6_ADDR_UNREACH, 0);
		goto drop;
	}
	if (!xdc_peer_fits(peer, skb)) {
		reason = SKB_DROP_REASON_PKT_TOO_BIG;
		goto drop;
	}
	/* A copy may be kept for seconds, and would hold the device. */
	skb_dst_drop(skb);
	xdc_peer_transmit(peer, skb);
	rcu_read_unlock();
	return NETDEV_TX_OK;
drop:
	rcu_read_unlock();
	dev_core_stats_tx_dropped_inc(dev);
	kfree_skb_reason(skb, reason);
	return NETDEV_TX_OK;
}

/* Handles a packet of a peer, with its UDP source port. */
static void xdc_peer_receive(struct xdc_peer *peer, struct sk_buff *skb, u16 port, u8 ecn)
{
	const struct xdc_tunnel_ops *ops = xdc_tunnel_ops;
	u64 mine = atomic64_read(&peer->mine);
	u64 theirs = atomic64_read(&peer->theirs);
	u64 now_us = xdc_tunnel_now_us();
	struct xdc_channel *channel;
	struct xdc_tunnel_out out;
	const u8 *header = skb->data;
	bool is_hello, is_ours;

	is_hello = header[0] == XDC_TUNNEL_HELLO;
	is_ours = get_unaligned_be64(header + sizeof(u64)) ==
		  xdc_peer_sign(peer, is_hello ? 0 : mine, header, header + XDC_TUNNEL_HEADER,
				skb->len - XDC_TUNNEL_HEADER);
	if (is_hello || !is_ours || !theirs) {
		if (!xdc_peer_begin(peer, &out))
			goto drop;
		if (!is_ours) {
			xdc_peer_end(&out, ops->stranger(peer->session, &out, now_us));
			goto drop;
		}
		if (is_hello) {
			__skb_pull(skb, XDC_TUNNEL_HEADER);
			xdc_peer_end(&out, ops->hello(peer->session, &out, skb, now_us));
			return;
		}
		xdc_peer_end(&out, ops->ask(peer->session, &out, now_us));
	}
	/* The module refuses a channel that is not the packet's. */
	channel = &peer->channels[header[1] & (peer->tunnel->config.channels - 1)];
	if (!xdc_channel_begin(channel, &out))
		goto drop;
	xdc_channel_end(&out, ops->receive(channel->state, &out, skb, port, INET_ECN_is_ce(ecn),
					   theirs, now_us));
	return;
drop:
	kfree_skb_reason(skb, SKB_DROP_REASON_DEV_READY);
}

int xdc_tunnel_receive(struct sock *sk, struct sk_buff *skb)
{
	struct xdc_tunnel *tunnel = rcu_dereference_sk_user_data(sk);
	enum skb_drop_reason reason = SKB_DROP_REASON_DEV_READY;
	struct in6_addr from, to;
	struct xdc_peer *peer;
	u16 port;
	u8 ecn;

	if (!tunnel)
		goto drop;
	xdc_tunnel_addresses(skb, &from, &to);
	peer = xdc_peer_find(tunnel, &from);
	if (!peer || skb->len < sizeof(struct udphdr) + XDC_TUNNEL_HEADER) {
		DEV_STATS_INC(tunnel->dev, rx_errors);
		reason = peer ? SKB_DROP_REASON_HDR_TRUNC : SKB_DROP_REASON_IP_INVALID_SOURCE;
		goto drop;
	}
	ecn = skb_get_dsfield(skb) & INET_ECN_MASK;
	port = ntohs(udp_hdr(skb)->source);
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
	xdc_peer_receive(peer, skb, port, ecn);
	return 0;
drop:
	kfree_skb_reason(skb, reason);
	return 0;
}

/* Prepares the timers, locks and NAPIs of a new peer. */
void xdc_peer_init(struct xdc_peer *peer)
{
	struct xdc_tunnel *tunnel = peer->tunnel;
	struct xdc_channel *channel;
	unsigned int i;

	spin_lock_init(&peer->lock);
	hrtimer_setup(&peer->timer, xdc_peer_timer, CLOCK_MONOTONIC, HRTIMER_MODE_ABS_SOFT);
	for (i = 0; i < tunnel->config.channels; i++) {
		channel = &peer->channels[i];
		channel->peer = peer;
		spin_lock_init(&channel->lock);
		__skb_queue_head_init(&channel->up);
		hrtimer_setup(&channel->timer, xdc_channel_timer, CLOCK_MONOTONIC,
			      HRTIMER_MODE_ABS_SOFT);
		/* No busy polling, like other NAPIs without a device queue. */
		set_bit(NAPI_STATE_NO_BUSY_POLL, &channel->napi.state);
		netif_napi_add(tunnel->dev, &channel->napi, xdc_channel_hand_up);
		napi_enable(&channel->napi);
	}
}

void xdc_peer_uninit(struct xdc_peer *peer)
{
	struct xdc_channel *channel;
	unsigned int i;

	for (i = 0; i < peer->tunnel->config.channels; i++) {
		channel = &peer->channels[i];
		napi_disable(&channel->napi);
		netif_napi_del(&channel->napi);
	}
}
