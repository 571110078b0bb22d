/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * Attributes of a link of kind unorc, in IFLA_INFO_DATA, and the generic netlink family of its peers.
 */
#ifndef _UAPI_UNORC_H
#define _UAPI_UNORC_H

#include <linux/types.h>

/* Default of IFLA_UNORC_PORT. */
#define UNORC_PORT 4796

enum {
	IFLA_UNORC_UNSPEC,
	IFLA_UNORC_LOCAL,	/* be32: the address packets come from */
	IFLA_UNORC_REMOTE,	/* be32: a peer that all addresses belong to; without it, peers are added later */
	IFLA_UNORC_PORT,	/* be16: UDP port of both ends */
	IFLA_UNORC_DATA,	/* u8: data packets of a block */
	IFLA_UNORC_PARITY,	/* u8: parities of a block; 0 with 1 data packet: no code */
	IFLA_UNORC_PATHS,	/* u8: the chooser, in the order ecmp rps ops plb unolb reps reps-paper bitmap */
	IFLA_UNORC_FREEZE,	/* u8: events that freeze reps, in the order loss timeout off */
	IFLA_UNORC_TIMER,	/* u32, us: wait for a missing packet; 0: as long as path delays differ */
	IFLA_UNORC_FLUSH,	/* u32, us: age at which an incomplete block is closed */
	IFLA_UNORC_CHANNELS,	/* u8: channels, which never wait for each other; 1, 2, 4 or 8 */
	IFLA_UNORC_WINDOW,	/* u16: data packets that a channel remembers; a power of two, 64 to 8192 */
	IFLA_UNORC_FWMARK,	/* u32: mark of packets outside, for their route */
	IFLA_UNORC_TOS,		/* u8: DSCP of packets outside, in the upper six bits, or UNORC_TOS_INHERIT */
	IFLA_UNORC_TTL,		/* u8: TTL of packets outside; 0: that of their route */
	IFLA_UNORC_DF,		/* u8: DF of packets outside, enum unorc_df */
	IFLA_UNORC_LOCAL6,	/* struct in6_addr, instead of LOCAL */
	IFLA_UNORC_REMOTE6,	/* struct in6_addr, instead of REMOTE */
	__IFLA_UNORC_MAX
};
#define IFLA_UNORC_MAX (__IFLA_UNORC_MAX - 1)

/* IFLA_UNORC_TOS: use the inner DSCP. */
#define UNORC_TOS_INHERIT 1

/* IFLA_UNORC_DF; in the order of vxlan and geneve. */
enum unorc_df {
	UNORC_DF_UNSET,		/* fragments carry packets that are too long */
	UNORC_DF_SET,		/* the MTU inside follows the path (default) */
};

/* IFLA_INFO_XSTATS: counters, explained in docs/unorc.md. */
struct unorc_xstats {
	__u64 tx_data;
	__u64 tx_parity;
	__u64 tx_raw;
	__u64 tx_feedback;
	__u64 rx_data;
	__u64 rx_parity;
	__u64 rx_raw;
	__u64 rx_feedback;
	__u64 recovered;
	__u64 nack_received;
	__u64 given_up;
	__u64 duplicate;
	__u64 late;
	__u64 bad_decode;
	__u64 bad_tag;
	__u64 malformed;
	__u64 session;
	__u64 mismatch;
	__u64 unreachable;
	__u64 no_mem;
	__u64 reroute;
	__u64 freeze;
};

/* Generic netlink family: peers of a device. All commands need the device's index. */
#define UNORC_GENL_NAME "unorc"
#define UNORC_GENL_VERSION 1
#define UNORC_KEY_LEN 16

enum {
	UNORC_CMD_UNSPEC,
	UNORC_CMD_PEER_SET,	/* add a peer, or change it: absent attributes keep their values */
	UNORC_CMD_PEER_DEL,	/* remove the peer with this remote */
	UNORC_CMD_PEER_GET,	/* dump: all peers */
	__UNORC_CMD_MAX
};
#define UNORC_CMD_MAX (__UNORC_CMD_MAX - 1)

enum {
	UNORC_A_PEER_UNSPEC,
	UNORC_A_PEER_IFINDEX,	/* u32 */
	UNORC_A_PEER_REMOTE,	/* be32: outer address of the peer, which names it */
	UNORC_A_PEER_REMOTE6,	/* struct in6_addr, instead of REMOTE */
	UNORC_A_PEER_KEY,	/* UNORC_KEY_LEN bytes, equal at both ends; zeros: none. Never dumped */
	UNORC_A_PEER_ALLOWED,	/* UNORC_A_ALLOWED_*, repeated: the peer's inner addresses; replaces all */
	UNORC_A_PEER_SESSION,	/* u8, enum unorc_session; dumps only */
	UNORC_A_PEER_HAS_KEY,	/* flag; dumps only */
	__UNORC_A_PEER_MAX
};
#define UNORC_A_PEER_MAX (__UNORC_A_PEER_MAX - 1)

/* An address range, as in a route. */
enum {
	UNORC_A_ALLOWED_UNSPEC,
	UNORC_A_ALLOWED_PREFIX,	/* be32 */
	UNORC_A_ALLOWED_PREFIX6,	/* struct in6_addr, instead of PREFIX */
	UNORC_A_ALLOWED_LEN,	/* u8: length of the prefix in bits */
	__UNORC_A_ALLOWED_MAX
};
#define UNORC_A_ALLOWED_MAX (__UNORC_A_ALLOWED_MAX - 1)

enum unorc_session {
	UNORC_SESSION_DOWN,
	UNORC_SESSION_ASKED,	/* the peer has not answered yet */
	UNORC_SESSION_UP,
};

#endif
