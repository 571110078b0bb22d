#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# sch_phantom against two eBPF witnesses, before and after it: counts, marks,
# colours, the shaper, the phantom counter, bundles, filters, parents, and what
# is done to a port under traffic. docs/witness.md
# kernels: x86 uml
modprobe sch_phantom || exit

# The debug kernel checks memory and locks; the other kernels check the numbers
# sooner.
groups=
if [ -z "$XDC_LONG" ] && zcat /proc/config.gz | grep -q '^CONFIG_KASAN=y'; then
	groups="count color gso filter parent live tags"
fi
exec xdc-witness $groups
