#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml | debug
# covers: modules/rust/kernel/net/netlink.rs modules/net/sched/phantom_options.rs
# covers: modules/net/sched/acceltor_options.rs userspace-tools/testing/storm/src
# Random requests to the qdisc. See docs/testing.md.
exec xdc-storm netlink
