// SPDX-License-Identifier: GPL-2.0
/* The network device: its options, its socket, and its life. */

#include <linux/ethtool.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/netdevice.h>
#include <linux/unaligned.h>
#include <net/inet_ecn.h>
#include <net/netns/generic.h>
#include <net/rtnetlink.h>

#include <uapi/linux/unorc.h>

#include "../../../oot/compat.h"
#include "tunnel.h"

const struct xdc_tunnel_ops *xdc_tunnel_ops;
struct rtnl_link_ops xdc_tunnel_link_ops;
static unsigned int xdc_tunnel_net_id;

/* Devices by the namespace of their sockets. */
struct xdc_tunnel_net {
	struct list_head tunnels;
};
static DEFINE_MUTEX(xdc_tunnel_lists);

/* Claims ICMP errors for packets of this tunnel. */
static int xdc_tunnel_err_lookup(struct sock *sk, struct sk_buff *skb)
{
	return 0;
}

static int xdc_tunnel_init(struct net_device *dev)
{
	struct xdc_tunnel *tunnel = netdev_priv(dev);
	int err;

	tunnel->counters = netdev_alloc_pcpu_stats(struct xdc_tunnel_counters);
	if (!tunnel->counters)
		return -ENOMEM;
	err = xdc_peers_init(tunnel);
	if (err)
		free_percpu(tunnel->counters);
	return err;
}

static void xdc_tunnel_uninit(struct net_device *dev)
{
	struct xdc_tunnel *tunnel = netdev_priv(dev);

	xdc_peers_uninit(tunnel);
	free_percpu(tunnel->counters);
}

/* Closes the peers, in any state. */
static void xdc_tunnel_close(struct xdc_tunnel *tunnel)
{
	struct xdc_peer *peer;
	unsigned int i;

	hash_for_each(tunnel->peers, i, peer, node)
		xdc_peer_close(peer);
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
	struct xdc_peer *peer;
	struct socket *sock;
	unsigned int i;
	int err;

	if (xdc_tunnel_is_ipv6(&tunnel->config)) {
		port.family = AF_INET6;
		port.local_ip6 = tunnel->config.local;
	}
	tunnel->config.mtu = dev->mtu;
	hash_for_each(tunnel->peers, i, peer, node) {
		err = xdc_peer_open(peer);
		if (err)
			goto close;
	}
	err = udp_sock_create(tunnel->net, &port, &sock);
	if (err)
		goto close;
	rcu_assign_pointer(tunnel->sk, sock->sk);
	setup_udp_tunnel_sock(tunnel->net, sock->sk, &tunnel_config);
	return 0;
close:
	xdc_tunnel_close(tunnel);
	return err;
}

static int xdc_tunnel_stop(struct net_device *dev)
{
	struct xdc_tunnel *tunnel = netdev_priv(dev);
	struct sock *sk = rtnl_dereference(tunnel->sk);

	RCU_INIT_POINTER(tunnel->sk, NULL);
	/* Other code may still send on the socket. */
	synchronize_net();
	udp_tunnel_sock_release(sk);
	xdc_tunnel_close(tunnel);
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
	const struct xdc_tunnel_counters *counters;
	unsigned int cpu, start, i;
	u64 sum, value;

	for (i = 0; i < xdc_tunnel_ops->counter_count; i++) {
		sum = 0;
		for_each_possible_cpu(cpu) {
			counters = per_cpu_ptr(tunnel->counters, cpu);
			do {
				start = u64_stats_fetch_begin(&counters->syncp);
				value = u64_stats_read(&counters->values[i]);
			} while (u64_stats_fetch_retry(&counters->syncp, start));
			sum += value;
		}
		put_unaligned(sum, (u64 *)data + i);
	}
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

void xdc_tunnel_parse_address(struct in6_addr *address, const struct nlattr *ipv4,
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

/* Returns whether a device can have a peer at "remote". */
bool xdc_peer_is_sound(const struct xdc_tunnel_config *config, const struct in6_addr *remote)
{
	return xdc_tunnel_is_host(remote) && !ipv6_addr_equal(&config->local, remote) &&
	       ipv6_addr_v4mapped(&config->local) == ipv6_addr_v4mapped(remote);
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

/* Options and peers select routes in the namespace of the socket, which a moved device leaves. */
bool xdc_tunnel_may_change(const struct xdc_tunnel *tunnel)
{
	return net_eq(dev_net(tunnel->dev), tunnel->net) ||
	       ns_capable(tunnel->net->user_ns, CAP_NET_ADMIN);
}

/* The other options are agreed with the peer. */
static int xdc_tunnel_changelink(struct net_device *dev, struct nlattr *tb[],
				 struct nlattr *data[], struct netlink_ext_ack *extack)
{
	struct xdc_tunnel *tunnel = netdev_priv(dev);
	struct xdc_tunnel_config new = tunnel->config;
	struct xdc_channel *channel;
	struct xdc_peer *peer;
	unsigned int bucket, i;
	int err;

	if (!xdc_tunnel_may_change(tunnel))
		return -EPERM;
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
	tunnel->config = new;
	hash_for_each(tunnel->peers, bucket, peer, node) {
		for (i = 0; i < new.channels; i++) {
			channel = &peer->channels[i];
			spin_lock_bh(&channel->lock);
			if (channel->state)
				xdc_tunnel_ops->change(channel->state, &new);
			spin_unlock_bh(&channel->lock);
		}
	}
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
	if (ipv6_addr_any(&config->local)) {
		NL_SET_ERR_MSG(extack, "local must be given");
		return -EINVAL;
	}
	if (!xdc_tunnel_is_host(&config->local) || !config->port ||
	    (!ipv6_addr_any(&config->remote) && !xdc_peer_is_sound(config, &config->remote))) {
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

int xdc_tunnel_fill_address(struct sk_buff *skb, int ipv4, int ipv6, const struct in6_addr *address)
{
	return ipv6_addr_v4mapped(address) ? nla_put_in_addr(skb, ipv4, address->s6_addr32[3]) :
	       nla_put_in6_addr(skb, ipv6, address);
}

static int xdc_tunnel_fill_info(struct sk_buff *skb, const struct net_device *dev)
{
	const struct xdc_tunnel *tunnel = netdev_priv(dev);
	const struct xdc_tunnel_config *config = &tunnel->config;

	if (xdc_tunnel_fill_address(skb, IFLA_UNORC_LOCAL, IFLA_UNORC_LOCAL6, &config->local) ||
	    (!ipv6_addr_any(&config->remote) &&
	     xdc_tunnel_fill_address(skb, IFLA_UNORC_REMOTE, IFLA_UNORC_REMOTE6, &config->remote)) ||
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

struct rtnl_link_ops xdc_tunnel_link_ops = {
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
	err = xdc_peers_register();
	if (err)
		goto unregister;
	err = rtnl_link_register(&xdc_tunnel_link_ops);
	if (err)
		goto unregister_peers;
	return 0;
unregister_peers:
	xdc_peers_unregister();
unregister:
	unregister_pernet_subsys(&xdc_tunnel_net_ops);
none:
	WRITE_ONCE(xdc_tunnel_ops, NULL);
	return err;
}

/* Removes the remaining devices. */
void xdc_tunnel_unregister(void)
{
	xdc_peers_unregister();
	rtnl_link_unregister(&xdc_tunnel_link_ops);
	unregister_pernet_subsys(&xdc_tunnel_net_ops);
	WRITE_ONCE(xdc_tunnel_ops, NULL);
}
