// SPDX-License-Identifier: GPL-2.0
/* Links of hosts to the fabric, and the network of a namespace. */

#include <linux/etherdevice.h>
#include <linux/ethtool.h>
#include <linux/jhash.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <net/checksum.h>
#include <net/dropreason-qdisc.h>
#include <net/flow_dissector.h>
#include <net/ip.h>
#include <net/ip_fib.h>
#include <net/ipv6.h>
#include <net/netdev_lock.h>
#include <net/netns/generic.h>
#include <net/rtnetlink.h>

#include "../../../oot/compat.h"
#include "fabric.h"

const struct xdc_fabric_ops *xdc_fabric_ops;
static unsigned int xdc_fabric_net_id;

struct xdc_fabric_net {
	struct xdc_fabric *fabric;
};
/* Protects the networks of namespaces. */
static DEFINE_MUTEX(xdc_fabric_mutex);
/* Memory of the packets in all networks. Senders do not pay for it. */
static atomic_long_t xdc_fabric_memory;

struct xdc_fabric_link {
	struct xdc_fabric *fabric;
	u32 device, id;
};

static struct xdc_fabric_cb *xdc_fabric_cb(struct sk_buff *skb)
{
	BUILD_BUG_ON(sizeof(struct xdc_fabric_cb) > sizeof(skb->cb));
	return (struct xdc_fabric_cb *)skb->cb;
}

/* The device and the namespace of a packet in the network may be gone. */
/* A packet leaves its network. */
static void xdc_fabric_uncharge(struct sk_buff *skb)
{
	atomic_long_sub(xdc_fabric_cb(skb)->truesize, &xdc_fabric_memory);
}

static void xdc_fabric_dissect(const struct sk_buff *skb, struct flow_keys *keys)
{
	memset(keys, 0, sizeof(*keys));
	__skb_flow_dissect(&init_net, skb, &flow_keys_dissector, keys, NULL, 0, 0, 0, FLOW_DISSECTOR_F_STOP_AT_ENCAP);
}

/* The hash of fib_multipath_hash_policy 3 with the fields 0x37, from 0 to 2^31 - 1. */
u32 xdc_fabric_hash(const struct sk_buff *skb, u32 seed)
{
	const struct xdc_fabric_cb *cb = (const struct xdc_fabric_cb *)skb->cb;
	siphash_aligned_key_t key;
	struct flow_keys of, keys;
	u32 hash;

	memset(&keys, 0, sizeof(keys));
	if (cb->protocol) {
		keys.control.addr_type = FLOW_DISSECTOR_KEY_IPV4_ADDRS;
		keys.addrs.v4addrs.src = cb->saddr;
		keys.addrs.v4addrs.dst = cb->daddr;
		keys.basic.ip_proto = cb->protocol;
		keys.ports.ports = cb->ports;
	} else {
		xdc_fabric_dissect(skb, &of);
		keys.control.addr_type = FLOW_DISSECTOR_KEY_IPV6_ADDRS;
		keys.addrs.v6addrs = of.addrs.v6addrs;
		keys.basic.ip_proto = of.basic.ip_proto;
		keys.ports = of.ports;
	}
	fib_multipath_hash_construct_key(&key, seed);
	hash = flow_hash_from_keys_seed(&keys, &key);
	return jhash_2words(hash, 0, 0) >> 1;
}

static void xdc_fabric_prepare_ipv4(struct sk_buff *skb, struct xdc_fabric_cb *cb)
{
	struct flow_keys of;

	xdc_fabric_dissect(skb, &of);
	cb->saddr = of.addrs.v4addrs.src;
	cb->daddr = of.addrs.v4addrs.dst;
	cb->protocol = of.basic.ip_proto;
	cb->ports = of.ports.ports;
	cb->ttl = ip_hdr(skb)->ttl;
}

/* Writes the hops to the header. */
static void xdc_fabric_finish(struct sk_buff *skb)
{
	const struct xdc_fabric_cb *cb = xdc_fabric_cb(skb);
	struct iphdr *ip = ip_hdr(skb);

	if (skb->protocol == htons(ETH_P_IP)) {
		csum_replace2(&ip->check, htons(ip->ttl << 8), htons(cb->ttl << 8));
		ip->ttl = cb->ttl;
	} else {
		ipv6_hdr(skb)->hop_limit = cb->ttl;
	}
}

