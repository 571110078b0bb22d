// SPDX-License-Identifier: GPL-2.0
//! Programs that change the kernel, and checks of the names that reach them or the kernel's
//! modprobe.
//!
//! modprobe, tc, ethtool and bpftool are started only here (`selftests/host/sources
//! privileged_in_one_place`). A scenario may come from a stranger and the caller may be root, so a
//! [`Rule`] checks each name, only the system's programs run, and the caller's environment
//! (`TC_LIB_DIR`, `MODPROBE_OPTIONS`, `LD_PRELOAD`) does not reach them.

use std::error::Error;
use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::{Job, Plan, Policer, Queue};

/// Search path; the last folder is the initramfs below another root.
pub const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin:/initramfs/bin";

/// Syntax of a kind of name: letters, digits and `marks`, without a leading `-`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    noun: &'static str,
    marks: &'static str,
    longest: usize,
    /// Also accepts negative numbers.
    number: bool,
}

const fn rule(noun: &'static str, marks: &'static str, longest: usize) -> Rule {
    Rule { noun, marks, longest, number: false }
}

/// At most MODULE_NAME_LEN - 1 characters.
pub const MODULE: Rule = rule("name of a kernel module", "_-", 55);
/// At most TCP_CA_NAME_MAX - 1 characters.
pub const CONGESTION_CONTROL: Rule = rule("name of a congestion control", "_-", 15);
/// Kind of a qdisc: tc loads `q_KIND.so`, and the kernel the module `sch_KIND`.
pub const QDISC: Rule = rule("name of a qdisc", "_-", 15);
/// No `/`, because netem's `distribution NAME` opens a file in tc's folder.
pub const TC_WORD: Rule = Rule { number: true, ..rule("word for tc", "_-+.,:%", 64) };
/// At most IFNAMSIZ - 1 characters.
pub const DEVICE: Rule = rule("name of a network device", "_-.:", 15);

/// A name that breaks its [`Rule`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadName {
    /// Cause, for an error message.
    pub sentence: String,
    /// Accepted names, for an error message.
    pub range: String,
}

impl fmt::Display for BadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: use {}", self.sentence, self.range)
    }
}

impl Error for BadName {}

impl Rule {
    /// Returns the name if it obeys the rule.
    pub fn check<'a>(&self, name: &'a str) -> Result<&'a str, BadName> {
        let fits = |c: char| c.is_ascii_alphanumeric() || self.marks.contains(c);
        let is_option = name.strip_prefix('-').is_some_and(|rest| {
            let is_number = rest.starts_with(|c: char| c.is_ascii_digit());
            !(self.number && is_number)
        });
        if !name.is_empty() && name.len() <= self.longest && !is_option && name.chars().all(fits) {
            return Ok(name);
        }
        let shown: String = name.chars().take(self.longest).collect();
        Err(BadName {
            sentence: format!("'{}' is not a valid {}", shown.escape_debug(), self.noun),
            range: format!(
                "1 to {} letters, digits and {}, without a leading -",
                self.longest, self.marks
            ),
        })
    }
}

/// Returns the name of a module in /proc/modules and /sys/module.
pub fn module_key(name: &str) -> String {
    name.replace('-', "_")
}

/// Checks the values of sysctls that make the kernel load a module.
pub fn check_sysctl(name: &str, value: &str) -> Result<(), BadName> {
    let rule = match name {
        "net.ipv4.tcp_congestion_control" => CONGESTION_CONTROL,
        "net.core.default_qdisc" => QDISC,
        _ => return Ok(()),
    };
    rule.check(value.trim()).map(drop)
}

impl Queue {
    /// Checks the kind and each word.
    pub fn check_names(&self) -> Result<(), BadName> {
        QDISC.check(&self.kind)?;
        let mut words = self.words.iter();
        words.try_for_each(|word| TC_WORD.check(word).map(drop))
    }
}

impl Plan {
    /// Checks each name that a privileged program receives or that makes the kernel load a module.
    pub fn check_names(&self) -> Result<(), BadName> {
        for module in &self.modules {
            MODULE.check(module)?;
        }
        let (Job::Run(run) | Job::Shell(run)) = &self.job else {
            return Ok(());
        };
        // The congestion control is empty for a shell without a scenario.
        for name in run.congestion_controls().filter(|name| !name.is_empty()) {
            CONGESTION_CONTROL.check(name)?;
        }
        let of_nodes = run.topology.nodes.iter().flat_map(|node| &node.sysctls);
        for (name, value) in run.topology.sysctls.iter().chain(of_nodes) {
            check_sysctl(name, value)?;
        }
        let links = run.topology.links.iter();
        let queues = links.flat_map(|link| [&link.ab.queue, &link.ba.queue]);
        for queue in queues.flatten() {
            queue.check_names()?;
        }
        Ok(())
    }
}

