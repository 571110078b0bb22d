// SPDX-License-Identifier: GPL-2.0
/* The generic netlink family that sets up the network of a namespace. */

#include <linux/slab.h>
#include <net/genetlink.h>

#include "fabric.h"

static struct genl_family xdc_fabric_family;

static const struct netlink_range_validation xdc_fabric_switches = { .min = 1, .max = XDC_FABRIC_SWITCHES };
static const struct netlink_range_validation xdc_fabric_ports = { .min = 1, .max = XDC_FABRIC_PORTS };
static const struct netlink_range_validation xdc_fabric_devices = { .min = 1, .max = XDC_FABRIC_DEVICES };
static const struct netlink_range_validation xdc_fabric_hosts = { .min = 1, .max = XDC_FABRIC_HOSTS };
static const struct netlink_range_validation xdc_fabric_numbers = { .max = S32_MAX };

static const struct nla_policy xdc_fabric_policy[FABRIC_A_MAX + 1] = {
	[FABRIC_A_SWITCHES]	= NLA_POLICY_FULL_RANGE(NLA_U32, &xdc_fabric_switches),
	[FABRIC_A_PORTS]	= NLA_POLICY_FULL_RANGE(NLA_U32, &xdc_fabric_ports),
	[FABRIC_A_DEVICES]	= NLA_POLICY_FULL_RANGE(NLA_U32, &xdc_fabric_devices),
	[FABRIC_A_POOLS]	= { .type = NLA_U64 },
	[FABRIC_A_FIRST_HOST]	= { .type = NLA_U32 },
	[FABRIC_A_HOSTS]	= NLA_POLICY_FULL_RANGE(NLA_U32, &xdc_fabric_hosts),
	[FABRIC_A_ID]		= { .type = NLA_U32 },
	[FABRIC_A_SEED]		= { .type = NLA_U32 },
	[FABRIC_A_SPRAY]	= { .type = NLA_FLAG },
	[FABRIC_A_TABLE]	= { .type = NLA_BINARY },
	[FABRIC_A_STARTS]	= { .type = NLA_BINARY },
	[FABRIC_A_HOPS]		= { .type = NLA_BINARY },
	[FABRIC_A_PEER_SWITCH]	= NLA_POLICY_FULL_RANGE(NLA_U32, &xdc_fabric_numbers),
	[FABRIC_A_PEER_DEVICE]	= NLA_POLICY_FULL_RANGE(NLA_U32, &xdc_fabric_numbers),
	[FABRIC_A_RATE]		= { .type = NLA_U64 },
	[FABRIC_A_DELAY]	= { .type = NLA_U64 },
	[FABRIC_A_JITTER]	= NLA_POLICY_FULL_RANGE(NLA_U32, &xdc_fabric_numbers),
	[FABRIC_A_LOSS]		= { .type = NLA_U32 },
	[FABRIC_A_WIRE_SEED]	= { .type = NLA_U64 },
	[FABRIC_A_BURST]	= NLA_POLICY_EXACT_LEN(3 * sizeof(u32)),
	[FABRIC_A_BURST_SEED]	= { .type = NLA_U64 },
	[FABRIC_A_POLICE_RATE]	= { .type = NLA_U64 },
	[FABRIC_A_POLICE_BURST]	= { .type = NLA_U64 },
	[FABRIC_A_QUEUE]	= { .type = NLA_NESTED },
	[FABRIC_A_POOL]		= NLA_POLICY_FULL_RANGE(NLA_U32, &xdc_fabric_numbers),
};

static int xdc_fabric_new_doit(struct sk_buff *skb, struct genl_info *info)
{
	struct xdc_fabric_size size = {};
	struct nlattr *attr;
	u64 *limits;
	int left, err;

	if (GENL_REQ_ATTR_CHECK(info, FABRIC_A_SWITCHES) || GENL_REQ_ATTR_CHECK(info, FABRIC_A_PORTS) ||
	    GENL_REQ_ATTR_CHECK(info, FABRIC_A_DEVICES) || GENL_REQ_ATTR_CHECK(info, FABRIC_A_HOSTS) ||
	    GENL_REQ_ATTR_CHECK(info, FABRIC_A_FIRST_HOST))
		return -EINVAL;
	size.switches = nla_get_u32(info->attrs[FABRIC_A_SWITCHES]);
	size.ports = nla_get_u32(info->attrs[FABRIC_A_PORTS]);
	nlmsg_for_each_attr_type(attr, FABRIC_A_POOLS, info->nlhdr, GENL_HDRLEN, left)
		size.pools++;
	limits = kvcalloc(size.pools + 1, sizeof(*limits), GFP_KERNEL);
	if (!limits)
		return -ENOMEM;
	size.pools = 0;
	nlmsg_for_each_attr_type(attr, FABRIC_A_POOLS, info->nlhdr, GENL_HDRLEN, left)
		limits[size.pools++] = nla_get_u64(attr);
	err = xdc_fabric_new(genl_info_net(info), &size, nla_get_u32(info->attrs[FABRIC_A_DEVICES]),
			     nla_get_u32(info->attrs[FABRIC_A_FIRST_HOST]),
			     nla_get_u32(info->attrs[FABRIC_A_HOSTS]), limits);
	if (err == -EEXIST)
		NL_SET_ERR_MSG(info->extack, "the namespace has a network of switches");
	kvfree(limits);
	return err;
}

