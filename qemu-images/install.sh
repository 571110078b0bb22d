#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# install.sh PREFIX: install the output of `make modules KDIR=DIR` into /lib/modules
# of the kernel in KDIR (default: the running kernel's build tree), signed if
# SIGN_KEY and SIGN_CERT name a key and its certificate; xdc, man pages and
# completions into PREFIX; the plugins of tc and ip into their plugin folders
# (TC_LIB_DIR and IP_LIB_DIR, else the compiled-in paths). Builds nothing, so
# compilers and build scripts need no root.
# install.sh --uninstall PREFIX: remove all of that.
# If DESTDIR is set, both change only files below it.
. "$(dirname "$0")/common.sh"

# Installed files are readable by all users, whatever root's umask is.
umask 022

uninstall=
[ "${1:-}" != --uninstall ] || { uninstall=1 && shift; }
prefix=${1:?usage: install.sh [--uninstall] PREFIX}
root=${DESTDIR:-}
mapfile -t modules < <(modules)
man=$prefix/share/man
declare -A completions=(
	[bash]=$prefix/share/bash-completion/completions/xdc
	[zsh]=$prefix/share/zsh/site-functions/_xdc
	[fish]=$prefix/share/fish/vendor_completions.d/xdc.fish
)
tc_lib=${TC_LIB_DIR:-$(grep -aoE '/[[:alnum:]_./-]+/tc/' "$(command -v tc || echo /usr/sbin/tc)" 2>/dev/null | sed -n 1p || true)}
tc_lib=${tc_lib%/}
ip_lib=${IP_LIB_DIR:-$(grep -aoE '/usr/[[:alnum:]_./-]+/ip' "$(command -v ip || echo /usr/sbin/ip)" 2>/dev/null | sed -n 1p || true)}

[ -n "$root" ] || [ "$(id -u)" -eq 0 ] || die "only root can write to /lib/modules and $prefix" \
	"sudo make install, or DESTDIR=DIR for a package"

# index RELEASE: update modprobe's index. A package does this when it is installed.
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
		rmdir --ignore-fail-on-non-empty "$dir"
		if [ -d "$dir" ]; then
			say "$dir stays, because it has other files"
		else
			rmdir --ignore-fail-on-non-empty "$(dirname "$dir")"
		fi
		index "$release"
		gone="$gone $release"
	done
	rm -f "$root$prefix/bin/xdc" "$root$prefix"/lib/xdc/xdc-{trace,elephants}.o "${completions[@]/#/$root}" \
		"$root$man"/man1/xdc{,-*}.1 "$root$man"/man8/tc-{phantom,acceltor}.8
	rm -f "$root$prefix"/share/doc/xdc/{COPYING,THIRD-PARTY.txt,sbom.cdx.json}
	rmdir "$root$prefix/lib/xdc" "$root$prefix/share/doc/xdc" 2>/dev/null || true
	[ -z "$tc_lib" ] || rm -f "$root$tc_lib"/q_{phantom,acceltor}.so
	[ -z "$ip_lib" ] || rm -f "$root$ip_lib/link_unorc.so"
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
		[ -f "$file" ] || die "signing needs a key and its certificate, but $file is missing" \
			"SIGN_KEY=FILE SIGN_CERT=FILE"
	done
	[ -x "$KDIR/scripts/sign-file" ] || die "KDIR=$KDIR has no scripts/sign-file: its kernel checks no signatures" \
		"make install without SIGN_KEY, or CONFIG_MODULE_SIG=y in that kernel"
fi

release=$(cat "$KDIR/include/config/kernel.release" 2>/dev/null) ||
	die "KDIR=$KDIR is not a kernel build tree" "KDIR=/lib/modules/\$(uname -r)/build"
