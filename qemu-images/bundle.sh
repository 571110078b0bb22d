#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# bundle.sh: make build/bundle/xdc-VERSION-x86_64.tar.zst of the output of `make`:
# static xdc and agent, the UML kernel linked statically, its modules, busybox,
# scenarios, docs, xdc's sources, and the origin of all others. A bundle needs no
# root, no compiler and no library. Two builds of one commit are byte-identical.
. "$(dirname "$0")/common.sh"

cd "$XDC_TOP"
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' userspace-tools/Cargo.toml | head -1)
name=xdc-$version-x86_64
out=$XDC_TOP/build/bundle
tree=$(realpath build/uml/tree)
target=x86_64-unknown-linux-gnu
[ -f build/uml/modules/modules.order ] || die "the modules are not built" "make bundle"
[ -n "$(git ls-files COPYING 2>/dev/null)" ] || die "a bundle takes its files from git, but git lists none here" \
	"a git checkout"
busybox=$(command -v busybox) || die "busybox is missing" "make setup"
! ldd "$busybox" >/dev/null 2>&1 || die "$busybox needs libraries" "apt-get install busybox-static"

mkdir -p "$out"
exec 9>"$out/.lock"
flock 9
work=
trap '[ -z "$work" ] || rm -rf "$work"' EXIT
work=$(mktemp -d "$out/.work.XXXXXX")

# static_kernel FILE: link the cached kernel without shared libraries. The objects
# are the same, so results are, too.
static_kernel() {
	local copy=$work/tree lds=arch/um/kernel/vmlinux.lds command
	say "linking the UML kernel statically (about a minute, once)"
	cp -a "$tree" "$copy"
	command=$(sed -n 's/^savedcmd_[^ ]* := //p' "$copy/arch/um/kernel/.vmlinux.lds.cmd")
	(cd "$copy" && eval "${command/-DLINKER_SCRIPT/-DLINKER_SCRIPT -DCONFIG_LD_SCRIPT_STATIC=1}") >"$copy.log" 2>&1
	[ -s "$copy/$lds" ] || die "the kernel's linker script could not be made"
	# llvm-objcopy refuses the relocations of a static program; binutils'
	# accepts them.
	kmake "$(source_of "$tree")" O="$copy" ARCH=um LINK-y=-static OBJCOPY=objcopy linux >>"$copy.log" 2>&1 ||
		{ tail -20 "$copy.log" >&2 && die "linking the UML kernel statically failed" "apt-get install libc6-dev"; }
	strip -o "$1.new" "$copy/linux" 2>>"$copy.log"
	! readelf -l "$1.new" | grep -q INTERP || die "the UML kernel still needs shared libraries"
	mv "$1.new" "$1"
	rm -rf "$copy"
}

kernel=$XDC_CACHE/build/static-$(basename "$tree")
[ -s "$kernel" ] || static_kernel "$kernel"

say "building static programs"
cargo_home=${CARGO_HOME:-$HOME/.cargo}
# Keep this machine's paths out of the programs.
flags="-C target-feature=+crt-static -C strip=symbols --remap-path-prefix=$cargo_home=cargo"
flags+=" --remap-path-prefix=${CARGO_BUILD_BUILD_DIR:-$XDC_TOP/userspace-tools/target}=target --remap-path-prefix=$XDC_TOP=xdc"
(cd userspace-tools && RUSTFLAGS=$flags cargo build --quiet --locked --release --target $target \
	--target-dir "$out/target" -p xdc -p xdc-agent)

top=$work/$name
mkdir -p "$top"/{build/uml/modules,build/uml/tree,tools,sources}
install -m 755 "$out/target/$target/release/xdc" "$top/xdc"
install -m 755 "$out/target/$target/release/xdc-agent" "$top/build/agent"
install -m 755 "$busybox" "$top/tools/busybox"
install -m 755 "$kernel" "$top/build/uml/kernel"
install -m 644 build/uml/release "$top/build/uml/release"
while read -r object; do
	strip --strip-debug -o "$top/build/uml/modules/$(basename "${object%.o}.ko")" "build/uml/modules/${object%.o}.ko"
done <build/uml/modules/modules.order
for list in modules.builtin modules.builtin.modinfo modules.order; do
	install -m 644 "$tree/$list" "$top/build/uml/tree/$list"
