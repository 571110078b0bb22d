#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# modules.sh FLAVOUR [OUT]: build the modules for one of our kernels (x86,
# uml, debug) or, as `kdir`, for the build tree that KDIR names; into
# build/FLAVOUR/modules or OUT. W= and CLIPPY= reach the kernel's build. Our
# own kernels get those of modules/selftest/ and examples/, too.
. "$(dirname "$0")/common.sh"

flavour=${1:?usage: modules.sh x86|uml|debug|kdir [OUT]}
if [ "$flavour" = kdir ]; then
	tree=${KDIR:?KDIR=DIR names the build tree of your kernel}
	arch=x86_64
	[ -f "$tree/Makefile" ] || die "KDIR=$tree is no kernel build tree" \
		"KDIR=/lib/modules/\$(uname -r)/build"
	[ -f "$tree/rust/libkernel.rmeta" ] || die \
		"KDIR=$tree has no Rust metadata (rust/libkernel.rmeta), so no Rust module can be built against it" \
		"a kernel built with CONFIG_RUST=y whose build tree is still there, or plain 'make' for ours"
else
	export XDC_SELFTEST=1
	tree=$XDC_TOP/build/$flavour/tree
	arch=$(flavour_arch "$flavour")
fi
out=$(realpath -m "${2:-$XDC_TOP/build/$flavour/modules}")
mkdir -p "$out"
log=$out.log

# The kernel's own CLIPPY=1 wants the driver of the same compiler release.
kmake "$tree" M="$XDC_TOP" MO="$out" ARCH="$arch" CLIPPY_DRIVER=/usr/bin/clippy-driver \
	${W:+W=$W} ${CLIPPY:+CLIPPY=$CLIPPY} -j"$(nproc)" modules >"$log" 2>&1 || {
	grep -vE '^(make|  )' "$log" | head -60 >&2
	die "building the modules for $flavour failed; log: $log"
}
# Warnings are for reading, not for scrolling away in a log.
if grep -qi 'warning' "$log"; then
	cat "$log" >&2
fi
