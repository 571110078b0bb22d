// SPDX-License-Identifier: GPL-2.0
//! Sender application: writes the payload, and requests a report of the last byte's ACK.

use std::{fs::File, io, net::Shutdown};

use anyhow::{Context, Result};
use nix::{
    sys::sendfile::sendfile,
    time::{ClockId, ClockNanosleepFlags, clock_nanosleep},
};
use socket2::Socket;
use xdc_proto::Flow;

use crate::{
    clock::{NS_PER_US, timespec},
    socket,
};

/// Maximum payload per system call, below sendfile's limit of 2 GiB less a page.
pub const SEND_BYTES: u64 = 1 << 30;

/// Last piece of a flow, whose ACK is reported. sendfile gives TCP at most this much at once, and
/// TCP would report an ACK for each piece.
pub const LAST_BYTES: u64 = 64 << 10;

/// Application of a sender: writes all bytes at once, or in bursts.
#[derive(Clone, Copy)]
pub struct Application {
    /// Bytes not written yet.
    pub bytes: u64,
    burst_bytes: u64,
    period_ns: u64,
    start_ns: u64,
    /// Whether the stream ends after the payload, and the ACK of its end is reported.
    ends: bool,
}

impl Application {
    /// The application of a flow that starts now.
    pub fn new(plan: &Flow, start_ns: u64) -> Self {
        let or_all = |bytes| if bytes == 0 { u64::MAX } else { bytes };
        Self {
            bytes: or_all(plan.bytes),
            burst_bytes: or_all(plan.burst_bytes),
            period_ns: plan.period_us * NS_PER_US,
            start_ns,
            ends: !plan.persistent && plan.bytes > 0,
        }
    }

    /// Writes the payload, and ends the stream if `ends`.
    pub fn send(&self, socket: &Socket, payload: &File) -> io::Result<()> {
        let mut unsent = self.bytes;
        let mut next_ns = self.start_ns;
        while unsent > 0 {
            let burst = unsent.min(self.burst_bytes);
            unsent -= burst;
            match unsent == 0 && self.ends {
                true => send_last(socket, payload, burst)?,
                false => send_payload(socket, payload, burst)?,
            }
            next_ns += self.period_ns;
            if unsent > 0 && self.period_ns > 0 {
                sleep_until(next_ns)?;
            }
        }
        match self.ends {
            true => socket.shutdown(Shutdown::Write),
            false => Ok(()),
        }
    }
}

/// Writes as much as the send buffer takes; returns the bytes written.
pub fn send_at_once(socket: &Socket, payload: &File, bytes: u64) -> Result<u64> {
    if bytes == 0 {
        return Ok(0);
    }
    match sendfile(socket, payload, Some(&mut 0), bytes as usize) {
        Ok(sent) => Ok(sent as u64),
        Err(nix::Error::EAGAIN) => Ok(0),
        Err(e) => Err(e).context("cannot send"),
    }
}

/// Writes payload with a report of the last byte's ACK, segmented as without the report.
fn send_last(socket: &Socket, payload: &File, bytes: u64) -> io::Result<()> {
    let last = bytes.min(LAST_BYTES);
    if bytes > last {
        socket.set_tcp_cork(true)?;
        send_payload(socket, payload, bytes - last)?;
    }
    socket::report_acks(socket)?;
    send_payload(socket, payload, last)?;
    match bytes > last {
        true => socket.set_tcp_cork(false),
        false => Ok(()),
    }
}

fn sleep_until(at_ns: u64) -> nix::Result<()> {
    let at = timespec(at_ns);
    loop {
        match clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &at) {
            Err(nix::Error::EINTR) => {}
            other => return other.map(drop),
        }
    }
}

fn send_payload(socket: &Socket, payload: &File, bytes: u64) -> nix::Result<()> {
    let mut unsent = bytes;
    while unsent > 0 {
        let sent = sendfile(socket, payload, Some(&mut 0), unsent.min(SEND_BYTES) as usize)?;
        unsent -= sent as u64;
    }
    Ok(())
}