static int xdc_fabric_del_doit(struct sk_buff *skb, struct genl_info *info)
{
	return xdc_fabric_del(genl_info_net(info));
}

/* Returns a reference to the network of the request, whose ID must be below "count". */
static struct xdc_fabric *xdc_fabric_of(struct genl_info *info, u32 *id)
{
	struct xdc_fabric *fabric;

	if (GENL_REQ_ATTR_CHECK(info, FABRIC_A_ID))
		return ERR_PTR(-EINVAL);
	*id = nla_get_u32(info->attrs[FABRIC_A_ID]);
	fabric = xdc_fabric_get(genl_info_net(info));
	if (!fabric)
		NL_SET_ERR_MSG(info->extack, "the namespace has no network of switches");
	return fabric ?: ERR_PTR(-ENOENT);
}

/* Returns whether "it" has a way to each host, and ways and ports that exist. */
static bool xdc_fabric_ways_are_sound(const struct xdc_fabric *fabric, const struct xdc_fabric_switch *it)
{
	u32 i;

	if (it->table_len != fabric->hosts || !it->starts_len || it->starts[it->starts_len - 1] != it->hops_len)
		return false;
	for (i = 0; i < it->table_len; i++)
		if (it->table[i] >= it->starts_len - 1)
			return false;
	for (i = 1; i < it->starts_len; i++)
		if (it->starts[i] < it->starts[i - 1])
			return false;
	for (i = 0; i < it->hops_len; i++)
		if (it->hops[i] >= fabric->size.ports)
			return false;
	return true;
}

static int xdc_fabric_switch_doit(struct sk_buff *skb, struct genl_info *info)
{
	struct nlattr **attrs = info->attrs;
	struct xdc_fabric_switch it;
	struct xdc_fabric *fabric;
	void *settings;
	int err = 0;
	u32 id;

	fabric = xdc_fabric_of(info, &id);
	if (IS_ERR(fabric))
		return PTR_ERR(fabric);
	if (GENL_REQ_ATTR_CHECK(info, FABRIC_A_TABLE) || GENL_REQ_ATTR_CHECK(info, FABRIC_A_STARTS) ||
	    GENL_REQ_ATTR_CHECK(info, FABRIC_A_HOPS)) {
		err = -EINVAL;
		goto put;
	}
	it = (struct xdc_fabric_switch) {
		.seed = nla_get_u32_default(attrs[FABRIC_A_SEED], 1),
		.is_spraying = attrs[FABRIC_A_SPRAY],
		.table = nla_data(attrs[FABRIC_A_TABLE]),
		.starts = nla_data(attrs[FABRIC_A_STARTS]),
		.hops = nla_data(attrs[FABRIC_A_HOPS]),
		.table_len = nla_len(attrs[FABRIC_A_TABLE]) / sizeof(u16),
		.starts_len = nla_len(attrs[FABRIC_A_STARTS]) / sizeof(u32),
		.hops_len = nla_len(attrs[FABRIC_A_HOPS]) / sizeof(u32),
	};
	if (id >= fabric->size.switches || nla_len(attrs[FABRIC_A_TABLE]) % sizeof(u16) ||
	    nla_len(attrs[FABRIC_A_STARTS]) % sizeof(u32) || nla_len(attrs[FABRIC_A_HOPS]) % sizeof(u32) ||
	    !xdc_fabric_ways_are_sound(fabric, &it)) {
		NL_SET_ERR_MSG(info->extack, "no such switch, or its table has another number of hosts, or names a way or port that does not exist");
		err = -EINVAL;
		goto put;
	}
	settings = xdc_fabric_ops->make_switch(&it);
	if (IS_ERR(settings)) {
		err = PTR_ERR(settings);
		goto put;
	}
	spin_lock_bh(&fabric->lock);
	if (fabric->network)
		xdc_fabric_ops->apply_switch(fabric->network, id, settings);
	else
		err = -ENOENT;
	spin_unlock_bh(&fabric->lock);
	xdc_fabric_ops->free_switch(settings);
put:
	xdc_fabric_put(fabric);
	return err;
}

