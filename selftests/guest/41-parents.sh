#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml | uml-debug debug
# covers: modules/net/sched/*phantom*.rs modules/rust/kernel/net/sched modules/rust/helpers/net/sched.c
# covers: modules/tools/testing/selftests/net/sch_wrong.rs userspace-tools/testing/witness/src
# sch_phantom and an erroneous qdisc below each qdisc of the kernel that takes children: packets in = sent +
# dropped + queued at every level, for any child and any operation. docs/testing.md
modprobe sch_phantom || exit
exec xdc-witness parents
