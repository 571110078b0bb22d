#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# in-root.sh ROOT DIR[:DIR...] CMD...: run CMD with another distribution's
# tools, in a private mount namespace with root ROOT, where this machine's
# listed directories have their usual paths. Leaves no mounts. Users other than
# root need unprivileged user namespaces.
. "$(dirname "$0")/common.sh"

[ $# -ge 3 ] || die "usage: in-root.sh ROOT DIR[:DIR...] CMD..."
map=
[ "$(id -u)" -eq 0 ] || map=--map-root-user
# shellcheck disable=SC2016,SC2086
exec unshare --mount $map -- sh -ec '
	root=$1 dirs=$2 work=$PWD
	shift 2
	IFS=:
	for dir in /dev /proc $dirs; do
		mkdir -p "$root$dir"
		mount --rbind "$dir" "$root$dir"
	done
	unset IFS
	exec chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin HOME=/tmp LC_ALL=C PWD="$work" \
		sh -c "cd \"\$PWD\" 2>/dev/null || cd /; exec \"\$@\"" sh "$@"
' sh "$(realpath "$1")" "$2" "${@:3}"
