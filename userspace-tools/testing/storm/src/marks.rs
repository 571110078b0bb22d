// SPDX-License-Identifier: GPL-2.0
//! A lying path: a program between the hosts sets, clears and invents ECN marks and echoes, and loses,
//! duplicates and delays packets. Checksums stay valid.

use std::{
    collections::VecDeque,
    fs::File,
    io::{ErrorKind, Read, Write},
    ops::Range,
    os::fd::{AsFd, AsRawFd},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::{Context, Result, anyhow, ensure};
use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    poll::{PollFd, PollFlags, PollTimeout, poll},
};
use xdc_netlink::{
    Connection,
    link::{self, LOOPBACK_INDEX, RouteMetrics},
};

use crate::{
    Storm,
    background::PATIENCE,
    diag::Diag,
    flow::{Family, Spec, Traffic},
    net::{self, DEVICE, Netns, Pair, v4},
};

/// Open flows at a time.
const FLOWS: usize = 12;

/// Runs `count` flows through a lying path.
pub fn attack(storm: &mut Storm, count: u32) -> Result<()> {
    let hosts = [Netns::create()?, Netns::create()?];
    let mut tuns = Vec::new();
    for (host, netns) in hosts.iter().enumerate() {
        tuns.push(netns.run(|| tun(host))?);
    }
    let pair = Arc::new(Pair { hosts });
    let liar = Liar::start(tuns, storm.seed);
    let diag = Diag::start(&pair, None, Duration::from_millis(50));
    let mut rng = fastrand::Rng::with_seed(storm.seed);
    let ccs = storm.ccs();
    let mut traffic = Traffic::new(&pair, "gemini")?;
    let outcome = (|| {
        while traffic.tally.opened < u64::from(count) {
            while traffic.open_flows() < FLOWS {
                let ecn = [1, 2, 3, 4, 5][rng.usize(..5)].to_string();
                pair.sysctl("net/ipv4/tcp_ecn", &ecn)?;
                // Our algorithms twice as often.
                let cc = match rng.u8(..4) {
                    0 => "unocc",
                    1 => "gemini",
                    _ => &ccs[rng.usize(..ccs.len())],
                };
                let family = [Family::V4, Family::Mapped][rng.usize(..2)];
                traffic.open(Spec::new(cc, rng.u64(1..120_000), family))?;
            }
            traffic.step(Duration::from_millis(20))?;
        }
        liar.calm.store(true, Ordering::Relaxed);
        traffic.drain(PATIENCE)?;
        traffic.verdict()
    })();
    let seen = diag.stop()?;
    let text = liar.stop()?;
    storm.ktap.note(&text);
    storm.ktap.note(&seen.text());
    storm.ktap.case(
        &format!("{count} flows through a path with random CE, ECE, CWR and ACE bits, loss, duplicates and reordering"),
        outcome,
    );
    let tally = traffic.tally;
    storm.flows_case("flows with random ECN bits", traffic.verdict().map(|()| tally));
    Ok(())
}

/// Creates a TUN device with the host's address and the route to the other host.
fn tun(host: usize) -> Result<File> {
    const TUNSETIFF: u64 = 0x4004_54ca;
    const IFF_TUN: i16 = 1;
    const IFF_NO_PI: i16 = 0x1000;
    let path = "/dev/net/tun";
    let file = File::options().read(true).write(true).open(path).context(path)?;
    // struct ifreq: name and flags.
    let mut request = [0u8; 40];
    request[..4].copy_from_slice(b"tun0");
    request[16..18].copy_from_slice(&(IFF_TUN | IFF_NO_PI).to_ne_bytes());
    // SAFETY: TUNSETIFF reads and writes one struct ifreq, which is 40 bytes long.
    let made = unsafe { libc::ioctl(file.as_raw_fd(), TUNSETIFF as _, request.as_mut_ptr()) };
    ensure!(made == 0, "TUNSETIFF: {}", std::io::Error::last_os_error());
    fcntl(&file, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    // The namespace's first device after lo has index DEVICE.
    net::write_sysctl("net/ipv6/conf/tun0/disable_ipv6", "1")?;
    Connection::open()?.batch([
        link::set_up("lo", LOOPBACK_INDEX),
        link::add_address(DEVICE, v4(host), 32),
        link::set_up("tun0", DEVICE),
        link::add_host_route(v4(1 - host), DEVICE, v4(host), &RouteMetrics::default()),
    ])?;
    Ok(file)
}

/// Thread between the hosts.
struct Liar {
    /// Set: packets pass unchanged.
    calm: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    lies: Arc<[AtomicU64; LIES.len()]>,
    thread: thread::JoinHandle<Result<u64>>,
}

/// Names of the changes, in the order of the counters.
const LIES: [&str; 5] = ["ECN of IP", "ECN of TCP", "lost", "duplicated", "delayed"];

impl Liar {
    fn start(mut tuns: Vec<File>, seed: u64) -> Self {
        let calm = Arc::new(AtomicBool::new(false));
        let stop = Arc::new(AtomicBool::new(false));
        let lies: Arc<[AtomicU64; LIES.len()]> = Arc::default();
        let (calmed, stopped, counters) = (calm.clone(), stop.clone(), lies.clone());
        let thread = thread::spawn(move || {
            let mut rng = fastrand::Rng::with_seed(seed ^ 1);
            let (mut packets, mut stormy) = (0, false);
            // Delayed packets, by direction; later packets overtake them.
            let mut late: [VecDeque<Vec<u8>>; 2] = Default::default();
            let mut buffer = vec![0; 65_536];
            while !stopped.load(Ordering::Relaxed) {
                let mut fds =
                    [0, 1].map(|i: usize| PollFd::new(tuns[i].as_fd(), PollFlags::POLLIN));
                let ready = poll(&mut fds, PollTimeout::from(20u16))?;
                let calm = calmed.load(Ordering::Relaxed);
                for from in 0..2 {
                    let to = 1 - from;
                    if ready == 0 || calm {
                        while let Some(packet) = late[from].pop_front() {
                            send(&mut tuns[to], &packet)?;
                        }
                    }
                    // At most 32 at a time, so that both directions progress.
                    for _ in 0..32 {
                        let n = match tuns[from].read(&mut buffer) {
                            Ok(n) => n,
                            Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                            Err(e) => return Err(e).context("tun"),
                        };
                        packets += 1;
                        let packet = &mut buffer[..n];
                        let fate = match calm {
                            true => Fate::Pass,
                            false => lie(packet, &mut stormy, &mut rng, &counters),
                        };
                        match fate {
                            Fate::Lose => continue,
                            Fate::Pass => send(&mut tuns[to], packet)?,
                            Fate::Double => {
                                send(&mut tuns[to], packet)?;
                                send(&mut tuns[to], packet)?;
                            }
                            Fate::Delay => late[from].push_back(packet.to_vec()),
                        }
                        if late[from].len() > 4
                            && let Some(packet) = late[from].pop_front()
                        {
                            send(&mut tuns[to], &packet)?;
                        }
                    }
                }
            }
            Ok(packets)
        });
        Self { calm, stop, lies, thread }
    }

    /// Stops the thread and returns a summary.
    fn stop(self) -> Result<String> {
        self.stop.store(true, Ordering::Relaxed);
        let packets = self.thread.join().map_err(|_| anyhow!("the path panicked"))??;
        let lies: Vec<_> = LIES
            .iter()
            .zip(self.lies.iter())
            .map(|(what, count)| format!("{what} {}", count.load(Ordering::Relaxed)))
            .collect();
        Ok(format!("{packets} packets: {}", lies.join(", ")))
    }
}

fn send(tun: &mut File, packet: &[u8]) -> Result<()> {
    match tun.write(packet) {
        Ok(_) => Ok(()),
        // The device is down or its queue full: the packet is lost.
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::InvalidInput) => Ok(()),
        Err(e) => Err(e).context("tun"),
    }
}

