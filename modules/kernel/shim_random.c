// SPDX-License-Identifier: GPL-2.0
/* Included by the C file of a module that draws random numbers. */

#include <linux/random.h>

#include "shim.h"

u64 xdc_random_u64(void)
{
	return get_random_u64();
}
