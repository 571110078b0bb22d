# SPDX-License-Identifier: GPL-2.0
# Sourced by the other scripts: paths, messages, and the tools that build the kernel.

set -euo pipefail

XDC_TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
XDC_CACHE=${XDC_CACHE:-${XDC_CACHE_HOME:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}}/xdc}
# Kernel series that the modules support; the first is the guests' default, XDC_KERNEL_SERIES selects another.
XDC_KNOWN_SERIES="7.3 7.2"
XDC_KERNEL_SERIES=${XDC_KERNEL_SERIES:-${XDC_KNOWN_SERIES%% *}}
# Output folder. Another series has its own, with links to the guests' agent and tools.
XDC_HOME_OF_SERIES=$XDC_TOP
[ "$XDC_KERNEL_SERIES" = "${XDC_KNOWN_SERIES%% *}" ] || XDC_HOME_OF_SERIES=$XDC_TOP/build/linux-$XDC_KERNEL_SERIES
XDC_BUILD=$XDC_HOME_OF_SERIES/build
# The kernel's compiler and core library come from one Debian source package; a rustup toolchain first on PATH
# has no rust-src. RUSTC names another compiler, which needs its sources (rustc --print sysroot,
# lib/rustlib/src).
XDC_RUSTC=${RUSTC:-/usr/bin/rustc}
XDC_BINDGEN_VERSION=0.73.2
XDC_BINDGEN=${BINDGEN:-$XDC_CACHE/tools/bindgen-$XDC_BINDGEN_VERSION/bin/bindgen}
XDC_CARGO_FUZZ_VERSION=0.13.2
XDC_CARGO_FUZZ=$XDC_CACHE/tools/cargo-fuzz-$XDC_CARGO_FUZZ_VERSION/bin/cargo-fuzz
XDC_CARGO_DENY_VERSION=0.20.2
XDC_CARGO_DENY=$XDC_CACHE/tools/cargo-deny-$XDC_CARGO_DENY_VERSION/bin/cargo-deny
# Linker of eBPF programs, built with the LLVM of the compiler above.
XDC_BPF_LINKER_VERSION=0.13.0
XDC_BPF_LINKER=$XDC_CACHE/tools/bpf-linker-$XDC_BPF_LINKER_VERSION/bin/bpf-linker

# modules [LIST]: names of the modules in modules/oot/list.rs that `make install` installs.
modules() {
	sed -nE '/^ +[a-z]+ .*;$/ { /"\.\.\/(tools|\.\.)\//d; s/^ +[a-z]+ +([a-z0-9_]+) .*/\1/p }' \
		"${1:-$XDC_TOP/modules/oot/list.rs}"
}

# cargo_dir NAME: cargo's build folder. Cargo identifies files outside of a package, such as modules/algo, by
# absolute path, so each checkout has a folder. A new one inherits the crates of a deleted checkout.
cargo_dir() {
	local dir other from
	dir=$XDC_CACHE/$1/$(printf '%s' "$XDC_TOP" | sha256sum | cut -c1-12)
	if [ ! -e "$dir/checkout" ]; then
		for other in "$XDC_CACHE/$1"/*/; do
			from=$(cat "$other/checkout" 2>/dev/null || true)
			[ ! -d "$from" ] || continue
			[ -z "$from" ] || mv -nT "$other" "$dir"
			rm -rf "$other" "$dir"/*/.fingerprint/xdc-* "$dir"/*/*/.fingerprint/xdc-*
		done
		mkdir -p "$dir"
		echo "$XDC_TOP" >"$dir/checkout"
	fi
	echo "$dir"
}