enum Fate {
    Pass,
    Lose,
    Double,
    Delay,
}

const IPV4_HEADER_BYTES: usize = 20;

/// Changes a packet of TCP over IPv4 at random; others pass.
fn lie(
    packet: &mut [u8],
    stormy: &mut bool,
    rng: &mut fastrand::Rng,
    lies: &[AtomicU64; LIES.len()],
) -> Fate {
    let is_tcp = packet.len() >= IPV4_HEADER_BYTES + 20
        && packet[0] == 0x45
        && i32::from(packet[9]) == libc::IPPROTO_TCP;
    if !is_tcp {
        return Fate::Pass;
    }
    let count = |lie: usize| {
        lies[lie].fetch_add(1, Ordering::Relaxed);
    };
    // Storms and lulls, so that whole windows are marked or unmarked.
    if rng.u8(..) == 0 {
        *stormy = !*stormy;
    }
    let storm = *stormy && rng.u8(..8) > 0;
    if storm || rng.u8(..10) == 0 {
        count(0);
        let ecn = [3, 3, 3, 0, 1, 2][rng.usize(..6)];
        packet[1] = packet[1] & !3 | ecn;
        put_checksum(packet, 10, 0, 0..IPV4_HEADER_BYTES);
    }
    if storm || rng.u8(..10) == 0 {
        count(1);
        let tcp = IPV4_HEADER_BYTES;
        // ECE and CWR; AE is the last bit of the byte before.
        packet[tcp + 13] = packet[tcp + 13] & 0x3f | rng.u8(..4) << 6;
        packet[tcp + 12] = packet[tcp + 12] & !1 | rng.u8(..2);
        let pseudo = pseudo_header(packet);
        let end = packet.len();
        put_checksum(packet, tcp + 16, pseudo, tcp..end);
    }
    match rng.u8(..) {
        0..4 => {
            count(2);
            Fate::Lose
        }
        4..8 => {
            count(3);
            Fate::Double
        }
        8..14 => {
            count(4);
            Fate::Delay
        }
        _ => Fate::Pass,
    }
}

/// Partial sum of addresses, protocol and length for TCP's checksum.
fn pseudo_header(packet: &[u8]) -> u32 {
    let length = (packet.len() - IPV4_HEADER_BYTES) as u32;
    sum(&packet[12..20]) + libc::IPPROTO_TCP as u32 + length
}

/// Writes the Internet checksum of `over` plus the partial sum `start` at `at`.
fn put_checksum(packet: &mut [u8], at: usize, start: u32, over: Range<usize>) {
    packet[at..at + 2].fill(0);
    let mut sum = start + sum(&packet[over]);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    packet[at..at + 2].copy_from_slice(&(!sum as u16).to_be_bytes());
}

fn sum(bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<2>();
    let last = rest.first().map_or(0, |byte| u32::from(*byte) << 8);
    let words = words.iter().map(|word| u32::from(u16::from_be_bytes(*word)));
    words.sum::<u32>() + last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_makes_the_sum_all_ones() {
        let mut packet: Vec<u8> = (0..61u8).map(|i| i.wrapping_mul(37)).collect();
        for lie in [0..IPV4_HEADER_BYTES, IPV4_HEADER_BYTES..61] {
            put_checksum(&mut packet, lie.start + 10, 0, lie.clone());
            let mut total = sum(&packet[lie]);
            while total > 0xffff {
                total = (total & 0xffff) + (total >> 16);
            }
            assert_eq!(total, 0xffff);
        }
    }
}
