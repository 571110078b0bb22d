// SPDX-License-Identifier: GPL-2.0
/* Packets of the stack on their way to a peer: the inner checks, the outer route and the outer header. */

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
/* Limit of nested tunnels, as in IPv6 (RFC 2473, 4.1.1). */
#define XDC_TUNNEL_NESTED 4

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
	/* A write takes the cache line from other processors. */
	if (nested || READ_ONCE(tunnel->nested)) {
		WRITE_ONCE(tunnel->nested, min(nested, XDC_TUNNEL_NESTED));
		WRITE_ONCE(tunnel->nested_at, jiffies);
	}
	return nested > XDC_TUNNEL_NESTED;
}

static enum skb_drop_reason xdc_tunnel_loop(struct net_device *dev)
{
	DEV_STATS_INC(dev, collisions);
	net_warn_ratelimited("%s: routing loop\n", dev->name);
	return SKB_DROP_REASON_RECURSION_LIMIT;
}

/* Sends a packet of the module, with its header in the control block. */
void xdc_peer_send_one(struct xdc_peer *peer, struct sk_buff *skb)
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

	/* Reports of a session that this end does not know yet. */
	if (!tag && !is_hello) {
		consume_skb(skb);
		return;
	}
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
	if (skb->len + xdc_tunnel_overhead(config) > IP_MAX_MTU) {
		reason = SKB_DROP_REASON_PKT_TOO_BIG;
		goto put;
	}
	mtu = dst_mtu(dst);
	if (READ_ONCE(peer->path_mtu) != mtu - xdc_tunnel_mtu_less(config))
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