/* Fills the control block. Returns false if the packet cannot cross the network. */
static bool xdc_fabric_prepare(const struct xdc_fabric *fabric, struct sk_buff *skb)
{
	struct xdc_fabric_cb *cb;
	u32 address, host;

	/* A sender may write to the headers of a packet that it retransmits, and its pages stay its own. */
	if (skb_orphan_frags(skb, GFP_ATOMIC) || !pskb_may_pull(skb, ETH_HLEN) ||
	    (skb_cloned(skb) && pskb_expand_head(skb, 0, 0, GFP_ATOMIC)))
		return false;
	skb_forward_csum(skb);
	skb_reset_mac_header(skb);
	skb_set_network_header(skb, ETH_HLEN);
	skb->protocol = eth_hdr(skb)->h_proto;
	cb = xdc_fabric_cb(skb);
	memset(cb, 0, sizeof(*cb));
	switch (skb->protocol) {
	case htons(ETH_P_IP):
		if (!pskb_may_pull(skb, ETH_HLEN + sizeof(struct iphdr)))
			return false;
		xdc_fabric_prepare_ipv4(skb, cb);
		address = ntohl(ip_hdr(skb)->daddr);
		break;
	case htons(ETH_P_IPV6):
		if (!pskb_may_pull(skb, ETH_HLEN + sizeof(struct ipv6hdr)))
			return false;
		cb->ttl = ipv6_hdr(skb)->hop_limit;
		address = ntohl(ipv6_hdr(skb)->daddr.s6_addr32[3]);
		break;
	default:
		return false;
	}
	host = address - fabric->first_host;
	cb->len = skb->len;
	cb->truesize = skb->truesize;
	cb->destination = host < fabric->hosts ? (s32)host : -1;
	skb_orphan(skb);
	skb_scrub_packet(skb, true);
	skb->priority = 0;
	skb->dev = NULL;
	return true;
}

/* What Rust does with a packet, with the network's lock */

void xdc_fabric_deliver(struct xdc_fabric *out, u32 device, struct sk_buff *skb)
{
	struct net_device *dev = device < out->devices_len ? out->devices[device] : NULL;

	if (!dev || !netif_running(dev)) {
		xdc_fabric_uncharge(skb);
		if (dev)
			dev_dstats_rx_dropped(dev);
		kfree_skb_reason(skb, SKB_DROP_REASON_DEV_READY);
		return;
	}
	xdc_fabric_finish(skb);
	skb->dev = dev;
	__skb_queue_tail(&out->arrived, skb);
}

void xdc_fabric_drop(struct xdc_fabric *out, struct sk_buff *skb, u32 reason)
{
	static const u32 reasons[] = {
		[XDC_FABRIC_LINK] = QDISC_DROP_GENERIC,
		[XDC_FABRIC_ROUTE] = SKB_DROP_REASON_IP_OUTNOROUTES,
		[XDC_FABRIC_HOPS] = SKB_DROP_REASON_IP_INHDR,
		[XDC_FABRIC_FULL] = QDISC_DROP_OVERLIMIT,
		[XDC_FABRIC_ECN] = QDISC_DROP_CONGESTED,
		[XDC_FABRIC_POLICER] = SKB_DROP_REASON_TC_EGRESS,
	};

	xdc_fabric_uncharge(skb);
	sk_skb_reason_drop(NULL, skb, (__force enum skb_drop_reason)reasons[reason]);
}

/* Frees a packet of a removed network. */
void xdc_fabric_free(struct sk_buff *skb)
{
	xdc_fabric_uncharge(skb);
	kfree_skb(skb);
}

/* Sets the timer. With the lock. */
void xdc_fabric_arm(struct xdc_fabric *fabric, u64 next_ns)
{
	/* Zero: packets that have arrived wait for the timer. */
	if (next_ns == fabric->armed_ns || !fabric->armed_ns)
		return;
	fabric->armed_ns = next_ns;
	if (next_ns == U64_MAX)
		return;
	/* A timer in the past would run again in the same softirq, and no other task would run. */
	next_ns = clamp_t(u64, next_ns, ktime_get_ns() + 1, KTIME_MAX);
	hrtimer_start(&fabric->timer, ns_to_ktime(next_ns), HRTIMER_MODE_ABS_PINNED_SOFT);
}

/*
 * Delivers the packets that have arrived, with the lock, which it releases meanwhile. A sender may hold a
 * lock of the receiver, so packets that arrive while it sends go through the backlog. The timer delivers the
 * rest if there are too many.
 */
