#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# Build the eBPF programs of xdc-witness, `xdc trace` and `xdc acceltor elephants` into
# build/guest-bin, where these programs look for them.
#
# The core library is compiled, too (-Z build-std), from the sources of the kernel's Rust
# compiler; a stable release needs RUSTC_BOOTSTRAP for this. Dependencies must not require
# a newer compiler.
. "$(dirname "$0")/common.sh"

crate=$XDC_TOP/userspace-tools/ebpf
target=$XDC_TOP/build/ebpf
env -u RUSTUP_TOOLCHAIN -u CARGO_TARGET_DIR -u CARGO_BUILD_BUILD_DIR -C "$crate" \
	RUSTC="$XDC_RUSTC" RUSTC_BOOTSTRAP=1 PATH="${XDC_BPF_LINKER%/*}:$PATH" \
	RUSTFLAGS="-C linker=bpf-linker -C debuginfo=0" CARGO_TARGET_DIR="$target" \
	cargo build --quiet --locked --release --target bpfel-unknown-none -Z build-std=core
mkdir -p "$XDC_TOP/build/guest-bin"
built=$target/bpfel-unknown-none/release
install -C -m 644 "$built/xdc-witness-ebpf" "$XDC_TOP/build/guest-bin/xdc-witness.o"
for program in xdc-trace xdc-elephants; do
	install -C -m 644 "$built/$program" "$XDC_TOP/build/guest-bin/$program.o"
done
