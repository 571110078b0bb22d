// SPDX-License-Identifier: GPL-2.0
//
// Every module, one line each. What is to be built, installed, offered, checked and tested is read
// from here: Kbuild, qemu-images/, selftests/ and the crate xdc-algo, which includes this file, name
// no module themselves.
//
//     KIND NAME SOURCE... [ALGORITHM FILE];
//
// KIND        cc      congestion control; loaded when a flow asks for it
//             qdisc   queueing discipline; loaded when a port asks for it
//             host    anything else that a host loads: `modules` of [host.NAME] in a scenario
//             netdev  a network device; as host
//             test    what only tests load
// NAME        of the .ko. A tracepoint header is found by its name: tcp_X, trace_X.h, beside SOURCE or
//             in modules/kernel/
// SOURCE      from this folder: one in Rust, or some in C. Those of selftest/ and ../examples/ are built for our own
//             guests alone, and are not installed
// ALGORITHM   of a congestion control whose rules are in FILE, which knows no kernel and has an `ENTRY`
//             (modules/algo/entry.rs): its name there

modules! {
    cc      tcp_unocc       "tcp_unocc.rs"                  unocc "algo/unocc.rs";
    cc      tcp_gemini      "tcp_gemini.rs"                 gemini "algo/gemini.rs";
    cc      tcp_toll        "tcp_toll.rs"                   toll "algo/toll.rs";
    qdisc   sch_acceltor    "sch_acceltor.rs";
    qdisc   sch_phantom     "sch_phantom.rs";
    host    tlt             "tlt.rs";
    netdev  unorc           "unorc.rs";

    // Begin your own from these: docs/writing.md.
    cc      tcp_example     "../examples/tcp_example.rs";
    cc      tcp_aimd        "../examples/tcp_aimd.rs"       aimd "../examples/aimd.rs";
    qdisc   sch_example     "../examples/sch_example.rs";

    // GEMINI with errors in its RTTs, for Table V of its paper.
    cc      tcp_gemini_err  "selftest/tcp_gemini_err.rs"    gemini_err "selftest/gemini_err.rs";
    // Twins of the kernel's own, and of toll, for `xdc twin`.
    cc      tcp_dctcp_rs    "selftest/tcp_dctcp_rs.rs";
    cc      tcp_reno_rs     "selftest/tcp_reno_rs.rs";
    cc      tcp_toll_c      "selftest/tcp_toll_c.c";
    // A qdisc that does what its packets ask for, be it wrong, for 41-parents.sh.
    qdisc   sch_wrong       "selftest/sch_wrong.rs";
    // A network device with what others in a guest lack, for 42-nic.sh.
    netdev  xdc_nic         "selftest/xdc_nic.c";
    // Compares the ways to compute parities, and counts their instructions, for 44-code.sh and `xdc bench`.
    test    xdc_code        "selftest/xdc_code.rs";
    // Counts instructions for `xdc bench`.
    test    xdc_bench       "selftest/bench_main.c" "selftest/bench_tcp.c" "selftest/bench_qdisc.c" "selftest/bench_hook.c";
    // Mistakes on purpose, for the tests of the tests.
    test    xdc_alarm       "selftest/xdc_alarm.c";
}