static void xdc_fabric_flush(struct xdc_fabric *fabric, bool is_sending)
{
	unsigned int left = XDC_FABRIC_BATCH;
	struct sk_buff *skb;

	if (fabric->is_delivering)
		return;
	fabric->is_delivering = true;
	while (left && (skb = __skb_dequeue(&fabric->arrived))) {
		left--;
		spin_unlock(&fabric->lock);
		xdc_fabric_uncharge(skb);
		dev_dstats_rx_add(skb->dev, skb->len);
		/* The network has no MAC addresses. */
		ether_addr_copy(eth_hdr(skb)->h_dest, skb->dev->dev_addr);
		skb->protocol = eth_type_trans(skb, skb->dev);
		if (is_sending)
			netif_rx(skb);
		else
			netif_receive_skb(skb);
		spin_lock(&fabric->lock);
	}
	fabric->is_delivering = false;
	if (!skb_queue_empty(&fabric->arrived))
		xdc_fabric_arm(fabric, 0);
}

static enum hrtimer_restart xdc_fabric_expire(struct hrtimer *timer)
{
	struct xdc_fabric *fabric = container_of(timer, struct xdc_fabric, timer);
	u64 next_ns;

	spin_lock(&fabric->lock);
	if (fabric->network) {
		fabric->armed_ns = U64_MAX;
		next_ns = xdc_fabric_ops->run(fabric->network, fabric, ktime_get_ns());
		xdc_fabric_arm(fabric, next_ns);
		xdc_fabric_flush(fabric, false);
	}
	spin_unlock(&fabric->lock);
	return HRTIMER_NORESTART;
}

static netdev_tx_t xdc_fabric_xmit(struct sk_buff *skb, struct net_device *dev)
{
	struct xdc_fabric_link *link = netdev_priv(dev);
	struct xdc_fabric *fabric = link->fabric;
	unsigned int len = skb->len;
	u64 next_ns;

	skb_tx_timestamp(skb);
	if (!xdc_fabric_prepare(fabric, skb)) {
		dev_dstats_tx_dropped(dev);
		kfree_skb_reason(skb, SKB_DROP_REASON_UNHANDLED_PROTO);
		return NETDEV_TX_OK;
	}
	spin_lock(&fabric->lock);
	if (!fabric->network || atomic_long_read(&xdc_fabric_memory) >= (long)totalram_pages() << (PAGE_SHIFT - 1)) {
		spin_unlock(&fabric->lock);
		dev_dstats_tx_dropped(dev);
		kfree_skb_reason(skb, SKB_DROP_REASON_NOMEM);
		return NETDEV_TX_OK;
	}
	atomic_long_add(xdc_fabric_cb(skb)->truesize, &xdc_fabric_memory);
	next_ns = xdc_fabric_ops->arrive(fabric->network, fabric, link->id, skb, ktime_get_ns());
	xdc_fabric_arm(fabric, next_ns);
	xdc_fabric_flush(fabric, true);
	spin_unlock(&fabric->lock);
	dev_dstats_tx_add(dev, len);
	return NETDEV_TX_OK;
}

/* The network of a namespace */

void xdc_fabric_put(struct xdc_fabric *fabric)
{
	if (!refcount_dec_and_test(&fabric->users))
		return;
	kvfree(fabric->devices);
	kfree(fabric);
}

/* Returns a reference to the network of a namespace, or NULL. */
struct xdc_fabric *xdc_fabric_get(struct net *net)
{
	struct xdc_fabric_net *own = net_generic(net, xdc_fabric_net_id);
	struct xdc_fabric *fabric;

	mutex_lock(&xdc_fabric_mutex);
	fabric = own->fabric;
	if (fabric)
		refcount_inc(&fabric->users);
	mutex_unlock(&xdc_fabric_mutex);
	return fabric;
}

/* Creates the network of a namespace. */
int xdc_fabric_new(struct net *net, const struct xdc_fabric_size *size, u32 devices, u32 first_host, u32 hosts,
		   const u64 *limits)
{
	struct xdc_fabric_net *own = net_generic(net, xdc_fabric_net_id);
	struct xdc_fabric *fabric = kzalloc(sizeof(*fabric), GFP_KERNEL_ACCOUNT);
	int err = -ENOMEM;

	if (!fabric)
		return -ENOMEM;
	fabric->devices = kvcalloc(devices, sizeof(*fabric->devices), GFP_KERNEL_ACCOUNT);
	if (!fabric->devices)
		goto free;
	fabric->devices_len = devices;
	fabric->size = *size;
	fabric->first_host = first_host;
	fabric->hosts = hosts;
	fabric->armed_ns = U64_MAX;
	refcount_set(&fabric->users, 1);
	spin_lock_init(&fabric->lock);
	__skb_queue_head_init(&fabric->arrived);
	hrtimer_setup(&fabric->timer, xdc_fabric_expire, CLOCK_MONOTONIC, HRTIMER_MODE_ABS_SOFT);
	fabric->network = xdc_fabric_ops->open(size, limits);
	if (!fabric->network)
		goto free;
	mutex_lock(&xdc_fabric_mutex);
	if (own->fabric) {
		err = -EEXIST;
	} else {
		own->fabric = fabric;
		err = 0;
	}
	mutex_unlock(&xdc_fabric_mutex);
	if (!err)
		return 0;
	xdc_fabric_ops->close(fabric->network);
free:
	kvfree(fabric->devices);
	kfree(fabric);
	return err;
}

