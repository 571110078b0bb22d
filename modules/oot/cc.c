// SPDX-License-Identifier: GPL-2.0
/* The C part of a congestion control; each module links its own. */

#include "../rust/helpers/net/deferred.c"
#include "../rust/helpers/net/math.c"
#include "../rust/helpers/net/speeds.c"
#include "../rust/helpers/net/module.c"
#include "../rust/helpers/net/softirq.c"
#include "../rust/helpers/net/net_namespace.c"
#include "../rust/helpers/net/tcp.c"
