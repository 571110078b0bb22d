// SPDX-License-Identifier: GPL-2.0
/*
 * The C part of a module in Rust, compiled once per module. Kbuild sets XDC_SHIM, the C file of
 * its kind, or of a network device, beside this one, and XDC_TRACE, the header of its tracepoints, if any.
 */
#include <linux/stringify.h>

#include __stringify(XDC_SHIM)

#ifdef XDC_TRACE
#define CREATE_TRACE_POINTS
#define CREATE_RUST_TRACE_POINTS
#include __stringify(XDC_TRACE)
#endif
