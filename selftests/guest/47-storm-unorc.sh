#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml | x86 debug
# covers: modules/unorc.rs modules/kernel/netdev.rs modules/oot/netdev.c modules/kernel/udp_tunnel.rs
# covers: modules/drivers/net/unorc/device.c userspace-tools/testing/storm/src/unorc*
# The tunnel device unorc under attack, on two processors if available. See docs/testing.md. The attack
# disables automatic module loading.
modprobe unorc || exit 1
exec xdc-storm unorc