static s32 xdc_fabric_number(const struct nlattr *attr)
{
	return attr ? (s32)nla_get_u32(attr) : -1;
}

static int xdc_fabric_port_doit(struct sk_buff *skb, struct genl_info *info)
{
	struct nlattr **attrs = info->attrs;
	struct xdc_fabric *fabric;
	struct xdc_fabric_port it;
	void *settings;
	u64 next_ns;
	int err = 0;
	u32 id;

	fabric = xdc_fabric_of(info, &id);
	if (IS_ERR(fabric))
		return PTR_ERR(fabric);
	it = (struct xdc_fabric_port) {
		.peer_switch = xdc_fabric_number(attrs[FABRIC_A_PEER_SWITCH]),
		.peer_device = xdc_fabric_number(attrs[FABRIC_A_PEER_DEVICE]),
		.pool = xdc_fabric_number(attrs[FABRIC_A_POOL]),
		.rate_bytes_per_s = nla_get_u64_default(attrs[FABRIC_A_RATE], 0),
		.delay_ns = nla_get_u64_default(attrs[FABRIC_A_DELAY], 0),
		.jitter_ns = nla_get_u32_default(attrs[FABRIC_A_JITTER], 0),
		.loss = nla_get_u32_default(attrs[FABRIC_A_LOSS], 0),
		.seed = nla_get_u64_default(attrs[FABRIC_A_WIRE_SEED], 0),
		.has_burst = attrs[FABRIC_A_BURST],
		.burst_seed = nla_get_u64_default(attrs[FABRIC_A_BURST_SEED], 0),
		.police_bytes_per_s = nla_get_u64_default(attrs[FABRIC_A_POLICE_RATE], 0),
		.police_burst_bytes = nla_get_u64_default(attrs[FABRIC_A_POLICE_BURST], 0),
		.queue = attrs[FABRIC_A_QUEUE],
	};
	if (it.has_burst)
		nla_memcpy(it.burst_ppm, attrs[FABRIC_A_BURST], sizeof(it.burst_ppm));
	if (id >= fabric->size.ports || (it.peer_switch < 0) == (it.peer_device < 0) ||
	    it.peer_switch >= (s32)fabric->size.switches || it.peer_device >= (s32)fabric->devices_len ||
	    it.pool >= (s32)fabric->size.pools) {
		NL_SET_ERR_MSG(info->extack, "no such port, or its peer or pool does not exist, or it has no peer, or two");
		err = -EINVAL;
		goto put;
	}
	settings = xdc_fabric_ops->make_port(&it, info->extack);
	if (IS_ERR(settings)) {
		err = PTR_ERR(settings);
		goto put;
	}
	spin_lock_bh(&fabric->lock);
	if (fabric->network) {
		next_ns = xdc_fabric_ops->apply_port(fabric->network, id, settings, ktime_get_ns());
		xdc_fabric_arm(fabric, next_ns);
	} else {
		err = -ENOENT;
	}
	spin_unlock_bh(&fabric->lock);
	xdc_fabric_ops->free_port(settings);
put:
	xdc_fabric_put(fabric);
	return err;
}

static int xdc_fabric_fill_port(struct sk_buff *skb, struct xdc_fabric *fabric, u32 id)
{
	struct tc_phantom_xstats xstats;
	struct fabric_stats stats;
	bool has_queue = false;

	spin_lock_bh(&fabric->lock);
	if (fabric->network)
		has_queue = xdc_fabric_ops->count_port(fabric->network, id, &stats, &xstats, ktime_get_ns());
	else
		memset(&stats, 0, sizeof(stats));
	spin_unlock_bh(&fabric->lock);
	return nla_put(skb, FABRIC_A_STATS, sizeof(stats), &stats) ||
	       (has_queue && nla_put(skb, FABRIC_A_XSTATS, sizeof(xstats), &xstats)) ? -EMSGSIZE : 0;
}

