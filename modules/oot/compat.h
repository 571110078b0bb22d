/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Functions of Linux 7.3 that 7.2 lacks. modules/ is written for 7.3; older kernels get the same
 * names here.
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
