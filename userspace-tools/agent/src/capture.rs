// SPDX-License-Identifier: GPL-2.0
//! Captures each packet at a port, both directions, in a ring that is read with each sample.
//!
//! A capture wakes no process and delays no packet: the kernel copies the headers as packets pass.
//! Ring overflow leaves a doubt.

use std::{
    io, mem,
    os::fd::AsRawFd,
    ptr::{self, NonNull},
    sync::atomic::{Ordering, fence},
};

use anyhow::{Context, Result};
use socket2::{Domain, SockFilter, Socket, Type};
use xdc_proto::{FRAME_BYTES, Message, Packet, Tap, tap_frames};

use crate::{channel::Channel, network::Network};

/// Ethernet, IPv4 and TCP headers with all options.
const HEAD_BYTES: u32 = 14 + 60 + 60;

/// Allocation unit of a ring, bytes.
const BLOCK_BYTES: usize = 1 << 20;

/// Packets per message.
const BATCH: usize = 512;

/// A port under capture.
pub struct Capture {
    socket: Socket,
    ring: Ring,
}

impl Capture {
    /// Starts the capture; `taps` is the number of captures.
    pub fn start(network: &Network, tap: &Tap, taps: usize) -> Result<Self> {
        let layout = &network.layout;
        let node = layout.node(&tap.node)?;
        let port = layout.port(node, &tap.port)?;
        network
            .inside(node, || Self::open(port.index, tap.all, tap_frames(taps)))
            .with_context(|| format!("cannot capture at {}", tap.node))
    }

    fn open(index: u32, all: bool, frames: usize) -> Result<Self> {
        // No packet arrives before a protocol is set.
        let socket = Socket::new(Domain::PACKET, Type::RAW.cloexec(), None)
            .context("cannot open a packet socket")?;
        let filter = match all {
            true => vec![accept(HEAD_BYTES)],
            false => tcp_heads().into(),
        };
        socket.attach_filter(&filter).context("cannot attach the filter")?;
        let version = libc::tpacket_versions::TPACKET_V2 as libc::c_int;
        set_packet_option(&socket, libc::PACKET_VERSION, &version).context("PACKET_VERSION")?;
        let ring = Ring::new(&socket, frames)?;
        bind(&socket, index).context("cannot bind to the device")?;
        Ok(Self { socket, ring })
    }

    /// Reports packets since the last call.
    pub fn drain(&mut self, tap: usize, channel: &mut Channel) -> Result<()> {
        loop {
            let next = || self.ring.take();
            let packets: Vec<Packet> = std::iter::from_fn(next).take(BATCH).collect();
            if packets.is_empty() {
                return Ok(());
            }
            channel.send(&Message::Packets { tap, packets })?;
        }
    }

    /// Reports remaining packets, and whether any are missing.
    pub fn report(&mut self, tap: usize, node: &str, channel: &mut Channel) -> Result<()> {
        let statistics = statistics(&self.socket).context("PACKET_STATISTICS")?;
        self.drain(tap, channel)?;
        if statistics.tp_drops > 0 {
            channel.send(&Message::Doubt {
                what: format!(
                    "the capture at {node} lacks {} of {} packets: a shorter 'sample' reads it more often",
                    statistics.tp_drops, statistics.tp_packets
                ),
            })?;
        }
        Ok(())
    }
}

/// Accepts the first [`HEAD_BYTES`] of TCP over IPv4.
fn tcp_heads() -> [SockFilter; 6] {
    const ETHERTYPE: u32 = 12;
    const IP_PROTOCOL: u32 = 14 + 9;
    use libc::{BPF_ABS, BPF_B, BPF_H, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD};
    let step = |code: u32, jf, k| SockFilter::new(code as u16, 0, jf, k);
    [
        step(BPF_LD | BPF_H | BPF_ABS, 0, ETHERTYPE),
        step(BPF_JMP | BPF_JEQ | BPF_K, 3, libc::ETH_P_IP as u32),
        step(BPF_LD | BPF_B | BPF_ABS, 0, IP_PROTOCOL),
        step(BPF_JMP | BPF_JEQ | BPF_K, 1, libc::IPPROTO_TCP as u32),
        accept(HEAD_BYTES),
        accept(0),
    ]
}

