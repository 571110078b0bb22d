#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml
# Round trips of nothing and of minutes. See docs/storm.md.
exec xdc-storm round-trips
