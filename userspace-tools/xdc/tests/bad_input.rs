// SPDX-License-Identifier: GPL-2.0
//! Mistakes of a user end in one sentence with the cause, a hint, the documented exit code, and no
//! leftover files.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use tempfile::TempDir;

const USAGE: i32 = 2;
const FAILURE: i32 = 1;

/// Runs `xdc` in an empty directory with a checkout.
struct Caller {
    dir: TempDir,
    home: Option<TempDir>,
}

impl Caller {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), home: None }
    }

    /// A checkout where nothing is built but `files`.
    fn in_checkout_with(files: &[&str]) -> Self {
        let home = tempfile::tempdir().unwrap();
        for dir in ["scenarios", "userspace-tools"] {
            fs::create_dir(home.path().join(dir)).unwrap();
        }
        let real = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
        for name in ["two-dc-1g.toml", "links.toml"] {
            fs::copy(real.join(name), home.path().join("scenarios").join(name)).unwrap();
        }
        for file in files {
            let path = home.path().join("build").join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        Self { home: Some(home), ..Self::new() }
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.dir.path().join(name), text).unwrap();
    }

    fn xdc<S: AsRef<OsStr>>(&self, args: &[S]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xdc"));
        command.args(args).current_dir(self.dir.path());
        if let Some(home) = &self.home {
            command.env("XDC_HOME", home.path());
        }
        command.output().unwrap()
    }

    /// Expects one sentence with `words`, one hint, exit code `code`, and no result.
    #[track_caller]
    fn refused(&self, code: i32, args: &[&str], words: &[&str]) {
        let output = self.xdc(args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        let count = |start| said.lines().filter(|line| line.starts_with(start)).count();
        assert_eq!(count("xdc: error: "), 1, "{args:?}: {said}");
        assert_eq!(count("try: "), 1, "{args:?}: {said}");
        for word in words {
            assert!(said.contains(word), "{args:?} should say '{word}': {said}");
        }
        assert!(!self.dir.path().join("results").exists(), "{args:?}");
    }
}

#[test]
fn wrong_options_are_refused() {
    let caller = Caller::new();
    for args in [
        vec!["run"],
        vec!["run", "two-dc-1g", "--sede", "1"],
        vec!["run", "two-dc-1g", "--engine", "vmware"],
        vec!["run", "two-dc-1g", "--seed", "-1"],
        vec!["run", "two-dc-1g", "--icount=sometimes"],
        vec!["run", "two-dc-1g", "--timeout", "0"],
        vec!["run", "two-dc-1g", "--seed", "18446744073709551615"],
        vec!["qdisc", "add"],
        vec!["trace", "--event", "unocc"],
        vec!["trace", "--seconds", "0"],
        vec!["trace", "--json", "-o", "x"],
        vec!["trace", "plot", "x"],
        vec!["nonsense"],
        vec![],
    ] {
        assert_eq!(caller.xdc(&args).status.code(), Some(USAGE), "{args:?}");
    }
    let icount = ["run", "two-dc-1g", "--engine", "uml", "--icount"];
    caller.refused(USAGE, &icount, &["--icount is for QEMU"]);
}

#[test]
fn invalid_recordings_and_events_are_refused() {
    let caller = Caller::new();
    let plot = |file| ["trace", "plot", file, "-o", "x.svg"];
    caller.refused(FAILURE, &plot("none"), &["none", "No such file"]);
    caller.write("text", "no recording\n");
    caller.refused(FAILURE, &plot("text"), &["text", "line 1"]);
    caller.write("empty", "");
    caller.refused(FAILURE, &plot("empty"), &["empty has no events"]);
    caller.refused(USAGE, &plot("/dev/zero"), &["not a regular file"]);
    // Whichever is missing here: tracefs, the module, or permission.
    caller.refused(FAILURE, &["trace", "--event", "gemini_round", "--seconds", "1"], &[]);
    assert!(!caller.dir.path().join("x.svg").exists());
}

/// An untrusted archive may have a link at the output path.
#[test]
fn output_through_a_link_is_refused() {
    let caller = Caller::new();
    caller.write("victim", "precious");
    let dir = caller.dir.path();
    std::os::unix::fs::symlink("victim", dir.join("a.svg")).unwrap();
    std::os::unix::fs::symlink("victim", dir.join("xdc.1")).unwrap();
    let link = ["not a regular file"];
    caller.refused(FAILURE, &["show", "links", "--svg", "a.svg"], &link);
    caller.refused(FAILURE, &["man", "."], &link);
    assert_eq!(fs::read_to_string(dir.join("victim")).unwrap(), "precious");
}

