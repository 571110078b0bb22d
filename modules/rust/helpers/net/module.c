// SPDX-License-Identifier: GPL-2.0
/* Rust's name for it differs between kernels: ModuleMetadata has it from 7.3 on. */

#include <linux/export.h>

#include "helpers.h"

struct module *xdc_this_module(void)
{
	return THIS_MODULE;
}
