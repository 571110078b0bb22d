#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Parities by the processor's vector registers are those by words: the module that is loaded compares them.
# kernels: x86 debug
. "$(dirname "$0")/lib.sh"

rmmod xdc_code 2>/dev/null
check "parities by vectors and by words are the same" modprobe xdc_code
log=$(dmesg | sed -n 's/^.*xdc_code: //p' | tail -4)
matches "all that was to be compared was compared" "20000 comparisons" "$log"
check "the module goes" rmmod xdc_code
finish
