#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# foreign.sh: what `xdc-harness foreign` runs, into the cache: a folder of Debian's
# packages, which is a guest's root, and in its /kselftest the kernel's own tests
# with those of their programs that concern TCP, built. Nothing is installed:
# packages are unpacked without their maintainer scripts, so no daemon starts.
# Prints that folder's name. Does nothing when all is there.
. "$(dirname "$0")/common.sh"

suite=trixie
# tc and ip as new as the kernel: what they do not know cannot be tested.
newer=forky
newer_packages="iproute2"
packages="bash dash coreutils sed grep mawk gawk findutils diffutils debianutils util-linux procps kmod hostname bc
	netbase iproute2 ethtool iputils-ping jq socat tcpdump netcat-openbsd nftables netsniff-ng openssl libssl3t64
	python3 python3-scapy python3-pyroute2 python3-yaml python3-jsonschema
	iperf3 netperf nuttcp redis-server redis-tools nginx-light wrk"
# Of tools/testing/selftests/net; the rest of it is scripts, or not about TCP.
net_programs="bind_timewait bind_wildcard fin_ack_lat msg_zerocopy reuseaddr_conflict
	reuseaddr_ports_exhausted reuseport_addr_any reuseport_bpf reuseport_bpf_cpu reuseport_dualstack
	rxtimestamp sk_bind_sendto_listen sk_connect_zero_addr so_incoming_cpu so_rcv_listener socket
	stress_reuseport_listen tcp_fastopen_backup_key tcp_inq tcp_mmap tcp_port_share tfo timestamping
	tls txtimestamp"
mptcp_programs="mptcp_connect mptcp_diag mptcp_inq mptcp_sockopt pm_nl_ctl"

base=$XDC_CACHE/foreign
mkdir -p "$base"
exec 9>"$base/.lock"
flock 9
# What is there was made by this very file, of the kernel's very release.
source=${KSRC:-$("$XDC_TOP/qemu-images/source.sh" x86)}
key=$( (cat "$0" && grep -E '^(VERSION|PATCHLEVEL|SUBLEVEL|EXTRAVERSION) ' "$source/Makefile") | sha256sum | cut -c1-16)
root=$base/root-$key
if [ -f "$root/.complete" ]; then
	echo "$root"
	exit
fi
command -v apt-get >/dev/null || die "the foreign suites run on Debian's packages, and apt-get is not here"
work=$(mktemp -d "$base/.fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT

private_apt "$work" $suite $newer
say "fetching the packages of the foreign suites (about 150 MB, once)"
# shellcheck disable=SC2086
apt-get $apt -t $suite -y -qq --download-only install $packages >&2 || die "downloading the packages failed" "run it again"
mkdir "$work/newer"
# shellcheck disable=SC2086
(cd "$work/newer" && for package in $newer_packages; do apt-get $apt -qq download "$package/$newer"; done) >&2 ||
	die "downloading $newer_packages of $newer failed" "run it again"

say "unpacking them"
tree=$work/root
mkdir -p "$tree"/usr/{bin,sbin,lib,lib64} "$tree"/{proc,sys,dev,tmp,run,var/tmp,var/log,root,etc,mnt,kselftest}
for dir in bin sbin lib lib64; do ln -s "usr/$dir" "$tree/$dir"; done
ln -s ../run "$tree/var/run"
unpack "$tree" "$work"/archives/*.deb
unpack "$tree" "$work"/newer/*.deb
# What maintainer scripts would have made.
ln -sf mawk "$tree/usr/bin/awk"
ln -sf nc.openbsd "$tree/usr/bin/nc"
ln -sf which.debianutils "$tree/usr/bin/which"
ln -sf dash "$tree/usr/bin/sh"
printf 'root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n' >"$tree/etc/passwd"
printf 'root:x:0:\nnogroup:x:65534:\n' >"$tree/etc/group"
printf '127.0.0.1 localhost\n::1 localhost\n' >"$tree/etc/hosts"
# A guest would compile Python's modules each time, to forget them.
"$XDC_TOP/qemu-images/in-root.sh" "$tree" /dev python3 -m compileall -q -j 0 /usr/lib/python3 /usr/lib/python3.13 >/dev/null 2>&1 ||
	say "Python's modules stay uncompiled; the suites take longer"
rm -rf "$tree"/usr/share/{doc,man,locale,info} "$tree"/kselftest

say "building the kernel's tests of TCP"
kernel=$tree/kselftest
mkdir -p "$kernel/tools/testing" "$kernel/usr"
cp -r "$source/tools/include" "$kernel/tools/"
cp -r "$source/tools/testing/selftests" "$kernel/tools/testing/"
# 32 GB would take a guest hours.
sed -i 's/^#define FILE_SZ (1ULL << 35)$/#define FILE_SZ (1ULL << 28)/' "$kernel/tools/testing/selftests/net/tcp_mmap.c"
log=$base/build.log
kmake "$source" O="$work/headers" ARCH=x86_64 headers >"$log" 2>&1 || { tail -20 "$log" >&2; die "the kernel's headers cannot be made; log: $log"; }
cp -r "$work/headers/usr/include" "$kernel/usr/"
# compile FOLDER TARGET...: what does not build is said by the suite, which misses it.
compile() {
	local folder=$kernel/tools/testing/selftests/$1
	shift
	env -u MAKEFLAGS -u MAKELEVEL -u ARCH -u CROSS_COMPILE make -C "$folder" -k -j"$(nproc)" OUTPUT="$folder" \
		KHDR_INCLUDES="-isystem $kernel/usr/include" "${@/#/$folder/}" >>"$log" 2>&1 || true
}
# shellcheck disable=SC2086
compile net $net_programs
# shellcheck disable=SC2086
compile net/mptcp $mptcp_programs
ao=$(sed -n 's/^TEST_BOTH_AF [+:]= *//p' "$source/tools/testing/selftests/net/tcp_ao/Makefile")
# shellcheck disable=SC2046
compile net/tcp_ao $(for name in $ao; do echo "${name}_ipv4" "${name}_ipv6"; done)
# What the suites do not read.
find "$kernel/tools/testing/selftests" -mindepth 1 -maxdepth 1 ! -name net ! -name tc-testing ! -name kselftest ! -name lib \
	! -name '*.h' ! -name '*.sh' -exec rm -rf {} +
rm -rf "${kernel:?}/tools/include" "${kernel:?}/usr"

touch "$tree/.complete"
mv "$tree" "$root"
# Those of other releases or lists.
for old in "$base"/root-*; do
	[ "$old" = "$root" ] || rm -rf "$old"
done
echo "$root"
