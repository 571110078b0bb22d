// SPDX-License-Identifier: GPL-2.0
/* The C part of the module fabric. */

#include "../rust/helpers/net/math.c"
#include "../rust/helpers/net/netlink.c"
#include "../rust/helpers/net/random.c"
#include "../rust/helpers/net/skb.c"
#include "../drivers/net/fabric/device.c"
#include "../drivers/net/fabric/netlink.c"
