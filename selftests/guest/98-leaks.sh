#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: none | debug
# covers: modules/kernel/seq.rs modules/rust/helpers/net/seq.c modules/kernel/uapi.rs
# Memory leaks of all earlier tests. See docs/testing.md.
exec xdc-storm leaks
