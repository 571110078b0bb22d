/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What Linux 7.3 has and 7.2 lacks. modules/ is written for 7.3; what is older
 * gets here, under the same name, what it does by another.
 */
#ifndef _XDC_COMPAT_H
#define _XDC_COMPAT_H

#include <linux/netdevice.h>
#include <linux/version.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(7, 3, 0)
static inline void unregister_netdevice_queue_net(struct net *net,
						  struct net_device *dev,
						  struct list_head *head)
{
	unregister_netdevice_queue(dev, head);
}
#endif

#endif /* _XDC_COMPAT_H */
