// SPDX-License-Identifier: GPL-2.0

#include <net/netns/generic.h>

#include "helpers.h"

void *xdc_net_generic(const struct net *net, unsigned int id)
{
	return net_generic(net, id);
}
