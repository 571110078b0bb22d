#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml
# 4,096 flows at once. See docs/storm.md.
exec xdc-storm many
