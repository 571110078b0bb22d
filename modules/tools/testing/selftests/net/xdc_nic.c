// SPDX-License-Identifier: GPL-2.0
/*
 * A network device that sends its packets nowhere, with properties that no other device of a guest has:
 * several transmit queues, some of them unused, a settable speed, busy or slow periods, and a device lock. It
 * also sends packets that no socket does, from several processors at once. A packet for an unused queue is
 * dropped.
 *
 * ip link add nic0 numtxqueues 4 type xdc_nic
 */
#include <linux/ethtool.h>
#include <linux/etherdevice.h>
#include <linux/hrtimer.h>
#include <linux/ip.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/nsproxy.h>
#include <net/inet_ecn.h>
#include <net/rtnetlink.h>

static uint speed;
module_param(speed, uint, 0644);
MODULE_PARM_DESC(speed, "speed in Mbit/s; 0 = unknown");

static uint busy;
module_param(busy, uint, 0644);
MODULE_PARM_DESC(busy, "one in this many packets is requeued; 0 = none");

static uint slow_us;
module_param(slow_us, uint, 0644);
MODULE_PARM_DESC(slow_us, "time per packet of a transmit queue in us; 0 = none");

/* Wakes a transmit queue of a slow device. */
struct xdc_nic_wake {
	struct hrtimer timer;
	struct netdev_queue *txq;
};

/* Private area of a device, with a timer per transmit queue. */
struct xdc_nic {
	/* One for each transmit queue. */
	struct xdc_nic_wake *wakes;
};

static enum hrtimer_restart xdc_nic_wake_queue(struct hrtimer *timer)
{
	netif_tx_wake_queue(container_of(timer, struct xdc_nic_wake, timer)->txq);
	return HRTIMER_NORESTART;
}

static int xdc_nic_init_dev(struct net_device *dev)
{
	struct xdc_nic *nic = netdev_priv(dev);
	uint i;

	nic->wakes = kcalloc(dev->num_tx_queues, sizeof(*nic->wakes), GFP_KERNEL);
	if (!nic->wakes)
		return -ENOMEM;
	for (i = 0; i < dev->num_tx_queues; i++) {
		nic->wakes[i].txq = netdev_get_tx_queue(dev, i);
		hrtimer_setup(&nic->wakes[i].timer, xdc_nic_wake_queue, CLOCK_MONOTONIC,
			      HRTIMER_MODE_REL_SOFT);
	}
	return 0;
}

static void xdc_nic_uninit_dev(struct net_device *dev)
{
	struct xdc_nic *nic = netdev_priv(dev);

	kfree(nic->wakes);
}

static int xdc_nic_open(struct net_device *dev)
{
	netif_tx_start_all_queues(dev);
	return 0;
}

static int xdc_nic_stop(struct net_device *dev)
{
	struct xdc_nic *nic = netdev_priv(dev);
	uint i;

	/* The kernel sends no more packets. */
	for (i = 0; i < dev->num_tx_queues; i++)
		hrtimer_cancel(&nic->wakes[i].timer);
	return 0;
}

/* Returns an IP packet without payload, ECT(0). */
static struct sk_buff *xdc_nic_packet(struct net_device *dev)
{
	struct iphdr *ip;
	struct sk_buff *skb = alloc_skb(ETH_HLEN + sizeof(*ip), GFP_KERNEL);

	if (!skb)
		return NULL;
	skb_put(skb, ETH_HLEN + sizeof(*ip));
	memset(skb->data, 0, skb->len);
	skb_reset_mac_header(skb);
	skb_set_network_header(skb, ETH_HLEN);
	skb->protocol = htons(ETH_P_IP);
	skb->dev = dev;
	ip = ip_hdr(skb);
	ip->version = 4;
	ip->ihl = 5;
	ip->tos = INET_ECN_ECT_0;
	ip->tot_len = htons(sizeof(*ip));
	return skb;
}

