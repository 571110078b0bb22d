#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml | debug
# covers: modules/rust/kernel/net/netlink.rs modules/phantom_options.rs modules/acceltor_options.rs
# covers: userspace-tools/testing/storm/src
# Random requests to the qdisc. See docs/testing.md.
exec xdc-storm netlink
