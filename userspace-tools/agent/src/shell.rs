// SPDX-License-Identifier: GPL-2.0
//! A shell on the console of an emulated network: host names, congestion controls, a command that runs the
//! scenario's flows, and a folder that outlives the guest.

use std::{
    fmt::Write as _,
    fs::{self, File, OpenOptions, Permissions},
    io::{self, BufRead, BufReader, Write as _},
    os::unix::{
        fs::{PermissionsExt, symlink},
        process::CommandExt,
    },
    path::Path,
    process::Command,
};

use anyhow::{Context, Result};
use nix::{
    mount::{MsFlags, mount},
    sys::{stat::Mode, wait::wait},
    unistd::{ForkResult, Pid, fork, mkfifo, setsid},
};
use xdc_proto::{Message, RunPlan, SHARED_FOLDER, privileged};

use crate::{channel::Channel, network::Network, sysctl, traffic};

/// Mount point of the folder shared with the host.
const SHARED: &str = "/shared";

/// FIFO: each line starts the scenario's flows. [`FLOWS_COMMAND`] writes one.
const REQUESTS: &str = "/run/xdc-flows";
const FLOWS_COMMAND: &str = "/bin/flows";

/// Greeting that the shell prints first.
const GREETING: &str = "/etc/motd";

/// Nodes listed in the greeting; /etc/hosts has all.
const LISTED: usize = 24;

/// Runs an interactive shell on the terminal; returns when it exits.
pub fn run(network: &Network, run: &RunPlan) -> Result<()> {
    share_folder()?;
    name_hosts(network)?;
    choose(network, &run.cc)?;
    if !run.flows.is_empty() {
        serve_flows(network, run)?;
    }
    fs::write(GREETING, greeting(network, run)).context("cannot write the greeting")?;

    // Open the terminal last: in UML, a pipe's end hangs up the process that has it open.
    let terminal = terminal()?;
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", &format!("cat {GREETING}; exec /bin/sh")])
        .env("PATH", privileged::PATH)
        .env("HOME", "/root")
        .env("TERM", "linux")
        .current_dir("/root")
        .stdin(terminal.try_clone()?)
        .stdout(terminal.try_clone()?)
        .stderr(terminal);
    // SAFETY: only two system calls run between fork and exec.
    unsafe { command.pre_exec(take_terminal) };
    let shell = command.spawn().context("cannot run /bin/sh")?;
    // PID 1 also reaps orphans that end meanwhile.
    while wait().context("wait")?.pid() != Some(Pid::from_raw(shell.id() as i32)) {}
    Ok(())
}

/// Opens the device behind /dev/console, which itself cannot be a controlling terminal.
fn terminal() -> Result<File> {
    let active = fs::read_to_string("/sys/class/tty/console/active")
        .context("cannot find the console's device")?;
    let device = Path::new("/dev").join(active.split_whitespace().last().unwrap_or("console"));
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(&device)
        .with_context(|| format!("cannot open {}", device.display()))
}