built=$XDC_TOP/build/kdir/modules
# Kbuild does not build tlt for PREEMPT_RT.
! grep -qs '^CONFIG_PREEMPT_RT=y' "$KDIR/.config" || mapfile -t modules < <(modules | grep -vx tlt)
for module in "${modules[@]}"; do
	[ -f "$built/$module.ko" ] || die "build/kdir/modules/$module.ko is not built yet" \
		"as yourself: make modules KDIR=$KDIR"
	for_release=$(modinfo -F vermagic "$built/$module.ko" | cut -d' ' -f1)
	[ "$for_release" = "$release" ] || die "build/kdir/modules is for $for_release, but KDIR=$KDIR is for $release" \
		"as yourself: make modules KDIR=$KDIR"
done
xdc=$XDC_TOP/userspace-tools/target/release/xdc
[ -x "$xdc" ] || die "xdc is not built yet" "as yourself: make tools"
plugin=$XDC_TOP/build/tc/q_phantom.so
[ -z "$tc_lib" ] || [ -f "$plugin" ] || die "the plugin of tc is not built yet" "as yourself: make tools"
ip_plugin=$XDC_TOP/build/ip/link_unorc.so
[ -z "$ip_lib" ] || [ -f "$ip_plugin" ] || die "the plugin of ip is not built yet" "as yourself: make tools"

# Sign in a temporary folder first, so that /lib/modules has only complete files.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
signed=
for module in "${modules[@]}"; do
	install -m 644 "$built/$module.ko" "$work/"
	if [ -n "${SIGN_KEY:-}" ]; then
		hash=$(config_text "$KDIR" MODULE_SIG_HASH)
		"$KDIR/scripts/sign-file" "${hash:-sha256}" "$SIGN_KEY" "$SIGN_CERT" "$work/$module.ko" ||
			die "signing $module failed"
		signed=", signed"
	fi
done
# A separate folder, so that uninstall removes only xdc's files.
dest=$root/lib/modules/$release/updates/xdc
install -d "$dest" "$root$prefix/bin"
install -m 644 -t "$dest" "$work"/*.ko
install -m 755 "$xdc" "$root$prefix/bin/xdc"
# Optional, because only `make tracing` builds it.
ebpf=("$XDC_TOP"/build/guest-bin/xdc-{trace,elephants}.o)
if [ -f "${ebpf[0]}" ] && [ -f "${ebpf[1]}" ]; then
	install -D -m 644 -t "$root$prefix/lib/xdc" "${ebpf[@]}"
else
	say "installed without the eBPF programs of xdc trace and xdc acceltor elephants: make tracing, then install again"
fi
about=("$XDC_TOP"/build/doc/{THIRD-PARTY.txt,sbom.cdx.json})
if [ -f "${about[0]}" ] && [ -f "${about[1]}" ]; then
	install -D -m 644 -t "$root$prefix/share/doc/xdc" "$XDC_TOP/COPYING" "${about[@]}"
else
	say "installed without the licenses of xdc's crates, which a package needs: make tools prints the reason"
fi
"$xdc" man "$root$man/man1"
install -D -m 644 -t "$root$man/man8" "$XDC_TOP"/docs/man/tc-{phantom,acceltor}.8
for shell in "${!completions[@]}"; do
	install -d "$root$(dirname "${completions[$shell]}")"
	"$xdc" completions "$shell" >"$root${completions[$shell]}"
done
[ -z "$tc_lib" ] || install -D -m 644 -t "$root$tc_lib" "$plugin"
[ -z "$tc_lib" ] || ln -sf q_phantom.so "$root$tc_lib/q_acceltor.so"
[ -z "$ip_lib" ] || install -D -m 644 -t "$root$ip_lib" "$ip_plugin"
index "$release"
say "installed ${modules[*]} for $release$signed, and $root$prefix/bin/xdc"
[ -n "$tc_lib" ] && say "installed $tc_lib/q_phantom.so and q_acceltor.so" ||
	say "no tc here, so no plugin for it (apt-get install iproute2)"
[ -n "$ip_lib" ] && say "installed $ip_lib/link_unorc.so" ||
	say "no ip here, so no plugin for it (apt-get install iproute2)"
[ -n "$root" ] || [ "$release" != "$(uname -r)" ] || say "next: sudo modprobe tcp_unocc"
