#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# link-kernel.sh FLAVOUR: build the kernel if needed, and link it in build/FLAVOUR:
# `kernel` (image), `tree` (build folder), `release` (uname -r).
# With XDC_KERNEL_SERIES=7.2 the folder is build/linux-7.2/build/FLAVOUR;
# XDC_HOME=build/linux-7.2 makes xdc use it.
. "$(dirname "$0")/common.sh"

flavour=${1:?usage: link-kernel.sh $XDC_FLAVOURS}
tree=$("$XDC_TOP/qemu-images/kernel.sh" "$flavour")
case $flavour in
uml*) image=$tree/linux ;;
*) image=$tree/arch/x86/boot/bzImage ;;
esac
out=$XDC_BUILD/$flavour
mkdir -p "$out"
if [ "$XDC_HOME_OF_SERIES" != "$XDC_TOP" ]; then
	ln -sfn "$XDC_TOP"/{scenarios,selftests,userspace-tools,qemu-images,modules,Kbuild} "$XDC_HOME_OF_SERIES"
	ln -sfn "$XDC_TOP"/build/{agent,guest-bin,tc,ip} "$XDC_BUILD"
fi
ln -sfn "$tree" "$out/tree"
ln -sfn "$image" "$out/kernel"
cp "$tree/include/config/kernel.release" "$out/release"
