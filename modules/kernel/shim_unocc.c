// SPDX-License-Identifier: GPL-2.0
#include "shim_tcp.c"

#define CREATE_TRACE_POINTS
#define CREATE_RUST_TRACE_POINTS
#include "trace_unocc.h"
