// SPDX-License-Identifier: GPL-2.0
//! A scenario's commands: `setup` of its nodes, and the programs of `[[run]]`.

use std::{
    fs::File,
    io::{Read, Seek},
    os::{
        fd::{FromRawFd, OwnedFd},
        unix::{
            fs::OpenOptionsExt,
            process::{CommandExt, ExitStatusExt},
        },
    },
    process::{Child, Command, ExitStatus, Stdio},
};

use anyhow::{Context, Result, bail};
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use xdc_proto::{MAX_OUTPUT_BYTES, Message, Program, privileged};

use crate::{channel::Channel, network::Network};

/// Bytes of a program's output per message.
const CHUNK_BYTES: usize = 64 << 10;

/// Output lines quoted when a command fails.
const LAST_LINES: usize = 8;

/// A shell command in a node's namespace, with the network's names in its environment.
fn command(network: &Network, node: usize, text: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", text])
        .env_clear()
        .env("PATH", privileged::PATH)
        .env("HOME", "/root")
        .env("NODE", network.layout.nodes[node].name)
        .stdin(Stdio::null())
        .current_dir("/tmp");
    if let Some(first) = network.layout.nodes[node].ports.first() {
        command.env("UPLINK", &first.name);
    }
    for host in &network.layout.nodes {
        if let Some(address) = host.host_address() {
            command.env(host.name.replace('-', "_"), network.layout.ip(address).to_string());
        }
    }
    command
}

/// Runs each node's `setup`.
pub fn set_up(network: &Network) -> Result<()> {
    for (i, node) in network.layout.nodes.iter().enumerate() {
        for text in node.setup {
            let output = network
                .inside(i, || command(network, i, text).output().context("cannot run sh"))
                .with_context(|| format!("setup of {}", node.name))?;
            if !output.status.success() {
                let said = [output.stdout, output.stderr].concat();
                bail!(
                    "setup of {}: '{text}' ended with {}: {}",
                    node.name,
                    told(output.status),
                    last_lines(&String::from_utf8_lossy(&said))
                );
            }
        }
    }
    Ok(())
}

/// A started program of the plan.
pub struct Running {
    child: Child,
    /// Pidfd: readable once the program has ended.
    pub ended: OwnedFd,
    stdout: File,
    stderr: File,
    status: Option<ExitStatus>,
}

impl Running {
    /// Starts the program in its node.
    pub fn start(network: &Network, program: &Program) -> Result<Self> {
        let node = network.layout.node(&program.node)?;
        let (stdout, stderr) = (nameless_file()?, nameless_file()?);
        let child = network.inside(node, || {
            command(network, node, &program.command)
                .stdout(stdout.try_clone()?)
                .stderr(stderr.try_clone()?)
                .process_group(0)
                .spawn()
                .context("cannot run sh")
        })?;
        // SAFETY: The call takes two integers.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, child.id(), 0) };
        if fd < 0 {
            return Err(std::io::Error::last_os_error()).context("pidfd_open");
        }
        Ok(Self {
            child,
            // SAFETY: The kernel just returned this descriptor, and nothing else owns it.
            ended: unsafe { OwnedFd::from_raw_fd(fd as i32) },
            stdout,
            stderr,
            status: None,
        })
    }

    /// Reaps the program; returns whether it ended since the last call.
    pub fn reap(&mut self) -> Result<bool> {
        if self.status.is_some() {
            return Ok(false);
        }
        self.status = self.child.try_wait().context("wait")?;
        Ok(self.status.is_some())
    }

    /// Kills the program's process group.
    pub fn stop(&mut self) -> Result<()> {
        // Group members may outlive the program.
        let _ = killpg(Pid::from_raw(self.child.id() as i32), Signal::SIGKILL);
        if self.status.is_none() {
            self.child.wait().context("wait")?;
        }
        Ok(())
    }

    /// Sends the output and exit status; `program` is the index in the plan.
    pub fn report(&mut self, program: usize, channel: &mut Channel) -> Result<()> {
        let (text, cut) = read(&mut self.stdout)?;
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let mut end = CHUNK_BYTES.min(rest.len());
            while !rest.is_char_boundary(end) {
                end -= 1;
            }
            let (chunk, more) = rest.split_at(end);
            channel.send(&Message::Output { program, text: chunk.to_owned() })?;
            rest = more;
        }
        let (errors, _) = read(&mut self.stderr)?;
        channel.send(&Message::Ended {
            program,
            code: self.status.map(|status| status.code().unwrap_or(-1)),
            errors: last_lines(&errors),
            cut,
        })
    }
}

/// Content of a file, up to [`MAX_OUTPUT_BYTES`], and whether it was cut.
fn read(file: &mut File) -> Result<(String, bool)> {
    let mut bytes = Vec::new();
    file.rewind()?;
    let mut limited = file.take(MAX_OUTPUT_BYTES + 1);
    limited.read_to_end(&mut bytes)?;
    let cut = bytes.len() as u64 > MAX_OUTPUT_BYTES;
    bytes.truncate(MAX_OUTPUT_BYTES as usize);
    Ok((String::from_utf8_lossy(&bytes).into_owned(), cut))
}

fn nameless_file() -> Result<File> {
    File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_TMPFILE)
        .open("/tmp")
        .context("cannot create a file in /tmp")
}

fn told(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, signal) => format!("signal {}", signal.unwrap_or_default()),
    }
}

fn last_lines(text: &str) -> String {
    let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_lines_are_reported() {
        let text: String = (0..20).map(|i| format!("{i}\n\n")).collect();
        assert_eq!(last_lines(&text), "12\n13\n14\n15\n16\n17\n18\n19");
        assert_eq!(last_lines(""), "");
    }
}