say() { printf 'xdc: %s\n' "$*" >&2; }
die() { say "error: $1"; [ $# -lt 2 ] || say "try: $2"; exit 1; }

# The kernel's build fails late and obscurely in such a path.
for dir in "$XDC_TOP" "$XDC_CACHE"; do
	case $dir in
	*[[:space:]:\'\"\\\$\`\*\?\[\]\;\&\|\<\>\(\)\#]*)
		die "no kernel can be built in '$dir': its path has a space or a special character" \
			"a checkout elsewhere, and XDG_CACHE_HOME=DIR for the cache"
		;;
	esac
done

# llvm_suffix: LLVM in make's form: the caller's (1, -20, DIR/), the one of CLANG, or else the newest
# supported.
llvm_suffix() {
	local v
	if [ -n "${LLVM:-}" ]; then
		echo "$LLVM"
		return
	fi
	if [ -n "${CLANG:-}" ]; then
		v=$(basename "$CLANG")
		case $CLANG,$v in
		*/*,clang) echo "$(dirname "$CLANG")/" ;;
		*,clang) echo 1 ;;
		*,clang-*) echo "${v#clang}" ;;
		*) die "CLANG=$CLANG is neither clang, clang-VERSION nor DIR/clang" "LLVM=1, LLVM=-20 or LLVM=DIR/" ;;
		esac
		return
	fi
	for v in 22 19; do
		if command -v "clang-$v" >/dev/null && command -v "ld.lld-$v" >/dev/null; then
			echo "-$v"
			return
		fi
	done
	die "no clang/lld 22 or 19 found" "make setup, or LLVM=1 for the clang on PATH"
}

# clang_program: the clang of this LLVM.
clang_program() {
	local llvm
	llvm=$(llvm_suffix)
	case $llvm in
	1) echo clang ;;
	*/) echo "${llvm}clang" ;;
	*) echo "clang$llvm" ;;
	esac
}

# rust_llvm: LLVM's major version in the compiler above; before it is installed, that of Debian's package.
rust_llvm() {
	local v
	v=$("$XDC_RUSTC" -vV 2>/dev/null | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')
	echo "${v:-22}"
}

# kmake_with SRC ARGS...: the kernel's make, without environment variables that could change the output.
kmake_with() {
	local src=$1
	shift
	env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL -u ARCH -u CROSS_COMPILE -u KBUILD_OUTPUT \
		make -C "$src" KBUILD_BUILD_USER=xdc KBUILD_BUILD_HOST=xdc \
		KBUILD_BUILD_TIMESTAMP=1970-01-01 "$@"
}

# kmake SRC ARGS...: kmake_with and the tools above.
kmake() {
	local src=$1
	shift
	kmake_with "$src" LLVM="$(llvm_suffix)" RUSTC="$XDC_RUSTC" HOSTRUSTC="$XDC_RUSTC" \
		BINDGEN="$XDC_BINDGEN" "$@"
}

# config_text TREE OPTION: value of a text option in TREE's configuration.
config_text() { sed -n "s/^CONFIG_$2=\"\(.*\)\"$/\1/p" "$1/.config"; }

# kdir_tools TREE: make's variables for the tools that built a user's tree. Only the compiler that wrote
# Rust's metadata can read them; the C compiler has to know the flags of the tree.
kdir_tools() {
	local tree=$1 want rustc= candidate cc bindgen
	want=$(config_text "$tree" RUSTC_VERSION_TEXT)
	for candidate in ${RUSTC:-} "$XDC_RUSTC" rustc; do
		[ "$("$candidate" --version 2>/dev/null)" != "$want" ] || rustc=${rustc:-$(command -v "$candidate")}
	done
	[ -n "$rustc" ] || die "KDIR=$tree was built by '$want', which is not installed" \
		"RUSTC=PROGRAM, or the distribution's package rustc"
	bindgen=$XDC_BINDGEN
	[ -x "$bindgen" ] || bindgen=$(command -v bindgen) ||
		die "bindgen is missing" "make setup, or the distribution's package bindgen"
	if grep -q '^CONFIG_CC_IS_CLANG=y' "$tree/.config"; then
		want=$(sed -n 's/^CONFIG_CLANG_VERSION=\([0-9]*\)0000$/\1/p;s/^CONFIG_CLANG_VERSION=\([0-9]*\)[0-9]\{4\}$/\1/p' "$tree/.config" | head -1)
		cc=LLVM=1
		! command -v "clang-$want" >/dev/null || cc=LLVM=-$want
	else
		cc=$(config_text "$tree" CC_VERSION_TEXT)
		cc=CC=${cc%% *}
		command -v "${cc#CC=}" >/dev/null || die "KDIR=$tree was built by ${cc#CC=}, which is not installed" \
			"the distribution's package of that compiler"
	fi
	echo "$cc RUSTC=$rustc HOSTRUSTC=$rustc BINDGEN=$bindgen"
}

# source_of TREE: source folder of a build tree.
source_of() { sed -n 's/^include \(.*\)\/Makefile$/\1/p' "$1/Makefile" | tail -1; }

# Kernels that xdc builds.
XDC_FLAVOURS="x86|uml|debug|uml-debug"

# flavour_arch FLAVOUR: make's ARCH for a kernel.
flavour_arch() {
	case $1 in
	x86 | debug) echo x86_64 ;;
	uml | uml-debug) echo um ;;
	*) die "no kernel flavour '$1'" "one of: $XDC_FLAVOURS" ;;
	esac
}

# counted LOG WHAT EXPECTED CMD...: run CMD with output to LOG, and show progress.
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

# private_apt WORK SUITE...: set `apt` to options of a private apt below WORK, and fetch the package indexes.
# Only the mirror is taken from the machine's configuration, which is not changed.
private_apt() {
	local work=$1 uri keyring=/usr/share/keyrings/debian-archive-keyring.gpg suite
	shift
	uri=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' |
		awk '$2 !~ /security/ { print $1; exit }')
	[ -n "$uri" ] || die "apt knows no package mirror" "apt-get update, or KSRC=DIR with a kernel source"
	[ -f $keyring ] || die "$keyring is missing" "apt-get install debian-archive-keyring"
	mkdir -p "$work"/{lists,archives}/partial
	for suite in "$@"; do
		echo "deb [signed-by=$keyring] $uri $suite main"
	done >"$work/sources.list"
	# No package counts as installed, so downloads include all dependencies.
	: >"$work/status"
	apt="-o Dir::Etc::sourcelist=$work/sources.list -o Dir::Etc::sourceparts=/dev/null
		-o Dir::State::lists=$work/lists -o Dir::State::status=$work/status -o Dir::Cache=$work
		-o APT::Sandbox::User= -o APT::Install-Recommends=false"
	say "fetching the package index of $*"
	# shellcheck disable=SC2086
	apt-get $apt -qq update >&2 || die "fetching the package index of $* failed" \
		"check the network, or KSRC=DIR with a kernel source"
}

# unpack DIR DEB...: unpack without dpkg's database and maintainer scripts.
unpack() {
	local dir=$1 deb
	shift
	for deb in "$@"; do
		dpkg-deb --fsys-tarfile "$deb" | tar -C "$dir" --keep-directory-symlink -xf - ||
			die "unpacking $(basename "$deb") failed" "look for a full disk: df -h $dir"
	done
}
