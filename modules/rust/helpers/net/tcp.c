// SPDX-License-Identifier: GPL-2.0

#include <net/tcp.h>

#include "helpers.h"

bool xdc_tcp_is_cwnd_limited(const struct sock *sk)
{
	return tcp_is_cwnd_limited(sk);
}

/* Paces in TCP itself, unless fq does it on this socket's device. */
void xdc_tcp_need_pacing(struct sock *sk)
{
	cmpxchg(&sk->sk_pacing_status, SK_PACING_NONE, SK_PACING_NEEDED);
}

void xdc_inet_ecn_dontxmit(struct sock *sk)
{
	INET_ECN_dontxmit(sk);
}

/*
 * Sends an ACK with a reference on this module: a BPF program that sees the ACK can give the socket
 * another congestion control, and drop the socket's reference.
 */
void xdc_tcp_send_ack(struct sock *sk, u32 rcv_nxt)
{
	struct module *owner = inet_csk(sk)->icsk_ca_ops->owner;

	__module_get(owner);
	__tcp_send_ack(sk, rcv_nxt, 0);
	module_put(owner);
}
