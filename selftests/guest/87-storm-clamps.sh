#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml-debug | debug
# covers: modules/net/ipv4/tcp_glue.rs modules/algo/window.rs modules/rust/kernel/net/math.rs
# covers: modules/rust/helpers/net/math.c
# Windows with other limits. See docs/testing.md.
exec xdc-storm clamps
