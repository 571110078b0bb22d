// SPDX-License-Identifier: GPL-2.0
//! Every TCP packet at a port, both directions, into a ring that nobody reads before the end.
//!
//! So a capture wakes nobody, and it holds no packet back: the kernel copies the headers as the
//! packet passes. A ring that was too small fails the run.

use std::{
    io, mem,
    os::fd::AsRawFd,
    ptr::{self, NonNull},
    sync::atomic::{Ordering, fence},
};

use anyhow::{Context, Result, ensure};
use socket2::{Domain, SockFilter, Socket, Type};
use xdc_proto::{Message, Packet, WatchedQueue};

use crate::{channel::Channel, network::Network};

/// Ethernet, and IPv4 and TCP with all their options.
const HEAD_BYTES: u32 = 14 + 60 + 60;

/// A frame has room for that and for what the kernel says of it.
const FRAME_BYTES: usize = 256;

/// Packets that a ring holds, and the pieces it is allocated in.
const FRAMES: usize = 1 << 17;
const BLOCK_BYTES: usize = 1 << 20;

/// Packets of one message.
const BATCH: usize = 512;

/// A port under capture.
pub struct Capture {
    socket: Socket,
    ring: Ring,
}

impl Capture {
    /// Begins now.
    pub fn start(network: &Network, watched: &WatchedQueue) -> Result<Self> {
        let layout = &network.layout;
        let node = layout.node(&watched.node)?;
        let port = layout.port(node, &watched.peer)?;
        network
            .inside(node, || Self::open(port.index))
            .with_context(|| format!("cannot capture at {}", watched.name))
    }

    fn open(index: u32) -> Result<Self> {
        // Without a protocol it receives nothing yet.
        let socket = Socket::new(Domain::PACKET, Type::RAW.cloexec(), None)
            .context("cannot open a packet socket")?;
        socket.attach_filter(&tcp_heads()).context("no filter")?;
        let version = libc::tpacket_versions::TPACKET_V2 as libc::c_int;
        set_packet_option(&socket, libc::PACKET_VERSION, &version).context("PACKET_VERSION")?;
        let ring = Ring::new(&socket)?;
        bind(&socket, index).context("cannot bind to the device")?;
        Ok(Self { socket, ring })
    }

    /// Reports what has passed.
    pub fn report(&self, queue: usize, channel: &mut Channel) -> Result<()> {
        let statistics = statistics(&self.socket).context("PACKET_STATISTICS")?;
        ensure!(
            statistics.tp_drops == 0,
            "a capture holds {FRAMES} packets, and {} passed: make the scenario shorter",
            statistics.tp_packets
        );
        let mut sent = 0;
        loop {
            let packets: Vec<Packet> = (sent..FRAMES)
                .map_while(|frame| self.ring.packet(frame))
                .take(BATCH)
                .collect();
            if packets.is_empty() {
                break;
            }
            sent += packets.len();
            channel.send(&Message::Packets { queue, packets })?;
        }
        ensure!(
            sent == statistics.tp_packets as usize,
            "the kernel captured {} packets, and {sent} are in the ring",
            statistics.tp_packets
        );
        Ok(())
    }
}

/// Accepts the first [`HEAD_BYTES`] of TCP over IPv4.
fn tcp_heads() -> [SockFilter; 6] {
    const ETHERTYPE: u32 = 12;
    const IP_PROTOCOL: u32 = 14 + 9;
    use libc::{BPF_ABS, BPF_B, BPF_H, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET};
    let step = |code: u32, jf, k| SockFilter::new(code as u16, 0, jf, k);
    [
        step(BPF_LD | BPF_H | BPF_ABS, 0, ETHERTYPE),
        step(BPF_JMP | BPF_JEQ | BPF_K, 3, libc::ETH_P_IP as u32),
        step(BPF_LD | BPF_B | BPF_ABS, 0, IP_PROTOCOL),
        step(BPF_JMP | BPF_JEQ | BPF_K, 1, libc::IPPROTO_TCP as u32),
        step(BPF_RET | BPF_K, 0, HEAD_BYTES),
        step(BPF_RET | BPF_K, 0, 0),
    ]
}

/// Memory that the kernel writes packets to.
struct Ring(NonNull<u8>);

impl Ring {
    const BYTES: usize = FRAMES * FRAME_BYTES;

    fn new(socket: &Socket) -> Result<Self> {
        let request = libc::tpacket_req {
            tp_block_size: BLOCK_BYTES as u32,
            tp_block_nr: (Self::BYTES / BLOCK_BYTES) as u32,
            tp_frame_size: FRAME_BYTES as u32,
            tp_frame_nr: FRAMES as u32,
        };
        set_packet_option(socket, libc::PACKET_RX_RING, &request).context("PACKET_RX_RING")?;
        // SAFETY: a new mapping, of the length that was just asked for.
        let address = unsafe {
            libc::mmap(
                ptr::null_mut(),
                Self::BYTES,
                libc::PROT_READ,
                libc::MAP_SHARED,
                socket.as_raw_fd(),
                0,
            )
        };
        match NonNull::new(address.cast()) {
            Some(ring) if address != libc::MAP_FAILED => Ok(Self(ring)),
            _ => Err(io::Error::last_os_error()).context("cannot map the ring"),
        }
    }

    /// The packet in a frame, once the kernel has written it.
    fn packet(&self, frame: usize) -> Option<Packet> {
        assert!(frame < FRAMES);
        // SAFETY: a frame lies within the ring and is aligned to 16, and any bytes are a header.
        let header = unsafe {
            self.0
                .add(frame * FRAME_BYTES)
                .cast::<libc::tpacket2_hdr>()
                .read_volatile()
        };
        if header.tp_status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // What is read below was written before the status.
        fence(Ordering::Acquire);
        let bytes: [u8; FRAME_BYTES] = {
            // SAFETY: as above; the kernel writes to this frame no more.
            unsafe { self.0.add(frame * FRAME_BYTES).cast().read() }
        };
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
        // SAFETY: it was mapped with this length, and no reference to it is left.
        unsafe { libc::munmap(self.0.as_ptr().cast(), Self::BYTES) };
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
    // SAFETY: plain data, for which zeroes are a value.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    // Packets that leave are shown to those who ask for all protocols only.
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
    let mut statistics = libc::tpacket_stats {
        tp_packets: 0,
        tp_drops: 0,
    };
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
