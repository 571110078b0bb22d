#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: none
# Modules come and go under their users. See docs/storm.md.
exec xdc-storm modules