fn accept(bytes: u32) -> SockFilter {
    SockFilter::new((libc::BPF_RET | libc::BPF_K) as u16, 0, 0, bytes)
}

/// Memory to which the kernel writes packets.
struct Ring {
    memory: NonNull<u8>,
    frames: usize,
    /// Index of the frame to read next.
    next: usize,
}

impl Ring {
    fn new(socket: &Socket, frames: usize) -> Result<Self> {
        let bytes = frames * FRAME_BYTES;
        let request = libc::tpacket_req {
            tp_block_size: BLOCK_BYTES as u32,
            tp_block_nr: (bytes / BLOCK_BYTES) as u32,
            tp_frame_size: FRAME_BYTES as u32,
            tp_frame_nr: frames as u32,
        };
        set_packet_option(socket, libc::PACKET_RX_RING, &request).context("PACKET_RX_RING")?;
        // SAFETY: a new mapping of the requested length.
        let address = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                socket.as_raw_fd(),
                0,
            )
        };
        // A forked child needs no copy of the ring.
        // SAFETY: the mapping just made; if mmap failed, this fails, too.
        unsafe { libc::madvise(address, bytes, libc::MADV_DONTFORK) };
        match NonNull::new(address.cast()) {
            Some(memory) if address != libc::MAP_FAILED => Ok(Self { memory, frames, next: 0 }),
            _ => Err(io::Error::last_os_error()).context("cannot map the ring"),
        }
    }

    /// The next packet, if the kernel has written it; returns its frame to the kernel.
    fn take(&mut self) -> Option<Packet> {
        // SAFETY: the frame lies within the ring and is aligned to 16; any bytes are a valid
        // header.
        let frame = unsafe { self.memory.add(self.next * FRAME_BYTES) };
        let status = frame.cast::<libc::tpacket2_hdr>();
        // SAFETY: the header lies within the ring, and any bytes are valid.
        let header = unsafe { status.read_volatile() };
        if header.tp_status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // The kernel writes the status last.
        fence(Ordering::Acquire);
        let bytes: [u8; FRAME_BYTES] = {
            // SAFETY: the frame lies within the ring; until its status changes the kernel does not
            // write to it.
            unsafe { frame.cast().read() }
        };
        // Finish reading before the kernel may write again.
        fence(Ordering::Release);
        // SAFETY: the status is the header's first field, and the ring is mapped for writing.
        unsafe { status.cast::<u32>().write_volatile(libc::TP_STATUS_KERNEL) };
        self.next = (self.next + 1) % self.frames;
        let address =
            mem::size_of::<libc::tpacket2_hdr>().next_multiple_of(libc::TPACKET_ALIGNMENT);
        let kind = bytes[address + mem::offset_of!(libc::sockaddr_ll, sll_pkttype)];
        let start = usize::from(header.tp_mac);
        let head = &bytes[start..][..header.tp_snaplen as usize];
        Some(Packet {
            t_ns: u64::from(header.tp_sec) * 1_000_000_000 + u64::from(header.tp_nsec),
            outgoing: kind == libc::PACKET_OUTGOING,
            bytes: header.tp_len,
            head: xdc_proto::to_hex(head),
        })
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: mapped with this length, and no reference to it is left.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.frames * FRAME_BYTES) };
    }
}

fn set_packet_option<T: Copy>(socket: &Socket, name: libc::c_int, value: &T) -> io::Result<()> {
    // SAFETY: the pointer and the length are those of `value`, which is plain data.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            name,
            ptr::from_ref(value).cast(),
            mem::size_of::<T>() as libc::socklen_t,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn bind(socket: &Socket, index: u32) -> io::Result<()> {
    // SAFETY: plain data, for which zeroes are valid.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    // Outgoing packets are shown only to sockets for all protocols.
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index as i32;
    // SAFETY: the pointer and the length are those of `address`.
    let result = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            mem::size_of_val(&address) as libc::socklen_t,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn statistics(socket: &Socket) -> io::Result<libc::tpacket_stats> {
    let mut statistics = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let mut length = mem::size_of_val(&statistics) as libc::socklen_t;
    // SAFETY: the pointer and the length are those of `statistics`, which is plain data.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut statistics).cast(),
            &mut length,
        )
    };
    match result {
        0 => Ok(statistics),
        _ => Err(io::Error::last_os_error()),
    }
}
