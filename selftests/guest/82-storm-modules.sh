#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: debug uml
# Modules come and go under their users. See docs/storm.md.
exec xdc-storm modules
