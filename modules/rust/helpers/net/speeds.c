// SPDX-License-Identifier: GPL-2.0
/*
 * Speeds of the sending devices, readable without RTNL.
 *
 * An event only means that devices must be queried again. A worker queries: the event of a device
 * comes with its lock held, which a VLAN or bridge on top of it takes to answer. The worker queries
 * all devices, since no event reports a bond's new speed.
 */

#include <linux/ethtool.h>
#include <linux/netdevice.h>
#include <linux/rtnetlink.h>

#include "helpers.h"

/* Combines a series of events into one query. */
#define XDC_SPEEDS_DELAY_MS 100

/* Devices are aligned to more than this; a smaller index makes the array less deep. */
static unsigned long xdc_speeds_index(const struct net_device *dev)
{
	BUILD_BUG_ON(__alignof__(struct net_device) < 32);
	return (unsigned long)dev >> 5;
}

/* Under RTNL, which keeps every device in the array. */
static void xdc_speeds_ask(struct xdc_speeds *speeds)
{
	struct ethtool_link_ksettings ecmd;
	struct net_device *dev;
	unsigned long index;
	void *entry;

	xa_for_each(&speeds->mbps, index, entry) {
		dev = (struct net_device *)(index << 5);
		if (__ethtool_get_link_ksettings(dev, &ecmd) < 0 ||
		    !ecmd.base.speed || ecmd.base.speed == SPEED_UNKNOWN)
			continue;
		if (xa_to_value(entry) != ecmd.base.speed)
			xa_store(&speeds->mbps, index, xa_mk_value(ecmd.base.speed),
				 GFP_KERNEL);
	}
}

static void xdc_speeds_work(struct work_struct *work)
{
	rtnl_lock();
	xdc_speeds_ask(container_of(to_delayed_work(work), struct xdc_speeds, work));
	rtnl_unlock();
}

static int xdc_speeds_event(struct notifier_block *block, unsigned long event, void *info)
{
	struct xdc_speeds *speeds = container_of(block, struct xdc_speeds, block);
	const struct net_device *dev = netdev_notifier_info_to_dev(info);

	switch (event) {
	case NETDEV_UP:
		if (dev->flags & IFF_LOOPBACK)
			break;
		/* Without memory the device counts as one without a speed. */
		if (!xa_load(&speeds->mbps, xdc_speeds_index(dev)))
			xa_store(&speeds->mbps, xdc_speeds_index(dev), xa_mk_value(0),
				 GFP_KERNEL);
		fallthrough;
	case NETDEV_CHANGE:
	case NETDEV_CHANGEUPPER:
	case NETDEV_CHANGELOWERSTATE:
		/* A pending query is not postponed: a steady stream of events must not delay it. */
		queue_delayed_work(system_dfl_wq, &speeds->work,
				   msecs_to_jiffies(XDC_SPEEDS_DELAY_MS));
		break;
	case NETDEV_UNREGISTER:
		xa_erase(&speeds->mbps, xdc_speeds_index(dev));
		break;
	}
	return NOTIFY_DONE;
}

int xdc_speeds_register(struct xdc_speeds *speeds)
{
	int ret;

	xa_init(&speeds->mbps);
	INIT_DELAYED_WORK(&speeds->work, xdc_speeds_work);
	speeds->block.notifier_call = xdc_speeds_event;
	/* The worker queries the devices that are up. */
	ret = register_netdevice_notifier(&speeds->block);
	if (ret) {
		cancel_delayed_work_sync(&speeds->work);
		xa_destroy(&speeds->mbps);
		return ret;
	}
	/* The first flow needs the speeds. */
	rtnl_lock();
	xdc_speeds_ask(speeds);
	rtnl_unlock();
	return 0;
}

void xdc_speeds_unregister(struct xdc_speeds *speeds)
{
	unregister_netdevice_notifier(&speeds->block);
	cancel_delayed_work_sync(&speeds->work);
	xa_destroy(&speeds->mbps);
}

/* Returns Mbit/s; 0: the socket's device reports no speed. */
u32 xdc_speeds_of(struct xdc_speeds *speeds, const struct sock *sk)
{
	const struct net_device *dev;
	struct dst_entry *dst;
	u32 ret = XDC_SPEED_UNKNOWN;

	rcu_read_lock();
	dst = rcu_dereference(sk->sk_dst_cache);
	if (dst) {
		dev = dst_dev_rcu(dst);
		/* A VRF replaces the loopback for its addresses. */
		if (dev->flags & IFF_LOOPBACK || netif_is_l3_master(dev)) {
			ret = XDC_SPEED_LOOPBACK;
		} else {
			void *entry = xa_load(&speeds->mbps, xdc_speeds_index(dev));

			ret = entry ? min(xa_to_value(entry), XDC_SPEED_MAX) : 0;
		}
	}
	rcu_read_unlock();
	return ret;
}
