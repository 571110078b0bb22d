#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# install.sh PREFIX: build the modules for KDIR (default: the running kernel's
# build tree), sign them if SIGN_KEY and SIGN_CERT name a key and its
# certificate, put them into /lib/modules and xdc into PREFIX/bin.
# install.sh --uninstall PREFIX: take all of that away again.
# Both below DESTDIR, if it is set; nothing outside it is touched then.
. "$(dirname "$0")/common.sh"

uninstall=
[ "${1:-}" != --uninstall ] || { uninstall=1 && shift; }
prefix=${1:?usage: install.sh [--uninstall] PREFIX}
root=${DESTDIR:-}
modules=(tcp_unocc tcp_gemini sch_phantom)

# A file at the end of a build that took minutes had better be writable.
[ -n "$root" ] || [ "$(id -u)" -eq 0 ] || die "/lib/modules and $prefix are root's" \
	"sudo make install, or DESTDIR=DIR for a package"

# index RELEASE: what modprobe reads. A package does it where it is installed.
index() {
	if [ -n "$root" ]; then
		say "after unpacking $root: depmod $1"
	else
		depmod "$1" || die "depmod $1 failed"
	fi
}

if [ -n "$uninstall" ]; then
	gone=
	for dir in "$root"/lib/modules/*/updates/xdc; do
		[ -d "$dir" ] || continue
		release=$(basename "$(dirname "$(dirname "$dir")")")
		for module in "${modules[@]}"; do rm -f "$dir/$module.ko"; done
		rmdir "$dir"
		rmdir --ignore-fail-on-non-empty "$(dirname "$dir")"
		index "$release"
		gone="$gone $release"
	done
	rm -f "$root$prefix/bin/xdc"
	say "removed:${gone:- no modules} and $root$prefix/bin/xdc"
	if [ -z "$root" ]; then
		for module in "${modules[@]}"; do
			[ ! -d "/sys/module/$module" ] || say "$module stays in the running kernel until 'rmmod $module' or a reboot"
		done
	fi
	exit
fi

export KDIR=${KDIR:-/lib/modules/$(uname -r)/build}
[ -d "$KDIR" ] || die "there is no build tree $KDIR" \
	"apt-get install linux-headers-$(uname -r), or KDIR=DIR"
if [ -n "${SIGN_KEY:-}${SIGN_CERT:-}" ]; then
	for file in "${SIGN_KEY:-SIGN_KEY}" "${SIGN_CERT:-SIGN_CERT}"; do
		[ -f "$file" ] || die "signing takes a key and its certificate, and there is no $file" \
			"SIGN_KEY=FILE SIGN_CERT=FILE"
	done
	[ -x "$KDIR/scripts/sign-file" ] || die "KDIR=$KDIR has no scripts/sign-file: its kernel checks no signatures" \
		"make install without SIGN_KEY, or CONFIG_MODULE_SIG=y in that kernel"
fi

"$XDC_TOP/qemu-images/modules.sh" kdir
release=$(cat "$KDIR/include/config/kernel.release")
# A folder of our own, so that uninstalling knows what is ours.
dest=$root/lib/modules/$release/updates/xdc
install -d "$dest" "$root$prefix/bin"
signed=
for module in "${modules[@]}"; do
	install -m 644 "$XDC_TOP/build/kdir/modules/$module.ko" "$dest/"
	if [ -n "${SIGN_KEY:-}" ]; then
		hash=$(config_text "$KDIR" MODULE_SIG_HASH)
		"$KDIR/scripts/sign-file" "${hash:-sha256}" "$SIGN_KEY" "$SIGN_CERT" "$dest/$module.ko" ||
			die "signing $module failed"
		signed=", signed"
	fi
done
install -m 755 "$XDC_TOP/userspace-tools/target/release/xdc" "$root$prefix/bin/xdc"
index "$release"
say "installed ${modules[*]} for $release$signed, and $root$prefix/bin/xdc"
[ -n "$root" ] || [ "$release" != "$(uname -r)" ] || say "next: sudo modprobe tcp_unocc"
