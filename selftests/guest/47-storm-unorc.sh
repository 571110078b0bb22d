#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml | x86 debug
# covers: modules/drivers/net/unorc/unorc.rs modules/rust/kernel/net/netdev.rs modules/oot/unorc.c
# covers: modules/drivers/net/unorc/*.rs modules/drivers/net/unorc/*.c modules/drivers/net/unorc/*.h
# covers: userspace-tools/testing/storm/src/unorc*
# The tunnel device unorc under attack, on two processors if available. See docs/testing.md. The attack
# disables automatic module loading.
modprobe unorc || exit 1
exec xdc-storm unorc
