// SPDX-License-Identifier: GPL-2.0
/*
 * The C of a module that is written in Rust, compiled once for each. Kbuild says
 * which: XDC_SHIM are the wrappers that its kind needs, XDC_TRACE the header of
 * its tracepoints, if it has one.
 */
#include <linux/stringify.h>

#include __stringify(XDC_SHIM)

#ifdef XDC_TRACE
#define CREATE_TRACE_POINTS
#define CREATE_RUST_TRACE_POINTS
#include __stringify(XDC_TRACE)
#endif
