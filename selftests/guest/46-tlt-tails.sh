#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml
# covers: modules/net/tlt/tlt*.rs modules/algo/tlt*.rs modules/net/tlt/flows.rs modules/net/tlt/flows.c
# covers: userspace-tools/testing/storm/src/tlt
# TLT beside pacing, tail loss probes, RACK's timer, cork and Nagle, in virtual time. See docs/testing.md.
modprobe -a nf_tables || exit 1
exec xdc-storm tlt-tails
