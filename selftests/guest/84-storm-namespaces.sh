#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml
# Namespaces go under traffic. See docs/storm.md.
exec xdc-storm namespaces
