#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# debian.sh [TEST...]: test the modules in Debian's unmodified kernel of the
# series. Packages and compilers of that kernel go into the cache; `xdc kdir`
# makes Rust metadata of its source and compares them. Its vmlinuz loads the
# modules in QEMU and runs the selftests: the named ones, or all that an
# unmodified kernel can run. Installs nothing.
. "$(dirname "$0")/common.sh"

flavour=${XDC_DEBIAN_FLAVOUR:-cloud-amd64}
tests=("${@}")
[ ${#tests[@]} -gt 0 ] || tests=(10-modules 20-sysctl)
# The kernel's build dependencies; its configuration names gcc-14.
tool_packages="gcc-14 gcc-14-for-host binutils make libc6-dev rustc rust-src bindgen flex bison bc
	libelf-dev libssl-dev openssl pahole xz-utils kmod perl python3 cpio bash coreutils sed grep mawk
	findutils diffutils tar gzip dash patch"
xdc=$XDC_TOP/userspace-tools/target/release/xdc
base=$XDC_CACHE/debian
mkdir -p "$base"
exec 9>"$base/.lock"
flock 9

work=
trap '[ -z "$work" ] || rm -rf "$work"' EXIT

# fetch: download the kernel's packages and the tools, each into a folder of
# $base.
fetch() {
	local headers release dir
	command -v apt-get >/dev/null || die "Debian's kernel needs apt-get, which is missing"
	work=$(mktemp -d "$base/.fetch.XXXXXX")
	private_apt "$work" trixie trixie-backports
	# shellcheck disable=SC2086
	headers=$(apt-cache $apt pkgnames "linux-headers-$XDC_KERNEL_SERIES" | grep -E -- "[0-9]-$flavour\$" | sort -V | tail -1)
	[ -n "$headers" ] || die "the archive has no Linux $XDC_KERNEL_SERIES of flavour $flavour"
	release=${headers#linux-headers-}
	mkdir "$work"/{kernel,tools,debs}
	say "fetching Debian's $release"
	# shellcheck disable=SC2086
	(cd "$work/debs" && apt-get $apt -qq download "$headers" "linux-headers-${release%-"$flavour"}-common" \
		"linux-kbuild-${release%-"$flavour"}" "linux-binary-$release" "linux-modules-$release") >&2 ||
		die "downloading Debian's kernel failed" "run it again"
	unpack "$work/kernel" "$work"/debs/*.deb
	echo "$release" >"$work/kernel/release"
	say "fetching the tools it was built with (about 280 MB, once)"
	# shellcheck disable=SC2086
	apt-get $apt -t trixie -y -qq --download-only install $tool_packages >&2 ||
		die "downloading Debian's compilers failed" "run it again"
	mkdir -p "$work"/tools/usr/{bin,sbin,lib,lib64} "$work"/tools/{proc,dev,tmp}
	for dir in bin sbin lib lib64; do ln -s "usr/$dir" "$work/tools/$dir"; done
	unpack "$work/tools" "$work"/archives/*.deb
	# A link that maintainer scripts would make.
	ln -sf mawk "$work/tools/usr/bin/awk"
	rm -rf "${base:?}"/{kernel,tools}
	mv "$work"/{kernel,tools} "$base/"
	rm -rf "$work"
	work=
}

# The cache may contain another flavour.
flavour_there=$(sed 's/.*+deb[0-9]*-//' "$base/kernel/release" 2>/dev/null || true)
[ "$flavour_there" = "$flavour" ] && [ -x "$base/tools/usr/bin/rustc" ] || fetch
release=$(cat "$base/kernel/release")
headers=$base/kernel/usr/src/linux-headers-$release
modules=$base/kernel/usr/lib/modules/$release
kdir=$XDC_CACHE/kdir/$release

if [ ! -f "$kdir/xdc-kdir.env" ]; then
	source=$("$XDC_TOP/qemu-images/source.sh" x86)
	say "building the Rust metadata of $release (some 5 minutes, once)"
	"$xdc" kdir --headers "$headers" --source "$source" --root "$base/tools" --modules "$modules" --out "$kdir"
fi

say "building the modules for $release"
out=$XDC_TOP/build/debian/modules
KDIR=$kdir "$XDC_TOP/qemu-images/modules.sh" kdir "$out"

# A home for xdc with Debian's kernel as the x86 kernel: Debian's modules for
# guests, and xdc's.
home=$XDC_TOP/build/debian/home
rm -rf "$home"
mkdir -p "$home/build/x86"/{modules,tree}
for name in scenarios userspace-tools selftests qemu-images; do ln -s "$XDC_TOP/$name" "$home/$name"; done
for name in agent guest-bin; do
	[ ! -e "$XDC_TOP/build/$name" ] || ln -s "$XDC_TOP/build/$name" "$home/build/$name"
done
ln -s "$modules/vmlinuz" "$home/build/x86/kernel"
echo "$release" >"$home/build/x86/release"
find "$modules/kernel" \( -path '*/net/ipv4/*' -o -path '*/net/sched/*' -o -path '*/net/netlink/*' \
	-o -name 'veth.ko*' -o -name 'dummy.ko*' -o -name 'crc32*.ko*' -o -name 'libcrc32c.ko*' \) -name '*.ko.xz' |
	while read -r module; do
		xz -dc "$module" >"$home/build/x86/modules/$(basename "${module%.xz}")"
	done
cp "$out"/*.ko "$home/build/x86/modules/"
XDC_HOME=$home "$xdc" selftest "${tests[@]}"
