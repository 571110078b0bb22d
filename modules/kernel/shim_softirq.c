// SPDX-License-Identifier: GPL-2.0
/* Included by the C file of each module with tracepoints of sockets. */

#include <linux/bottom_half.h>

#include "shim.h"

void xdc_local_bh_disable(void)
{
	local_bh_disable();
}

void xdc_local_bh_enable(void)
{
	local_bh_enable();
}
