#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Every option of sch_phantom: what it takes, what it refuses, and the sentence
# in which it does. docs/witness.md
# kernels: uml
modprobe sch_phantom || exit
exec xdc-witness tdc tdc/phantom.json
