// SPDX-License-Identifier: GPL-2.0
/* The peers of a device, their inner addresses, and the netlink family that sets them. */

#include <linux/jhash.h>
#include <linux/unaligned.h>
#include <net/genetlink.h>
#include <net/rtnetlink.h>

#include <uapi/linux/unorc.h>

#include "tunnel.h"

#define XDC_TUNNEL_PEERS 1024
/* A peer's ranges fit one message of a dump. */
#define XDC_TUNNEL_RANGES 100
/* Bits of ::ffff:0:0/96, which IPv4 addresses are mapped to. */
#define XDC_ALLOWED_IPV4 96

static u32 xdc_peer_hash(const struct in6_addr *remote)
{
	return jhash2((const u32 *)remote->s6_addr32, 4, 0);
}

struct xdc_peer *xdc_peer_find(struct xdc_tunnel *tunnel, const struct in6_addr *remote)
{
	struct xdc_peer *peer;

	hash_for_each_possible_rcu(tunnel->peers, peer, node, xdc_peer_hash(remote),
				   lockdep_rtnl_is_held())
		if (ipv6_addr_equal(&peer->remote, remote))
			return peer;
	return NULL;
}

/* Returns the tag field of a packet: the receiver's tag, or a code of it, the header and the body. */
u64 xdc_peer_sign(const struct xdc_peer *peer, u64 tag, const u8 *header, const u8 *body,
			 unsigned int len)
{
	siphash_key_t key = { { READ_ONCE(peer->key.key[0]), READ_ONCE(peer->key.key[1]) } };

	if (siphash_key_is_zero(&key))
		return tag;
	return siphash_3u64(get_unaligned_be64(header), tag, siphash(body, len, &key), &key);
}

static const struct rhashtable_params xdc_allowed_params = {
	.key_len		= sizeof(struct xdc_range),
	.key_offset		= offsetof(struct xdc_allowed, range),
	.head_offset		= offsetof(struct xdc_allowed, node),
	.automatic_shrinking	= true,
};

static struct xdc_range xdc_range_of(const struct in6_addr *address, u32 bits)
{
	struct xdc_range range = { .bits = bits };

	ipv6_addr_prefix(&range.prefix, address, bits);
	return range;
}

/* Returns the peer with the longest prefix of an inner address. */
struct xdc_peer *xdc_allowed_find(struct xdc_tunnel *tunnel, const struct in6_addr *address)
{
	/* ::/0 has no IPv4 addresses. */
	unsigned int least = ipv6_addr_v4mapped(address) ? XDC_ALLOWED_IPV4 : 0;
	unsigned int bits, size = 129;
	struct xdc_allowed *allowed;
	struct xdc_range range;

	while ((bits = find_last_bit(tunnel->lengths, size)) < size && bits >= least) {
		range = xdc_range_of(address, bits);
		allowed = rhashtable_lookup(&tunnel->allowed, &range, xdc_allowed_params);
		if (allowed)
			return READ_ONCE(allowed->peer);
		size = bits;
	}
	return NULL;
}

static void xdc_allowed_remove(struct xdc_tunnel *tunnel, struct xdc_allowed *allowed)
{
	list_del(&allowed->of_peer);
	rhashtable_remove_fast(&tunnel->allowed, &allowed->node, xdc_allowed_params);
	kfree_rcu(allowed, rcu);
}

/* Removes the lengths that no range has. */
static void xdc_allowed_tidy(struct xdc_tunnel *tunnel)
{
	DECLARE_BITMAP(used, 129) = {};
	struct xdc_allowed *allowed;
	struct xdc_peer *peer;
	unsigned int i, bits;

	hash_for_each(tunnel->peers, i, peer, node)
		list_for_each_entry(allowed, &peer->allowed, of_peer)
			__set_bit(allowed->range.bits, used);
	for (bits = 0; bits <= 128; bits++)
		if (!test_bit(bits, used))
			clear_bit(bits, tunnel->lengths);
}

