#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml | uml-debug debug
# covers: modules/sch_phantom.rs modules/kernel/qdisc modules/kernel/shim_qdisc.c
# covers: modules/selftest/sch_wrong.rs userspace-tools/testing/witness/src
# sch_phantom, and a qdisc that makes mistakes, as the child of each qdisc of
# the kernel that has children: packets in = sent + dropped + queued at every
# level, whatever the child does, and whatever is done to it. docs/testing.md
modprobe sch_phantom || exit
exec xdc-witness parents
