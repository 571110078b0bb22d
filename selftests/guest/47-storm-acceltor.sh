#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml | x86 debug
# covers: modules/net/sched/*acceltor*.rs modules/algo/acceltor.rs
# covers: userspace-tools/testing/storm/src/acceltor.rs
# The qdisc acceltor under attack, on two processors if available. See docs/testing.md. The attack disables
# automatic module loading.
modprobe bonding max_bonds=0 || exit 1
exec xdc-storm acceltor