/* Gives a range to a peer. */
static int xdc_allowed_add(struct xdc_peer *peer, const struct in6_addr *address, u32 bits)
{
	struct xdc_range range = xdc_range_of(address, bits);
	struct xdc_tunnel *tunnel = peer->tunnel;
	struct xdc_allowed *allowed;
	int err;

	allowed = rhashtable_lookup_fast(&tunnel->allowed, &range, xdc_allowed_params);
	if (allowed) {
		WRITE_ONCE(allowed->peer, peer);
		list_move_tail(&allowed->of_peer, &peer->allowed);
		return 0;
	}
	allowed = kzalloc_obj(*allowed, GFP_KERNEL_ACCOUNT);
	if (!allowed)
		return -ENOMEM;
	allowed->peer = peer;
	allowed->range = range;
	err = rhashtable_insert_fast(&tunnel->allowed, &allowed->node, xdc_allowed_params);
	if (err) {
		kfree(allowed);
		return err;
	}
	list_add_tail(&allowed->of_peer, &peer->allowed);
	set_bit(bits, tunnel->lengths);
	return 0;
}

/* Opens the session and the channels of a peer whose device is up. */
int xdc_peer_open(struct xdc_peer *peer)
{
	const struct xdc_tunnel_config *config = &peer->tunnel->config;
	struct xdc_channel *channel;
	void *state;
	unsigned int i;
	u64 mine;

	for (i = 0; i < config->channels; i++) {
		channel = &peer->channels[i];
		state = xdc_tunnel_ops->open_channel(config, i);
		if (!state)
			return -ENOMEM;
		spin_lock_bh(&channel->lock);
		channel->due_us = 0;
		channel->state = state;
		spin_unlock_bh(&channel->lock);
	}
	state = xdc_tunnel_ops->open_session(config, &mine);
	if (!state)
		return -ENOMEM;
	spin_lock_bh(&peer->lock);
	peer->due_us = 0;
	peer->session = state;
	atomic64_set(&peer->mine, mine);
	spin_unlock_bh(&peer->lock);
	WRITE_ONCE(peer->path_mtu, 0);
	return 0;
}

/* Closes a peer in any state. The timers do not start without a state. */
void xdc_peer_close(struct xdc_peer *peer)
{
	struct xdc_channel *channel;
	void *state;
	unsigned int i;

	spin_lock_bh(&peer->lock);
	state = peer->session;
	peer->session = NULL;
	peer->due_us = 0;
	atomic64_set(&peer->theirs, 0);
	spin_unlock_bh(&peer->lock);
	hrtimer_cancel(&peer->timer);
	if (state)
		xdc_tunnel_ops->close_session(state);
	for (i = 0; i < peer->tunnel->config.channels; i++) {
		channel = &peer->channels[i];
		spin_lock_bh(&channel->lock);
		state = channel->state;
		channel->state = NULL;
		__skb_queue_purge(&channel->up);
		channel->up_bytes = 0;
		spin_unlock_bh(&channel->lock);
		hrtimer_cancel(&channel->timer);
		if (state)
			xdc_tunnel_ops->close_channel(state);
	}
}

/* Hides a peer from packets, and links it by "allowed", which is empty then, to the list. */
static void xdc_peer_unlink(struct xdc_peer *peer, struct list_head *gone)
{
	struct xdc_tunnel *tunnel = peer->tunnel;
	struct xdc_allowed *allowed, *next;

	list_for_each_entry_safe(allowed, next, &peer->allowed, of_peer)
		xdc_allowed_remove(tunnel, allowed);
	hash_del_rcu(&peer->node);
	tunnel->peer_count--;
	tunnel->generation++;
	if (ipv6_addr_equal(&peer->remote, &tunnel->config.remote))
		memset(&tunnel->config.remote, 0, sizeof(tunnel->config.remote));
	list_add(&peer->allowed, gone);
}

