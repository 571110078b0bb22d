// SPDX-License-Identifier: GPL-2.0
#include "../kernel/shim_tcp.c"
