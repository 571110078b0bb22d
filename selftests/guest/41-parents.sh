#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# sch_phantom, and a qdisc that makes mistakes, as the child of each qdisc of
# the kernel that has children: packets in = sent + dropped + queued at every
# level, whatever the child does, and whatever is done to it. docs/witness.md
# kernels: uml debug
modprobe sch_phantom || exit
exec xdc-witness parents
