// SPDX-License-Identifier: GPL-2.0
//
// Every module, one line each. Kbuild, qemu-images/, selftests/ and the crate xdc-algo read this list
// to build, install, offer, check and test modules; they name no module themselves.
//
//     KIND NAME SOURCE... [ALGORITHM FILE];
//
// KIND        cc      congestion control; loaded when a flow requests it
//             qdisc   queueing discipline; loaded when a port requests it
//             host    another module of a host: `modules` of [host.NAME] in a scenario
//             netdev  a network device; loaded like host
//             test    loaded by tests only
// NAME        of the .ko. Its name locates a tracepoint header: tcp_X, trace_X.h beside SOURCE, or X.h in
//             modules/include/trace/events/
// SOURCE      from this folder: one Rust file, or C files. Those of ../tools/ and ../../examples/ are built
//             for the project's own guests only, and are not installed
// ALGORITHM   of a congestion control with an `ENTRY` (modules/algo/entry.rs) in the kernel-independent
//             FILE: its name there

modules! {
    cc      tcp_unocc       "../net/ipv4/tcp_unocc.rs"      unocc "../algo/unocc.rs";
    cc      tcp_gemini      "../net/ipv4/tcp_gemini.rs"     gemini "../algo/gemini.rs";
    cc      tcp_toll        "../net/ipv4/tcp_toll.rs"       toll "../algo/toll.rs";
    qdisc   sch_acceltor    "../net/sched/sch_acceltor.rs";
    qdisc   sch_phantom     "../net/sched/sch_phantom.rs";
    host    tlt             "../net/tlt/tlt.rs";
    netdev  unorc           "../drivers/net/unorc/unorc.rs";
    netdev  fabric          "../drivers/net/fabric/fabric.rs";

    // Templates for your own: docs/writing.md.
    cc      tcp_example     "../../examples/tcp_example.rs";
    cc      tcp_aimd        "../../examples/tcp_aimd.rs"    aimd "../../examples/aimd.rs";
    qdisc   sch_example     "../../examples/sch_example.rs";

    // GEMINI with errors in its RTTs, for Table V of its paper.
    cc      tcp_gemini_err  "../tools/testing/selftests/net/tcp_gemini_err.rs" gemini_err "../tools/testing/selftests/net/gemini_err.rs";
    // Twins of the kernel's algorithms and of toll, for `xdc-harness twin`.
    cc      tcp_dctcp_rs    "../tools/testing/selftests/net/tcp_dctcp_rs.rs";
    cc      tcp_reno_rs     "../tools/testing/selftests/net/tcp_reno_rs.rs";
    cc      tcp_toll_c      "../tools/testing/selftests/net/tcp_toll_c.c";
    // A qdisc that obeys its packets, even to break rules, for 41-parents.sh.
    qdisc   sch_wrong       "../tools/testing/selftests/net/sch_wrong.rs";
    // A network device with features that others in a guest lack, for 42-nic.sh.
    netdev  xdc_nic         "../tools/testing/selftests/net/xdc_nic.c";
    // Compares parity implementations and counts their instructions, for 44-code.sh and `xdc bench`.
    test    xdc_code        "../tools/testing/selftests/net/xdc_code.rs";
    // Counts instructions for `xdc bench`.
    test    xdc_bench       "../tools/testing/selftests/net/bench_main.c" "../tools/testing/selftests/net/bench_tcp.c" "../tools/testing/selftests/net/bench_qdisc.c" "../tools/testing/selftests/net/bench_hook.c";
    // Deliberate errors, for the tests of the tests.
    test    xdc_alarm       "../tools/testing/selftests/net/xdc_alarm.c";
}
