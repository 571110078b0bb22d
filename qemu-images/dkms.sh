#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# dkms.sh: copy the modules' source to dkms's folder,
# DESTDIR/usr/src/xdc-VERSION, with a dkms.conf. Builds nothing.
. "$(dirname "$0")/common.sh"

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$XDC_TOP/userspace-tools/Cargo.toml" | head -1)
[ -n "$version" ] || die "userspace-tools/Cargo.toml has no version"
dest=${DESTDIR:-}/usr/src/xdc-$version
umask 022
[ -n "${DESTDIR:-}" ] || [ "$(id -u)" -eq 0 ] || die "only root can write to /usr/src" "sudo make dkms, or DESTDIR=DIR"

rm -rf "$dest"
install -d "$dest/qemu-images"
# Without tests, and without modules/tools/, which is only for xdc's guests.
tar -C "$XDC_TOP" --exclude=modules/tools --exclude=modules/algo/tests -cf - Kbuild COPYING modules |
	tar -C "$dest" --no-same-owner --no-same-permissions -xf -
install -m 755 -t "$dest/qemu-images" "$XDC_TOP"/qemu-images/{modules,in-root}.sh
install -m 644 -t "$dest/qemu-images" "$XDC_TOP/qemu-images/common.sh"
built=
n=0
for module in $(modules | grep -vx tlt) tlt; do
	built+="BUILT_MODULE_NAME[$n]=\"$module\"\n"
	built+="BUILT_MODULE_LOCATION[$n]=\"out\"\nDEST_MODULE_LOCATION[$n]=\"/updates/dkms\"\n"
	n=$((n + 1))
done
series=${XDC_KNOWN_SERIES//./\\\\.}
sed "s|^@MODULES@\$|${built%\\n}|; s/@VERSION@/$version/; s/@SERIES@/${series// /|}/" \
	"$XDC_TOP/qemu-images/dkms.conf.in" >"$dest/dkms.conf"
say "$dest is ready"
say "next: sudo dkms install xdc/$version"
