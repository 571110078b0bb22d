// SPDX-License-Identifier: GPL-2.0

#include <linux/ethtool.h>
#include <linux/netdevice.h>
#include <linux/rtnetlink.h>

#include "helpers.h"

struct net_device *xdc_netdev_of_event(void *info)
{
	return netdev_notifier_info_to_dev(info);
}

/* 0 = the device reports no speed, for instance because its link is down. Under RTNL. */
u64 xdc_netdev_link_bytes_per_s(struct net_device *dev)
{
	struct ethtool_link_ksettings ecmd;

	ASSERT_RTNL();
	if (netif_get_link_ksettings(dev, &ecmd) < 0 ||
	    ecmd.base.speed == SPEED_UNKNOWN)
		return 0;
	return (u64)ecmd.base.speed * (1000 * 1000 / BITS_PER_BYTE);
}
