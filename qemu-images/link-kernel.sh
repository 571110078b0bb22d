#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# link-kernel.sh FLAVOUR: build the kernel if need be and point build/FLAVOUR
# at it: `kernel` (the image), `tree` (its build folder), `release` (uname -r).
. "$(dirname "$0")/common.sh"

flavour=${1:?usage: link-kernel.sh x86|uml|debug}
tree=$("$XDC_TOP/qemu-images/kernel.sh" "$flavour")
case $flavour in
uml) image=$tree/linux ;;
*) image=$tree/arch/x86/boot/bzImage ;;
esac
out=$XDC_TOP/build/$flavour
mkdir -p "$out"
ln -sfn "$tree" "$out/tree"
ln -sfn "$image" "$out/kernel"
cp "$tree/include/config/kernel.release" "$out/release"
