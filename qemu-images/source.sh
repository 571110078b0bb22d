#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# source.sh FLAVOUR: print the kernel source folder for one of xdc's kernels; fetch
# and unpack it first if the cache lacks it. User Mode Linux's has the patches of
# qemu-images/patches. KSRC=DIR selects a user's tree, XDC_KERNEL_SERIES=7.2 another
# series.
. "$(dirname "$0")/common.sh"

flavour=${1:?usage: source.sh $XDC_FLAVOURS}
arch=$(flavour_arch "$flavour")
patches=("$XDC_TOP"/qemu-images/patches/*.patch)

if [ -n "${KSRC:-}" ]; then
	[ -f "$KSRC/arch/um/Kconfig" ] || die "KSRC=$KSRC is not a kernel source tree"
	[ "$arch" != um ] || grep -q 'TIMER_MULTIPLIER 1$' "$KSRC/arch/um/include/linux/time-internal.h" ||
		say "KSRC lacks qemu-images/patches: the clock of its UML kernel is coarse"
	(cd "$KSRC" && pwd)
	exit
fi

# patched TREE: print the name of TREE's patched copy; make it first if needed. The
# files are hard links, so only patched files take space.
patched() {
	local copy
	copy=$1-um-$(cat "${patches[@]}" | sha256sum | cut -c1-12)
	if [ ! -f "$copy/.xdc-complete" ]; then
		rm -rf "$copy" "$copy.new"
		cp -al "$1" "$copy.new"
		rm "$copy.new/.xdc-complete"
		for p in "${patches[@]}"; do
			patch -d "$copy.new" -p1 -s <"$p" >&2 ||
				die "$(basename "$p") does not apply to this kernel"
		done
		touch "$copy.new/.xdc-complete"
		mv "$copy.new" "$copy"
	fi
	echo "$copy"
}

# finish TREE: print the folder for the caller, made from the pristine TREE.
finish() {
	if [ "$arch" = um ]; then patched "$1"; else echo "$1"; fi
	exit
}

# Reuse an unpacked source: a point release in the archive must not rebuild every
# kernel of a machine.
pristine() {
	local tree
	for tree in "$sources"/linux-*; do
		case $tree in *-um-*) continue ;; esac
		[ -f "$tree/.xdc-complete" ] && echo "$tree" && return
	done
	return 1
}

# A separate folder per series, so that sources are not confused.
sources=$XDC_CACHE/src
[ "$XDC_KERNEL_SERIES" = "${XDC_KNOWN_SERIES%% *}" ] || sources=$sources/$XDC_KERNEL_SERIES
mkdir -p "$sources"
exec 9>"$sources/.lock"
flock 9
tree=$(pristine) && finish "$tree"
work=$(mktemp -d "$sources/.fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
tarball=$work/linux.tar.xz

if command -v apt-get >/dev/null; then
	private_apt "$work" trixie-backports
	package=linux-source-$XDC_KERNEL_SERIES
	# shellcheck disable=SC2086
	if ! apt-cache $apt show $package >/dev/null 2>&1; then
		newest=$(apt-cache $apt pkgnames linux-source-7. | sort -V | tail -1)
		[ -n "$newest" ] || die "the archive has no linux-source-7.x" "KSRC=DIR with a kernel source"
		say "the archive no longer has $package; taking $newest"
		package=$newest
	fi
	say "fetching the kernel source: $package (about 170 MB)"
	# shellcheck disable=SC2086
	(cd "$work" && apt-get $apt -qq download "$package") >&2 ||
		die "downloading $package failed" "run make again, or KSRC=DIR with a kernel source"
	dpkg-deb -x "$work/$package"_*.deb "$work/deb"
	mv "$work"/deb/usr/src/linux-source-*.tar.xz "$tarball"
else
	# Debian's archive is signed; for kernel.org the caller provides the
	# checksum.
	site=https://cdn.kernel.org/pub/linux/kernel/v7.x
	url=$site/linux-$XDC_KERNEL_SERIES.tar.xz
	grep -qxE '[0-9a-f]{64}' <<<"${XDC_KERNEL_SHA256:-}" ||
		die "without apt the kernel source comes from $url, and XDC_KERNEL_SHA256 must be its checksum" \
			"XDC_KERNEL_SHA256=SUM, from $site/sha256sums.asc after gpg --verify; or KSRC=DIR with a kernel source"
	say "fetching the kernel source: $url"
	curl -fL --proto '=https' --proto-redir '=https' -o "$tarball" "$url" ||
		die "downloading $url failed" "KSRC=DIR with a kernel source"
	sum=$(sha256sum "$tarball" | cut -d' ' -f1)
	[ "$sum" = "$XDC_KERNEL_SHA256" ] ||
		die "the checksum of $url is $sum, which is not XDC_KERNEL_SHA256" "check both values"
fi

say "unpacking the kernel source"
mkdir "$work/tree"
tar -C "$work/tree" --strip-components=1 -xf "$tarball" ||
	die "unpacking the kernel source failed" "look for a full disk: df -h $XDC_CACHE"
version=$(make -s -C "$work/tree" kernelversion)
touch "$work/tree/.xdc-complete"
tree=$sources/linux-$version
rm -rf "$tree"
mv "$work/tree" "$tree"
finish "$tree"
