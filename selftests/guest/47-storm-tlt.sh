#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml | x86 debug
# covers: modules/net/tlt/tlt*.rs modules/net/tlt/netfilter.rs modules/net/tlt/netfilter.c
# covers: modules/net/tlt/flows.c userspace-tools/testing/storm/src/tlt.rs
# TLT under attack, on two processors if available. See docs/testing.md. The attack disables automatic module
# loading.
modprobe -a nf_tables nft_queue nfnetlink_queue tls ctr gcm aes || exit 1
exec xdc-storm tlt