static int xdc_fabric_fill_switch(struct sk_buff *skb, struct xdc_fabric *fabric, u32 id)
{
	struct xdc_fabric_counts counts = {};

	spin_lock_bh(&fabric->lock);
	if (fabric->network)
		xdc_fabric_ops->count_switch(fabric->network, id, &counts);
	spin_unlock_bh(&fabric->lock);
	return nla_put_u64_64bit(skb, FABRIC_A_RECEIVED, counts.received, FABRIC_A_PAD) ||
	       nla_put_u64_64bit(skb, FABRIC_A_UNROUTABLE, counts.unroutable, FABRIC_A_PAD) ||
	       nla_put_u64_64bit(skb, FABRIC_A_EXPIRED, counts.expired, FABRIC_A_PAD) ? -EMSGSIZE : 0;
}

/* Appends the counters of a port, or of the switch with this number after the last port. */
static int xdc_fabric_fill(struct sk_buff *skb, const struct genl_info *info, struct xdc_fabric *fabric, u32 at,
			   int flags)
{
	bool is_port = at < fabric->size.ports;
	u32 id = is_port ? at : at - fabric->size.ports;
	void *header;

	header = genlmsg_put(skb, info->snd_portid, info->snd_seq, &xdc_fabric_family, flags,
			     is_port ? FABRIC_CMD_PORT : FABRIC_CMD_SWITCH);
	if (!header)
		return -EMSGSIZE;
	if (nla_put_u32(skb, FABRIC_A_ID, id) ||
	    (is_port ? xdc_fabric_fill_port(skb, fabric, id) : xdc_fabric_fill_switch(skb, fabric, id))) {
		genlmsg_cancel(skb, header);
		return -EMSGSIZE;
	}
	genlmsg_end(skb, header);
	return 0;
}

/* The counters of one port. */
static int xdc_fabric_get_doit(struct sk_buff *skb, struct genl_info *info)
{
	struct xdc_fabric *fabric;
	struct sk_buff *answer;
	int err = -EINVAL;
	u32 id;

	fabric = xdc_fabric_of(info, &id);
	if (IS_ERR(fabric))
		return PTR_ERR(fabric);
	if (id >= fabric->size.ports) {
		NL_SET_ERR_MSG(info->extack, "no such port");
		goto put;
	}
	err = -ENOMEM;
	answer = genlmsg_new(NLMSG_DEFAULT_SIZE, GFP_KERNEL);
	if (!answer)
		goto put;
	err = xdc_fabric_fill(answer, info, fabric, id, 0);
	if (err)
		nlmsg_free(answer);
	else
		err = genlmsg_reply(answer, info);
put:
	xdc_fabric_put(fabric);
	return err;
}

/* The counters of all ports, then of all switches. */
static int xdc_fabric_dumpit(struct sk_buff *skb, struct netlink_callback *cb)
{
	const struct genl_info *info = genl_info_dump(cb);
	struct xdc_fabric *fabric = xdc_fabric_get(genl_info_net(info));
	u32 all;

	if (!fabric)
		return 0;
	all = fabric->size.ports + fabric->size.switches;
	while (cb->args[0] < all && !xdc_fabric_fill(skb, info, fabric, cb->args[0], NLM_F_MULTI))
		cb->args[0]++;
	xdc_fabric_put(fabric);
	return skb->len;
}

/* A network may hold half of the memory, so it is for the administrator of the machine. */
static const struct genl_small_ops xdc_fabric_genl_ops[] = {
	{ .cmd = FABRIC_CMD_NEW, .flags = GENL_ADMIN_PERM, .doit = xdc_fabric_new_doit },
	{ .cmd = FABRIC_CMD_SWITCH, .flags = GENL_ADMIN_PERM, .doit = xdc_fabric_switch_doit },
	{ .cmd = FABRIC_CMD_PORT, .flags = GENL_ADMIN_PERM, .doit = xdc_fabric_port_doit },
	{ .cmd = FABRIC_CMD_GET, .flags = GENL_ADMIN_PERM, .doit = xdc_fabric_get_doit,
	  .dumpit = xdc_fabric_dumpit },
	{ .cmd = FABRIC_CMD_DEL, .flags = GENL_ADMIN_PERM, .doit = xdc_fabric_del_doit },
};

static struct genl_family xdc_fabric_family __ro_after_init = {
	.name		= FABRIC_GENL_NAME,
	.version	= FABRIC_GENL_VERSION,
	.maxattr	= FABRIC_A_MAX,
	.policy		= xdc_fabric_policy,
	.netnsok	= true,
	.module		= THIS_MODULE,
	.small_ops	= xdc_fabric_genl_ops,
	.n_small_ops	= ARRAY_SIZE(xdc_fabric_genl_ops),
};

int xdc_fabric_netlink_register(void)
{
	return genl_register_family(&xdc_fabric_family);
}

void xdc_fabric_netlink_unregister(void)
{
	genl_unregister_family(&xdc_fabric_family);
}
