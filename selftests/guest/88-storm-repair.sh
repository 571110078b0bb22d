#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml-debug | debug
# covers: modules/rust/kernel/net/tcp
# Sockets are checkpointed and restored. See docs/testing.md.
exec xdc-storm repair
