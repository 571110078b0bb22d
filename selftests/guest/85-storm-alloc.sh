#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml-debug | debug
# covers: modules/oot/bindings.rs modules/net/tlt/conn.rs modules/oot/shim.c
# covers: modules/rust/helpers/net/helpers.h modules/oot/compat.h
# Allocations fail. See docs/testing.md.
# Needs failing allocations. 4 is a skipped test.
[ -e /sys/kernel/debug/failslab ] || exit 4
exec xdc-storm alloc
