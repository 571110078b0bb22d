// SPDX-License-Identifier: GPL-2.0

#include <linux/math64.h>

#include "helpers.h"

u64 xdc_mul_u64_u64_div_u64(u64 a, u64 b, u64 divisor)
{
	return mul_u64_u64_div_u64(a, b, divisor);
}
