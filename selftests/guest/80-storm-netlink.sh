#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml
# Random requests to the qdisc. See docs/storm.md.
exec xdc-storm netlink
