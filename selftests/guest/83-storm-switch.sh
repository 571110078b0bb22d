#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: debug uml
# Congestion controls change on live sockets. See docs/storm.md.
exec xdc-storm switch
