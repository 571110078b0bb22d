#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml
# covers: modules/tools/testing/selftests/net/*.rs
# Mixed load in virtual time; memory use afterwards equals that before. See docs/testing.md.
exec xdc-storm soak