/* Sends a packet by the named device, with an additional reference and a clone. */
static int xdc_nic_send_shared(const char *name, const struct kernel_param *kp)
{
	struct sk_buff *skb, *clone;
	struct net_device *dev;
	char copy[IFNAMSIZ];

	strscpy(copy, name);
	dev = dev_get_by_name(current->nsproxy->net_ns, strim(copy));
	if (!dev)
		return -ENODEV;
	skb = xdc_nic_packet(dev);
	if (!skb)
		goto put;
	clone = skb_clone(skb, GFP_KERNEL);
	dev_queue_xmit(skb_get(skb));
	kfree_skb(clone);
	kfree_skb(skb);
put:
	dev_put(dev);
	return 0;
}

static const struct kernel_param_ops xdc_nic_send_shared_ops = {
	.set = xdc_nic_send_shared,
};
module_param_cb(send_shared, &xdc_nic_send_shared_ops, NULL, 0200);
MODULE_PARM_DESC(send_shared, "device that sends a packet with another reference");

#define XDC_NIC_FLOOD_MAX 64

struct xdc_nic_flood {
	struct net_device *dev;
	uint packets;
	struct completion done;
};

static u64 xdc_nic_flood_ns;
static bool xdc_nic_floods;

static int xdc_nic_flood_one(void *data)
{
	struct xdc_nic_flood *flood = data;
	struct sk_buff *skb;
	uint n;

	for (n = 0; n < flood->packets; n++) {
		skb = xdc_nic_packet(flood->dev);
		if (skb)
			dev_queue_xmit(skb);
		cond_resched();
	}
	complete(&flood->done);
	return 0;
}

/* "DEVICE PROCESSORS PACKETS": sends PACKETS from each of the first PROCESSORS; returns after the last. */
static int xdc_nic_flood_set(const char *text, const struct kernel_param *kp)
{
	struct xdc_nic_flood *floods;
	struct task_struct *task;
	uint processors, packets, cpu, started = 0;
	struct net_device *dev;
	char name[IFNAMSIZ];
	int err = 0;
	u64 begin;

	if (sscanf(text, "%15s %u %u", name, &processors, &packets) != 3)
		return -EINVAL;
	if (!processors || processors > min(num_online_cpus(), XDC_NIC_FLOOD_MAX))
		return -ERANGE;
	dev = dev_get_by_name(current->nsproxy->net_ns, name);
	if (!dev)
		return -ENODEV;
	floods = kcalloc(processors, sizeof(*floods), GFP_KERNEL);
	if (!floods) {
		dev_put(dev);
		return -ENOMEM;
	}
	WRITE_ONCE(xdc_nic_floods, true);
	begin = ktime_get_ns();
	for (cpu = 0; cpu < processors; cpu++) {
		floods[cpu].dev = dev;
		floods[cpu].packets = packets;
		init_completion(&floods[cpu].done);
		task = kthread_create(xdc_nic_flood_one, &floods[cpu], "xdc_flood/%u", cpu);
		if (IS_ERR(task)) {
			err = PTR_ERR(task);
			break;
		}
		kthread_bind(task, cpu);
		wake_up_process(task);
		started++;
	}
	for (cpu = 0; cpu < started; cpu++)
		wait_for_completion(&floods[cpu].done);
	WRITE_ONCE(xdc_nic_flood_ns, ktime_get_ns() - begin);
	WRITE_ONCE(xdc_nic_floods, false);
	kfree(floods);
	dev_put(dev);
	return err;
}

static int xdc_nic_flood_get(char *buffer, const struct kernel_param *kp)
{
	return sysfs_emit(buffer, "%llu\n", READ_ONCE(xdc_nic_flood_ns));
}

static const struct kernel_param_ops xdc_nic_flood_ops = {
	.set = xdc_nic_flood_set,
	.get = xdc_nic_flood_get,
};
module_param_cb(flood, &xdc_nic_flood_ops, NULL, 0600);
MODULE_PARM_DESC(flood, "device, processors and packets per processor; reads the duration in ns");

/* During a flood each processor has its own queue. */
static u16 xdc_nic_select_queue(struct net_device *dev, struct sk_buff *skb,
				struct net_device *sb_dev)
{
	if (READ_ONCE(xdc_nic_floods))
		return raw_smp_processor_id() % dev->real_num_tx_queues;
	return netdev_pick_tx(dev, skb, sb_dev);
}

