/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * The fabric: a network of switches between links of kind fabric. A generic netlink family sets up one
 * network per namespace; its links may be in any namespace.
 */
#ifndef _UAPI_FABRIC_H
#define _UAPI_FABRIC_H

#include <linux/types.h>

/* IFLA_INFO_DATA of a link of kind fabric. */
enum {
	IFLA_FABRIC_UNSPEC,
	IFLA_FABRIC_DEVICE,	/* u32: number of the link, FABRIC_A_PEER_DEVICE of a port */
	IFLA_FABRIC_SWITCH,	/* u32: switch that receives its packets */
	__IFLA_FABRIC_MAX
};
#define IFLA_FABRIC_MAX (__IFLA_FABRIC_MAX - 1)

#define FABRIC_GENL_NAME "fabric"
#define FABRIC_GENL_VERSION 1

enum {
	FABRIC_CMD_UNSPEC,
	FABRIC_CMD_NEW,		/* create the network: SWITCHES, PORTS, DEVICES, POOLS, FIRST_HOST, HOSTS */
	FABRIC_CMD_SWITCH,	/* set a switch: ID, SEED, SPRAY, TABLE, STARTS, HOPS */
	FABRIC_CMD_PORT,	/* set a port, whose packets stay: ID and the attributes from PEER_SWITCH on */
	FABRIC_CMD_GET,		/* counters of the port ID; dump: all ports, then all switches */
	FABRIC_CMD_DEL,		/* remove the network; its links stay, without a network */
	__FABRIC_CMD_MAX
};
#define FABRIC_CMD_MAX (__FABRIC_CMD_MAX - 1)

enum {
	FABRIC_A_UNSPEC,
	FABRIC_A_PAD,
	FABRIC_A_SWITCHES,	/* u32: number of switches */
	FABRIC_A_PORTS,		/* u32: number of ports of all switches */
	FABRIC_A_DEVICES,	/* u32: number of links to hosts */
	FABRIC_A_POOLS,		/* u64, repeated: size of each shared buffer in bytes */
	FABRIC_A_FIRST_HOST,	/* u32: low 32 bits of the first host's address; others follow */
	FABRIC_A_HOSTS,		/* u32: number of hosts */
	FABRIC_A_ID,		/* u32: number of the switch or port, from 0 */
	/* A switch */
	FABRIC_A_SEED,		/* u32: seed of the hash that chooses among equally good ports */
	FABRIC_A_SPRAY,		/* flag: choose a port for each packet, at random */
	FABRIC_A_TABLE,		/* u16[]: number of the way to each host */
	FABRIC_A_STARTS,	/* u32[]: first index in HOPS of each way, and the length of HOPS */
	FABRIC_A_HOPS,		/* u32[]: ports of the ways */
	/* A port */
	FABRIC_A_PEER_SWITCH,	/* u32: switch at the other end */
	FABRIC_A_PEER_DEVICE,	/* u32: link of a host at the other end */
	FABRIC_A_RATE,		/* u64, bytes/s: serialization without a queue; 0: none */
	FABRIC_A_DELAY,		/* u64, ns: propagation */
	FABRIC_A_JITTER,	/* u32, ns: extra delay, uniform from 0; packets keep their order */
	FABRIC_A_LOSS,		/* u32: share of lost packets, in 2^-32; all ones: each */
	FABRIC_A_WIRE_SEED,	/* u64: seed of jitter and losses */
	FABRIC_A_BURST,		/* u32[3]: of each million blocks of ten packets, those that lose 1, 2 and 3 */
	FABRIC_A_BURST_SEED,	/* u64 */
	FABRIC_A_POLICE_RATE,	/* u64, bytes/s: policer before the wire; 0: none */
	FABRIC_A_POLICE_BURST,	/* u64, bytes */
	FABRIC_A_QUEUE,		/* TCA_PHANTOM_*: the queue; absent: unlimited, or unchanged */
	FABRIC_A_POOL,		/* u32: shared buffer of the queue */
	/* Counters */
	FABRIC_A_RECEIVED,	/* u64: packets of a switch */
	FABRIC_A_UNROUTABLE,	/* u64: packets dropped for lack of a route */
	FABRIC_A_EXPIRED,	/* u64: packets dropped after too many hops */
	FABRIC_A_STATS,		/* struct fabric_stats of a port */
	FABRIC_A_XSTATS,	/* struct tc_phantom_xstats of its queue */
	__FABRIC_A_MAX
};
#define FABRIC_A_MAX (__FABRIC_A_MAX - 1)

/* Counters of a port. */
struct fabric_stats {
	__u64 sent_packets;	/* to the other end */
	__u64 sent_bytes;
	__u64 lost;		/* packets lost by the wire before the queue */
	__u64 burst_lost;	/* sent packets lost in bursts */
	__u64 wire_packets;	/* present on the wire */
	__u64 wire_bytes;
	__u64 queued_packets;	/* present in the queue */
	__u64 queued_bytes;
	__u64 dropped;		/* by the queue */
	__u64 policed;		/* dropped by the policer */
};

#endif