#[test]
fn help_exits_with_0() {
    for args in [
        &["--help"][..],
        &["run", "--help"],
        &["qdisc", "add", "--help"],
        &["trace", "--help"],
        &["trace", "plot", "--help"],
    ] {
        let output = Caller::new().xdc(args);
        assert!(output.status.success(), "{args:?}");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("Example"), "{args:?}: {text}");
    }
}

#[test]
fn unknown_scenarios_and_congestion_controls_are_refused() {
    let caller = Caller::new();
    caller.refused(USAGE, &["run", "three-dc"], &["three-dc", "xdc list"]);
    caller.refused(USAGE, &["shell", "three-dc"], &["three-dc"]);
    caller.refused(
        USAGE,
        &["run", "two-dc-1g", "--cc", "nonsense"],
        &[
            "'nonsense'",
            "unocc, unocc-paper, unocc-artifact, gemini, gemini-linux, gemini-paper, toll, dctcp, bbr-dctcp, cubic, cubic-ecn, bbr",
        ],
    );
}

/// UML waits forever on such input without xdc's check.
#[test]
fn a_uml_shell_refuses_input_from_a_file() {
    let caller = Caller::new();
    let shell = ["shell", "--engine", "uml"];
    // Tests have /dev/null as standard input.
    caller.refused(USAGE, &shell, &["neither a terminal nor a pipe"]);
    let file = fs::File::open(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_xdc")).args(shell).stdin(file).output().unwrap();
    assert_eq!(output.status.code(), Some(USAGE));
}

#[test]
fn malformed_scenarios_are_refused() {
    let caller = Caller::new();
    let scenario = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/links.toml");
    let good = fs::read_to_string(scenario).unwrap();
    for (from, to, words) in [
        ("[topology]", "[topology", &["bad.toml:"][..]),
        ("mtu = 1500", "mut = 1500", &["bad.toml:", "mut", "mtu"]),
        ("rate = \"1gbit\"", "rate = \"1giga\"", &["bad.toml:", "1giga", "1gbit"]),
        ("ccs = [\"cubic\"]", "ccs = [\"quick\"]", &["quick", "unocc"]),
        ("ccs = [\"cubic\"]", "ccs = []", &["no congestion control is named"]),
        ("dst = \"r\"", "dst = \"x\"", &["bad.toml:", "'x'"]),
        ("to = \"r\"", "to = \"rr\"", &["bad.toml:", "'rr', which is not a node", "try: 'r'"]),
        ("queue_ab = \"port\"", "queue_ab = \"prot\"", &["bad.toml:", "'prot'"]),
        ("\"near\", \"far\"", "\"near\", \"near\", \"far\"", &["'near'"]),
    ] {
        let text = good.replacen(from, to, 1);
        assert_ne!(text, good, "{from}");
        caller.write("bad.toml", &text);
        let all = [words, &["bad"]].concat();
        caller.refused(USAGE, &["run", "bad.toml", "--engine", "uml"], &all);
    }
}

/// Includes mistakes that only tc detects.
#[test]
fn all_mistakes_of_a_file_are_reported_at_once() {
    let caller = Caller::new();
    let scenario = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/links.toml");
    let text = fs::read_to_string(scenario).unwrap();
    let text = text.replacen("rate = \"1gbit\"", "rate = \"1Gbps\"", 1).replacen(
        "dst = \"r\"",
        "dst = \"x\"",
        1,
    );
    let (head, queue) = text.split_once("[queues.port]\n").unwrap();
    let (_, rest) = queue.split_once("\n[").unwrap();
    let words = "tc = \"fqcodel limit 10\"\n";
    caller.write("bad.toml", &format!("{head}[queues.port]\n{words}[{rest}"));
    let output = caller.xdc(&["run", "bad.toml"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(USAGE), "{said}");
    for word in ["1Gbps", "'x', which is not a node", "no qdisc 'fqcodel'"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert_eq!(said.matches("xdc: error: bad.toml:").count(), 3, "{said}");
}

#[test]
fn mistakes_in_set_are_refused() {
    for (set, words) in [
        ("topology.mut=1", &["topology.mut=1", "mut"][..]),
        ("nonsense", &["no '='"]),
        ("flows.9.bytes=1mb", &["'9'"]),
        ("host.naer.initcwnd=40", &["--set host.naer.initcwnd=40", "not a node", "try: 'near'"]),
        ("queues.port.limit=big", &["'big' is not a size"]),
        ("scale=0", &["'scale' must be at least 1"]),
        (
            "net.unocc.intra_rtt_us=1000001",
            &["net.unocc.intra_rtt_us = 1000001", "0 to 1000000 (us)"],
        ),
        ("net.unocc.nonsense=1", &["no such sysctl", "line_rate_mbps"]),
        ("net.unocc.ai_pmm=1", &["--set net.unocc.ai_pmm=1", "no such sysctl", "try: 'ai_ppm'"]),
        ("topology.mtu=20", &["an mtu of 20"]),
        (
            "sysctl.\"kernel.core_pattern\"=|/tmp/evil %p",
            &["kernel.core_pattern belongs to the whole machine"],
        ),
        ("sysctl.\"/etc/crontab\"=x", &["/etc/crontab is not a sysctl"]),
        ("sysctl.\".etc.crontab\"=x", &[".etc.crontab is not a sysctl"]),
        ("host.near.sysctl.\"vm.swappiness\"=11", &["vm.swappiness belongs to the whole machine"]),
        ("jain_window=1ns", &["'jain_window' is 1ns"]),
        ("duration=18446744073s", &["'duration' is"]),
        ("flows.0.count=1000000000000", &["'count' is"]),
        ("topology.hosts=[\"h[1-4294967295]\"]", &["names of 'h[1-4294967295]': 4294967295 times"]),
        ("title=\"\\u001b]0;owned\\u0007\"", &["control character"]),
    ] {
        let args = ["run", "links", "--engine", "uml", "--set", set];
        Caller::new().refused(USAGE, &args, words);
    }
}

/// Also for root, and before the host is examined.
#[test]
fn unsafe_sysctls_are_refused_on_the_host() {
    let set = ["--set", "sysctl.\"/etc/crontab\"=* * * * * root touch /tmp/owned"];
    let args = [&["run", "links", "--engine", "host"], &set[..]].concat();
    Caller::new().refused(USAGE, &args, &["/etc/crontab is not a sysctl"]);
}

/// Also for root, and before the host is examined.
#[test]
fn a_scenarios_commands_are_refused_on_the_host() {
    let words = ["runs its own commands", "--allow-commands"];
    Caller::new().refused(USAGE, &["run", "open-doors", "--engine", "host"], &words);
}

#[test]
fn a_congestion_control_named_like_a_result_file_is_refused() {
    let caller = Caller::new();
    for cc in ["overview", "fct", "trace-cubic"] {
        let set = format!("cc.{cc}.kernel=cubic");
        let args = ["run", "links", "--cc", cc, "--set", &set];
        caller.refused(USAGE, &args, &["name of a result file"]);
    }
}

#[test]
fn a_repeated_congestion_control_is_refused() {
    let args = ["run", "links", "--engine", "uml", "--cc", "cubic,cubic"];
    Caller::new().refused(USAGE, &args, &["'cubic' is named twice"]);
}

#[test]
fn a_scenario_file_without_a_stem_is_refused() {
    let caller = Caller::new();
    let links = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/links.toml");
    for name in ["...toml", ".toml", "..toml"] {
        fs::copy(&links, caller.dir.path().join(name)).unwrap();
        let path = format!("./{name}");
        let args = ["run", path.as_str(), "--engine", "uml"];
        caller.refused(USAGE, &args, &["no stem to name the results"]);
    }
}

#[test]
fn a_huge_scenario_file_is_refused() {
    let caller = Caller::new();
    let file = fs::File::create(caller.dir.path().join("large.toml")).unwrap();
    file.set_len(1 << 40).unwrap();
    let args = ["run", "large.toml", "--engine", "uml"];
    caller.refused(USAGE, &args, &["larger than 1 MB"]);
}

#[test]
fn a_full_disk_at_standard_output_is_reported() {
    for args in [&["list"][..], &["list", "--json"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_xdc"))
            .args(args)
            .stdout(fs::File::options().write(true).open("/dev/full").unwrap())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(FAILURE), "{said}");
        assert!(said.contains("standard output"), "{said}");
    }
}

/// Thousands of hosts, each with a tree of shortest paths: planning takes long and does not poll
/// for signals.
const LARGE: &str = r#"
title = "large"
engine = "uml"
ccs = ["cubic"]
sample = "1ms"
duration = "1s"
[topology]
mtu = 1500
hosts = ["a[1-16000]", "b[1-16000]"]
routers = ["s", "t"]
[[topology.links]]
a = "a[1-16000]"
b = "s"
rate = "1gbit"
[[topology.links]]
a = "b[1-16000]"
b = "t"
rate = "1gbit"
[[topology.links]]
a = "s"
b = "t"
rate = "1gbit"
queue_ab = "port"
[queues.port]
limit = "100kb"
[[watch]]
name = "port"
from = "s"
to = "t"
[[flows]]
group = "all"
src = "a[1-16000]"
dst = "b[1-16000]"
"#;

/// Waits until the process handles the signal.
fn wait_until_caught(pid: u32, signal: i32) {
    let is_caught = || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let mut lines = status.lines();
        let mask = lines.find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap() >> (signal - 1) & 1 == 1
    };
    let start = Instant::now();
    while !is_caught() {
        assert!(start.elapsed() < Duration::from_secs(60), "no handler");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn signals_end_the_planning() {
    use rustix::process::{Pid, Signal, kill_process};
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let caller = Caller::new();
        caller.write("large.toml", LARGE);
        // A background test may inherit an ignored SIGINT, which xdc would respect.
        let mut xdc = Command::new("env")
            .arg("--default-signal=INT,TERM,HUP")
            .arg(env!("CARGO_BIN_EXE_xdc"))
            .args(["run", "large.toml"])
            .current_dir(caller.dir.path())
            .spawn()
            .unwrap();
        wait_until_caught(xdc.id(), signal.as_raw());
        // At this point the scenario may or may not have been read.
        std::thread::sleep(Duration::from_millis(300));
        kill_process(Pid::from_child(&xdc), signal).unwrap();
        assert_eq!(xdc.wait().unwrap().code(), Some(code));
        assert!(!caller.dir.path().join("results").exists());
    }
}

#[test]
fn missing_builds_are_named() {
    let uml = ["run", "two-dc-1g", "--engine", "uml"];
    let caller = Caller::in_checkout_with(&[]);
    caller.refused(FAILURE, &uml, &["build/uml/kernel", "try: make"]);
    let caller = Caller::in_checkout_with(&["uml/kernel"]);
    caller.refused(FAILURE, &uml, &["build/agent", "try: make"]);
    let caller = Caller::in_checkout_with(&["uml/kernel", "agent", "uml/release", "uml/modules/x"]);
    caller.refused(FAILURE, &uml, &["no kernel module", "try: make"]);

    let mut command = Command::new(env!("CARGO_BIN_EXE_xdc"));
    let output = command.arg("list").env("XDC_HOME", "/proc").output().unwrap();
    assert_eq!(output.status.code(), Some(FAILURE));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("XDC_HOME=/proc"), "{said}");
}

#[test]
fn a_checkout_around_the_current_directory_is_not_used() {
    let stranger = Caller::in_checkout_with(&["agent", "uml/kernel"]);
    let folder = stranger.home.as_ref().unwrap().path();
    let bin = tempfile::tempdir().unwrap();
    let installed = bin.path().join("xdc");
    fs::copy(env!("CARGO_BIN_EXE_xdc"), &installed).unwrap();
    let list = |set: bool| {
        let mut command = Command::new(&installed);
        command.arg("list").current_dir(folder).env_remove("XDC_HOME");
        if set {
            command.env("XDC_HOME", folder);
        }
        command.output().unwrap()
    };
    let said = String::from_utf8_lossy(&list(false).stderr).into_owned();
    assert!(said.contains("around this program") && said.contains("XDC_HOME=DIR"), "{said}");
    assert!(list(true).status.success());
}

/// /proc allows no new directory, even for root.
#[test]
fn an_unwritable_results_folder_is_refused_before_the_run() {
    let args = ["run", "links", "--engine", "uml", "--results", "/proc/x"];
    Caller::new().refused(FAILURE, &args, &["/proc/x", "--results DIR"]);
}

#[test]
fn invalid_results_are_refused() {
    let caller = Caller::new();
    caller.refused(USAGE, &["check", "here"], &["here is not a result"]);
    caller.write("summary.json", "{");
    let output = caller.xdc(&["check", "."]);
    assert_eq!(output.status.code(), Some(FAILURE));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("./summary.json"), "{said}");
}

/// Metrics are checked before anything runs, wherever they are given.
#[test]
fn unknown_metrics_are_refused() {
    let caller = Caller::new();
    let real = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/links.toml");
    let links = fs::read_to_string(real).unwrap();
    let typo = links.replace("\"link_rtt_error\"", "\"link_rt_error\"");
    assert_ne!(typo, links);
    caller.write("typo.toml", &typo);
    let line = typo.lines().position(|line| line.contains("link_rt_error")).unwrap();
    let at = format!("typo.toml:{}: expect.0.metric: unknown word 'link_rt_error'", line + 1);
    let run = ["run", "typo.toml"];
    caller.refused(USAGE, &run, &[&at, "try: 'link_rtt_error'"]);
    let sweep = |metric| ["sweep", "links", "--plot", metric];
    caller.refused(USAGE, &sweep("fct_ms.maxx"), &["'fct_ms.maxx'", "try: 'fct_ms.max'"]);
    caller.refused(USAGE, &sweep("everything"), &["docs/scenarios.md"]);
    caller.refused(USAGE, &sweep("groups.nobody.goodput_mbps"), &["no group of flows 'nobody'"]);
    caller.refused(USAGE, &sweep("queues.prt.drops"), &["no watched port 'prt'"]);
    let agree = "[[agree]]\nmetric = \"jain_phases.2\"\nwithin = 0.1\nwhy = \"test\"\n";
    caller.write("phase.toml", &format!("{links}\n{agree}"));
    caller.refused(USAGE, &["run", "phase.toml"], &["there is no phase 2"]);
}

/// A table's cell is escaped text, and a grid's points have a common limit.
#[test]
fn unsafe_and_too_large_grids_are_refused() {
    let caller = Caller::new();
    let grid = |name: &str, label: &str| {
        format!(
            "scenario = \"links\"\n[[axis]]\nname = \"{name}\"\n\
             values = [{{ label = \"{label}\", set = [\"seed=1\"] }}]\n"
        )
    };
    for (name, label) in [("=cmd|x!A0", "a"), ("a", "@SUM(1)"), ("a", "\\u001b]0;x")] {
        caller.write("g.toml", &grid(name, label));
        caller.refused(USAGE, &["sweep", "g.toml"], &["not a valid name"]);
    }
    let flows = "[[flows]]\nsrc = \"a\"\ndst = \"b\"\n".repeat(1400);
    let scenario = format!(
        "ccs = [\"cubic\"]\nduration = \"1s\"\n[topology]\nhosts = [\"a\", \"b\"]\n\
         [[topology.links]]\na = \"a\"\nb = \"b\"\nrate = \"1gbit\"\n{flows}"
    );
    caller.write("s.toml", &scenario);
    let seeds: Vec<_> = (0..250).map(|seed| seed.to_string()).collect();
    let grid = format!(
        "scenario = \"s.toml\"\n[[axis]]\nname = \"seed\"\nkey = \"seed\"\nvalues = [{}]\n",
        seeds.join(", ")
    );
    caller.write("g.toml", &grid);
    caller.refused(USAGE, &["sweep", "g.toml"], &["of all points"]);
}

#[test]
fn a_grid_for_two_engines_is_refused() {
    let axis = ["sweep", "links", "--axis", "engine=uml,qemu"];
    Caller::new().refused(USAGE, &axis, &["mixes the engines uml and qemu"]);
}

#[test]
fn mistakes_in_qdisc_options_are_refused() {
    let caller = Caller::new();
    let attach = |words: &str, code: i32, say: &[&str]| {
        let all: Vec<_> = ["qdisc", "add"].into_iter().chain(words.split(' ')).collect();
        caller.refused(code, &all, say);
    };
    attach("dev no-such-dev root phantom", FAILURE, &["'no-such-dev'", "ip link"]);
    attach("dev lo root phantom limit big", USAGE, &["limit", "'big'"]);
    attach("dev lo root fifo", USAGE, &["must be 'phantom', not 'fifo'"]);
}
