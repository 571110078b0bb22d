#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml | debug
# covers: modules/net/tlt/counters.rs modules/net/tlt/counters.c modules/rust/kernel/net/cycles.rs
# covers: modules/rust/kernel/net/relaxed.rs
# 4,096 flows at once. See docs/testing.md.
exec xdc-storm many
