#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Every option of sch_phantom and sch_acceltor: what it takes, what it refuses, and the
# sentence in which it does. docs/witness.md
# kernels: uml
modprobe -a sch_phantom sch_acceltor || exit
exec xdc-witness tdc tdc/phantom.json tdc/acceltor.json
