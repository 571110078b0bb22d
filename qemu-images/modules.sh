#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# modules.sh FLAVOUR [OUT]: build the modules for one of xdc's kernels or, as
# `kdir`, for the build tree KDIR; into build/FLAVOUR/modules or OUT. W= and CLIPPY=
# are passed to the kernel's build. For xdc's kernels this includes
# modules/tools/ and examples/, unless XDC_SELFTEST is empty.
. "$(dirname "$0")/common.sh"

flavour=${1:?usage: modules.sh $XDC_FLAVOURS|kdir [OUT]}
kdir_root=
kdir_make=
kdir_vermagic=
if [ "$flavour" = kdir ]; then
	tree=$(realpath "${KDIR:?KDIR=DIR names the build tree of your kernel}")
	# dkms passes only the headers; the cache may have a tree of `xdc kdir` for
	# them.
	if [ ! -f "$tree/rust/libkernel.rmeta" ] && [ -f "$XDC_CACHE/kdir/${KDIR_RELEASE:-none}/xdc-kdir.env" ]; then
		tree=$XDC_CACHE/kdir/$KDIR_RELEASE
	fi
	arch=x86_64
	[ -f "$tree/Makefile" ] || die "KDIR=$tree is not a kernel build tree" \
		"KDIR=/lib/modules/\$(uname -r)/build"
	[ -f "$tree/rust/libkernel.rmeta" ] || die \
		"KDIR=$tree has no Rust metadata (rust/libkernel.rmeta), so no Rust module can be built against it" \
		"xdc kdir --headers $tree, which makes a tree that has it"
	if [ -f "$tree/xdc-kdir.env" ]; then
		# Written by xdc kdir; sets the tools.
		. "$tree/xdc-kdir.env"
	else
		kdir_make=$(kdir_tools "$tree")
	fi
else
	export XDC_SELFTEST=${XDC_SELFTEST-1}
	tree=$XDC_BUILD/$flavour/tree
	arch=$(flavour_arch "$flavour")
fi
out=$(realpath -m "${2:-$XDC_BUILD/$flavour/modules}")
[ -d "$out" ] || say "building the modules for $flavour"
mkdir -p "$out"
out=$(realpath "$out")
log=$out.log

# build ARG...: run make with the tools that built the tree.
build() {
	case $flavour,$kdir_root in
	kdir,?*)
		"$XDC_TOP/qemu-images/in-root.sh" "$kdir_root" \
			"$tree:$(source_of "$tree"):$XDC_TOP:$out" make -C "$tree" $kdir_make "$@"
		;;
	kdir,)
		# shellcheck disable=SC2086
		kmake_with "$tree" $kdir_make "$@"
		;;
	*) kmake "$tree" "$@" ;;
	esac
}

# CLIPPY=1 requires the clippy driver of the kernel's compiler release.
build M="$XDC_TOP" MO="$out" ARCH="$arch" CLIPPY_DRIVER=/usr/bin/clippy-driver \
	${W:+W=$W} ${CLIPPY:+CLIPPY=$CLIPPY} -j"$(nproc)" modules >"$log" 2>&1 || {
	grep -vE '^(make|  )' "$log" | head -60 >&2
	die "building the modules for $flavour failed; log: $log"
}
# Print Kbuild's messages about modules that this kernel cannot have.
sed -n '/^xdc: /p' "$log" | sort -u >&2
# The kernel checks vermagic first, so do not produce a module that it would refuse.
if [ -n "$kdir_vermagic" ]; then
	for module in "$out"/*.ko; do
		got=$(modinfo -F vermagic "$module")
		[ "$got" = "$kdir_vermagic" ] || die \
			"vermagic of $(basename "$module") is '$got', but the kernel needs '$kdir_vermagic'" \
			"xdc kdir again, with the source of the kernel's very version"
	done
fi
# Show warnings, and repeat them until they are fixed: make must rebuild the
# objects.
if grep -qi 'warning' "$log"; then
	cat "$log" >&2
	find "$out" -name '*.o' -exec touch -d @0 {} +
fi
