// SPDX-License-Identifier: GPL-2.0

#include <linux/bottom_half.h>

#include "helpers.h"

void xdc_local_bh_disable(void)
{
	local_bh_disable();
}

void xdc_local_bh_enable(void)
{
	local_bh_enable();
}
