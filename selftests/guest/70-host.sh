#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: x86
# covers: userspace-tools/guest/src/host.rs userspace-tools/agent selftests/guest/two.toml
# `xdc run --engine host`: this guest is the host. A run, an interrupt and a kill all leave the host
# unchanged.
. "$(dirname "$0")/lib.sh"

# A folder that xdc accepts as a checkout, with the agent in make's place.
home=/tmp/home
mkdir -p $home/scenarios $home/userspace-tools $home/build
cp /init $home/build/agent
export XDC_HOME=$home TMPDIR=/tmp
scenario=/selftests/two.toml
results=/tmp/results

# As on a user's machine, the run is in the first namespace.
host_run() {
	in_first_ns xdc run $scenario --engine host --results $results "$@" </dev/null
}

# A namespace is held by a process, an open file or a mount.
# shellcheck disable=SC2010 # What is grepped for is where a link leads.
inodes() { ls -l /proc/[0-9]*/ns/net /proc/[0-9]*/fd 2>/dev/null | grep -o 'net:\[[0-9]*\]' | sort -u; }
commands() { for p in /proc/[0-9]*; do echo "${p#/proc/} $(tr '\0' ' ' 2>/dev/null <$p/cmdline)"; done; }
# Agents, their supervisors and xdc itself, without this script and PID 1.
processes() { commands | grep -E ' host(-worker)? | xdc run ' | grep -v grep | cut -d' ' -f2-; }
modules() { cut -d' ' -f1 /proc/modules | sort; }
sysctls() {
	in_first_ns grep -rs . /proc/sys/net /proc/sys/kernel |
		grep -vE 'random|ns_last_pid|pty/nr|fastopen_key|stat_refresh|tainted|sched_domain|nr_conntrack' | sort
}
# State that a case could leave behind.
state() {
	echo "# namespaces"; inodes; ls /run/netns 2>/dev/null
	echo "# links"; in_first_ns ip -o link | cut -d: -f2
	echo "# processes"; processes
	echo "# mounts"; cat /proc/mounts
	echo "# modules"; modules
	echo "# sysctls"; sysctls
	echo "# files"; ls -d /tmp/xdc-* /run/xdc* /sys/kernel/tracing/instances/* 2>/dev/null
	echo "# qdiscs"; in_first_ns tc qdisc show
}
# The last namespaces end a moment after the last process.
settled() { state >/tmp/after && cmp -s /tmp/before /tmp/after; }
as_before() {
	tries=10
	until settled || [ $tries -eq 0 ]; do
		tries=$((tries - 1))
		sleep 1
	done
	if [ $tries -gt 0 ]; then
		result 0 "$1"
	else
		result 1 "$1"
		diff /tmp/before /tmp/after | head -20 | sed 's/^/# /'
	fi
}

for module in tcp_unocc sch_phantom; do rmmod $module 2>/dev/null; done
# Make permanent effects of a first use (a sysctl's table, a slab) before the comparison.
host_run --cc cubic >/dev/null 2>&1
rm -rf $results
state >/tmp/before
check "the snapshot has namespaces" grep -qE '^net:\[[0-9]+\]' /tmp/before
check "the snapshot has sysctls" grep -q '^/proc/sys/net/ipv4/tcp_ecn:' /tmp/before

check "a run with unocc and cubic" host_run --cc unocc,cubic --pcap
summary=$(cat $results/two/1/summary.json 2>/dev/null)
matches "the summary names the engine" '"engine": "host"' "$summary"
matches "the summary has the goodput" '"goodput_mbps": 1[0-9]\.' "$summary"
check "the run captures packets" test "$(cat $results/two/1/pcap/unocc/*.pcap | wc -c)" -gt 100000
as_before "a run leaves the host unchanged"

# A module loaded earlier stays.
modprobe tcp_unocc
state >/tmp/before
check "a run while tcp_unocc is loaded" host_run --cc unocc
as_before "a module loaded before the run stays loaded"
# The run's last sockets hold it for a moment.
check "a module loaded before the run can be unloaded" eventually rmmod tcp_unocc
state >/tmp/before

# Only this run's events: the port is at the router. The run ends with its flows, so that no packet passes
# between the end of the recording and the port's last count.
rm -rf $results
check "a run that records tracepoints" host_run --cc unocc --trace --set flows.0.bytes=400KiB --set duration=5s
trace=$results/two/1/trace-unocc.jsonl
marked=$(grep -c '"event":"phantom_mark".*"node":"s"' $trace)
equal "the recording has as many marks as the port counts" \
	"$(sed -n 's/.*"marks": \([0-9]*\).*/\1/p' $results/two/1/summary.json | head -n 1)" "$marked"
check "the recording has marks" [ "$marked" -gt 0 ]
check "the recording has epochs of the senders" grep -q '"event":"unocc_epoch".*"node":"a[12]"' $trace
matches "the recording misses no event" '"missed":0' "$(tail -n 1 $trace)"
check "the report shows the tracepoints" grep -q 'unocc: tracepoints' $results/two/1/report.html
as_before "a recording leaves the host unchanged"
refuses "tracepoints in virtual time are refused" "tracepoint" xdc run $scenario --engine uml --trace

# Wait until the worker has built its network: four nodes and their parent.
spaces=$(inodes | wc -l)
veths() { [ "$(inodes | wc -l)" -ge $((spaces + 5)) ]; }
agent_runs() { processes | grep -q ' host-worker '; }

# In the foreground: a shell's background job ignores SIGINT, which xdc would respect. So the sender of the
# signal is in the background.
disturb() {
	eventually veths && agent_runs && echo yes >/tmp/under-way
	kill -$1 "$(commands | awk '$3 == "run" && $2 ~ /xdc$/ { print $1 }')" 2>>/tmp/under-way || commands >>/tmp/under-way
}
for signal in INT TERM KILL; do
	rm -f /tmp/under-way
	disturb $signal &
	# One command, so that xdc gets the signal.
	nsenter --net=/proc/2/ns/net xdc run $scenario --engine host --results $results --set duration=60s --cc unocc --trace </dev/null >/tmp/out 2>&1
	rc=$?
	equal "a long run was under way at SIG$signal" yes "$(cat /tmp/under-way)"
	case $signal in
	INT) equal "SIGINT: exit code" 130 $rc ;;
	TERM) equal "SIGTERM: exit code" 143 $rc ;;
	KILL) equal "SIGKILL: exit code" 137 $rc ;;
	esac
	as_before "SIG$signal to xdc leaves the host unchanged"
