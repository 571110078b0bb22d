#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: none
# covers: modules/selftest/xdc_alarm.c
# Has to fail the run that it is part of: the host sees the warning on the console.
modprobe xdc_alarm kind=warn
sleep 5
rmmod xdc_alarm
