#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# xdc-routes.sh add|del DEV: toll inside and across the datacenters, what the
# host had before (cubic) to the Internet. GATEWAY and NETS are for you to set.
set -eu
action=${1:?usage: xdc-routes.sh add|del DEV}
dev=${2:?usage: xdc-routes.sh add|del DEV}
gateway=${GATEWAY:-10.1.0.1}
# This datacenter and the other one.
nets=${NETS:-10.1.0.0/16 10.2.0.0/16}

# `replace` would take the route of the host's own link away, and with it the gateway's.
for net in $nets; do
	if [ "$action" = add ] && ip route show exact "$net" dev "$dev" scope link | grep -q .; then
		echo "xdc-routes.sh: $dev is itself in $net: leave it out of NETS (ip route change $net dev $dev congctl toll features ecn)" >&2
		exit 1
	fi
done

for net in $nets; do
	case $action in
	add)
		# `features ecn` asks for ECN on this route whatever the sysctl says.
		ip route replace "$net" via "$gateway" dev "$dev" congctl toll features ecn
		;;
	del) ip route del "$net" via "$gateway" dev "$dev" ;;
	*) echo "xdc-routes.sh: '$action' is neither add nor del" >&2 && exit 2 ;;
	esac
done
