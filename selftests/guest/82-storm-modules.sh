#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml-debug | debug
# covers: modules/kernel/mod.rs modules/kernel/shim_module.c modules/kernel/tcp modules/kernel/deferred.rs
# covers: modules/kernel/shim_deferred.c
# Modules are loaded and unloaded under their users. See docs/testing.md.
exec xdc-storm modules
