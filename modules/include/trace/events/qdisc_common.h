/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Common fields of qdiscs' tracepoints. Each module's own are in NAME.h beside this file, with
 * the structs that Rust fills; Kbuild finds it.
 */
#ifndef _XDC_TRACE_QDISC_COMMON_H
#define _XDC_TRACE_QDISC_COMMON_H

#include <linux/netdevice.h>
#include <linux/skbuff.h>
#include <linux/tracepoint.h>
#include <net/sch_generic.h>

#define XDC_TP_QDISC_ENTRY						\
		__array(char, dev, IFNAMSIZ)				\
		__field(__u32, ifindex)					\
		__field(__u32, netns)					\
		__field(__u32, handle)

#define XDC_TP_QDISC_ASSIGN(sch)					\
	do {								\
		const struct net_device *dev = qdisc_dev(sch);		\
									\
		strscpy_pad(__entry->dev, dev->name, IFNAMSIZ);		\
		__entry->ifindex = dev->ifindex;			\
		__entry->netns = dev_net(dev)->ns.inum;			\
		__entry->handle = (sch)->handle;			\
	} while (0)

#define XDC_TP_QDISC_FORMAT "dev=%s ifindex=%u netns=%u handle=%x:%x "

#define XDC_TP_QDISC_ARGS						\
	__entry->dev, __entry->ifindex, __entry->netns,			\
	__entry->handle >> 16, __entry->handle & 0xffff

#endif /* _XDC_TRACE_QDISC_COMMON_H */
