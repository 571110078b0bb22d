#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# install.sh PREFIX: build the modules for KDIR (default: the running kernel),
# put them into its /lib/modules, xdc into PREFIX/bin, and the plugin of tc to
# where tc looks for it (TC_LIB_DIR, else what is compiled into it).
. "$(dirname "$0")/common.sh"

prefix=${1:?usage: install.sh PREFIX}
export KDIR=${KDIR:-/lib/modules/$(uname -r)/build}
"$XDC_TOP/qemu-images/modules.sh" kdir
release=$(cat "$KDIR/include/config/kernel.release")
dest=${DESTDIR:-}/lib/modules/$release/updates
install -d "$dest" "${DESTDIR:-}$prefix/bin"
install -m 644 "$XDC_TOP"/build/kdir/modules/*.ko "$dest/"
install -m 755 "$XDC_TOP/userspace-tools/target/release/xdc" "${DESTDIR:-}$prefix/bin/xdc"
tc_lib=${TC_LIB_DIR:-$(grep -aoE '/[[:alnum:]_./-]+/tc/' "$(command -v tc || echo /usr/sbin/tc)" | sed -n 1p || true)}
[ -z "$tc_lib" ] || install -D -m 644 "$XDC_TOP/build/tc/q_phantom.so" "${DESTDIR:-}${tc_lib%/}/q_phantom.so"
install -D -m 644 -t "${DESTDIR:-}$prefix/share/man/man8" "$XDC_TOP/docs/man/tc-phantom.8"
depmod -b "${DESTDIR:-/}" "$release"
say "installed tcp_unocc, tcp_gemini, sch_phantom for $release and $prefix/bin/xdc"
[ -n "$tc_lib" ] && say "installed ${tc_lib%/}/q_phantom.so" || say "no tc here, so no plugin for it (apt-get install iproute2)"
