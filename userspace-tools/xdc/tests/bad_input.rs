// SPDX-License-Identifier: GPL-2.0
//! What a user does wrong ends in one sentence with its cause, a hint, the documented exit code,
//! and nothing left behind.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

const USAGE: i32 = 2;
const FAILURE: i32 = 1;

/// Runs `xdc` where it has nothing but its checkout.
struct Caller {
    dir: TempDir,
    home: Option<TempDir>,
}

impl Caller {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            home: None,
        }
    }

    /// In a checkout where nothing is built but `files`.
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
        Self {
            home: Some(home),
            ..Self::new()
        }
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

    /// One sentence that has `words`, one hint, `code`, and no result.
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
fn wrong_options() {
    let caller = Caller::new();
    for args in [
        vec!["run"],
        vec!["run", "two-dc-1g", "--sede", "1"],
        vec!["run", "two-dc-1g", "--engine", "vmware"],
        vec!["run", "two-dc-1g", "--seed", "-1"],
        vec!["run", "two-dc-1g", "--icount=sometimes"],
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
fn what_cannot_be_traced_or_plotted() {
    let caller = Caller::new();
    let plot = |file| ["trace", "plot", file, "-o", "x.svg"];
    caller.refused(FAILURE, &plot("none"), &["none", "No such file"]);
    caller.write("text", "no recording\n");
    caller.refused(FAILURE, &plot("text"), &["text", "line 1"]);
    caller.write("empty", "");
    caller.refused(FAILURE, &plot("empty"), &["empty holds no event"]);
    // Whatever this machine lacks: tracefs, the module, or the right to look.
    caller.refused(
        FAILURE,
        &["trace", "--event", "gemini_round", "--seconds", "1"],
        &[],
    );
    assert!(!caller.dir.path().join("x.svg").exists());
}

#[test]
fn help_is_no_error() {
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
fn unknown_scenarios_and_congestion_controls() {
    let caller = Caller::new();
    caller.refused(USAGE, &["run", "three-dc"], &["three-dc", "xdc list"]);
    caller.refused(USAGE, &["shell", "three-dc"], &["three-dc"]);
    caller.refused(
        USAGE,
        &["run", "two-dc-1g", "--cc", "nonsense"],
        &[
            "'nonsense'",
            "unocc, unocc-paper, unocc-artifact, gemini, dctcp, bbr-dctcp, cubic, cubic-ecn, bbr",
        ],
    );
}

#[test]
fn malformed_scenarios() {
    let caller = Caller::new();
    let scenario = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/links.toml");
    let good = fs::read_to_string(scenario).unwrap();
    for (from, to, words) in [
        ("[topology]", "[topology", &["line "][..]),
        ("mtu = 1500", "mut = 1500", &["line ", "mut", "mtu"]),
        (
            "rate = \"1gbit\"",
            "rate = \"1giga\"",
            &["line ", "1giga", "10gbit"],
        ),
        (
            "ccs = [\"cubic\"]",
            "ccs = [\"quick\"]",
            &["quick", "unocc"],
        ),
        (
            "ccs = [\"cubic\"]",
            "ccs = []",
            &["no congestion control is named"],
        ),
        ("dst = \"r\"", "dst = \"x\"", &["'x'"]),
        ("queue_ab = \"port\"", "queue_ab = \"prot\"", &["'prot'"]),
        (
            "\"near\", \"far\"",
            "\"near\", \"near\", \"far\"",
            &["'near'"],
        ),
    ] {
        let text = good.replacen(from, to, 1);
        assert_ne!(text, good, "{from}");
        caller.write("bad.toml", &text);
        let all = [words, &["bad"]].concat();
        caller.refused(USAGE, &["run", "bad.toml", "--engine", "uml"], &all);
    }
}

#[test]
fn mistakes_in_set() {
    for (set, words) in [
        ("topology.mut=1", &["topology.mut=1", "mut"][..]),
        ("nonsense", &["no '='"]),
        ("flows.9.bytes=1mb", &["'9'"]),
        ("queues.port.limit=big", &["'big' is not a size"]),
        ("scale=0", &["'scale' must be at least 1"]),
        (
            "net.unocc.intra_rtt_us=0",
            &["net.unocc.intra_rtt_us = 0", "1 to 1000000 (us)"],
        ),
        (
            "net.unocc.nonsense=1",
            &["no such sysctl", "line_rate_mbps"],
        ),
        ("topology.mtu=20", &["an mtu of 20"]),
    ] {
        let args = ["run", "links", "--engine", "uml", "--set", set];
        Caller::new().refused(USAGE, &args, words);
    }
}

#[test]
fn what_is_not_built_is_named() {
    let uml = ["run", "two-dc-1g", "--engine", "uml"];
    let caller = Caller::in_checkout_with(&[]);
    caller.refused(FAILURE, &uml, &["build/uml/kernel", "try: make"]);
    let caller = Caller::in_checkout_with(&["uml/kernel"]);
    caller.refused(FAILURE, &uml, &["build/agent", "try: make"]);
    let caller = Caller::in_checkout_with(&["uml/kernel", "agent", "uml/release", "uml/modules/x"]);
    caller.refused(FAILURE, &uml, &["no kernel module", "try: make"]);

    let mut command = Command::new(env!("CARGO_BIN_EXE_xdc"));
    let output = command
        .arg("list")
        .env("XDC_HOME", "/proc")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(FAILURE));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("XDC_HOME=/proc"), "{said}");
}

/// /proc takes no directory from anybody, root included.
#[test]
fn results_that_cannot_be_written_cost_no_run() {
    let args = ["run", "links", "--engine", "uml", "--results", "/proc/x"];
    Caller::new().refused(FAILURE, &args, &["/proc/x", "--results DIR"]);
}

#[test]
fn results_that_are_none() {
    let caller = Caller::new();
    caller.refused(USAGE, &["check", "here"], &["here is no result"]);
    caller.write("summary.json", "{");
    let output = caller.xdc(&["check", "."]);
    assert_eq!(output.status.code(), Some(FAILURE));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("./summary.json"), "{said}");
}

#[test]
fn qdisc_mistakes() {
    let caller = Caller::new();
    let attach = |words: &str, code: i32, say: &[&str]| {
        let all: Vec<_> = ["qdisc", "add"]
            .into_iter()
            .chain(words.split(' '))
            .collect();
        caller.refused(code, &all, say);
    };
    attach(
        "dev no-such-dev root phantom",
        FAILURE,
        &["'no-such-dev'", "ip link"],
    );
    attach("dev lo root phantom limit big", USAGE, &["limit", "'big'"]);
    attach("dev lo root fifo", USAGE, &["'fifo' is not 'phantom'"]);
}
