/* SPDX-License-Identifier: GPL-2.0 */
/* Tracepoints of unorc. Their fields are an interface: docs/tracing.md. */
#ifndef _XDC_TRACE_UNORC_TYPES
#define _XDC_TRACE_UNORC_TYPES

#include <linux/types.h>

/* Reason for an action of a chooser. */
enum xdc_unorc_cause {
	XDC_UNORC_MARK,
	XDC_UNORC_LOSS,
	XDC_UNORC_NACK,
	XDC_UNORC_TIMEOUT,
};

/* State of a session. */
enum xdc_unorc_standing {
	XDC_UNORC_DOWN,
	XDC_UNORC_ASKED,
	XDC_UNORC_UP,
};

struct xdc_unorc_decoded {
	u16 channel;
	u32 block;
	u32 have;
	u8 k;
};

struct xdc_unorc_nack {
	u16 channel;
	u32 block;
	u32 lost;
	bool sent;
};

struct xdc_unorc_reroute {
	u16 channel;
	u16 entropy;
	u32 paths;
	enum xdc_unorc_cause cause;
};

struct xdc_unorc_freeze {
	u16 channel;
	u16 entropy;
	u64 until_us;
	enum xdc_unorc_cause cause;
};

struct xdc_unorc_session {
	enum xdc_unorc_standing from;
	enum xdc_unorc_standing to;
};

#endif /* _XDC_TRACE_UNORC_TYPES */

#undef TRACE_SYSTEM
#define TRACE_SYSTEM xdc

#if !defined(_XDC_TRACE_UNORC_H) || defined(TRACE_HEADER_MULTI_READ)
#define _XDC_TRACE_UNORC_H

#include <linux/netdevice.h>
#include <linux/tracepoint.h>

TRACE_DEFINE_ENUM(XDC_UNORC_MARK);
TRACE_DEFINE_ENUM(XDC_UNORC_LOSS);
TRACE_DEFINE_ENUM(XDC_UNORC_NACK);
TRACE_DEFINE_ENUM(XDC_UNORC_TIMEOUT);
TRACE_DEFINE_ENUM(XDC_UNORC_DOWN);
TRACE_DEFINE_ENUM(XDC_UNORC_ASKED);
TRACE_DEFINE_ENUM(XDC_UNORC_UP);

#define xdc_show_unorc_cause(cause)					\
	__print_symbolic(cause,						\
		{ XDC_UNORC_MARK, "mark" },				\
		{ XDC_UNORC_LOSS, "loss" },				\
		{ XDC_UNORC_NACK, "nack" },				\
		{ XDC_UNORC_TIMEOUT, "timeout" })

#define xdc_show_unorc_standing(standing)				\
	__print_symbolic(standing,					\
		{ XDC_UNORC_DOWN, "down" },				\
		{ XDC_UNORC_ASKED, "asked" },				\
		{ XDC_UNORC_UP, "up" })

/* The tunnel's device. */
#define XDC_TP_TUNNEL_ENTRY						\
		__array(char, dev, IFNAMSIZ)				\
		__field(__u32, ifindex)					\
		__field(__u32, netns)

#define XDC_TP_TUNNEL_ASSIGN(device)					\
	do {								\
		strscpy(__entry->dev, (device)->name, IFNAMSIZ);	\
		__entry->ifindex = (device)->ifindex;			\
		__entry->netns = dev_net(device)->ns.inum;		\
	} while (0)

#define XDC_TP_TUNNEL_FORMAT "dev=%s ifindex=%u netns=%u "
#define XDC_TP_TUNNEL_ARGS __entry->dev, __entry->ifindex, __entry->netns

TRACE_EVENT(unorc_decoded,

	TP_PROTO(const struct net_device *device, const struct xdc_unorc_decoded *decoded),

	TP_ARGS(device, decoded),

	TP_STRUCT__entry(
		XDC_TP_TUNNEL_ENTRY
		__field(__u16, channel)
		__field(__u32, block)
		__field(__u32, have)
		__field(__u8, k)
	),

	TP_fast_assign(
		XDC_TP_TUNNEL_ASSIGN(device);
		__entry->channel = decoded->channel;
		__entry->block = decoded->block;
		__entry->have = decoded->have;
		__entry->k = decoded->k;
	),

	TP_printk(XDC_TP_TUNNEL_FORMAT "channel=%u block=%u have=0x%x k=%u",
		  XDC_TP_TUNNEL_ARGS, __entry->channel, __entry->block,
		  __entry->have, __entry->k)
);

