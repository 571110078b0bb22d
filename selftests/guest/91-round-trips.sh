#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml
# covers: modules/algo/rtt.rs
# Round trips from zero to minutes. See docs/testing.md.
exec xdc-storm round-trips
