#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml
# covers: modules/selftest/*.rs
# Mixed load in virtual time, with as much memory in use after it. See docs/testing.md.
exec xdc-storm soak
