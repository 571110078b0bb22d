#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: debug
# Deliberate mistakes. Last, because the detectors stop after a report. See docs/storm.md.
exec xdc-storm alarms
