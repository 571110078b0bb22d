#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: debug uml
# A path that lies about ECN. See docs/storm.md.
exec xdc-storm marks
