#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: x86 | debug
# covers: modules/rust/kernel/net/tcp modules/net/ipv4/tcp_glue.rs
# A BPF program changes the congestion control of sending sockets. See docs/testing.md. Not in UML, whose
# kernel lacks BPF programs for cgroups.
exec xdc-storm sock-ops
