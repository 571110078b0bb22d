#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml | debug
# covers: modules/net/sched/settings.rs modules/net/ipv4/live.rs modules/rust/kernel/net/sysctl.rs
# covers: modules/oot/host.c
# Namespaces end under traffic. See docs/testing.md.
exec xdc-storm namespaces
