#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml
# Round trips from zero to minutes. See docs/storm.md.
exec xdc-storm round-trips
