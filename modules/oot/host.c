// SPDX-License-Identifier: GPL-2.0
/* The C part of a host module. */

#include "../rust/helpers/net/deferred.c"
#include "../rust/helpers/net/math.c"
#include "../net/tlt/netfilter.c"
#include "../net/tlt/counters.c"
#include "../rust/helpers/net/seq.c"
#include "../rust/helpers/net/softirq.c"
#include "../net/tlt/flows.c"
#include "../net/tlt/conn.c"
#include "../rust/helpers/net/net_namespace.c"
