#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: none | debug
# covers: modules/rust/kernel/net/seq.rs modules/rust/helpers/net/seq.c modules/rust/kernel/net/uapi.rs
# Memory leaks of all earlier tests. See docs/testing.md.
exec xdc-storm leaks
