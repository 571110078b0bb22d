#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# setup.sh [PART]: install distribution packages (as root or with sudo), and tools through cargo. Parts: quick
# (only User Mode Linux); tracing, tests, deny (cargo-deny), bundle, deb, packages (tests of packages) and release add to the usual ones.
. "$(dirname "$0")/common.sh"

part=${1:-build}
# If /dev/null is a file, programs read each other's output, and cargo misreads the compilers'.
[ -c /dev/null ] || die "/dev/null is a file, not a device" \
	"as root: rm /dev/null && mknod -m 666 /dev/null c 1 3"
kernel_packages="make gcc libc6-dev flex bison bc libelf-dev libssl-dev dwarves cpio kmod
	xz-utils patch perl python3 rustc-web rust-web-src cargo-web rust-web-clippy rustfmt-web debian-archive-keyring"
guest_packages="busybox-static iproute2 ethtool procps"
[ "$part" = quick ] || guest_packages="$guest_packages qemu-system-x86"
more_packages() {
	case $part in
	tracing) echo "g++ llvm-$(rust_llvm)-dev" ;;
	bundle) echo "zstd git" ;;
	deb) echo "zstd git debhelper dh-dkms" ;;
	packages) echo "lintian mmdebstrap python3-venv" ;;
	release) echo "zstd git minisign" ;;
	tests) echo "libisal-dev openssl shellcheck bpftool python3-yaml python3-jsonschema zstd minisign" ;;
	esac
}

installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

missing_packages() {
	local p
	for p in $kernel_packages $guest_packages $(more_packages); do
		installed "$p" || echo "$p"
	done
	# The caller names the tools.
	[ -z "${LLVM:-}${CLANG:-}" ] || return 0
	for v in 22 19; do
		installed clang-$v && installed lld-$v && installed llvm-$v && installed libclang-$v-dev && return
	done
	for v in 22 19; do
		if apt-cache show clang-$v >/dev/null 2>&1; then
			echo clang-$v lld-$v llvm-$v libclang-$v-dev
			return
		fi
	done
	echo clang-19 lld-19 llvm-19 libclang-19-dev
}

if ! command -v apt-get >/dev/null; then
	say "no apt-get here: install the packages that qemu-images/setup.sh lists; RUSTC, CLANG or LLVM, and BINDGEN name the tools"
elif missing=$(missing_packages) && [ -n "$missing" ]; then
	sudo=
	if [ "$(id -u)" -ne 0 ]; then
		sudo=sudo
		command -v sudo >/dev/null || die "packages are missing, and neither root nor sudo is available" \
			"as root: apt-get install $(echo $missing)"
	fi
	say "installing from the distribution: $(echo $missing)"
	log=$(mktemp)
	trap 'rm -f "$log"' EXIT
	$sudo apt-get -qq update >"$log" 2>&1 || { cat "$log" >&2; die "apt-get update failed" "check the network and the machine's apt sources"; }
	# Check again, because the update may have made more packages known.
	missing=$(missing_packages)
	# shellcheck disable=SC2086
	$sudo env DEBIAN_FRONTEND=noninteractive apt-get -y --no-install-recommends install $missing >"$log" 2>&1 ||
		{ tail -20 "$log" >&2; die "installing packages failed" "as root: apt-get install $(echo $missing)"; }
fi

# cargo's minimum version for xdc. Debian 12 without its security updates has an older one.
wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$XDC_TOP/userspace-tools/Cargo.toml")
found=$(cargo --version 2>/dev/null | cut -d' ' -f2 || true)
[ "$(printf '%s\n' "$wanted" "$found" | sort -V | head -1)" = "$wanted" ] ||
	die "cargo is ${found:-missing}, but xdc needs $wanted" \
		"Debian 12: add bookworm-security to apt's sources, then apt-get update && apt-get install cargo-web rustc-web rust-web-src"

# cargo_tool PROGRAM CRATE@VERSION ARGS...: install a crate's program into the cache.
cargo_tool() {
	local program=$1 crate=$2 log
	shift 2
	[ ! -x "$program" ] || return 0
	say "installing $crate with cargo (a minute or two)"
	mkdir -p "$XDC_CACHE"
	log=$XDC_CACHE/${crate%@*}-install.log
	cargo install --quiet --locked --root "${program%/bin/*}" "$crate" "$@" >"$log" 2>&1 ||
		{ tail -20 "$log" >&2; die "cargo install $crate failed; log: $log" "check the network, then make setup"; }
}

if [ -n "${BINDGEN:-}" ]; then
	command -v "$BINDGEN" >/dev/null || die "BINDGEN=$BINDGEN is missing" "BINDGEN=PROGRAM, or none: make installs one"
else
	cargo_tool "$XDC_BINDGEN" "bindgen-cli@$XDC_BINDGEN_VERSION"
fi
if [ "$part" = tracing ]; then
	# The linker reads the compiler's bitcode, so both need the same LLVM.
	LLVM_PREFIX=/usr/lib/llvm-$(rust_llvm) cargo_tool "$XDC_BPF_LINKER" "bpf-linker@$XDC_BPF_LINKER_VERSION" \
		--no-default-features --features "llvm-$(rust_llvm)"
fi
if [ "$part" = tests ]; then
	cargo_tool "$XDC_CARGO_FUZZ" "cargo-fuzz@$XDC_CARGO_FUZZ_VERSION"
fi
if [ "$part" = deny ]; then
	cargo_tool "$XDC_CARGO_DENY" "cargo-deny@$XDC_CARGO_DENY_VERSION"
fi
