#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml | debug
# covers: modules/settings.rs modules/live.rs modules/rust/kernel/net/sysctl.rs modules/oot/host.c
# Namespaces end under traffic. See docs/testing.md.
exec xdc-storm namespaces