/// Makes standard input the controlling terminal of a new session.
fn take_terminal() -> io::Result<()> {
    setsid()?;
    // SAFETY: TIOCSCTTY takes an integer and accesses no memory of this process.
    match unsafe { libc::ioctl(libc::STDIN_FILENO, libc::TIOCSCTTY, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Mounts the host's folder: a link below the hostfs mount in UML, 9P in QEMU.
fn share_folder() -> Result<()> {
    let below = Path::new("/host").join(SHARED_FOLDER);
    if below.exists() {
        return symlink(below, SHARED).with_context(|| format!("cannot link {SHARED}"));
    }
    fs::create_dir_all(SHARED)?;
    mount(
        Some(SHARED_FOLDER),
        SHARED,
        Some("9p"),
        MsFlags::MS_NOSUID | MsFlags::MS_NODEV,
        Some("trans=virtio,version=9p2000.L"),
    )
    .with_context(|| format!("cannot mount {SHARED}"))
}

/// Writes the network's host names to /etc/hosts.
fn name_hosts(network: &Network) -> Result<()> {
    let mut text = String::from("127.0.0.1 localhost\n");
    for node in &network.layout.nodes {
        if let Some(address) = node.host_address() {
            let _ = writeln!(text, "{address} {}", node.name);
        }
    }
    fs::write("/etc/hosts", text).context("cannot write /etc/hosts")
}

/// Allows all available congestion controls everywhere; `cc` becomes the default of new sockets.
fn choose(network: &Network, cc: &str) -> Result<()> {
    let available = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")
        .context("cannot read the available congestion controls")?;
    sysctl::write("net.ipv4.tcp_allowed_congestion_control", available.trim())?;
    for node in 0..network.layout.nodes.len() {
        network.inside(node, || sysctl::write("net.ipv4.tcp_congestion_control", cc).map(drop))?;
    }
    Ok(())
}

/// Forks a process that runs the flows for each line of [`REQUESTS`].
fn serve_flows(network: &Network, run: &RunPlan) -> Result<()> {
    mkfifo(REQUESTS, Mode::from_bits_truncate(0o600)).context("cannot create a FIFO")?;
    let script = format!("#!/bin/sh\n# Starts the scenario's flows.\nexec echo go >{REQUESTS}\n");
    fs::write(FLOWS_COMMAND, script).with_context(|| format!("cannot write {FLOWS_COMMAND}"))?;
    fs::set_permissions(FLOWS_COMMAND, Permissions::from_mode(0o755))?;
    // SAFETY: no other thread runs yet, so the child's copy of this process is complete.
    if let ForkResult::Child = unsafe { fork() }.context("fork")? {
        // `answer` returns only on error.
        if let Err(error) = answer(network, run) {
            say(&format!("flows: {error:#}"));
        }
        std::process::exit(1);
    }
    Ok(())
}

/// Runs the flows once for each request.
fn answer(network: &Network, run: &RunPlan) -> Result<()> {
    // Open for writing, too, so that the FIFO never reaches its end.
    let requests = OpenOptions::new().read(true).write(true).open(REQUESTS)?;
    let mut lines = BufReader::new(requests).lines();
    for number in 1.. {
        lines.next().transpose()?;
        let path = Path::new(SHARED).join(format!("flows-{number}.jsonl"));
        File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
        let mut channel = Channel::append_to(&path)?;
        let text = match traffic::run(network, run, &mut channel).and_then(|us| {
            channel.flush()?;
            summary(&path, us)
        }) {
            Ok(summary) => format!("flows: {summary}; {}", path.display()),
            Err(error) => format!("flows: failed: {error:#}"),
        };
        say(&text);
    }
    Ok(())
}

/// Writes a line to the shell's terminal. Ignores errors: the terminal is gone.
fn say(text: &str) {
    if let Ok(mut terminal) = terminal() {
        let _ = terminal.write_all(format!("{text}\n").as_bytes());
    }
}

/// Results of the flows, in one line.
fn summary(path: &Path, took_us: u64) -> Result<String> {
    let (mut ended, mut all, mut bytes) = (0_usize, 0_usize, 0_u64);
    let mut last_ns = 0;
    for line in fs::read_to_string(path)?.lines() {
        if let Ok(Message::Flow(flow)) = serde_json::from_str(line) {
            all += 1;
            bytes = bytes.saturating_add(flow.received_bytes);
            if let Some(end_ns) = flow.end_ns {
                ended += 1;
                last_ns = last_ns.max(end_ns);
            }
        }
    }
    let mbps = bytes as f64 * 8.0 / took_us.max(1) as f64;
    Ok(format!(
        "{ended} of {all} ended, the last after {:.1} ms; {mbps:.1} Mbit/s in total",
        last_ns as f64 / 1e6
    ))
}

/// Greeting text: nodes and commands.
fn greeting(network: &Network, run: &RunPlan) -> String {
    let mut text = String::from("\n");
    let nodes = &network.layout.nodes;
    if !nodes.is_empty() {
        text.push_str("node          address        devices\n");
    }
    for node in nodes.iter().take(LISTED) {
        let address = match node.host_address() {
            Some(address) => address.to_string(),
            None => "(router)".to_owned(),
        };
        let ports: Vec<_> = node.ports.iter().map(|port| port.name.as_str()).collect();
        let _ = writeln!(text, "{:<14}{address:<15}{}", node.name, ports.join(" "));
    }
    if nodes.len() > LISTED {
        let _ = writeln!(text, "and {} more, in /etc/hosts", nodes.len() - LISTED);
    }
    if let Some(first) = nodes.iter().find(|node| node.host_address().is_some()) {
        let name = first.name;
        let _ = writeln!(
            text,
            "\nEvery node is a network namespace: ip netns exec {name} COMMAND. New sockets use {}.",
            run.cc
        );
    }
    if !run.flows.is_empty() {
        let _ = writeln!(text, "flows: starts the scenario's {} flows.", run.flows.len());
    }
    let _ = writeln!(
        text,
        "Time is real. Files in {SHARED} are kept on the host. exit: ends the guest.\n"
    );
    text
}
