#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: debug
# Mistakes on purpose. Last, because the detectors rest after a report. See docs/storm.md.
exec xdc-storm alarms
