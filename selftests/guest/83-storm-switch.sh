#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml-debug | debug
# covers: modules/rust/kernel/net/tcp modules/net/ipv4/tcp_glue.rs
# Congestion controls change on live sockets. See docs/testing.md.
exec xdc-storm switch