/* Removes the network of a namespace, with its packets. */
int xdc_fabric_del(struct net *net)
{
	struct xdc_fabric_net *own = net_generic(net, xdc_fabric_net_id);
	struct xdc_fabric *fabric;
	struct sk_buff_head gone;
	struct sk_buff *skb;
	void *network;

	mutex_lock(&xdc_fabric_mutex);
	fabric = own->fabric;
	own->fabric = NULL;
	mutex_unlock(&xdc_fabric_mutex);
	if (!fabric)
		return -ENOENT;
	spin_lock_bh(&fabric->lock);
	network = fabric->network;
	fabric->network = NULL;
	__skb_queue_head_init(&gone);
	skb_queue_splice_init(&fabric->arrived, &gone);
	spin_unlock_bh(&fabric->lock);
	while ((skb = __skb_dequeue(&gone)))
		xdc_fabric_free(skb);
	hrtimer_cancel(&fabric->timer);
	xdc_fabric_ops->close(network);
	xdc_fabric_put(fabric);
	return 0;
}

/* Links */

static int xdc_fabric_init(struct net_device *dev)
{
	struct xdc_fabric_link *link = netdev_priv(dev);
	struct xdc_fabric *fabric = link->fabric;
	bool is_free;

	netdev_lockdep_set_classes(dev);
	spin_lock_bh(&fabric->lock);
	is_free = !fabric->devices[link->device];
	if (is_free)
		fabric->devices[link->device] = dev;
	spin_unlock_bh(&fabric->lock);
	if (!is_free)
		return -EBUSY;
	refcount_inc(&fabric->users);
	return 0;
}

static void xdc_fabric_uninit(struct net_device *dev)
{
	struct xdc_fabric_link *link = netdev_priv(dev);

	spin_lock_bh(&link->fabric->lock);
	link->fabric->devices[link->device] = NULL;
	spin_unlock_bh(&link->fabric->lock);
}

/* Packet sockets that hold the device may send up to now. */
static void xdc_fabric_free_link(struct net_device *dev)
{
	struct xdc_fabric_link *link = netdev_priv(dev);

	xdc_fabric_put(link->fabric);
}

/* No further packet arrives. The kernel waits for those in delivery before it frees the device. */
static int xdc_fabric_stop(struct net_device *dev)
{
	struct xdc_fabric_link *link = netdev_priv(dev);
	struct sk_buff *skb, *next;

	spin_lock_bh(&link->fabric->lock);
	skb_queue_walk_safe(&link->fabric->arrived, skb, next) {
		if (skb->dev != dev)
			continue;
		__skb_unlink(skb, &link->fabric->arrived);
		xdc_fabric_uncharge(skb);
		dev_dstats_rx_dropped(dev);
		kfree_skb_reason(skb, SKB_DROP_REASON_DEV_READY);
	}
	spin_unlock_bh(&link->fabric->lock);
	return 0;
}

static const struct net_device_ops xdc_fabric_netdev_ops = {
	.ndo_init		= xdc_fabric_init,
	.ndo_uninit		= xdc_fabric_uninit,
	.ndo_stop		= xdc_fabric_stop,
	.ndo_start_xmit		= xdc_fabric_xmit,
	.ndo_set_mac_address	= eth_mac_addr,
	.ndo_validate_addr	= eth_validate_addr,
};

static const struct ethtool_ops xdc_fabric_ethtool_ops = {
	.get_link	= ethtool_op_get_link,
	.get_ts_info	= ethtool_op_get_ts_info,
};

static void xdc_fabric_setup(struct net_device *dev)
{
	ether_setup(dev);
	dev->netdev_ops = &xdc_fabric_netdev_ops;
	dev->ethtool_ops = &xdc_fabric_ethtool_ops;
	dev->needs_free_netdev = true;
	dev->priv_destructor = xdc_fabric_free_link;
	/* Netpoll sends with interrupts off. */
	dev->priv_flags |= IFF_NO_QUEUE | IFF_LIVE_ADDR_CHANGE | IFF_DISABLE_NETPOLL;
	dev->priv_flags &= ~IFF_TX_SKB_SHARING;
	dev->lltx = true;
	dev->pcpu_stat_type = NETDEV_PCPU_STAT_DSTATS;
	/* Segments leave one by one, as from a NIC. */
	dev->features |= NETIF_F_SG | NETIF_F_HW_CSUM | NETIF_F_RXCSUM | NETIF_F_HIGHDMA;
	dev->hw_features = dev->features;
	dev->max_mtu = ETH_MAX_MTU;
}

