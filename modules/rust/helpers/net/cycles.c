// SPDX-License-Identifier: GPL-2.0

#include <linux/timex.h>

#include "helpers.h"

u64 xdc_cycles(void)
{
	return get_cycles();
}