/* Frees unlinked peers. Two grace periods suffice for all. */
static void xdc_peers_free(struct list_head *gone)
{
	struct xdc_peer *peer, *next;

	synchronize_net();
	list_for_each_entry(peer, gone, allowed) {
		xdc_peer_close(peer);
		xdc_peer_uninit(peer);
	}
	synchronize_net();
	list_for_each_entry_safe(peer, next, gone, allowed)
		kfree_sensitive(peer);
}

static void xdc_peer_remove(struct xdc_peer *peer)
{
	struct xdc_tunnel *tunnel = peer->tunnel;
	LIST_HEAD(gone);

	xdc_peer_unlink(peer, &gone);
	xdc_allowed_tidy(tunnel);
	xdc_peers_free(&gone);
}

static void xdc_peer_set_key(struct xdc_peer *peer, const struct nlattr *attr)
{
	u64 key[2];

	nla_memcpy(key, attr, sizeof(key));
	WRITE_ONCE(peer->key.key[0], le64_to_cpu((__force __le64)key[0]));
	WRITE_ONCE(peer->key.key[1], le64_to_cpu((__force __le64)key[1]));
	memzero_explicit(key, sizeof(key));
}

/* Adds a peer, with a key if "key" is not NULL. */
static struct xdc_peer *xdc_peer_add(struct xdc_tunnel *tunnel, const struct in6_addr *remote,
				     const struct nlattr *key)
{
	struct xdc_peer *peer;
	LIST_HEAD(gone);
	int err = 0;

	if (tunnel->peer_count >= XDC_TUNNEL_PEERS)
		return ERR_PTR(-ENOSPC);
	peer = kzalloc_flex(*peer, channels, tunnel->config.channels, GFP_KERNEL_ACCOUNT);
	if (!peer)
		return ERR_PTR(-ENOMEM);
	peer->tunnel = tunnel;
	peer->remote = *remote;
	INIT_LIST_HEAD(&peer->allowed);
	if (key)
		xdc_peer_set_key(peer, key);
	xdc_peer_init(peer);
	if (netif_running(tunnel->dev))
		err = xdc_peer_open(peer);
	if (err) {
		list_add(&peer->allowed, &gone);
		xdc_peers_free(&gone);
		return ERR_PTR(err);
	}
	tunnel->peer_count++;
	tunnel->generation++;
	hash_add_rcu(tunnel->peers, &peer->node, xdc_peer_hash(remote));
	return peer;
}

/* Prepares the tables, and adds the peer of "ip link add ... remote", which has all inner addresses. */
int xdc_peers_init(struct xdc_tunnel *tunnel)
{
	static const struct in6_addr ipv4 = { .s6_addr = { [10] = 0xff, [11] = 0xff } };
	struct xdc_peer *peer;
	int err;

	err = rhashtable_init(&tunnel->allowed, &xdc_allowed_params);
	if (err || ipv6_addr_any(&tunnel->config.remote))
		return err;
	peer = xdc_peer_add(tunnel, &tunnel->config.remote, NULL);
	err = PTR_ERR_OR_ZERO(peer);
	if (!err)
		err = xdc_allowed_add(peer, &ipv4, XDC_ALLOWED_IPV4) ?:
		      xdc_allowed_add(peer, &in6addr_any, 0);
	if (err)
		xdc_peers_uninit(tunnel);
	return err;
}

void xdc_peers_uninit(struct xdc_tunnel *tunnel)
{
	struct hlist_node *next;
	struct xdc_peer *peer;
	LIST_HEAD(gone);
	unsigned int i;

	hash_for_each_safe(tunnel->peers, i, next, peer, node)
		xdc_peer_unlink(peer, &gone);
	xdc_peers_free(&gone);
	rhashtable_destroy(&tunnel->allowed);
}

static struct genl_family xdc_peers_family;