static const struct nla_policy xdc_fabric_link_policy[IFLA_FABRIC_MAX + 1] = {
	[IFLA_FABRIC_DEVICE]	= { .type = NLA_U32 },
	[IFLA_FABRIC_SWITCH]	= { .type = NLA_U32 },
};

static int xdc_fabric_newlink(struct net_device *dev, struct rtnl_newlink_params *params,
			      struct netlink_ext_ack *extack)
{
	struct xdc_fabric_link *link = netdev_priv(dev);
	struct nlattr **data = params->data;
	struct xdc_fabric *fabric;
	int err;

	if (!data || !data[IFLA_FABRIC_DEVICE] || !data[IFLA_FABRIC_SWITCH]) {
		NL_SET_ERR_MSG(extack, "device and switch must be given");
		return -EINVAL;
	}
	fabric = xdc_fabric_get(rtnl_newlink_link_net(params));
	if (!fabric) {
		NL_SET_ERR_MSG(extack, "the namespace has no network of switches");
		return -ENOENT;
	}
	if (!params->tb[IFLA_ADDRESS])
		eth_hw_addr_random(dev);
	link->fabric = fabric;
	link->device = nla_get_u32(data[IFLA_FABRIC_DEVICE]);
	link->id = nla_get_u32(data[IFLA_FABRIC_SWITCH]);
	if (link->device >= fabric->devices_len || link->id >= fabric->size.switches) {
		NL_SET_ERR_MSG(extack, "the network has fewer links or switches");
		err = -EINVAL;
	} else {
		err = register_netdevice(dev);
	}
	xdc_fabric_put(fabric);
	return err;
}

static size_t xdc_fabric_get_size(const struct net_device *dev)
{
	return 2 * nla_total_size(sizeof(u32));
}

static int xdc_fabric_fill_info(struct sk_buff *skb, const struct net_device *dev)
{
	const struct xdc_fabric_link *link = netdev_priv(dev);

	return nla_put_u32(skb, IFLA_FABRIC_DEVICE, link->device) ||
	       nla_put_u32(skb, IFLA_FABRIC_SWITCH, link->id) ? -EMSGSIZE : 0;
}

static struct rtnl_link_ops xdc_fabric_link_ops = {
	.kind		= FABRIC_GENL_NAME,
	.priv_size	= sizeof(struct xdc_fabric_link),
	.setup		= xdc_fabric_setup,
	.maxtype	= IFLA_FABRIC_MAX,
	.policy		= xdc_fabric_link_policy,
	.newlink	= xdc_fabric_newlink,
	.get_size	= xdc_fabric_get_size,
	.fill_info	= xdc_fabric_fill_info,
};

static void __net_exit xdc_fabric_net_exit(struct net *net)
{
	xdc_fabric_del(net);
}

static struct pernet_operations xdc_fabric_net_ops = {
	.exit	= xdc_fabric_net_exit,
	.id	= &xdc_fabric_net_id,
	.size	= sizeof(struct xdc_fabric_net),
};

int xdc_fabric_register(const struct xdc_fabric_ops *ops)
{
	int err;

	/* One per module: the link and namespace operations are static. */
	if (cmpxchg(&xdc_fabric_ops, NULL, ops))
		return -EBUSY;
	err = register_pernet_subsys(&xdc_fabric_net_ops);
	if (err)
		goto none;
	err = xdc_fabric_netlink_register();
	if (err)
		goto unregister;
	err = rtnl_link_register(&xdc_fabric_link_ops);
	if (err)
		goto unregister_netlink;
	return 0;
unregister_netlink:
	xdc_fabric_netlink_unregister();
unregister:
	unregister_pernet_subsys(&xdc_fabric_net_ops);
none:
	WRITE_ONCE(xdc_fabric_ops, NULL);
	return err;
}

/* Removes the remaining links and networks. */
void xdc_fabric_unregister(void)
{
	xdc_fabric_netlink_unregister();
	rtnl_link_unregister(&xdc_fabric_link_ops);
	unregister_pernet_subsys(&xdc_fabric_net_ops);
	WRITE_ONCE(xdc_fabric_ops, NULL);
}
