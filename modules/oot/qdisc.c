// SPDX-License-Identifier: GPL-2.0
/* The C part of a qdisc; each module links its own. */

#include "../rust/helpers/net/math.c"
#include "../rust/helpers/net/module.c"
#include "../rust/helpers/net/netdevice.c"
#include "../rust/helpers/net/netlink.c"
#include "../rust/helpers/net/random.c"
#include "../rust/helpers/net/skb.c"
#include "../rust/helpers/net/sched.c"
