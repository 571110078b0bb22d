#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# deb.sh: make build/deb/xdc_VERSION_amd64.deb of the bundle, and build/deb/xdc-dkms_VERSION_all.deb of the
# modules' source. MAINTAINER="Name <address>" names the packager; default: the author of the last commit.
. "$(dirname "$0")/common.sh"

cd "$XDC_TOP"
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' userspace-tools/Cargo.toml | head -1)
bundle=build/bundle/xdc-$version-x86_64.tar.zst
[ -f "$bundle" ] || die "there is no $bundle" "make deb"
maintainer=${MAINTAINER:-$(git log -1 --format='%an <%ae>')}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH

umask 022
out=$XDC_TOP/build/deb
mkdir -p "$out"
work=$(mktemp -d "$out/.work.XXXXXX")
trap 'rm -rf "$work"' EXIT
cp -r qemu-images/deb "$work/debian"
cd "$work"
sed -i "s/@MAINTAINER@/$maintainer/; s/@VERSION@/$version/" debian/control debian/rules
chmod 755 debian/rules
cat >debian/changelog <<EOT
xdc ($version) unstable; urgency=medium

  * docs/CHANGELOG.md in this folder lists the changes.

 -- $maintainer  $(date -uRd "@$SOURCE_DATE_EPOCH")
EOT

# The bundle, with its documents where Debian has them.
lib=debian/xdc/usr/lib/xdc doc=debian/xdc/usr/share/doc/xdc
mkdir -p "$lib" "$doc"
tar --zstd -xf "$XDC_TOP/$bundle" --strip-components=1 -C "$lib"
rm "$lib"/{BUNDLE.md,COPYING,SHA256SUMS}
mv "$lib"/{docs,sources,python,README.md,CITATION.cff,SOURCES.md,THIRD-PARTY.txt,sbom.cdx.json} "$doc/"
mv "$lib/CHANGELOG.md" "$doc/docs/"
ln -s ../../share/doc/xdc/docs "$lib/docs"
mkdir -p debian/xdc/usr/bin
ln -s ../lib/xdc/xdc debian/xdc/usr/bin/xdc
"$lib/xdc" man debian/xdc/usr/share/man/man1
install -D -m 644 -t debian/xdc/usr/share/man/man8 "$doc"/docs/man/tc-{phantom,acceltor}.8
completion() { mkdir -p "debian/xdc/usr/share/$2" && "$lib/xdc" completions "$1" >"debian/xdc/usr/share/$2/$3"; }
completion bash bash-completion/completions xdc
completion zsh zsh/vendor-completions _xdc
completion fish fish/vendor_completions.d xdc.fish
install -D -m 644 -t debian/xdc/usr/lib/x86_64-linux-gnu/tc "$XDC_TOP/build/tc/q_phantom.so"
ln -s q_phantom.so debian/xdc/usr/lib/x86_64-linux-gnu/tc/q_acceltor.so
install -D -m 644 -t debian/xdc/usr/lib/x86_64-linux-gnu/ip "$XDC_TOP/build/ip/link_unorc.so"

DESTDIR=$work/debian/xdc-dkms "$XDC_TOP/qemu-images/dkms.sh" 2>/dev/null
rm "debian/xdc-dkms/usr/src/xdc-$version/COPYING"
mv "debian/xdc-dkms/usr/src/xdc-$version/dkms.conf" debian/xdc-dkms.dkms
debian/rules binary >"$out/log" 2>&1 || { tail -20 "$out/log" >&2; die "packing failed; log: $out/log" "make deb"; }
for deb in "$out"/*_"$version"_*.deb; do
	say "build/deb/$(basename "$deb"): $(stat -c %s "$deb" | numfmt --to=si)B"
done
