#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: x86 | debug
# covers: modules/kernel/tcp modules/tcp_glue.rs
# A BPF program gives sockets another congestion control while they send. See docs/testing.md.
# Not in UML, whose kernel has no BPF programs of cgroups.
exec xdc-storm sock-ops