/// Returns the command of a system program with a clean environment; None if it is not installed.
fn program(name: &str) -> Option<Command> {
    let mut paths = PATH.split(':').map(|dir| Path::new(dir).join(name));
    let mut command = Command::new(paths.find(|path| path.is_file())?);
    command.env_clear().env("PATH", PATH).env("LC_ALL", "C").stdin(Stdio::null());
    Some(command)
}

/// Loads a module and its dependencies. Here and below, None means that the program is not
/// installed.
pub fn modprobe(module: &str) -> Result<Option<Command>, BadName> {
    let module = MODULE.check(module)?;
    Ok(program("modprobe").map(|mut command| {
        command.args(["--", module]);
        command
    }))
}

/// Loads nothing; succeeds if modprobe would load the module.
pub fn modprobe_dry_run(module: &str) -> Result<Option<Command>, BadName> {
    let module = MODULE.check(module)?;
    Ok(program("modprobe").map(|mut command| {
        command.args(["-n", "-q", "--", module]);
        command
    }))
}

/// Prints the offloads of a device.
pub fn ethtool_features(device: &str) -> Result<Option<Command>, BadName> {
    let device = DEVICE.check(device)?;
    Ok(program("ethtool").map(|mut command| {
        command.args(["-k", device]);
        command
    }))
}

/// The caller must not pass arguments from a scenario.
pub fn bpftool() -> Option<Command> {
    program("bpftool")
}

/// Has tc parse a queue. The device name is invalid, so tc always fails before it adds anything.
pub fn tc_dry_run(queue: &Queue) -> Result<Option<Command>, BadName> {
    queue.check_names()?;
    Ok(program("tc").map(|mut command| {
        command
            .args(["qdisc", "add", "dev", "no device/", "root", "handle", "3:"])
            .arg(&queue.kind)
            .args(&queue.words);
        command
    }))
}

/// Lines for `tc -batch`.
#[derive(Debug, Default)]
pub struct TcBatch(String);

impl TcBatch {
    /// Adds a queue to a device, below the class `parent`, or at the root for None.
    pub fn add_qdisc(
        &mut self,
        device: &str,
        parent: Option<&str>,
        handle: &str,
        queue: &Queue,
    ) -> Result<(), BadName> {
        let device = DEVICE.check(device)?;
        let place = match parent {
            None => "root".to_owned(),
            Some(parent) => format!("parent {}", TC_WORD.check(parent)?),
        };
        let handle = TC_WORD.check(handle)?;
        queue.check_names()?;
        let (kind, words) = (&queue.kind, queue.words.join(" "));
        self.0 += &format!("qdisc add dev {device} {place} handle {handle} {kind} {words}\n");
        Ok(())
    }

    /// Adds a policer to what a device with a clsact sends. It takes packets of any length.
    pub fn add_policer(&mut self, device: &str, policer: Policer) -> Result<(), BadName> {
        let device = DEVICE.check(device)?;
        let (rate, burst) = (policer.rate_bps, policer.burst_bytes);
        self.0 += &format!(
            "filter add dev {device} egress matchall action police rate {rate}bit burst {burst} \
             mtu 1048576 conform-exceed drop\n"
        );
        Ok(())
    }

    /// Returns the lines so far.
    pub fn lines(&self) -> &str {
        &self.0
    }

