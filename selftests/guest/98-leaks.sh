#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: debug
# What all tests before this one have leaked. See docs/storm.md.
exec xdc-storm leaks
