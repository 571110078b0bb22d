/* SPDX-License-Identifier: GPL-2.0 */
/* Structures that the driver's C files share, and its interface to Rust. */
#ifndef _XDC_FABRIC_H
#define _XDC_FABRIC_H

#include <linux/hrtimer.h>
#include <linux/netdevice.h>
#include <linux/refcount.h>
#include <linux/skbuff.h>

#include <uapi/linux/fabric.h>
#include <uapi/linux/pkt_phantom.h>

/* Packets that a softirq or a sender delivers at most, below net.core.netdev_max_backlog. */
#define XDC_FABRIC_BATCH 512

/* Largest numbers of switches, ports, links and hosts. A table is one attribute, of 65,531 bytes at most. */
#define XDC_FABRIC_SWITCHES 65536
#define XDC_FABRIC_PORTS 1000000
#define XDC_FABRIC_DEVICES 65536
#define XDC_FABRIC_HOSTS 32765

/* Control block of a packet in the network. */
struct xdc_fabric_cb {
	u64 due_ns;
	u32 len;
	/* Memory when it entered. */
	u32 truesize;
	/* Negative: no host. */
	s32 destination;
	/* Flow of a packet over IPv4, for the hash. */
	__be32 saddr, daddr, ports;
	u8 protocol;
	u8 color;
	/* Remaining hops. */
	u8 ttl;
};

struct xdc_fabric;

struct xdc_fabric_size {
	u32 switches, ports, pools;
};

/* A switch as netlink describes it. */
struct xdc_fabric_switch {
	u32 seed;
	bool is_spraying;
	const u16 *table;
	const u32 *starts, *hops;
	u32 table_len, starts_len, hops_len;
};

/* A port as netlink describes it. */
struct xdc_fabric_port {
	/* Negative: none. */
	s32 peer_switch, peer_device, pool;
	u64 rate_bytes_per_s, delay_ns, seed, burst_seed, police_bytes_per_s, police_burst_bytes;
	u32 jitter_ns, loss;
	u32 burst_ppm[3];
	bool has_burst;
	/* NULL: no change. */
	const struct nlattr *queue;
};

struct xdc_fabric_counts {
	u64 received, unroutable, expired;
};

/*
 * Operations of Rust. A function with "now_ns" is called with the network's lock; it does not sleep, and
 * returns the time of the next event where it returns a time. The others may sleep.
 */
struct xdc_fabric_ops {
	/* Returns the network or NULL. "limits" has a size for each shared buffer. */
	void *(*open)(const struct xdc_fabric_size *size, const u64 *limits);
	void (*close)(void *network);

	/* These return settings or an error pointer. "apply" swaps them with the old ones. */
	void *(*make_switch)(const struct xdc_fabric_switch *it);
	void (*apply_switch)(void *network, u32 id, void *settings);
	void (*free_switch)(void *settings);
	void *(*make_port)(const struct xdc_fabric_port *it, struct netlink_ext_ack *extack);
	u64 (*apply_port)(void *network, u32 id, const void *settings, u64 now_ns);
	void (*free_port)(void *settings);

	/* A packet, which Rust owns from now on, arrives at a switch. */
	u64 (*arrive)(void *network, struct xdc_fabric *out, u32 id, struct sk_buff *skb, u64 now_ns);
	u64 (*run)(void *network, struct xdc_fabric *out, u64 now_ns);

	void (*count_switch)(void *network, u32 id, struct xdc_fabric_counts *counts);
	/* Returns whether the port has a queue. */
	bool (*count_port)(void *network, u32 id, struct fabric_stats *stats,
			   struct tc_phantom_xstats *xstats, u64 now_ns);
};

/* One network. References: its namespace, and each link. */
struct xdc_fabric {
	refcount_t users;
	struct xdc_fabric_size size;
	u32 first_host, hosts, devices_len;
	struct hrtimer timer;
	/* Protects all below, and the object of "network". */
	spinlock_t lock;
	/* NULL: removed. */
	void *network;
	/* Time that "timer" is set to. */
	u64 armed_ns;
	struct net_device **devices;
	/* Packets that have arrived. One processor at a time delivers them, so that they keep their order. */
	struct sk_buff_head arrived;
	bool is_delivering;
};

extern const struct xdc_fabric_ops *xdc_fabric_ops;

/* Called by Rust. */
int xdc_fabric_register(const struct xdc_fabric_ops *ops);
void xdc_fabric_unregister(void);
u32 xdc_fabric_hash(const struct sk_buff *skb, u32 seed);
void xdc_fabric_deliver(struct xdc_fabric *out, u32 device, struct sk_buff *skb);
void xdc_fabric_drop(struct xdc_fabric *out, struct sk_buff *skb, u32 reason);
void xdc_fabric_free(struct sk_buff *skb);

/* Reasons of xdc_fabric_drop(). */
enum xdc_fabric_reason {
	XDC_FABRIC_LINK,
	XDC_FABRIC_ROUTE,
	XDC_FABRIC_HOPS,
	XDC_FABRIC_FULL,
	XDC_FABRIC_ECN,
	XDC_FABRIC_POLICER,
};

/* device.c */
struct xdc_fabric *xdc_fabric_get(struct net *net);
int xdc_fabric_new(struct net *net, const struct xdc_fabric_size *size, u32 devices, u32 first_host, u32 hosts,
		   const u64 *limits);
void xdc_fabric_put(struct xdc_fabric *fabric);
int xdc_fabric_del(struct net *net);
void xdc_fabric_arm(struct xdc_fabric *fabric, u64 next_ns);

/* netlink.c */
int xdc_fabric_netlink_register(void);
void xdc_fabric_netlink_unregister(void);

#endif /* _XDC_FABRIC_H */
