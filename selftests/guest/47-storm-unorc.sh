#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml x86
# The tunnel device unorc under attack, on two processors where there are two. See docs/storm.md.
# It keeps the kernel from loading modules by itself.
modprobe unorc || exit 1
exec xdc-storm unorc
