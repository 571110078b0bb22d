#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml-debug | debug
# covers: modules/tools/testing/selftests/net/xdc_alarm.c modules/rust/helpers/net/cycles.c modules/oot/test.c
# Deliberate errors. Last, because the detectors stop after a report. See docs/testing.md. Needs the
# detectors. 4 is a skipped test.
[ -e /sys/kernel/debug/kmemleak ] || exit 4
exec xdc-storm alarms
