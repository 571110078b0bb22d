#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# release.sh: put the bundle, its list of parts and its source into build/release, and sign them.
# release.sh --sign DIR: write DIR/SHA256SUMS of the files in DIR, and its signature by the minisign key in
# the file MINISIGN_KEY. Both stay outside the archives, so a changed archive cannot vouch for itself.
. "$(dirname "$0")/common.sh"

# sign DIR COMMENT
sign() {
	local dir=$1 comment=$2
	[ -f "${MINISIGN_KEY:-}" ] || die "MINISIGN_KEY must name a file with a secret key" \
		"minisign -G creates a key pair; then MINISIGN_KEY=FILE"
	command -v minisign >/dev/null || die "minisign is missing" "apt-get install minisign"
	rm -f "$dir"/SHA256SUMS{,.minisig}
	(cd "$dir" && find . -type f ! -name 'SHA256SUMS*' -printf '%P\0' | LC_ALL=C sort -z | xargs -0 sha256sum) >"$dir/.sums"
	mv "$dir/.sums" "$dir/SHA256SUMS"
	minisign -S -s "$MINISIGN_KEY" -t "$comment" -m "$dir/SHA256SUMS" || die "signing $dir/SHA256SUMS failed"
}

if [ "${1:-}" = --sign ]; then
	sign "${2:?usage: release.sh --sign DIR}" "xdc"
	exit
fi

cd "$XDC_TOP"
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' userspace-tools/Cargo.toml | head -1)
name=xdc-$version-x86_64
bundle=build/bundle/$name.tar.zst
[ -f "$bundle" ] || die "there is no $bundle" "make release"
out=build/release
rm -rf "$out"
mkdir -p "$out"
cp "$bundle" "$out/"
tar --zstd -xOf "$bundle" "$name/sbom.cdx.json" >"$out/$name.cdx.json"
tar --zstd -xOf "$bundle" "$name/sources/xdc-$version.tar" | zstd -q -17 --single-thread >"$out/xdc-$version.tar.zst"
sign "$out" "xdc $version, commit $(git describe --always --dirty --abbrev=40)"
say "$out is ready: $(ls "$out" | tr '\n' ' ')"
