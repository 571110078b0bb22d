#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# kernel.sh FLAVOUR: print the build folder of a kernel; build it first if the cache
# lacks it. The cache key is the source version, the config fragments and the
# compilers.
. "$(dirname "$0")/common.sh"

flavour=${1:?usage: kernel.sh $XDC_FLAVOURS}
arch=$(flavour_arch "$flavour")
config=$XDC_TOP/qemu-images/config
case $flavour in
x86) fragments=("$config"/{common,x86,fast}.config) steps=2720 ;;
debug) fragments=("$config"/{common,x86,debug,debug-x86}.config) steps=2740 ;;
uml) fragments=("$config"/{common,uml}.config) steps=1820 ;;
uml-debug) fragments=("$config"/{common,uml,debug,debug-uml}.config) steps=1860 ;;
esac

src=$("$XDC_TOP/qemu-images/source.sh" "$flavour")
command -v "$XDC_BINDGEN" >/dev/null || die "bindgen $XDC_BINDGEN_VERSION is missing" "make setup"
llvm=$(llvm_suffix)
key=$({
	echo "$src" "$arch" "$llvm" "$XDC_BINDGEN_VERSION" ${BINDGEN:+"$("$BINDGEN" --version)"}
	"$XDC_RUSTC" -V
	cat "${fragments[@]}"
} | sha256sum | cut -c1-12)
build=$XDC_CACHE/build/$flavour-$key
stamp=$build/.xdc-complete
if [ -f "$stamp" ]; then
	echo "$build"
	exit
fi

mkdir -p "$build"
exec 9>"$build/.xdc-lock"
flock -n 9 || { say "another build of the $flavour kernel is running; waiting for it" && flock 9; }
if [ -f "$stamp" ]; then
	echo "$build"
	exit
fi
free_mb=$(df -Pm "$build" | awk 'NR == 2 { print $4 }')
[ "$free_mb" -ge 6000 ] || die "only $free_mb MB free under $XDC_CACHE, a kernel needs 6000" \
	"free some space, or set XDG_CACHE_HOME to a larger disk"

log=$build/xdc-build.log
kmake "$src" O="$build" ARCH="$arch" rustavailable >"$log" 2>&1 ||
	{ tail -20 "$log" >&2 && die "this machine's Rust cannot build kernel code" "make setup"; }
(
	cd "$build"
	kmake "$src" O="$build" ARCH="$arch" allnoconfig
	KCONFIG_CONFIG=.config "$src/scripts/kconfig/merge_config.sh" -m .config "${fragments[@]}"
	kmake "$src" O="$build" ARCH="$arch" olddefconfig
) >"$log" 2>&1 || { tail -20 "$log" >&2 && die "configuring the $flavour kernel failed; log: $log"; }

# Fail now if a dependency has turned an option off; otherwise a test fails much
# later.
missing=
while IFS= read -r line; do
	case $line in
	CONFIG_*=n) grep -q "^${line%=n}=" "$build/.config" && missing+=" ${line}" ;;
	CONFIG_*) grep -qxF "$line" "$build/.config" || missing+=" ${line}" ;;
	esac
done < <(
	# the last line for an option counts
	cat "${fragments[@]}" | awk -F= '/^CONFIG_/ { v[$1] = $0 } END { for (k in v) print v[k] }'
)
[ -z "$missing" ] || [ -n "${XDC_CONFIG_LOOSE:-}" ] ||
	die "the $flavour kernel's configuration lacks:$missing"

target=vmlinux
[ "$arch" = um ] && target=linux || target=bzImage
say "building the $flavour kernel in $build"
counted "$log" "$flavour kernel" $steps \
	kmake "$src" O="$build" ARCH="$arch" -j"$(nproc)" $target modules || {
	grep -nE 'error|Error|undefined' "$log" | tail -15 >&2
	die "building the $flavour kernel failed; log: $log" "fix the cause, then run make again"
}
touch "$stamp"
echo "$build"