done
while read -r object; do
	module=${object%.o}.ko
	mkdir -p "$top/build/uml/tree/$(dirname "$module")"
	strip --strip-debug -o "$top/build/uml/tree/$module" "$tree/$module"
done <"$tree/modules.order"
git ls-files -z -- scenarios docs python README.md CHANGELOG.md CITATION.cff COPYING |
	tar --null -T - -cf - | tar -C "$top" --no-same-owner -xf -

# Files that the licenses require, and the sources for a rebuild.
packed() { tar --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner --mode=u+rw,go+r,go-w --format=gnu "$@"; }
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
git ls-files -z | packed --null -T - --transform "s|^|xdc-$version/|" -cf "$top/sources/xdc-$version.tar"
cp "$tree/.config" "$top/sources/linux-uml.config"
busybox_package=$(dpkg-query -W -f '${source:Package} ${source:Version}' busybox-static 2>/dev/null || echo "busybox, $("$busybox" | head -1)")
libc_package=$(dpkg-query -W -f '${source:Package} ${source:Version}' libc6-dev 2>/dev/null || echo "the C library of the machine that made this")
qemu-images/crates.py notices xdc xdc-agent >"$top/THIRD-PARTY.txt"
qemu-images/crates.py sbom --with "linux=$(cat build/uml/release)=GPL-2.0-only" --with "busybox=${busybox_package#* }=GPL-2.0-only" \
	--with "libc=${libc_package#* }=LGPL-2.1-or-later" xdc xdc-agent >"$top/sbom.cdx.json"
cat >"$top/SOURCES.md" <<EOT
<!-- SPDX-License-Identifier: GPL-2.0 -->
# The sources of this bundle

| files | licence | sources |
|---|---|---|
| \`xdc\`, \`build/agent\`, \`build/uml/modules/\`, \`scenarios/\`, \`docs/\`, \`python/\` | GPL-2.0-only | \`sources/xdc-$version.tar\`; crates by the versions and checksums of its \`userspace-tools/Cargo.lock\`, with the licences in \`THIRD-PARTY.txt\`, listed in \`sbom.cdx.json\` (CycloneDX) |
| \`build/uml/kernel\`, \`build/uml/tree/\` | GPL-2.0-only | Linux $(cat build/uml/release) (Debian's package linux-source-$XDC_KERNEL_SERIES, or kernel.org), with \`qemu-images/patches/\` of the file above and the configuration \`sources/linux-uml.config\`; linked by \`qemu-images/bundle.sh\` |
| \`tools/busybox\` | GPL-2.0-only | Debian's source package $busybox_package |
| the C library within these programs | LGPL-2.1-or-later | Debian's source package $libc_package |

Whoever gave you this bundle gives you, for three years, a copy of all of these sources on request, for no more than the
cost of copying.
EOT
cat >"$top/BUNDLE.md" <<EOT
<!-- SPDX-License-Identifier: GPL-2.0 -->
# xdc $version, ready to run

For any x86-64 Linux whose processor has XSAVE. It needs no root, no compiler, no library and no KVM:

    ./xdc run two-dc-1g --engine uml
    ./xdc list

The first command runs two datacenters in virtual time and prints a table; the report is in \`results/\`. Only
\`--engine uml\` works from a bundle: the default engine of some scenarios is QEMU, whose kernel a checkout builds. Commands of a scenario, and
queues other than \`phantom\`, take programs such as \`tc\` from this machine.

\`sha256sum -c SHA256SUMS\` checks that the files are whole; only the signature beside the archive says where it is from
([docs/security.md](docs/security.md)). [README](README.md), [documentation](docs/index.md),
[licence](COPYING), [sources](SOURCES.md).
EOT
(cd "$top" && find . -type f ! -name SHA256SUMS -printf '%P\0' | LC_ALL=C sort -z | xargs -0 sha256sum >SHA256SUMS)

archive=$out/$name.tar.zst
packed --mode=u+rwX,go+rX,go-w -C "$work" -cf - "$name" | zstd -q -17 --single-thread -o "$archive.new" -f
mv "$archive.new" "$archive"
say "build/bundle/$name.tar.zst: $(stat -c %s "$archive" | numfmt --to=si)B, sha256 $(sha256sum <"$archive" | cut -c1-16)"
