#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: none
# covers: modules/tools/testing/selftests/net/xdc_alarm.c
# Must fail its run: the host sees the warning on the console.
modprobe xdc_alarm kind=warn
sleep 5
rmmod xdc_alarm
