#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml x86
# TLT under attack, on two processors where there are two. See docs/storm.md.
exec xdc-storm tlt
