// SPDX-License-Identifier: GPL-2.0
//! `xdc-witness send` and `sink`: greedy TCP flows with a DSCP.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    process::ExitCode,
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use nix::sys::socket::{setsockopt, sockopt};

/// Runs `send DSCP FLOWS ADDRESS:PORT...` until killed, or `sink PORT`.
pub fn command(words: &[String]) -> ExitCode {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["send", dscp, flows, to @ ..] => send(dscp, flows, to),
        ["sink", port] => sink(port),
        _ => Err(anyhow::anyhow!("usage: send DSCP FLOWS ADDRESS:PORT..., or sink PORT")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xdc-witness: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Small stacks: there may be hundreds of threads.
fn spawn(f: impl FnOnce() + Send + 'static) -> Result<()> {
    thread::Builder::new().stack_size(64 << 10).spawn(f)?;
    Ok(())
}

fn send(dscp: &str, flows: &str, to: &[&str]) -> Result<()> {
    let tos = dscp.parse::<i32>()? << 2;
    if to.is_empty() {
        bail!("missing ADDRESS:PORT");
    }
    for address in to {
        for _ in 0..flows.parse::<u32>()? {
            let stream = TcpStream::connect(address)
                .with_context(|| format!("cannot connect to {address}"))?;
            setsockopt(&stream, sockopt::Ipv4Tos, &tos)?;
            spawn(move || endless(stream))?;
        }
    }
    println!("ready");
    loop {
        thread::sleep(Duration::from_secs(3_600));
    }
}

fn endless(mut stream: TcpStream) {
    let block = [0; 16 << 10];
    while stream.write_all(&block).is_ok() {}
}

fn sink(port: &str) -> Result<()> {
    let listener = TcpListener::bind(("0.0.0.0", port.parse()?))?;
    for stream in listener.incoming() {
        let mut stream = stream?;
        spawn(move || {
            let mut block = vec![0; 32 << 10];
            while stream.read(&mut block).is_ok_and(|count| count != 0) {}
        })?;
    }
    Ok(())
}
