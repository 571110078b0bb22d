// SPDX-License-Identifier: GPL-2.0
//! `xdc-witness packets`: packets without a connection, so without retransmissions or waits for ACKs.

use std::{net::Ipv4Addr, os::fd::AsRawFd, process::ExitCode, thread, time::Duration};

use anyhow::{Context, Result, bail};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, sendto, socket,
};

/// Bytes of the IPv4 header and of the TCP header.
const HEADER: usize = 20;

/// Runs `packets tcp|udp ADDRESS BYTES COUNT [INTERVAL_US]`. A packet has BYTES + 40 bytes. TCP packets
/// are segments of one flow.
pub fn command(words: &[String]) -> ExitCode {
    match run(words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xdc-witness packets: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[String]) -> Result<()> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let [protocol, to, bytes, count, interval_us @ ..] = words.as_slice() else {
        bail!("usage: packets tcp|udp ADDRESS BYTES COUNT [INTERVAL_US]");
    };
    let protocol = match *protocol {
        "tcp" => libc::IPPROTO_TCP as u8,
        "udp" => libc::IPPROTO_UDP as u8,
        other => bail!("{other}: must be tcp or udp"),
    };
    let to: Ipv4Addr = to.parse()?;
    let bytes: u16 = bytes.parse()?;
    let interval_us = match interval_us {
        [] => 0,
        [us] => us.parse()?,
        _ => bail!("more than one interval"),
    };
    // We provide the IP header.
    let socket =
        socket(AddressFamily::Inet, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::Raw)
            .context("cannot open a raw socket")?;
    let address = SockaddrIn::from(std::net::SocketAddrV4::new(to, 0));
    for number in 0..count.parse::<u32>()? {
        let packet = packet(protocol, to, bytes, number);
        sendto(socket.as_raw_fd(), &packet, &address, MsgFlags::empty())?;
        if interval_us != 0 {
            thread::sleep(Duration::from_micros(interval_us));
        }
    }
    Ok(())
}

/// A packet without TCP or UDP checksum, which no socket accepts. The kernel fills in the source.
fn packet(protocol: u8, to: Ipv4Addr, bytes: u16, number: u32) -> Vec<u8> {
    let len = 2 * HEADER as u16 + bytes;
    let mut packet = vec![0; len.into()];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&len.to_be_bytes());
    packet[8] = 64;
    packet[9] = protocol;
    packet[16..20].copy_from_slice(&to.octets());
    let ports = 5_001_u16.to_be_bytes();
    packet[20..22].copy_from_slice(&ports);
    packet[22..24].copy_from_slice(&ports);
    if protocol == libc::IPPROTO_TCP as u8 {
        let seq = number.wrapping_mul(bytes.into());
        packet[24..28].copy_from_slice(&seq.to_be_bytes());
        // Five words of header; ACK.
        packet[32] = 0x50;
        packet[33] = 0x10;
    }
    packet
}
