// SPDX-License-Identifier: GPL-2.0

#include <linux/random.h>

#include "helpers.h"

u64 xdc_random_u64(void)
{
	return get_random_u64();
}