static const struct nla_policy xdc_allowed_policy[UNORC_A_ALLOWED_MAX + 1] = {
	[UNORC_A_ALLOWED_PREFIX]	= { .type = NLA_U32 },
	[UNORC_A_ALLOWED_PREFIX6]	= NLA_POLICY_EXACT_LEN(sizeof(struct in6_addr)),
	[UNORC_A_ALLOWED_LEN]		= NLA_POLICY_MAX(NLA_U8, 128),
};

static const struct nla_policy xdc_peers_policy[UNORC_A_PEER_MAX + 1] = {
	[UNORC_A_PEER_IFINDEX]	= { .type = NLA_U32 },
	[UNORC_A_PEER_REMOTE]	= { .type = NLA_U32 },
	[UNORC_A_PEER_REMOTE6]	= NLA_POLICY_EXACT_LEN(sizeof(struct in6_addr)),
	[UNORC_A_PEER_KEY]	= NLA_POLICY_EXACT_LEN(UNORC_KEY_LEN),
	[UNORC_A_PEER_ALLOWED]	= NLA_POLICY_NESTED(xdc_allowed_policy),
};

/* Returns the device of a request. Needs RTNL. */
static struct xdc_tunnel *xdc_peers_tunnel(struct net *net, struct nlattr **attrs,
					   struct netlink_ext_ack *extack)
{
	struct net_device *dev;

	if (!attrs[UNORC_A_PEER_IFINDEX]) {
		NL_SET_ERR_MSG(extack, "the device's index is missing");
		return ERR_PTR(-EINVAL);
	}
	dev = __dev_get_by_index(net, nla_get_u32(attrs[UNORC_A_PEER_IFINDEX]));
	if (!dev || dev->rtnl_link_ops != &xdc_tunnel_link_ops) {
		NL_SET_ERR_MSG_ATTR(extack, attrs[UNORC_A_PEER_IFINDEX], "no such device of kind unorc");
		return ERR_PTR(-ENODEV);
	}
	if (!xdc_tunnel_may_change(netdev_priv(dev)))
		return ERR_PTR(-EPERM);
	return netdev_priv(dev);
}

static int xdc_peers_address(struct in6_addr *address, const struct nlattr *ipv4, const struct nlattr *ipv6)
{
	if (!ipv4 == !ipv6)
		return -EINVAL;
	xdc_tunnel_parse_address(address, ipv4, ipv6);
	return 0;
}

/* Parses a range. Returns its length in bits, or an error. */
static int xdc_peers_range(const struct nlattr *attr, struct in6_addr *address, struct netlink_ext_ack *extack)
{
	struct nlattr *range[UNORC_A_ALLOWED_MAX + 1];
	unsigned int bits;
	int err;

	err = nla_parse_nested(range, UNORC_A_ALLOWED_MAX, attr, xdc_allowed_policy, extack);
	if (err)
		return err;
	bits = nla_get_u8_default(range[UNORC_A_ALLOWED_LEN], U8_MAX);
	if (range[UNORC_A_ALLOWED_PREFIX])
		bits += XDC_ALLOWED_IPV4;
	if (xdc_peers_address(address, range[UNORC_A_ALLOWED_PREFIX], range[UNORC_A_ALLOWED_PREFIX6]) ||
	    bits > 128) {
		NL_SET_ERR_MSG_ATTR(extack, attr, "a range is one address and a length of at most 32 or 128 bits");
		return -EINVAL;
	}
	return bits;
}

