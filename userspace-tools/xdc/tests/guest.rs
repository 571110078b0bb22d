// SPDX-License-Identifier: GPL-2.0
//! Runs in UML guests, built by `make`: how they end, and which files they leave.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(30);

/// A run long enough to be disturbed.
struct Disturbed {
    xdc: Child,
    temp: TempDir,
    results: TempDir,
    /// Pid and start time of the guest's processes.
    guest: BTreeSet<(i32, String)>,
    memory_dir: PathBuf,
}

impl Disturbed {
    fn start() -> Self {
        // A background test may inherit an ignored SIGINT, which xdc would respect.
        let mut command = Command::new("env");
        command.args(["--default-signal=INT,TERM,HUP", env!("CARGO_BIN_EXE_xdc")]);
        Self::start_by(command)
    }

    fn start_by(mut command: Command) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let results = tempfile::tempdir().unwrap();
        let mut xdc = command
            .args(["run", "two-dc-1g", "--engine", "uml", "--cc", "cubic"])
            .args(["--set", "duration=60s", "--results"])
            .arg(results.path().join("made"))
            .env("TMPDIR", temp.path())
            .env_remove("XDG_RUNTIME_DIR")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        for line in BufReader::new(xdc.stderr.take().unwrap()).lines() {
            said += &(line.unwrap() + "\n");
            if said.contains("8 flows") {
                break;
            }
        }
        assert!(said.contains("8 flows"), "is UML built? {said}");
        let guest = descendants(xdc.id() as i32);
        let memory_dir = guest.iter().find_map(|(pid, _)| memory_dir(*pid)).unwrap();
        assert!(memory_dir.exists());
        Self { xdc, temp, results, guest, memory_dir }
    }

    fn signal(&mut self, signal: Signal) -> Option<i32> {
        kill_process(Pid::from_child(&self.xdc), signal).unwrap();
        self.xdc.wait().unwrap().code()
    }

    fn alive(&self) -> Vec<i32> {
        let alive = self.guest.iter().filter(|(pid, start)| {
            stat(*pid).is_some_and(|stat| stat.state != "Z" && stat.start == *start)
        });
        alive.map(|(pid, _)| *pid).collect()
    }

    /// Waits for killed processes, which die once a processor is free.
    fn wait_for_guest(&self) {
        let deadline = Instant::now() + PATIENCE;
        while !self.alive().is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(self.alive(), [0i32; 0]);
    }
}

struct Stat {
    state: String,
    parent: i32,
    start: String,
}

fn stat(pid: i32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before it may have any character.
    let fields: Vec<_> = text.rsplit_once(')')?.1.split_whitespace().collect();
    Some(Stat {
        state: fields.first()?.to_string(),
        parent: fields.get(1)?.parse().ok()?,
        start: fields.get(19)?.to_string(),
    })
}

fn descendants(of: i32) -> BTreeSet<(i32, String)> {
    let all: Vec<_> = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter_map(|pid| Some((pid, stat(pid)?)))
        .collect();
    let mut found = BTreeSet::new();
    let mut parents = vec![of];
    while let Some(parent) = parents.pop() {
        for (pid, stat) in all.iter().filter(|(_, stat)| stat.parent == parent) {
            if found.insert((*pid, stat.start.clone())) {
                parents.push(*pid);
            }
        }
    }
    found
}

/// The guest's memory directory: its TMPDIR.
fn memory_dir(pid: i32) -> Option<PathBuf> {
    let environ = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let environ = String::from_utf8_lossy(&environ).into_owned();
    let dir = environ.split('\0').find_map(|var| var.strip_prefix("TMPDIR="))?;
    Some(PathBuf::from(dir))
}

fn is_empty(dir: &Path) -> bool {
    fs::read_dir(dir).unwrap().next().is_none()
}

#[test]
fn signals_leave_no_files_and_no_guest() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let mut run = Disturbed::start();
        assert_eq!(run.signal(signal), Some(code));
        run.wait_for_guest();
        assert!(is_empty(run.temp.path()));
        assert!(is_empty(run.results.path()));
        assert!(!run.memory_dir.exists());
    }
}

#[test]
fn nohup_disables_sighup() {
    let mut ignoring = Command::new("sh");
    ignoring.args(["-c", "trap '' HUP; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_xdc")]);
    let mut run = Disturbed::start_by(ignoring);
    kill_process(Pid::from_child(&run.xdc), Signal::HUP).unwrap();
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(run.xdc.try_wait().unwrap(), None);
    assert!(!run.alive().is_empty());
    assert_eq!(run.signal(Signal::TERM), Some(143));
}

