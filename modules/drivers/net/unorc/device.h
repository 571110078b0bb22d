/* SPDX-License-Identifier: GPL-2.0 */
/* A network device whose packets go to its peers over UDP. */
#ifndef _XDC_UNORC_DEVICE_H
#define _XDC_UNORC_DEVICE_H

#include <linux/in6.h>
#include <linux/netdevice.h>
#include <linux/skbuff.h>

#define XDC_TUNNEL_COUNTERS 32
/* Kind and version, channel, six bytes of the module, and the tag. */
#define XDC_TUNNEL_HEADER 16
/* First byte of a packet of the session. */
#define XDC_TUNNEL_HELLO 0x34
struct xdc_tunnel_out;

/* Settings of a device. */
struct xdc_tunnel_config {
	/* IPv4 is mapped to IPv6. "remote" is the peer of "ip link", or zeros. */
	struct in6_addr local, remote;
	__be16 port;
	u16 mtu;
	u8 data, parity, paths, freeze;
	u32 timer_us, flush_us;
	u8 channels;
	u16 window;
	/* Fields of outer packets. */
	u32 fwmark;
	u8 tos, ttl, df;
};

/*
 * Operations of the module. A peer has a session and several channels, each with a lock of its own. Calls
 * have exclusive access to their session or channel, with BH off, own the packet, and return the time of the
 * next poll in us; 0 = none. "theirs" is the tag of the peer, 0 without a session.
 */
struct xdc_tunnel_ops {
	const char *kind;
	const char *const *counters;
	unsigned int counter_count;
	/* Returns NULL, or the reason for a refusal. */
	const char *(*check)(const struct xdc_tunnel_config *config);

	/* Sets this end's tag, never 0. */
	void *(*open_session)(const struct xdc_tunnel_config *config, u64 *mine);
	void (*close_session)(void *session);
	u64 (*theirs)(const void *session);
	/* A packet from the stack, without a session. */
	u64 (*wait)(void *session, struct xdc_tunnel_out *out, struct sk_buff *skb, u64 now_us);
	/* A HELLO without its header. */
	u64 (*hello)(void *session, struct xdc_tunnel_out *out, struct sk_buff *skb, u64 now_us);
	/* A packet with another tag. */
	u64 (*stranger)(void *session, struct xdc_tunnel_out *out, u64 now_us);
	/* A packet with this end's tag, without a session. */
	u64 (*ask)(void *session, struct xdc_tunnel_out *out, u64 now_us);
	u64 (*poll_session)(void *session, struct xdc_tunnel_out *out, u64 now_us);

	void *(*open_channel)(const struct xdc_tunnel_config *config, u8 number);
	void (*close_channel)(void *channel);
	/* Called with settings that passed check(). */
	void (*change)(void *channel, const struct xdc_tunnel_config *config);
	u64 (*transmit)(void *channel, struct xdc_tunnel_out *out, struct sk_buff *skb, u64 theirs,
			u64 now_us);
	/* "port" is the source port. */
	u64 (*receive)(void *channel, struct xdc_tunnel_out *out, struct sk_buff *skb, u16 port,
		       bool is_marked, u64 theirs, u64 now_us);
	u64 (*poll)(void *channel, struct xdc_tunnel_out *out, u64 theirs, u64 now_us);
};

int xdc_tunnel_register(const struct xdc_tunnel_ops *ops);
void xdc_tunnel_unregister(void);
struct sk_buff *xdc_tunnel_make(struct xdc_tunnel_out *out, unsigned int len);
struct sk_buff *xdc_tunnel_copy(struct sk_buff *skb);
void xdc_tunnel_send(struct xdc_tunnel_out *out, struct sk_buff *skb, const u8 *header, u16 port,
		     bool is_capable);
void xdc_tunnel_again(struct xdc_tunnel_out *out, struct sk_buff *skb);
void xdc_tunnel_deliver(struct xdc_tunnel_out *out, struct sk_buff *skb, bool is_marked);
struct net_device *xdc_tunnel_device(const struct xdc_tunnel_out *out);
void xdc_tunnel_count(struct xdc_tunnel_out *out, unsigned int counter, u64 n);
void xdc_tunnel_free(struct sk_buff *skb);
u8 *xdc_tunnel_bytes(struct sk_buff *skb, unsigned int *len);
bool xdc_tunnel_is_shared(const struct sk_buff *skb);
void xdc_tunnel_cut(struct sk_buff *skb, unsigned int start, unsigned int len);

#endif /* _XDC_UNORC_DEVICE_H */