/* Replaces a peer's ranges, unless one is wrong. Without memory the peer has those added so far. */
static int xdc_peers_allow(struct xdc_peer *peer, const struct genl_info *info)
{
	struct xdc_allowed *allowed, *next;
	unsigned int count = 0;
	struct in6_addr address;
	struct nlattr *attr;
	LIST_HEAD(before);
	int left, bits, err = 0;

	nlmsg_for_each_attr_type(attr, UNORC_A_PEER_ALLOWED, info->nlhdr, GENL_HDRLEN, left) {
		bits = xdc_peers_range(attr, &address, info->extack);
		if (bits < 0)
			return bits;
		if (++count > XDC_TUNNEL_RANGES) {
			NL_SET_ERR_MSG(info->extack, "a peer has at most 100 ranges");
			return -ENOSPC;
		}
	}
	list_splice_init(&peer->allowed, &before);
	peer->tunnel->generation++;
	nlmsg_for_each_attr_type(attr, UNORC_A_PEER_ALLOWED, info->nlhdr, GENL_HDRLEN, left) {
		bits = xdc_peers_range(attr, &address, info->extack);
		err = xdc_allowed_add(peer, &address, bits);
		if (err)
			break;
	}
	list_for_each_entry_safe(allowed, next, &before, of_peer)
		xdc_allowed_remove(peer->tunnel, allowed);
	xdc_allowed_tidy(peer->tunnel);
	return err;
}

static int xdc_peers_set_locked(struct genl_info *info)
{
	struct xdc_tunnel *tunnel = xdc_peers_tunnel(genl_info_net(info), info->attrs, info->extack);
	struct nlattr **attrs = info->attrs;
	struct in6_addr remote;
	struct xdc_peer *peer;
	bool is_new;
	int err = 0;

	if (IS_ERR(tunnel))
		return PTR_ERR(tunnel);
	if (xdc_peers_address(&remote, attrs[UNORC_A_PEER_REMOTE], attrs[UNORC_A_PEER_REMOTE6]) ||
	    !xdc_peer_is_sound(&tunnel->config, &remote)) {
		NL_SET_ERR_MSG(info->extack, "remote must be one host of the family of the device's local address");
		return -EINVAL;
	}
	peer = xdc_peer_find(tunnel, &remote);
	is_new = !peer;
	if (is_new)
		peer = xdc_peer_add(tunnel, &remote, attrs[UNORC_A_PEER_KEY]);
	if (IS_ERR(peer)) {
		if (PTR_ERR(peer) == -ENOSPC)
			NL_SET_ERR_MSG(info->extack, "a device has at most 1024 peers");
		return PTR_ERR(peer);
	}
	if (attrs[UNORC_A_PEER_KEY])
		xdc_peer_set_key(peer, attrs[UNORC_A_PEER_KEY]);
	if (attrs[UNORC_A_PEER_ALLOWED])
		err = xdc_peers_allow(peer, info);
	if (err && is_new)
		xdc_peer_remove(peer);
	return err;
}

static int xdc_peers_set(struct sk_buff *skb, struct genl_info *info)
{
	int err;

	rtnl_lock();
	err = xdc_peers_set_locked(info);
	rtnl_unlock();
	return err;
}

static int xdc_peers_del(struct sk_buff *skb, struct genl_info *info)
{
	struct xdc_tunnel *tunnel;
	struct in6_addr remote;
	struct xdc_peer *peer;
	int err = -ENOENT;

	rtnl_lock();
	tunnel = xdc_peers_tunnel(genl_info_net(info), info->attrs, info->extack);
	if (IS_ERR(tunnel)) {
		err = PTR_ERR(tunnel);
		goto out;
	}
	if (xdc_peers_address(&remote, info->attrs[UNORC_A_PEER_REMOTE], info->attrs[UNORC_A_PEER_REMOTE6]))
		err = -EINVAL;
	peer = err == -EINVAL ? NULL : xdc_peer_find(tunnel, &remote);
	if (!peer) {
		NL_SET_ERR_MSG(info->extack, "the device has no peer with this remote");
		goto out;
	}
	xdc_peer_remove(peer);
	err = 0;
out:
	rtnl_unlock();
	return err;
}

