// SPDX-License-Identifier: GPL-2.0
/* The C part of a module that only tests load. */

#include "../drivers/net/unorc/gf256_x86.c"
#include "../rust/helpers/net/cycles.c"
