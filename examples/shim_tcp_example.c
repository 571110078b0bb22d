// SPDX-License-Identifier: GPL-2.0
#include "../modules/kernel/shim_tcp.c"
