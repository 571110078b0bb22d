#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml
# covers: modules/phantom_options.rs modules/acceltor_options.rs modules/uapi
# covers: userspace-tools/testing/witness/src/tdc.rs selftests/guest/tdc
# Every option of sch_phantom and sch_acceltor: what it takes, what it refuses, and the
# sentence in which it does. docs/witness.md
modprobe -a sch_phantom sch_acceltor || exit
exec xdc-witness tdc tdc/phantom.json tdc/acceltor.json
