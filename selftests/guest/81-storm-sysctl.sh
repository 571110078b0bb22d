#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: debug uml
# Random writes to the parameters. See docs/storm.md.
exec xdc-storm sysctl
