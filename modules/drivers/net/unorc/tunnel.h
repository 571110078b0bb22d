/* SPDX-License-Identifier: GPL-2.0 */
/* Structures that the driver's C files share. */
#ifndef _XDC_UNORC_TUNNEL_H
#define _XDC_UNORC_TUNNEL_H

#include <linux/hashtable.h>
#include <linux/hrtimer.h>
#include <linux/netdevice.h>
#include <linux/rhashtable.h>
#include <linux/siphash.h>
#include <linux/u64_stats_sync.h>
#include <net/ip.h>
#include <net/ipv6.h>
#include <net/udp_tunnel.h>

#include "device.h"

/* Overhead of each packet: IPv6 or IPv4, UDP, the module's header. */
#define XDC_TUNNEL_OVERHEAD (sizeof(struct ipv6hdr) + sizeof(struct udphdr) + XDC_TUNNEL_HEADER)
#define XDC_TUNNEL_OVERHEAD_IPV4 \
	(XDC_TUNNEL_OVERHEAD - sizeof(struct ipv6hdr) + sizeof(struct iphdr))

struct xdc_peer;

/* Packets of one order: its lock is not shared with other channels. */
struct xdc_channel {
	struct xdc_peer *peer;
	/* Delivers the packets of "up", alone, so that packets of a flow keep their order. */
	struct napi_struct napi;
	struct hrtimer timer;
	/* Protects the fields from here on, and the object of "state". */
	spinlock_t lock;
	struct sk_buff_head up;
	/* Sum of the truesize of the packets in "up". */
	unsigned int up_bytes;
	u64 due_us;
	/* The module's channel; NULL = the device is down. */
	void *state;
};

/* Peers are added and removed under RTNL, and found under RCU. */
struct xdc_peer {
	struct xdc_tunnel *tunnel;
	struct hlist_node node;
	struct list_head allowed;
	struct in6_addr remote;
	/* Zeros: no key. A mix of two keys fails the check of one packet. */
	siphash_key_t key;
	/* Tags of this end and of the peer; 0 = none. */
	atomic64_t mine, theirs;
	struct hrtimer timer;
	/* Protects "due_us" and the object of "session". */
	spinlock_t lock;
	u64 due_us;
	void *session;
	/* Longest inner packet that fits the last outer route; 0 = no packet was sent. */
	unsigned int path_mtu;
	struct xdc_channel channels[];
};

/* Addresses with a common prefix. IPv4 is mapped to IPv6, with 96 more bits. */
struct xdc_range {
	struct in6_addr prefix;
	u32 bits;
};

/* A range of inner addresses, which belongs to a peer. */
struct xdc_allowed {
	struct rhash_head node;
	struct list_head of_peer;
	struct xdc_peer *peer;
	struct xdc_range range;
	struct rcu_head rcu;
};

struct xdc_tunnel_counters {
	struct u64_stats_sync syncp;
	u64_stats_t values[XDC_TUNNEL_COUNTERS];
};

struct xdc_tunnel {
	struct net_device *dev;
	/* Namespace of the socket and routes; the device may be in another. */
	struct net *net;
	struct list_head node;
	struct xdc_tunnel_config config;
	struct sock __rcu *sk;
	struct xdc_tunnel_counters __percpu *counters;
	/* Number of tunnels around this one, as of jiffies "nested_at". */
	unsigned int nested;
	unsigned long nested_at;
	unsigned int peer_count;
	/* Changes with the set of peers. */
	unsigned int generation;
	/* Peers by "remote". */
	DECLARE_HASHTABLE(peers, 6);
	/* Ranges, and the lengths in use. */
	struct rhashtable allowed;
	DECLARE_BITMAP(lengths, 129);
};

extern const struct xdc_tunnel_ops *xdc_tunnel_ops;
extern struct rtnl_link_ops xdc_tunnel_link_ops;

static inline bool xdc_tunnel_is_ipv6(const struct xdc_tunnel_config *config)
{
	return ipv6_mod_enabled() && !ipv6_addr_v4mapped(&config->local);
}

static inline unsigned int xdc_tunnel_overhead(const struct xdc_tunnel_config *config)
{
	return xdc_tunnel_is_ipv6(config) ? XDC_TUNNEL_OVERHEAD : XDC_TUNNEL_OVERHEAD_IPV4;
}

/* Returns the reduction of the MTU: a parity is two bytes longer than the longest packet. */
static inline unsigned int xdc_tunnel_mtu_less(const struct xdc_tunnel_config *config)
{
	return xdc_tunnel_overhead(config) + 2;
}

struct xdc_tunnel_cb {
	u8 header[XDC_TUNNEL_HEADER];
	u16 port;
	bool is_capable;
	/* ECN of the outer header of a received packet. */
	u8 ecn;
};

static inline struct xdc_tunnel_cb *xdc_tunnel_cb(struct sk_buff *skb)
{
	BUILD_BUG_ON(sizeof(struct xdc_tunnel_cb) > sizeof(skb->cb));
	return (struct xdc_tunnel_cb *)skb->cb;
}

/* Returns the addresses of a packet, IPv4 mapped to IPv6. */
static inline void xdc_tunnel_addresses(const struct sk_buff *skb, struct in6_addr *from,
					struct in6_addr *to)
{
	if (skb->protocol == htons(ETH_P_IP)) {
		ipv6_addr_set_v4mapped(ip_hdr(skb)->saddr, from);
		ipv6_addr_set_v4mapped(ip_hdr(skb)->daddr, to);
	} else {
		*from = ipv6_hdr(skb)->saddr;
		*to = ipv6_hdr(skb)->daddr;
	}
}

/* send.c */
netdev_tx_t xdc_tunnel_xmit(struct sk_buff *skb, struct net_device *dev);
void xdc_peer_send_one(struct xdc_peer *peer, struct sk_buff *skb);

/* packets.c */
void xdc_peer_transmit(struct xdc_peer *peer, struct sk_buff *skb);
int xdc_tunnel_receive(struct sock *sk, struct sk_buff *skb);
void xdc_peer_init(struct xdc_peer *peer);
void xdc_peer_uninit(struct xdc_peer *peer);

/* peers.c */
u64 xdc_peer_sign(const struct xdc_peer *peer, u64 tag, const u8 *header, const u8 *body, unsigned int len);
struct xdc_peer *xdc_peer_find(struct xdc_tunnel *tunnel, const struct in6_addr *remote);
struct xdc_peer *xdc_allowed_find(struct xdc_tunnel *tunnel, const struct in6_addr *address);
bool xdc_tunnel_may_change(const struct xdc_tunnel *tunnel);
int xdc_peers_init(struct xdc_tunnel *tunnel);
void xdc_peers_uninit(struct xdc_tunnel *tunnel);
int xdc_peer_open(struct xdc_peer *peer);
void xdc_peer_close(struct xdc_peer *peer);
int xdc_peers_register(void);
void xdc_peers_unregister(void);

/* device.c */
void xdc_tunnel_parse_address(struct in6_addr *address, const struct nlattr *ipv4,
			      const struct nlattr *ipv6);
int xdc_tunnel_fill_address(struct sk_buff *skb, int ipv4, int ipv6, const struct in6_addr *address);
bool xdc_peer_is_sound(const struct xdc_tunnel_config *config, const struct in6_addr *remote);

#endif /* _XDC_UNORC_TUNNEL_H */
