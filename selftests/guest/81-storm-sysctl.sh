#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml-debug | debug
# covers: modules/rust/kernel/net/sysctl.rs modules/net/sched/settings.rs userspace-tools/testing/storm/src
# Random writes to the parameters. See docs/testing.md.
exec xdc-storm sysctl
