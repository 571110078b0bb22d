#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml | debug
# covers: modules/kernel/counters.rs modules/net/tlt/counters.c modules/kernel/cycles.rs
# covers: modules/kernel/relaxed.rs
# 4,096 flows at once. See docs/testing.md.
exec xdc-storm many
