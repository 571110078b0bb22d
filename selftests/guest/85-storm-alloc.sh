#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: debug
# Allocations fail. See docs/storm.md.
exec xdc-storm alloc
