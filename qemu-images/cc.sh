#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# cc.sh FLAVOUR TREE SOURCES OUT LANGUAGE: build the modules in SOURCES against the build tree TREE of a
# guest's kernel, into OUT, with the compilers that built the kernel; for `xdc cc add`. XDC_LIST is
# explained in Kbuild. LANGUAGE is rust or c.
exec 2>&1
. "$(dirname "$0")/common.sh"

flavour=${1:?usage: cc.sh $XDC_FLAVOURS TREE SOURCES OUT rust|c}
tree=$2 sources=$3 out=$4 language=$5

for dir in "$tree" "$sources"; do
	case $dir in
	*[[:space:]:\'\"\\\$\`\*\?\[\]\;\&\|\<\>\(\)\#]*)
		die "the kernel's build cannot use '$dir': its path has a space or a special character" "another folder"
		;;
	esac
done

# Plugins, flags and warnings differ between versions of clang, so take the kernel's.
if [ -z "${LLVM:-}${CLANG:-}" ]; then
	clang=$(sed -n 's/^CONFIG_CLANG_VERSION=\([0-9]*\)[0-9]\{4\}$/\1/p' "$tree/.config")
	if command -v "clang-$clang" >/dev/null && command -v "ld.lld-$clang" >/dev/null; then
		LLVM=-$clang
	elif command -v clang ld.lld >/dev/null && [[ $(clang --version) == *"version $clang."* ]]; then
		LLVM=1
	else
		die "clang $clang built the $flavour kernel and must build its modules, but clang $clang is not installed" \
			"apt-get install clang-$clang lld-$clang llvm-$clang"
	fi
fi
if [ "$language" = rust ]; then
	rustc=$(config_text "$tree" RUSTC_VERSION_TEXT)
	[ "$("$XDC_RUSTC" --version 2>/dev/null || true)" = "$rustc" ] || die \
		"$rustc built the $flavour kernel, and only this compiler can read the kernel's Rust metadata" \
		"apt-get install rustc-web in this version, or RUSTC=PROGRAM"
	[ -x "$XDC_BINDGEN" ] || die "bindgen $XDC_BINDGEN_VERSION is not installed" "make setup, or BINDGEN=PROGRAM"
fi
kmake "$tree" M="$sources" MO="$out" ARCH="$(flavour_arch "$flavour")" -j"$(nproc)" modules
