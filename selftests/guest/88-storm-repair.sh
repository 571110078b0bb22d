#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml-debug | debug
# covers: modules/kernel/tcp
# Sockets are taken down and put up again. See docs/testing.md.
exec xdc-storm repair
