#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# Print the folder of the patched kernel source; fetch and unpack it first if
# the cache has none. KSRC=DIR names a user's own tree instead.
. "$(dirname "$0")/common.sh"

if [ -n "${KSRC:-}" ]; then
	[ -f "$KSRC/arch/um/Kconfig" ] || die "KSRC=$KSRC is no kernel source tree"
	grep -qA2 '^config HZ$' "$KSRC/arch/um/Kconfig" && ! grep -A2 '^config HZ$' "$KSRC/arch/um/Kconfig" | grep -q 1000 &&
		say "KSRC has no qemu-images/patches applied: its UML kernel ticks at 100 Hz"
	(cd "$KSRC" && pwd)
	exit
fi

patches=$(cat "$XDC_TOP"/qemu-images/patches/*.patch | sha256sum | cut -c1-12)
# What is unpacked already is used as it is: a point release in the archive
# must not rebuild every kernel of a machine.
for tree in "$XDC_CACHE"/src/linux-*-"$patches"; do
	[ -f "$tree/.xdc-complete" ] && echo "$tree" && exit
done

mkdir -p "$XDC_CACHE/src"
exec 9>"$XDC_CACHE/src/.lock"
flock 9
work=$(mktemp -d "$XDC_CACHE/src/.fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
tarball=$work/linux.tar.xz

if command -v apt-get >/dev/null; then
	# A private apt state: the machine's own configuration is only read, to
	# learn which mirror it uses. Only the suite is ours.
	uri=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' |
		awk '$2 !~ /security/ { print $1; exit }')
	[ -n "$uri" ] || die "apt knows no package mirror" "apt-get update, or KSRC=DIR with a kernel source"
	keyring=/usr/share/keyrings/debian-archive-keyring.gpg
	[ -f $keyring ] || die "$keyring is missing" "apt-get install debian-archive-keyring"
	mkdir -p "$work"/{lists,archives}/partial
	echo "deb [signed-by=$keyring] $uri trixie-backports main" >"$work/sources.list"
	apt="-o Dir::Etc::sourcelist=$work/sources.list -o Dir::Etc::sourceparts=/dev/null
		-o Dir::State::lists=$work/lists -o Dir::Cache=$work -o APT::Sandbox::User="
	say "fetching the kernel source: package index of trixie-backports"
	# shellcheck disable=SC2086
	apt-get $apt -qq update >&2 || die "fetching the package index of trixie-backports failed" \
		"check the network, or KSRC=DIR with a kernel source"
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
	url=https://cdn.kernel.org/pub/linux/kernel/v7.x/linux-$XDC_KERNEL_SERIES.tar.xz
	say "fetching the kernel source: $url"
	curl -fL -o "$tarball" "$url" || die "downloading $url failed" "KSRC=DIR with a kernel source"
fi

say "unpacking the kernel source"
mkdir "$work/tree"
tar -C "$work/tree" --strip-components=1 -xf "$tarball" ||
	die "unpacking the kernel source failed" "look for a full disk: df -h $XDC_CACHE"
for p in "$XDC_TOP"/qemu-images/patches/*.patch; do
	patch -d "$work/tree" -p1 -s <"$p" >&2 || die "$(basename "$p") does not apply to this kernel"
done
version=$(make -s -C "$work/tree" kernelversion)
touch "$work/tree/.xdc-complete"
tree=$XDC_CACHE/src/linux-$version-$patches
rm -rf "$tree"
mv "$work/tree" "$tree"
echo "$tree"
