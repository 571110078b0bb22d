#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# kernels: uml-debug | x86 debug
# covers: modules/net/sched/settings.rs modules/algo/params.rs modules/algo/entry.rs
# covers: modules/rust/kernel/net/sysctl.rs modules/algo/unocc.rs modules/algo/gemini.rs modules/algo/toll.rs
# Parameters: one set per network namespace, range-checked, live.
. "$(dirname "$0")/lib.sh"

load unocc gemini toll

# spec: NAME of each parameter in the specification
unocc="line_rate_mbps intra_rtt_us ai_ppm k_bytes ewma md_gentle delay_tolerance_ppm
	skip_md_when_falling qa_beta qa_keep start max_cwnd_bdp profile shortest_rtt_us"
gemini="line_rate_mbps k_packets_per_gbps k_bytes k_bdp t_us beta h_scale g rtt_base_window_ms
	profile shortest_rtt_us"
for p in $unocc; do check "net.unocc.$p exists" test -f /proc/sys/net/unocc/$p; done
toll="line_rate_mbps gain share beta step"
for p in $gemini; do check "net.gemini.$p exists" test -f /proc/sys/net/gemini/$p; done
for p in $toll; do check "net.toll.$p exists" test -f /proc/sys/net/toll/$p; done
refuses "toll beta refuses more than a half" "Invalid argument|I/O error" sysctl_set net.toll.beta 513

check "ai_ppm is writable" sysctl_set net.unocc.ai_ppm 1234
equal "ai_ppm reads back" 1234 "$(sysctl_get net.unocc.ai_ppm)"
# As in every sysctl of the kernel: proc_douintvec_minmax().
check "ai_ppm accepts a hexadecimal number" sysctl_set net.unocc.ai_ppm 0x10
equal "a hexadecimal ai_ppm reads back in decimal" 16 "$(sysctl_get net.unocc.ai_ppm)"
check "ai_ppm is writable again" sysctl_set net.unocc.ai_ppm 1234
for bad in -1 99999999999 18446744073709551616 nonsense 12x 1.5 ""; do
	refuses "ai_ppm refuses '$bad'" "Invalid argument|I/O error" sysctl_set net.unocc.ai_ppm "$bad"
done
equal "a refused write leaves ai_ppm alone" 1234 "$(sysctl_get net.unocc.ai_ppm)"
refuses "ewma refuses 1025 (more than 1)" "Invalid argument|I/O error" sysctl_set net.unocc.ewma 1025
refuses "intra_rtt_us refuses more than a second" "Invalid argument|I/O error" sysctl_set net.unocc.intra_rtt_us 1000001
refuses "gemini beta refuses 1025" "Invalid argument|I/O error" sysctl_set net.gemini.beta 1025
refuses "gemini line_rate_mbps refuses more than a terabit" "Invalid argument|I/O error" sysctl_set net.gemini.line_rate_mbps 1000001

equal "the default is profile paper: md_gentle is 0.3" 307 "$(sysctl_get net.unocc.md_gentle)"
for cc in unocc gemini; do
	equal "$cc: line_rate_mbps is 0 by default" 0 "$(sysctl_get net.$cc.line_rate_mbps)"
	equal "$cc: shortest_rtt_us is read-only" "-r--r--r--" \
		"$(ls -l /proc/sys/net/$cc/shortest_rtt_us | cut -c1-10)"
	equal "$cc: shortest_rtt_us is 0 before the first flow" 0 "$(sysctl_get net.$cc.shortest_rtt_us)"
done
check "gemini accepts profile paper" sysctl_set net.gemini.profile paper
equal "gemini: profile paper sets t_us" 5000 "$(sysctl_get net.gemini.t_us)"
equal "profile is write-only" "--w-------" "$(ls -l /proc/sys/net/unocc/profile | cut -c1-10)"
check "unocc accepts profile paper" sysctl_set net.unocc.profile paper
equal "profile paper: md_gentle is 0.3" 307 "$(sysctl_get net.unocc.md_gentle)"
equal "profile paper: skip_md_when_falling off" 0 "$(sysctl_get net.unocc.skip_md_when_falling)"
check "unocc accepts profile artifact" sysctl_set net.unocc.profile artifact
equal "profile artifact: md_gentle is 0.35" 358 "$(sysctl_get net.unocc.md_gentle)"
equal "profile artifact: skip_md_when_falling on" 1 "$(sysctl_get net.unocc.skip_md_when_falling)"
equal "profile artifact: k_bytes" 24576 "$(sysctl_get net.unocc.k_bytes)"
check "a value can be changed after a profile" sysctl_set net.unocc.md_gentle 400
equal "a value changed after a profile is kept" 400 "$(sysctl_get net.unocc.md_gentle)"
for bad in tuned linux "" "paper linux" paperpaperpaperpaper; do
	refuses "profile refuses '$bad'" "Invalid argument|I/O error" sysctl_set net.unocc.profile "$bad"
done
equal "a refused profile changes no value" 400 "$(sysctl_get net.unocc.md_gentle)"

ip netns add other
equal "a new namespace has its own defaults" 1000 "$(in_ns other cat /proc/sys/net/unocc/ai_ppm)"
in_ns other sysctl -qw net.unocc.ai_ppm=77 net.gemini.t_us=777
equal "a namespace can set its own values" 77 "$(in_ns other cat /proc/sys/net/unocc/ai_ppm)"
equal "the values of one namespace do not change another" 1000 "$([ "$(sysctl_get net.unocc.ai_ppm)" = 77 ] && echo 77 || echo 1000)"
ip netns del other

equal "only root can write ai_ppm" "-rw-r--r--" "$(ls -l /proc/sys/net/unocc/ai_ppm | cut -c1-10)"
rmmod tcp_unocc tcp_gemini tcp_toll
finish