    /// Runs the lines in the caller's network namespace.
    pub fn run(&self) -> io::Result<Output> {
        let missing = || io::Error::new(io::ErrorKind::NotFound, format!("no tc in {PATH}"));
        let mut child = program("tc")
            .ok_or_else(missing)?
            .args(["-batch", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        // The write fails if tc ends early; its standard error has the reason.
        let _ = child.stdin.take().map(|mut stdin| stdin.write_all(self.0.as_bytes()));
        child.wait_with_output()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// kmod would take a name with `/` for a file, and one with a leading `-` for an option.
    const BAD_MODULES: &[&str] = &[
        "./evil.ko",
        "../../../tmp/x",
        "/tmp/evil.ko",
        "--version",
        "-Rveth",
        "a b",
        "a\nb",
        "a\0",
        "veth.ko",
        "",
    ];

    fn queue(text: &str) -> Queue {
        let mut words = text.split(' ').map(str::to_owned);
        Queue { kind: words.next().unwrap(), words: words.collect(), seed: None }
    }

    fn arguments(command: &Command) -> Vec<&str> {
        command.get_args().map(|arg| arg.to_str().unwrap()).collect()
    }

    #[test]
    fn a_module_name_is_no_option_or_file() {
        for name in BAD_MODULES {
            assert!(modprobe(name).is_err(), "{name}");
            assert!(modprobe_dry_run(name).is_err(), "{name}");
        }
        assert!(MODULE.check(&"a".repeat(55)).is_ok());
        assert!(MODULE.check(&"a".repeat(56)).is_err());
        if let Some(command) = modprobe("snd-aloop").unwrap() {
            assert_eq!(arguments(&command), ["--", "snd-aloop"]);
            assert!(command.get_program().to_str().unwrap().starts_with('/'));
        }
        let said = MODULE.check("a\u{1b}[2Jb").unwrap_err().to_string();
        assert!(said.starts_with("'a\\u{1b}[2Jb' is not a valid name"), "{said}");
    }

    #[test]
    fn words_for_tc_are_no_files_or_options() {
        for text in [
            "netem delay 1ms 1ms distribution pareto",
            "red limit 500kb avpkt 1500 bandwidth 200mbit",
            "phantom red-dscp 8 max 11.1111% mark physical",
            "taprio sched-entry S 01 300000 clockid CLOCK_TAI base-time -5",
        ] {
            assert_eq!(queue(text).check_names(), Ok(()), "{text}");
        }
        for text in [
            "x/../../tmp/evil limit 1",
            "-force limit 1",
            "a.b limit 1",
            "averyveryverylongkind limit 1",
            "netem delay 1ms 1ms distribution ../../../../etc/passwd",
            "netem -batch",
            "pfifo limit\n",
            "pfifo limit 1\nqdisc",
            "pfifo  limit",
            "pfifo #",
            "pfifo \\",
            "pfifo 'a",
        ] {
            let queue = queue(text);
            assert!(tc_dry_run(&queue).is_err(), "{text}");
            let mut batch = TcBatch::default();
            assert!(batch.add_qdisc("a.1", None, "3:", &queue).is_err());
            assert_eq!(batch.lines(), "");
        }
        let mut batch = TcBatch::default();
        let pfifo = queue("pfifo limit 9");
        assert!(batch.add_qdisc("a 1", None, "3:", &pfifo).is_err());
        assert!(batch.add_qdisc("-a", None, "3:", &pfifo).is_err());
        assert!(ethtool_features("--help").is_err());
        batch.add_qdisc("a.1", Some("2:1"), "3:", &pfifo).unwrap();
        let line = "qdisc add dev a.1 parent 2:1 handle 3: pfifo limit 9\n";
        assert_eq!(batch.lines(), line);
    }

    #[test]
    fn programs_do_not_inherit_the_environment() {
        // Cargo sets environment variables for this test.
        let output = program("env").unwrap().output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let mut names: Vec<_> = text.lines().filter_map(|line| line.split('=').next()).collect();
        names.sort_unstable();
        assert_eq!(names, ["LC_ALL", "PATH"]);
    }

    #[test]
    fn every_name_in_a_plan_is_checked() {
        let of_run = |run| Plan::of(Job::Run(run)).check_names();
        let named = |cc: &str| crate::RunPlan { cc: cc.to_owned(), ..Default::default() };
        assert_eq!(of_run(named("")), Ok(()));
        assert_eq!(of_run(named("cubic")), Ok(()));
        assert!(of_run(named("../x")).is_err());
        let cc = "net.ipv4.tcp_congestion_control";
        for (name, value, fits) in [
            (cc, "cubic\n", true),
            (cc, "-x", false),
            ("net.core.default_qdisc", "a/b", false),
            ("net.ipv4.tcp_rmem", "1 2 3", true),
        ] {
            let mut run = named("cubic");
            run.topology.sysctls = vec![(name.to_owned(), value.to_owned())];
            assert_eq!(of_run(run).is_ok(), fits, "{name} = {value}");
        }
        for name in BAD_MODULES {
            let mut plan = Plan::of(Job::Probe);
            plan.modules = vec!["veth".to_owned(), (*name).to_owned()];
            assert!(plan.check_names().is_err(), "{name}");
        }
    }
}
