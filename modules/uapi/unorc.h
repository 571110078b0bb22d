/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/* Attributes of a link of kind unorc, in IFLA_INFO_DATA. */
#ifndef _UAPI_UNORC_H
#define _UAPI_UNORC_H

/* Default of IFLA_UNORC_PORT. */
#define UNORC_PORT 4796

enum {
	IFLA_UNORC_UNSPEC,
	IFLA_UNORC_LOCAL,	/* be32: the address packets come from */
	IFLA_UNORC_REMOTE,	/* be32: the peer */
	IFLA_UNORC_PORT,	/* be16: UDP port of both ends */
	IFLA_UNORC_DATA,	/* u8: data packets of a block */
	IFLA_UNORC_PARITY,	/* u8: its parities; 0 with 1 data packet: no code */
	IFLA_UNORC_PATHS,	/* u8: the chooser, in the order ecmp rps ops plb unolb reps reps-paper bitmap */
	IFLA_UNORC_FREEZE,	/* u8: when reps freezes, in the order loss timeout off */
	IFLA_UNORC_TIMER,	/* u32, us: time from a block's first packet to its last */
	IFLA_UNORC_FLUSH,	/* u32, us: a block that is not full is closed then */
	__IFLA_UNORC_MAX
};
#define IFLA_UNORC_MAX (__IFLA_UNORC_MAX - 1)

#endif
