#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# install.sh PREFIX: build the modules for KDIR (default: the running kernel),
# put them into its /lib/modules and xdc into PREFIX/bin.
. "$(dirname "$0")/common.sh"

prefix=${1:?usage: install.sh PREFIX}
export KDIR=${KDIR:-/lib/modules/$(uname -r)/build}
"$XDC_TOP/qemu-images/modules.sh" kdir
release=$(cat "$KDIR/include/config/kernel.release")
dest=${DESTDIR:-}/lib/modules/$release/updates
install -d "$dest" "${DESTDIR:-}$prefix/bin"
install -m 644 "$XDC_TOP"/build/kdir/modules/*.ko "$dest/"
install -m 755 "$XDC_TOP/userspace-tools/target/release/xdc" "${DESTDIR:-}$prefix/bin/xdc"
depmod -b "${DESTDIR:-/}" "$release"
say "installed tcp_unocc, tcp_gemini, sch_phantom for $release and $prefix/bin/xdc"
