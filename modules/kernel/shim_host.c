// SPDX-License-Identifier: GPL-2.0
/* Included by the C file of each host module. */

#include <net/netns/generic.h>

#include "shim.h"
#include "shim_deferred.c"
#include "shim_math.c"
#include "shim_netfilter.c"
#include "shim_counters.c"
#include "shim_seq.c"
#include "shim_softirq.c"
#include "shim_flows.c"
#include "shim_conn.c"

void *xdc_net_generic(const struct net *net, unsigned int id)
{
	return net_generic(net, id);
}
