// SPDX-License-Identifier: GPL-2.0
/*
 * Packets of the tunnel.
 *
 * The module decides under the lock of a channel or a session, and packets move once the lock is released,
 * because sending or delivering may reenter the device. A NAPI of each channel delivers, in order.
 */

#include <linux/unaligned.h>
#include <net/inet_ecn.h>
#include <net/ip_tunnels.h>

#include <uapi/linux/unorc.h>

#include "tunnel.h"

/* Limit of a channel's packets that wait for the stack, in truesize: more than a channel holds and releases. */
#define XDC_TUNNEL_UP_BYTES (24 << 20)

/* Output of one call of the module. */
struct xdc_tunnel_out {
	struct xdc_peer *peer;
	/* NULL in calls of the session. */
	struct xdc_channel *channel;
	struct sk_buff_head down, again;
	/* Tag of the peer when the lock was taken. */
	u64 theirs;
};

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
	/* With a code, GRO would make ACKs rare and TCP bursty, which lengthens FCTs. */
	if (tunnel->config.parity)
		netif_receive_skb(skb);
	else
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
	out->theirs = atomic64_read(&channel->peer->theirs);
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
void xdc_peer_transmit(struct xdc_peer *peer, struct sk_buff *skb)
{
	const struct xdc_tunnel_config *config = &peer->tunnel->config;
	u64 now_us = xdc_tunnel_now_us();
	struct xdc_channel *channel;
	struct xdc_tunnel_out out;

	if (!atomic64_read(&peer->theirs)) {
		if (!xdc_peer_begin(peer, &out))
			goto drop;
		xdc_peer_end(&out, xdc_tunnel_ops->wait(peer->session, &out, skb, now_us));
		return;
	}
	channel = &peer->channels[skb_get_hash(skb) & (config->channels - 1)];
	if (!xdc_channel_begin(channel, &out))
		goto drop;
	xdc_channel_end(&out, xdc_tunnel_ops->transmit(channel->state, &out, skb, out.theirs,
						     now_us));
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
	u64 now_us = xdc_tunnel_now_us();
	struct xdc_tunnel_out out;
	u64 due_us;

	rcu_read_lock();
	if (xdc_channel_begin(channel, &out)) {
		channel->due_us = 0;
		due_us = xdc_tunnel_ops->poll(channel->state, &out, out.theirs, now_us);
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

/* Handles a packet of a peer, with its UDP source port. */
static void xdc_peer_receive(struct xdc_peer *peer, struct sk_buff *skb, u16 port, u8 ecn)
{
	const struct xdc_tunnel_ops *ops = xdc_tunnel_ops;
	u64 mine = atomic64_read(&peer->mine);
	u64 now_us = xdc_tunnel_now_us();
	struct xdc_channel *channel;
	struct xdc_tunnel_out out;
	const u8 *header = skb->data;
	bool is_hello, is_ours;

	is_hello = header[0] == XDC_TUNNEL_HELLO;
	is_ours = get_unaligned_be64(header + sizeof(u64)) ==
		  xdc_peer_sign(peer, is_hello ? 0 : mine, header, header + XDC_TUNNEL_HEADER,
				skb->len - XDC_TUNNEL_HEADER);
	if (is_hello || !is_ours || !atomic64_read(&peer->theirs)) {
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
					   out.theirs, now_us));
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

/* Needs a grace period before the peer is freed. */
void xdc_peer_uninit(struct xdc_peer *peer)
{
	struct xdc_channel *channel;
	unsigned int i;

	for (i = 0; i < peer->tunnel->config.channels; i++) {
		channel = &peer->channels[i];
		napi_disable(&channel->napi);
		__netif_napi_del(&channel->napi);
	}
}
