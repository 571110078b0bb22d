// SPDX-License-Identifier: GPL-2.0
/* Included by the C file of each module that only tests load. */

#include <linux/timex.h>

#include "shim_vectors.c"

u64 xdc_cycles(void)
{
	return get_cycles();
}
