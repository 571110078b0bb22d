#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml-debug | x86 debug
# covers: modules/rust/kernel/net/deferred.rs modules/rust/helpers/net/deferred.c
# covers: modules/rust/kernel/net/speeds.rs modules/rust/helpers/net/speeds.c modules/net/ipv4/live.rs
# Tasks that wait while another task loads the module of a congestion control: a route holds RTNL, which a new
# namespace takes; a sysctl is in use, for which the end of its namespace waits. No task may wait forever.
. /selftests/lib.sh

ip link add d0 type dummy
ip addr add 10.77.0.1/24 dev d0
ip link set d0 up

# The kernel's modprobe: the namespace waits for RTNL before the module is there.
modprobe=$(cat /proc/sys/kernel/modprobe)
cat >/tmp/modprobe <<END
#!/bin/sh
ip netns add meanwhile &
sleep 0.1
exec $modprobe "\$@"
END
chmod +x /tmp/modprobe
echo /tmp/modprobe >/proc/sys/kernel/modprobe

route() { ip route replace 10.78.0.0/24 dev d0 congctl "$1"; }
for cc in unocc gemini toll; do
	{
		# The first request may come too early.
		route $cc 2>/dev/null
		touch /tmp/$cc
	} &
	check "$cc: ip route returns" eventually test -e /tmp/$cc
	check "$cc: a namespace is created while the module loads" eventually test -e /run/netns/meanwhile
	check "$cc: a route can select it" eventually route $cc
	check "$cc: its parameters exist" eventually test -d /proc/sys/net/$cc
	ip netns del meanwhile
done
unload tcp_unocc tcp_gemini tcp_toll

# An open sysctl file keeps no namespace alive. Here the namespace ends during a write.
cat >/tmp/modprobe <<END
#!/bin/sh
touch /tmp/loading
until test -e /tmp/ending; do sleep 0.05; done
sleep 1
exec $modprobe "\$@"
END
for cc in unocc gemini toll; do
	rm -f /tmp/loading /tmp/ending
	ip netns add ending
	in_ns ending sh -c "exec 3>/proc/sys/net/ipv4/tcp_congestion_control
		exec nsenter --net=/proc/2/ns/net sh -c 'echo $cc >&3; touch /tmp/$cc.written'" 2>/dev/null &
	check "$cc: the write requests the module" eventually test -e /tmp/loading
	ip netns del ending
	touch /tmp/ending
	{
		ip netns add another
		touch /tmp/$cc.another
	} &
	check "$cc: the write returns after its namespace ended" eventually test -e /tmp/$cc.written
	check "$cc: a namespace is created during the write" eventually test -e /tmp/$cc.another
	check "$cc: its parameters exist after the write" eventually test -d /proc/sys/net/$cc
	ip netns del another
done
echo "$modprobe" >/proc/sys/kernel/modprobe
ip link del d0
unload tcp_unocc tcp_gemini tcp_toll
finish
