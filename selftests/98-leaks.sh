#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: none
# What all tests before this one have leaked. See docs/storm.md.
exec xdc-storm leaks
