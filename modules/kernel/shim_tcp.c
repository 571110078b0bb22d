// SPDX-License-Identifier: GPL-2.0
/* Included by one C file per congestion control, since each module links its own. */

#include <net/netns/generic.h>

#include "shim.h"

void *xdc_net_generic(const struct net *net, unsigned int id)
{
	return net_generic(net, id);
}

bool xdc_tcp_is_cwnd_limited(const struct sock *sk)
{
	return tcp_is_cwnd_limited(sk);
}

/* Pace in TCP itself unless fq does it on this socket's device. */
void xdc_tcp_need_pacing(struct sock *sk)
{
	cmpxchg(&sk->sk_pacing_status, SK_PACING_NONE, SK_PACING_NEEDED);
}

void xdc_local_bh_disable(void)
{
	local_bh_disable();
}

void xdc_local_bh_enable(void)
{
	local_bh_enable();
}
