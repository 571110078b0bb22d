#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml-debug | debug
# covers: modules/kernel/mod.rs modules/rust/helpers/net/module.c modules/kernel/tcp
# covers: modules/kernel/deferred.rs modules/rust/helpers/net/deferred.c
# Modules are loaded and unloaded under their users. See docs/testing.md.
exec xdc-storm modules
