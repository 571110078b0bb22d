#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml | x86 debug
# covers: modules/drivers/net/fabric/*.rs modules/drivers/net/fabric/*.c modules/drivers/net/fabric/*.h
# covers: modules/algo/fabric*.rs modules/rust/helpers/net/skb.c userspace-tools/testing/storm/src/fabric*
# covers: userspace-tools/testing/storm/src/fabric/*
# The switches of fabric under attack, on two processors if available. See docs/testing.md. The attack disables
# automatic module loading.
modprobe fabric || exit 1
exec xdc-storm fabric
