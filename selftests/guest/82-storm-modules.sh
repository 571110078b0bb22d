#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml-debug | debug
# covers: modules/oot/kernel_api.rs modules/rust/helpers/net/module.c modules/rust/kernel/net/tcp
# covers: modules/rust/kernel/net/deferred.rs modules/rust/helpers/net/deferred.c
# Modules are loaded and unloaded under their users. See docs/testing.md.
exec xdc-storm modules