static netdev_tx_t xdc_nic_xmit(struct sk_buff *skb, struct net_device *dev)
{
	struct netdev_queue *txq = skb_get_tx_queue(dev, skb);
	uint queue = skb_get_queue_mapping(skb);
	struct xdc_nic *nic = netdev_priv(dev);
	uint takes_us = READ_ONCE(slow_us);
	static atomic_t tries = ATOMIC_INIT(0);
	uint period = READ_ONCE(busy);
	uint len = skb->len;

	if (period && atomic_inc_return(&tries) % period == 0)
		return NETDEV_TX_BUSY;
	if (queue >= dev->real_num_tx_queues) {
		dev_core_stats_tx_dropped_inc(dev);
		dev_kfree_skb_any(skb);
		return NETDEV_TX_OK;
	}
	if (takes_us) {
		netif_tx_stop_queue(txq);
		hrtimer_start(&nic->wakes[queue].timer, us_to_ktime(takes_us),
			      HRTIMER_MODE_REL_SOFT);
	}
	dev_sw_netstats_tx_add(dev, 1, len);
	/* Packets complete at once, so the qdisc may send several at a time. */
	netdev_tx_sent_queue(txq, len);
	netdev_tx_completed_queue(txq, 1, len);
	dev_consume_skb_any(skb);
	return NETDEV_TX_OK;
}

static int xdc_nic_get_link_ksettings(struct net_device *dev,
				      struct ethtool_link_ksettings *settings)
{
	settings->base.speed = READ_ONCE(speed) ?: SPEED_UNKNOWN;
	settings->base.duplex = DUPLEX_FULL;
	return 0;
}

static void xdc_nic_get_channels(struct net_device *dev,
				 struct ethtool_channels *channels)
{
	channels->max_tx = dev->num_tx_queues;
	channels->tx_count = dev->real_num_tx_queues;
	channels->max_rx = dev->num_rx_queues;
	channels->rx_count = dev->real_num_rx_queues;
}

static int xdc_nic_set_channels(struct net_device *dev,
				struct ethtool_channels *channels)
{
	return netif_set_real_num_tx_queues(dev, channels->tx_count);
}

static const struct ethtool_ops xdc_nic_ethtool_ops = {
	.op_needs_rtnl		= ETHTOOL_OP_NEEDS_RTNL_SCHANNELS |
				  ETHTOOL_OP_NEEDS_RTNL_GLINK,
	.get_link		= ethtool_op_get_link,
	.get_link_ksettings	= xdc_nic_get_link_ksettings,
	.get_channels		= xdc_nic_get_channels,
	.set_channels		= xdc_nic_set_channels,
};

static const struct net_device_ops xdc_nic_ops = {
	.ndo_init		= xdc_nic_init_dev,
	.ndo_uninit		= xdc_nic_uninit_dev,
	.ndo_open		= xdc_nic_open,
	.ndo_stop		= xdc_nic_stop,
	.ndo_start_xmit		= xdc_nic_xmit,
	.ndo_select_queue	= xdc_nic_select_queue,
	.ndo_set_mac_address	= eth_mac_addr,
	.ndo_validate_addr	= eth_validate_addr,
};

static void xdc_nic_setup(struct net_device *dev)
{
	ether_setup(dev);
	eth_hw_addr_random(dev);
	dev->netdev_ops = &xdc_nic_ops;
	dev->ethtool_ops = &xdc_nic_ethtool_ops;
	dev->needs_free_netdev = true;
	dev->pcpu_stat_type = NETDEV_PCPU_STAT_TSTATS;
	dev->request_ops_lock = true;
}

static struct rtnl_link_ops xdc_nic_link_ops = {
	.kind		= "xdc_nic",
	.priv_size	= sizeof(struct xdc_nic),
	.setup		= xdc_nic_setup,
};

static int __init xdc_nic_init(void)
{
	return rtnl_link_register(&xdc_nic_link_ops);
}

static void __exit xdc_nic_exit(void)
{
	rtnl_link_unregister(&xdc_nic_link_ops);
}

module_init(xdc_nic_init);
module_exit(xdc_nic_exit);
MODULE_AUTHOR("xdc developers");
MODULE_DESCRIPTION("Network device that is sometimes busy, for tests");
MODULE_LICENSE("GPL");
MODULE_ALIAS_RTNL_LINK("xdc_nic");