TRACE_EVENT(unorc_nack,

	TP_PROTO(const struct net_device *device, const struct xdc_unorc_nack *nack),

	TP_ARGS(device, nack),

	TP_STRUCT__entry(
		XDC_TP_TUNNEL_ENTRY
		__field(__u16, channel)
		__field(__u32, block)
		__field(__u32, lost)
		__field(__u8, sent)
	),

	TP_fast_assign(
		XDC_TP_TUNNEL_ASSIGN(device);
		__entry->channel = nack->channel;
		__entry->block = nack->block;
		__entry->lost = nack->lost;
		__entry->sent = nack->sent;
	),

	TP_printk(XDC_TP_TUNNEL_FORMAT "channel=%u block=%u lost=0x%x sent=%u",
		  XDC_TP_TUNNEL_ARGS, __entry->channel, __entry->block,
		  __entry->lost, __entry->sent)
);

TRACE_EVENT(unorc_reroute,

	TP_PROTO(const struct net_device *device, const struct xdc_unorc_reroute *reroute),

	TP_ARGS(device, reroute),

	TP_STRUCT__entry(
		XDC_TP_TUNNEL_ENTRY
		__field(__u16, channel)
		__field(__u16, entropy)
		__field(__u32, paths)
		__field(__u8, cause)
	),

	TP_fast_assign(
		XDC_TP_TUNNEL_ASSIGN(device);
		__entry->channel = reroute->channel;
		__entry->entropy = reroute->entropy;
		__entry->paths = reroute->paths;
		__entry->cause = reroute->cause;
	),

	TP_printk(XDC_TP_TUNNEL_FORMAT "channel=%u entropy=%u paths=%u cause=%s",
		  XDC_TP_TUNNEL_ARGS, __entry->channel, __entry->entropy,
		  __entry->paths, xdc_show_unorc_cause(__entry->cause))
);

TRACE_EVENT(unorc_freeze,

	TP_PROTO(const struct net_device *device, const struct xdc_unorc_freeze *freeze),

	TP_ARGS(device, freeze),

	TP_STRUCT__entry(
		XDC_TP_TUNNEL_ENTRY
		__field(__u16, channel)
		__field(__u16, entropy)
		__field(__u64, until_us)
		__field(__u8, cause)
	),

	TP_fast_assign(
		XDC_TP_TUNNEL_ASSIGN(device);
		__entry->channel = freeze->channel;
		__entry->entropy = freeze->entropy;
		__entry->until_us = freeze->until_us;
		__entry->cause = freeze->cause;
	),

	TP_printk(XDC_TP_TUNNEL_FORMAT "channel=%u entropy=%u until_us=%llu cause=%s",
		  XDC_TP_TUNNEL_ARGS, __entry->channel, __entry->entropy,
		  __entry->until_us, xdc_show_unorc_cause(__entry->cause))
);

TRACE_EVENT(unorc_session,

	TP_PROTO(const struct net_device *device, const struct xdc_unorc_session *session),

	TP_ARGS(device, session),

	TP_STRUCT__entry(
		XDC_TP_TUNNEL_ENTRY
		__field(__u8, from)
		__field(__u8, to)
	),

	TP_fast_assign(
		XDC_TP_TUNNEL_ASSIGN(device);
		__entry->from = session->from;
		__entry->to = session->to;
	),

	TP_printk(XDC_TP_TUNNEL_FORMAT "from=%s to=%s", XDC_TP_TUNNEL_ARGS,
		  xdc_show_unorc_standing(__entry->from),
		  xdc_show_unorc_standing(__entry->to))
);

#endif /* _XDC_TRACE_UNORC_H */

#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE unorc
#include <trace/define_trace.h>
