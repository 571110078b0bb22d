#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml | x86
# covers: modules/net/sched/*phantom*.rs modules/rust/kernel/net/sched
# covers: modules/algo/phantom.rs modules/algo/shaper.rs modules/algo/color.rs modules/algo/random.rs modules/algo/port.rs
# covers: modules/rust/kernel/net/random.rs modules/rust/helpers/net/random.c userspace-tools/testing/witness
# sch_phantom between two eBPF witnesses: counts, marks, colors, the shaper, the phantom counter, bundles,
# filters, parents, and operations on a port under traffic. docs/testing.md
modprobe sch_phantom || exit

# The debug kernel checks memory and locks; the other kernels check the numbers faster.
groups=
if [ -z "$XDC_LONG" ] && zcat /proc/config.gz | grep -q '^CONFIG_KASAN=y'; then
	groups="count color gso filter parent live tags"
fi
exec xdc-witness $groups
