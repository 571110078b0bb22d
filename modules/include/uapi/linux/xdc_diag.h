/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * State of a socket that our algorithms report through sock_diag (inet_diag), beside DCTCP's block for `ss
 * -ti`.
 *
 * Experimental: it uses a request bit and an attribute number of inet_diag. A dump has one attribute of the
 * congestion control. A request with XDC_DIAG_REQUEST in idiag_ext, and without the bit of
 * INET_DIAG_VEGASINFO, gets this block under XDC_DIAG_ATTR. The bit is that of INET_DIAG_SHUTDOWN. The kernel
 * sends that attribute unasked and ignores the bit, but some programs set it. Those that set only it get this
 * block, too, and must skip an unknown attribute, as netlink requires.
 *
 * This header is the single source of the numbers; the Rust codec in userspace-tools/netlink and the
 * algorithms' entries are tested against it. Host byte order. A change of the layout changes the version.
 */
#ifndef _UAPI_XDC_DIAG_H
#define _UAPI_XDC_DIAG_H

#include <linux/types.h>

#define XDC_DIAG_REQUEST	0x80	/* 1 << (INET_DIAG_SHUTDOWN - 1) */
#define XDC_DIAG_ATTR		0x1dc
#define XDC_DIAG_VERSION	1

/* struct xdc_diag_info, algorithm; numbers from 128 on are for private use */
#define XDC_DIAG_UNOCC		1
#define XDC_DIAG_GEMINI		2
#define XDC_DIAG_TOLL		3

/* struct xdc_diag_info, flags */
#define XDC_DIAG_F_REDUCED	2	/* no further reduction in this round trip */
#define XDC_DIAG_F_WAN		4	/* gemini: the last round trip was delayed beyond T */
#define XDC_DIAG_F_CE		8	/* as a receiver: the last packet carried CE */

/* As large as union tcp_cc_info, into which the kernel has it written. */
struct xdc_diag_info {
	__u8	version;	/* XDC_DIAG_VERSION */
	__u8	algorithm;
	__u16	flags;
	__u32	fraction;	/* unocc: E, gemini: alpha, toll: price; 1 << 30 = 1 */
	__u32	periods;	/* unocc: epochs, others: round trips ended; wraps */
	__u32	base_rtt;	/* us; 0 = no sample */
	__u16	quick_adapts;	/* unocc: times that Quick Adapt acted; wraps */
	__u16	period_marked;	/* marked part of the present period so far; 1 << 15 = 1 */
};

#endif /* _UAPI_XDC_DIAG_H */