static int xdc_peers_fill(struct sk_buff *skb, struct netlink_callback *cb, struct xdc_peer *peer)
{
	siphash_key_t key = peer->key;
	struct xdc_allowed *allowed;
	struct nlattr *range;
	bool is_ipv4;
	void *header;
	u8 state;

	header = genlmsg_put(skb, NETLINK_CB(cb->skb).portid, cb->nlh->nlmsg_seq, &xdc_peers_family,
			     NLM_F_MULTI, UNORC_CMD_PEER_GET);
	if (!header)
		return -EMSGSIZE;
	genl_dump_check_consistent(cb, header);
	state = atomic64_read(&peer->theirs) ? UNORC_SESSION_UP :
		READ_ONCE(peer->due_us) ? UNORC_SESSION_ASKED : UNORC_SESSION_DOWN;
	if (nla_put_u32(skb, UNORC_A_PEER_IFINDEX, peer->tunnel->dev->ifindex) ||
	    xdc_tunnel_fill_address(skb, UNORC_A_PEER_REMOTE, UNORC_A_PEER_REMOTE6, &peer->remote) ||
	    nla_put_u8(skb, UNORC_A_PEER_SESSION, state) ||
	    (!siphash_key_is_zero(&key) && nla_put_flag(skb, UNORC_A_PEER_HAS_KEY)))
		goto full;
	list_for_each_entry(allowed, &peer->allowed, of_peer) {
		is_ipv4 = ipv6_addr_v4mapped(&allowed->range.prefix) && allowed->range.bits >= XDC_ALLOWED_IPV4;
		range = nla_nest_start(skb, UNORC_A_PEER_ALLOWED);
		if (!range ||
		    xdc_tunnel_fill_address(skb, UNORC_A_ALLOWED_PREFIX, UNORC_A_ALLOWED_PREFIX6,
					    &allowed->range.prefix) ||
		    nla_put_u8(skb, UNORC_A_ALLOWED_LEN, allowed->range.bits - is_ipv4 * XDC_ALLOWED_IPV4))
			goto full;
		nla_nest_end(skb, range);
	}
	genlmsg_end(skb, header);
	return 0;
full:
	genlmsg_cancel(skb, header);
	return -EMSGSIZE;
}

static int xdc_peers_dump(struct sk_buff *skb, struct netlink_callback *cb)
{
	const struct genl_info *info = genl_info_dump(cb);
	struct xdc_tunnel *tunnel;
	struct xdc_peer *peer;
	unsigned int i;
	long at = 0;
	int err = 0;

	rtnl_lock();
	tunnel = xdc_peers_tunnel(genl_info_net(info), info->attrs, info->extack);
	if (IS_ERR(tunnel)) {
		err = PTR_ERR(tunnel);
		goto out;
	}
	cb->seq = tunnel->generation;
	hash_for_each(tunnel->peers, i, peer, node) {
		if (at++ < cb->args[0])
			continue;
		err = xdc_peers_fill(skb, cb, peer);
		if (err)
			break;
		cb->args[0] = at;
	}
	/* A full message continues; one that holds no peer at all has too many ranges. */
	if (err == -EMSGSIZE && skb->len)
		err = skb->len;
out:
	rtnl_unlock();
	return err;
}

static const struct genl_small_ops xdc_peers_ops[] = {
	{ .cmd = UNORC_CMD_PEER_SET, .flags = GENL_UNS_ADMIN_PERM, .doit = xdc_peers_set },
	{ .cmd = UNORC_CMD_PEER_DEL, .flags = GENL_UNS_ADMIN_PERM, .doit = xdc_peers_del },
	{ .cmd = UNORC_CMD_PEER_GET, .flags = GENL_UNS_ADMIN_PERM, .dumpit = xdc_peers_dump },
};

static struct genl_family xdc_peers_family __ro_after_init = {
	.name		= UNORC_GENL_NAME,
	.version	= UNORC_GENL_VERSION,
	.maxattr	= UNORC_A_PEER_MAX,
	.policy		= xdc_peers_policy,
	.netnsok	= true,
	.module		= THIS_MODULE,
	.small_ops	= xdc_peers_ops,
	.n_small_ops	= ARRAY_SIZE(xdc_peers_ops),
};

int xdc_peers_register(void)
{
	return genl_register_family(&xdc_peers_family);
}

void xdc_peers_unregister(void)
{
	genl_unregister_family(&xdc_peers_family);
}