done

# The supervisor dies, and its worker with it.
nsenter --net=/proc/2/ns/net xdc run $scenario --engine host --results $results --set duration=60s --cc cubic </dev/null >/tmp/out 2>&1 &
run=$!
check "another long run is under way" eventually veths
kill -KILL "$(commands | awk '$3 == "host" { print $1 }')"
wait $run
result $((! $?)) "a run whose agent is killed fails"
few() { [ "$(inodes | wc -l)" -le $spaces ] && ! agent_runs; }
check "a killed agent leaves no namespace and no process" eventually few
# No process was left to unload the modules: the record has them for the next run.
check "a killed agent leaves its modules loaded" grep -q '^sch_phantom ' /proc/modules
check "a killed agent leaves a record of its changes" [ -s /run/xdc/host.json ]
check "a run after a killed agent" host_run --cc cubic
as_before "the next run undoes the changes of a killed one"

# Two concurrent runs wait for each other, and both keep their results.
rm -rf $results
host_run --cc cubic --set duration=3s >/tmp/out 2>&1 &
first=$!
check "the first of two runs is under way" eventually veths
check "the second of two runs" host_run --cc unocc
wait $first
result $? "the first of two runs"
equal "both runs have results" "1 2" "$(echo $(ls $results/two))"
as_before "two concurrent runs leave the host unchanged"

