#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: debug uml
# Windows that something else bounds. See docs/storm.md.
exec xdc-storm clamps
