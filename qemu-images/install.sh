#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# install.sh PREFIX: build the modules for KDIR (default: the running kernel's
# build tree), sign them if SIGN_KEY and SIGN_CERT name a key and its
# certificate, put them into /lib/modules, xdc, man pages and completions into
# PREFIX, and the plugin of tc to where tc looks for it (TC_LIB_DIR, else what
# is compiled into it).
# install.sh --uninstall PREFIX: take all of that away again.
# Both below DESTDIR, if it is set; nothing outside it is touched then.
. "$(dirname "$0")/common.sh"

uninstall=
[ "${1:-}" != --uninstall ] || { uninstall=1 && shift; }
prefix=${1:?usage: install.sh [--uninstall] PREFIX}
root=${DESTDIR:-}
modules=(tcp_unocc tcp_gemini sch_phantom)
man=$prefix/share/man
declare -A completions=(
	[bash]=$prefix/share/bash-completion/completions/xdc
	[zsh]=$prefix/share/zsh/site-functions/_xdc
	[fish]=$prefix/share/fish/vendor_completions.d/xdc.fish
)
tc_lib=${TC_LIB_DIR:-$(grep -aoE '/[[:alnum:]_./-]+/tc/' "$(command -v tc || echo /usr/sbin/tc)" 2>/dev/null | sed -n 1p || true)}
tc_lib=${tc_lib%/}

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
	rm -f "$root$prefix/bin/xdc" "$root$prefix/lib/xdc/xdc-trace.o" "${completions[@]/#/$root}" \
		"$root$man"/man1/xdc{,-*}.1 "$root$man/man8/tc-phantom.8"
	rmdir "$root$prefix/lib/xdc" 2>/dev/null || true
	[ -z "$tc_lib" ] || rm -f "$root$tc_lib/q_phantom.so"
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
xdc=$XDC_TOP/userspace-tools/target/release/xdc
install -m 755 "$xdc" "$root$prefix/bin/xdc"
# Only `make test-tools` has the compiler for it.
trace=$XDC_TOP/build/guest-bin/xdc-trace.o
if [ -f "$trace" ]; then
	install -D -m 644 -t "$root$prefix/lib/xdc" "$trace"
else
	say "without the eBPF of xdc trace: make test-tools, and install again, brings it"
fi
"$xdc" man "$root$man/man1"
install -D -m 644 -t "$root$man/man8" "$XDC_TOP/docs/man/tc-phantom.8"
for shell in "${!completions[@]}"; do
	install -d "$root$(dirname "${completions[$shell]}")"
	"$xdc" completions "$shell" >"$root${completions[$shell]}"
done
[ -z "$tc_lib" ] || install -D -m 644 -t "$root$tc_lib" "$XDC_TOP/build/tc/q_phantom.so"
index "$release"
say "installed ${modules[*]} for $release$signed, and $root$prefix/bin/xdc"
[ -n "$tc_lib" ] && say "installed $tc_lib/q_phantom.so" ||
	say "no tc here, so no plugin for it (apt-get install iproute2)"
[ -n "$root" ] || [ "$release" != "$(uname -r)" ] || say "next: sudo modprobe tcp_unocc"
