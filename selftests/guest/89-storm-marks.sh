#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml-debug | debug
# covers: modules/algo/echo.rs modules/rust/kernel/net/tcp
# A path that lies about ECN. See docs/testing.md.
exec xdc-storm marks