# An untrusted scenario writes no files.
stranger() {
	what=$1
	shift
	out=$(host_run --cc cubic "$@" 2>&1)
	matches "$what is refused" 'whole machine|is global|is not a sysctl' "$out"
}
stranger "vm.swappiness" --set 'sysctl."vm.swappiness"=11'
stranger "vm.swappiness of a host" --set 'host.a1.sysctl."vm.swappiness"=11'
stranger "kernel.core_pattern" --set 'sysctl."kernel.core_pattern"=|/tmp/evil %p'
stranger "a file name as sysctl" --set 'sysctl."/tmp/pwned"=x'
stranger "a dotted file name as sysctl" --set 'sysctl.".tmp.pwned"=x'
stranger "a global sysctl of the network" --set 'net.ipv4.tcp_mem=1 2 3'
check "a refused file name creates no file" [ ! -e /tmp/pwned ]
# Per namespace; the kernel loads a module before it refuses.
refuses "a sysctl that only the first namespace may set is refused" "net.ipv4.tcp_congestion_control" host_run --cc cubic --set net.ipv4.tcp_congestion_control=gemini
refuses "a global switch that each namespace shows is refused" "net.netfilter.nf_hooks_lwtunnel" host_run --cc cubic --set net.netfilter.nf_hooks_lwtunnel=1
as_before "an untrusted scenario changes nothing"

# Modules other than network modules need consent; they are unloaded with their dependencies.
out=$(host_run --cc cubic --set 'host.a1.modules=["vxlan"]' 2>&1)
matches "an untrusted module is refused" '--allow-commands' "$out"
out=$(host_run --cc cubic --set 'cc.mine={ kernel = "cubic", module = "./evil.ko" }' 2>&1)
matches "a file as module is refused" 'not a valid name of a kernel module' "$out"
as_before "a refused module is not loaded"
# vxlan depends on ip6_udp_tunnel and udp_tunnel.
for module in unorc vxlan ip6_udp_tunnel udp_tunnel; do rmmod $module 2>/dev/null; done
state >/tmp/before
check "the snapshot lacks udp_tunnel" [ ! -e /sys/module/udp_tunnel ]
for module in vxlan ip6-udp-tunnel; do
	check "a run with the module $module" \
		host_run --cc cubic --allow-commands --set "host.a1.modules=[\"$module\"]"
	as_before "$module is unloaded with its dependencies"
done

# A daemon outside its session and process group.
rm -f /tmp/daemon
daemon='setsid sleep 987 >/dev/null 2>&1 & sleep 1; echo $(pidof sleep | wc -w) $(ls -d /proc/[0-9]* | wc -l) >/tmp/daemon'
check "a run whose command leaves a daemon" \
	host_run --cc cubic --allow-commands --set "host.a1.setup=[\"$daemon\"]"
matches "the command sees the daemon, and no process outside the run" '^1 [1-9]$' "$(cat /tmp/daemon)"
equal "the daemon is gone" "" "$(commands | grep 'sleep 987' | grep -v grep)"
rm -f /tmp/daemon
as_before "a daemon leaves the host unchanged"

# Refused before any change.
state >/tmp/before
mv /lib/modules/"$(uname -r)" /lib/modules/away
out=$(host_run --cc cubic 2>&1)
matches "a missing qdisc is refused" 'lacks the qdisc phantom' "$out"
insmod /lib/modules/away/extra/sch_phantom.ko
out=$(host_run --cc unocc 2>&1)
matches "a missing congestion control is refused" 'has no congestion control unocc: it has .*try: ' "$(echo $out)"
rmmod sch_phantom
mv /lib/modules/away /lib/modules/"$(uname -r)"
as_before "a refused run leaves the host unchanged"
refuses "a sweep on the host is refused" "host" xdc sweep $scenario --engine host

rm -rf $home $results /tmp/out /tmp/before /tmp/after
finish