/// A guest that outlives xdc would use a CPU; the next command removes its files.
#[test]
fn killing_xdc_ends_its_guest() {
    let mut run = Disturbed::start();
    assert_eq!(run.signal(Signal::KILL), None);
    run.wait_for_guest();
    // A concurrent test may already have removed the memory in the shared folder.
    assert!(!is_empty(run.temp.path()));
    let results = run.results.path().join("made");
    let running = |dir: &Path| {
        let entries = fs::read_dir(dir.join("two-dc-1g")).unwrap().flatten();
        let names = entries.map(|entry| entry.file_name().into_string().unwrap());
        names.filter(|name| name.starts_with(".running")).count()
    };
    assert_eq!(running(&results), 1);
    let (code, said) = short_run_in(&results, &[], Some(run.temp.path()));
    assert_eq!(code, Some(0), "{said}");
    assert!(is_empty(run.temp.path()) && !run.memory_dir.exists());
    assert_eq!(running(&results), 0);
}

/// In a world-writable directory, another user may have placed links at the output's path.
#[test]
fn a_result_is_not_written_through_a_link() {
    let results = tempfile::tempdir().unwrap();
    let victim = results.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    let scenario = results.path().join("two-dc-1g");
    // Directory names by process ID can be predicted.
    for pid in 1..100 {
        let running = scenario.join(format!(".running-{pid}"));
        fs::create_dir_all(&running).unwrap();
        std::os::unix::fs::symlink(&victim, running.join("summary.json")).unwrap();
    }
    let (code, said) = short_run(results.path(), &[]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(fs::read_to_string(victim).unwrap(), "precious");
    assert!(scenario.join("1/summary.json").is_file());
}

fn short_run(results: &Path, sets: &[&str]) -> (Option<i32>, String) {
    short_run_in(results, sets, None)
}

fn short_run_in(results: &Path, sets: &[&str], temp: Option<&Path>) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xdc"));
    if let Some(temp) = temp {
        command.env("TMPDIR", temp).env_remove("XDG_RUNTIME_DIR");
    }
    command
        .args(["run", "two-dc-1g", "--engine", "uml", "--cc", "unocc"])
        .args(["--set", "duration=20ms", "--set", "sample=1ms"])
        .args(["--set", "jain_window=5ms", "--set", "expect=[]"])
        .arg("--results")
        .arg(results);
    for set in sets {
        command.args(["--set", set]);
    }
    let output = command.output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_run_leaves_its_documented_files() {
    let results = tempfile::tempdir().unwrap();
    let (code, said) = short_run(results.path(), &[]);
    assert_eq!(code, Some(0), "{said}");
    let dir = results.path().join("two-dc-1g/1");
    for name in [
        "summary.json",
        "flows.csv",
        "series.csv",
        "scenario.toml",
        "report.html",
        "plots/overview.svg",
        "plots/unocc.svg",
        "console-unocc.log",
    ] {
        assert!(dir.join(name).is_file(), "{name}");
    }
    let check = Command::new(env!("CARGO_BIN_EXE_xdc"))
        .args(["check", "two-dc-1g", "--json", "--results"])
        .arg(results.path())
        .output()
        .unwrap();
    assert_eq!(check.status.code(), Some(0));
    let json: serde_json::Value = serde_json::from_slice(&check.stdout).unwrap();
    assert_eq!(json["rows"].as_array().unwrap().len(), 0);
}

/// Errors that only the kernel detects.
#[test]
fn errors_of_the_kernel_are_reported() {
    for (set, words) in [
        ("net.ipv4.tcp_sack=99999999999", &["unocc", "net.ipv4.tcp_sack", "`99999999999`"][..]),
        ("net.ipv4.nonsense=1", &["no sysctl net.ipv4.nonsense"]),
    ] {
        let results = tempfile::tempdir().unwrap();
        let (code, said) = short_run(results.path(), &[set]);
        assert_eq!(code, Some(1), "{set}: {said}");
        assert_eq!(said.matches("xdc: error: ").count(), 1, "{said}");
        for word in words {
            assert!(said.contains(word), "{set} should say '{word}': {said}");
        }
        assert!(said.contains(&format!("--set {set}")), "{said}");
        let kept = results.path().join("two-dc-1g/failed-1/console-unocc.log");
        assert!(kept.is_file(), "{set}");
    }
}

/// Two hosts and one flow.
const SHORT: &str = "ccs = [\"cubic\", \"reno\", \"vegas\"]\nduration = \"20s\"\n\
    [topology]\nhosts = [\"a\", \"b\"]\n\
    [[topology.links]]\na = \"a\"\nb = \"b\"\nrate = \"10mbit\"\ndelay = \"5ms\"\n\
    [[flows]]\nsrc = \"a\"\ndst = \"b\"\n";

#[test]
fn finished_runs_survive_an_interruption() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("short.toml"), SHORT).unwrap();
    let mut xdc = Command::new("env")
        .args(["--default-signal=INT", env!("CARGO_BIN_EXE_xdc")])
        .args(["run", "short.toml", "--jobs", "1"])
        .current_dir(dir.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stderr = BufReader::new(xdc.stderr.take().unwrap());
    let mut lines = stderr.lines().map(Result::unwrap);
    let second = lines.find(|line| line.contains("reno: 1 flow"));
    assert!(second.is_some());
    kill_process(Pid::from_child(&xdc), Signal::INT).unwrap();
    let said: Vec<_> = lines.collect();
    assert_eq!(xdc.wait().unwrap().code(), Some(130), "{said:?}");
    let result = dir.path().join("results/short/1");
    let summary = fs::read_to_string(result.join("summary.json")).unwrap();
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    assert_eq!(summary["interrupted"], serde_json::json!(["reno", "vegas"]));
    assert_eq!(summary["runs"][0]["cc"], "cubic");
    assert!(result.join("report.html").is_file());
    let check = Command::new(env!("CARGO_BIN_EXE_xdc"))
        .args(["check", "results/short/1"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert_eq!(check.status.code(), Some(1));
}

/// Otherwise each would send router solicitations during an experiment.
#[test]
fn interfaces_have_no_link_local_address() {
    let mut xdc = Command::new(env!("CARGO_BIN_EXE_xdc"))
        .args(["shell", "two-dc-1g", "--engine", "uml"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut shell = xdc.stdin.take().unwrap();
    shell.write_all(b"ip -n a1 -o addr\nexit\n").unwrap();
    let output = xdc.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("inet 10."), "{said}");
    assert!(!said.contains("inet6 fe80"), "{said}");
}

/// FCTs of twenty inter-DC messages of 256 kB, 50 ms apart, in us: to the last byte, and to its ACK
/// if there is one.
fn messages(persistent: bool) -> (Vec<f64>, Vec<f64>) {
    let dir = tempfile::tempdir().unwrap();
    let scenario = dir.path().join("messages.toml");
    let text = format!(
        "extends = \"poisson-small\"\ntitle = \"messages\"\n[[traffic]]\nkind = \"rpc\"\n\
         hosts = [\"a1\"]\nto = \"b1\"\nperiod = \"50ms\"\nflows = 20\nsizes = \"256KiB\"\n\
         sndbuf = \"4MiB\"\nrcvbuf = \"4MiB\"\npersistent = {persistent}\n"
    );
    fs::write(&scenario, text).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_xdc"))
        .arg("run")
        .arg(&scenario)
        .args(["--cc", "cubic", "--results"])
        .arg(dir.path().join("made"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let table = fs::read_to_string(dir.path().join("made/messages/1/flows.csv")).unwrap();
    let mut lines = table.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let names = lines.next().unwrap();
    let rows: Vec<_> = lines.collect();
    let of = |wanted: &str| -> Vec<f64> {
        let column = names.iter().position(|name| *name == wanted).unwrap();
        let values = rows.iter().map(|row| row[column]);
        let measured = values.filter(|value| !value.is_empty());
        measured.map(|value| value.parse().unwrap()).collect()
    };
    (of("fct_us"), of("fct_acked_us"))
}

#[test]
fn a_persistent_connection_keeps_its_window() {
    let (fresh, acked) = messages(false);
    assert_eq!((fresh.len(), acked.len()), (20, 20));
    // The last ACK's way back takes equal time: propagation and few bytes.
    let back: Vec<_> = fresh.iter().zip(&acked).map(|(a, b)| b - a).collect();
    assert!(back.iter().all(|us| (us - back[0]).abs() < 1.0 && *us > 100.0), "{back:?}");
    assert!(fresh.iter().all(|fct_us| *fct_us > 0.9 * fresh[0]), "{fresh:?}");
    let (persistent, acked) = messages(true);
    assert_eq!((persistent.len(), acked.len()), (20, 0));
    // The first message has 62 packets and starts with ten.
    assert!((persistent[0] / fresh[0] - 1.0).abs() < 0.1, "{persistent:?}");
    assert!(persistent[19] < 0.5 * fresh[19], "{persistent:?}");
}

/// Packets of a capture: EtherType, the byte with DSCP and ECN, and length.
fn packets(pcap: &Path) -> Vec<(u16, u8, u32)> {
    const FILE_HEADER: usize = 24;
    let bytes = fs::read(pcap).unwrap();
    assert_eq!(bytes[..4], [0x4d, 0x3c, 0xb2, 0xa1], "nanoseconds");
    let mut rest = &bytes[FILE_HEADER..];
    let mut packets = Vec::new();
    while !rest.is_empty() {
        let kept = u32::from_le_bytes([rest[8], rest[9], rest[10], rest[11]]) as usize;
        let frame = &rest[16..16 + kept];
        let ethertype = u16::from_be_bytes([frame[12], frame[13]]);
        let traffic_class = match ethertype {
            0x86dd => frame[14] << 4 | frame[15] >> 4,
            _ => frame[15],
        };
        let length = u32::from_le_bytes([rest[12], rest[13], rest[14], rest[15]]);
        packets.push((ethertype, traffic_class, length));
        rest = &rest[16 + kept..];
    }
    packets
}

/// Runs in virtual time; returns the result's folder.
fn run_in(results: &Path, scenario: &str, words: &[&str]) -> PathBuf {
    let output = Command::new(env!("CARGO_BIN_EXE_xdc"))
        .args(["run", scenario, "--engine", "uml", "--results", "."])
        .args(words)
        .current_dir(results)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let name = scenario.strip_suffix(".toml").unwrap_or(scenario);
    results.join(name).join("1")
}

#[test]
fn a_capture_shows_the_dscp_of_each_kind_of_flow() {
    let results = tempfile::tempdir().unwrap();
    let dir = run_in(results.path(), "open-doors", &["--cc", "cubic", "--pcap=a[1-2]"]);
    let packets = packets(&dir.join("pcap/cubic/a2.pcap"));
    assert!(packets.iter().all(|packet| packet.0 == 0x0800));
    let of_dscp = |dscp: u8| packets.iter().filter(|packet| packet.1 >> 2 == dscp).count();
    // The flow has cs1, bursts le, listed flows none. The total exceeds the guest's buffer.
    assert!(of_dscp(8) > 5_000, "{}", of_dscp(8));
    assert!(of_dscp(1) > 20, "{}", of_dscp(1));
    assert!(of_dscp(0) > 2, "{}", of_dscp(0));
    assert!(dir.join("pcap/cubic/a1.pcap").is_file());
    assert!(!dir.join("pcap/cubic/b1.pcap").exists());

    let flows = fs::read_to_string(dir.join("flows.csv")).unwrap();
    let listed: Vec<_> = flows.lines().filter(|line| line.contains(",listed,")).collect();
    assert_eq!(listed.len(), 3, "{flows}");
    assert!(listed[0].contains(",a1,b2,100000"), "{}", listed[0]);
    // The result can be run again: its inputs are stored beside it.
    assert!(dir.join("files/traces/open-doors.csv").is_file());
    let kept = fs::read_to_string(dir.join("scenario.toml")).unwrap();
    assert!(kept.contains("file = \"files/traces/open-doors.csv\""), "{kept}");
}

/// Like real hosts; without offload every packet fits the MTU.
#[test]
fn offload_makes_large_packets() {
    let results = tempfile::tempdir().unwrap();
    let longest = |name: &str, offload: &str| {
        let set = format!("topology.offload={offload}");
        let short = ["--set", "duration=300ms", "--set", "expect=[]"];
        let words = [&["--pcap=near", "--results", name, "--set", &set], &short[..]].concat();
        let output = Command::new(env!("CARGO_BIN_EXE_xdc"))
            .args(["run", "links", "--engine", "uml"])
            .args(words)
            .current_dir(results.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        let dir = results.path().join(name).join("links/1");
        let packets = packets(&dir.join("pcap/cubic/near.pcap"));
        packets.iter().map(|packet| packet.2).max()
    };
    assert_eq!(longest("without", "false"), Some(1514));
    let bundle = longest("with", "true");
    assert!(bundle.is_some_and(|bytes| bytes > 20_000), "{bundle:?}");
}

#[test]
fn an_ipv6_topology_carries_no_ipv4_packets() {
    let results = tempfile::tempdir().unwrap();
    let words = ["--cc", "unocc", "--pcap=r", "--set", "duration=200ms", "--set", "expect=[]"];
    let dir = run_in(results.path(), "two-dc-ipv6", &words);
    let packets = packets(&dir.join("pcap/unocc/r.pcap"));
    assert!(packets.len() > 1000, "{}", packets.len());
    assert!(packets.iter().all(|packet| packet.0 == 0x86dd));
}

#[test]
fn a_new_scenario_runs_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let new = Command::new(env!("CARGO_BIN_EXE_xdc"))
        .arg("new")
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert_eq!(new.status.code(), Some(0));
    let dir = run_in(folder.path(), "scenario.toml", &[]);
    assert!(dir.join("report.html").is_file());
}
