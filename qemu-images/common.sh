# SPDX-License-Identifier: GPL-2.0
# Sourced by setup.sh, source.sh and kernel.sh: where things live, how a step
# reports itself, and which tools build the kernel.

set -euo pipefail

XDC_TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
XDC_CACHE=${XDC_CACHE:-${XDC_CACHE_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}}/xdc}
XDC_KERNEL_SERIES=7.3
# The kernel's compiler and its core library come from one Debian source
# package; a rustup toolchain that is first on PATH has no rust-src.
XDC_RUSTC=/usr/bin/rustc
XDC_BINDGEN_VERSION=0.73.2
XDC_BINDGEN=$XDC_CACHE/tools/bindgen-$XDC_BINDGEN_VERSION/bin/bindgen
XDC_CARGO_FUZZ_VERSION=0.13.2
XDC_CARGO_FUZZ=$XDC_CACHE/tools/cargo-fuzz-$XDC_CARGO_FUZZ_VERSION/bin/cargo-fuzz
# Links eBPF programs, with the LLVM that the compiler above is made of.
XDC_BPF_LINKER_VERSION=0.13.0
XDC_BPF_LINKER=$XDC_CACHE/tools/bpf-linker-$XDC_BPF_LINKER_VERSION/bin/bpf-linker

say() { printf 'xdc: %s\n' "$*" >&2; }
die() { say "error: $1"; [ $# -lt 2 ] || say "try: $2"; exit 1; }

# llvm_suffix: newest clang of those that were tried, as make's LLVM= wants it.
llvm_suffix() {
	local v
	for v in 22 19; do
		if command -v "clang-$v" >/dev/null && command -v "ld.lld-$v" >/dev/null; then
			echo "-$v"
			return
		fi
	done
	die "no clang/lld 22 or 19 found" "make setup"
}

# rust_llvm: major version of the LLVM in that compiler; where it is not installed
# yet, that of the package we know.
rust_llvm() {
	local v
	v=$("$XDC_RUSTC" -vV 2>/dev/null | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')
	echo "${v:-22}"
}

# kmake SRC ARGS...: the kernel's make with our tools and nothing from the
# caller's environment that could change what is built.
kmake() {
	local src=$1
	shift
	env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL -u ARCH -u CROSS_COMPILE -u KBUILD_OUTPUT \
		make -C "$src" LLVM="$(llvm_suffix)" RUSTC="$XDC_RUSTC" \
		HOSTRUSTC="$XDC_RUSTC" BINDGEN="$XDC_BINDGEN" \
		KBUILD_BUILD_USER=xdc KBUILD_BUILD_HOST=xdc \
		KBUILD_BUILD_TIMESTAMP=1970-01-01 "$@"
}

# flavour_arch FLAVOUR: make's ARCH for one of our kernels.
flavour_arch() {
	case $1 in
	x86 | debug) echo x86_64 ;;
	uml) echo um ;;
	*) die "no kernel flavour '$1'" "one of: x86 uml debug" ;;
	esac
}

# counted LOG WHAT EXPECTED CMD...: run CMD into LOG, show how far it is.
counted() {
	local log=$1 what=$2 expected=$3 start=$SECONDS pid n
	shift 3
	"$@" >"$log" 2>&1 &
	pid=$!
	# shellcheck disable=SC2064
	trap "kill $pid 2>/dev/null; exit 130" INT TERM
	while kill -0 $pid 2>/dev/null; do
		n=$(grep -cE '^ +(CC|LD|AR|AS|HOSTCC|RUSTC|BINDGEN|HOSTRUSTC)' "$log" || true)
		if [ -t 2 ]; then
			printf '\rxdc: %s: %d of about %d steps, %ds ' "$what" "$n" "$expected" $((SECONDS - start)) >&2
			sleep 1
		else
			say "$what: $n of about $expected steps, $((SECONDS - start))s"
			sleep 20 &
			wait -n $! $pid 2>/dev/null || true
		fi
	done
	[ ! -t 2 ] || printf '\n' >&2
	trap - INT TERM
	wait $pid
}
