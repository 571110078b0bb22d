// SPDX-License-Identifier: GPL-2.0
//! Continuous dumps as by ss: every TCP socket in every state, with every block of information.
//!
//! Some connections never complete, so that SYN_SENT and SYN_RECV always occur.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use nix::time::{ClockId, clock_gettime};
use socket2::{Domain, Socket};
use xdc_netlink::{
    Connection, attributes,
    link::{self, RouteMetrics},
};

use crate::{
    flow::tcp_socket,
    net::{DEVICE, Pair, v4},
    raw::Netlink,
};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const ALL_STATES: u32 = u32::MAX;
const ALL_BLOCKS: u8 = u8::MAX;
/// Length of `struct inet_diag_msg`; its second byte is the state.
const MESSAGE_BYTES: usize = 72;
const INET_DIAG_CONG: u16 = 4;
const INET_DIAG_DCTCPINFO: u16 = 9;
const DCTCPINFO_BYTES: usize = 16;
const TCP_SYN_SENT: usize = 2;
const TCP_SYN_RECV: usize = 3;
const TCP_TIME_WAIT: usize = 6;
const TCP_NEW_SYN_RECV: usize = 12;

/// Limit of further dumps after a storm that was too short for a SYN to arrive on a slow host.
const MORE: u32 = 100;

/// Contents of the dumps.
#[derive(Debug, Clone, Copy, Default)]
pub struct Seen {
    /// Number of dumps.
    pub dumps: u64,
    /// Sockets in all dumps.
    pub sockets: u64,
    /// Sockets by state.
    pub by_state: [u64; 16],
    /// DCTCP blocks, in which unocc and gemini report their state.
    pub dctcp_blocks: u64,
}

impl Seen {
    /// Summary for the log.
    pub fn text(&self) -> String {
        format!(
            "inet_diag: {} dumps, {} sockets, {} in TIME_WAIT, {} in SYN_SENT, {} in SYN_RECV, {} blocks of DCTCP",
            self.dumps,
            self.sockets,
            self.by_state[TCP_TIME_WAIT],
            self.by_state[TCP_SYN_SENT],
            self.syn_recv(),
            self.dctcp_blocks
        )
    }

    fn syn_recv(&self) -> u64 {
        self.by_state[TCP_SYN_RECV] + self.by_state[TCP_NEW_SYN_RECV]
    }

    /// Returns whether both ends of half-open connections were seen.
    fn has_half_open(&self) -> bool {
        self.by_state[TCP_SYN_SENT] > 0 && self.syn_recv() > 0
    }

    /// Fails unless every rare state was seen.
    pub fn check(&self) -> Result<()> {
        let all = self.by_state[TCP_TIME_WAIT] > 0 && self.has_half_open();
        ensure!(all, "{}", self.text());
        Ok(())
    }
}

/// A dumping thread.
pub struct Diag {
    thread: Option<JoinHandle<Result<Seen>>>,
    stop: Arc<AtomicBool>,
}

impl Diag {
    /// Starts to dump both hosts, with `pause` after each dump. `cc` is the congestion control of the
    /// half-open connections; None: a link without Ethernet addresses, on which they would complete.
    pub fn start(pair: &Arc<Pair>, cc: Option<&'static str>, pause: Duration) -> Self {
        let (pair, stop) = (pair.clone(), Arc::new(AtomicBool::new(false)));
        let stopped = stop.clone();
        let thread = thread::spawn(move || {
            let mut sockets = Vec::new();
            for host in &pair.hosts {
                sockets.push(host.run(|| Netlink::open(libc::NETLINK_SOCK_DIAG))?);
            }
            let mut seen = Seen::default();
            let mut half_open = cc.map(|cc| HalfOpen::new(&pair, cc)).transpose()?;
            let mut more = MORE;
            // The last dump starts after the storm, while sockets are still in TIME_WAIT (a minute).
            let mut is_last = false;
            while !is_last {
                if stopped.load(Ordering::Relaxed) {
                    is_last = half_open.is_none() || seen.has_half_open() || more == 0;
                    more = more.saturating_sub(1);
                }
                if let Some(half_open) = &mut half_open
                    && seen.dumps.is_multiple_of(RENEWAL)
                {
                    half_open.renew(&pair)?;
                }
                let start = cpu_time()?;
                for socket in &mut sockets {
                    for family in [libc::AF_INET, libc::AF_INET6] {
                        dump(socket, family as u8, &mut seen)?;
                    }
                }
                // At most a tenth of a slow guest's CPU.
                if !is_last {
                    thread::sleep(pause.max((cpu_time()? - start) * 10));
                }
            }
            Ok(seen)
        });
        Self { thread: Some(thread), stop }
    }

    /// Stops the thread.
    pub fn stop(mut self) -> Result<Seen> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().context("stopped twice")?;
        thread.join().map_err(|_| anyhow!("the dumps panicked"))?
    }
}

impl Drop for Diag {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// CPU time of this thread; zero in virtual time.
fn cpu_time() -> Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?.into())
}

/// Address of the sending host that the receiving host resolves to a wrong MAC address.
const MISLED: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 99);
/// Dumps between renewals: older connections may have timed out.
const RENEWAL: u64 = 400;

/// Connections whose SYN arrives and whose SYN-ACK is lost.
struct HalfOpen {
    cc: &'static str,
    listener: Socket,
    sockets: Vec<Socket>,
}

impl HalfOpen {
    const COUNT: usize = 4;

    fn new(pair: &Pair, cc: &'static str) -> Result<Self> {
        pair.hosts[0]
            .run(|| Ok(Connection::open()?.request(link::add_address(DEVICE, MISLED, 32))?))?;
        let listener = pair.hosts[1].run(|| {
            let metrics = RouteMetrics::default();
            Connection::open()?.batch([
                link::add_neighbour(DEVICE, MISLED, [2, 0, 0, 0, 0, 99]),
                link::add_host_route(MISLED, DEVICE, v4(1), &metrics),
            ])?;
            let listener = tcp_socket(Domain::IPV4)?;
            listener.set_tcp_congestion(cc.as_bytes())?;
            listener.bind(&SocketAddr::from((v4(1), 0)).into())?;
            listener.listen(4 * Self::COUNT as i32)?;
            Ok(listener)
        })?;
        Ok(Self { cc, listener, sockets: Vec::new() })
    }

    fn renew(&mut self, pair: &Pair) -> Result<()> {
        let to = self.listener.local_addr()?;
        let connect = || {
            let socket = tcp_socket(Domain::IPV4)?;
            socket.set_tcp_congestion(self.cc.as_bytes())?;
            socket.bind(&SocketAddr::from((MISLED, 0)).into())?;
            match socket.connect(&to) {
                Err(e) if e.raw_os_error() == Some(libc::EINPROGRESS) => Ok(socket),
                other => bail!("unexpected result of connect: {other:?}"),
            }
        };
        self.sockets =
            pair.hosts[0].run(|| (0..Self::COUNT).map(|_| connect()).collect::<Result<_>>())?;
        Ok(())
    }
}

/// Dumps the sockets of one address family.
pub fn dump(socket: &mut Netlink, family: u8, seen: &mut Seen) -> Result<()> {
    // struct inet_diag_req_v2: family, protocol, blocks, pad, states, id.
    let mut request = vec![family, libc::IPPROTO_TCP as u8, ALL_BLOCKS, 0];
    request.extend_from_slice(&ALL_STATES.to_ne_bytes());
    request.resize(56, 0);
    seen.sockets += socket.dump(SOCK_DIAG_BY_FAMILY, &request, |body| {
        ensure!(body.len() >= MESSAGE_BYTES, "truncated inet_diag_msg");
        let state = usize::from(body[1]);
        *seen.by_state.get_mut(state).context("unknown state")? += 1;
        for attribute in attributes::parse(&body[MESSAGE_BYTES..]) {
            let (id, value) = attribute?;
            match id {
                INET_DIAG_CONG => check_name(&value)?,
                INET_DIAG_DCTCPINFO => {
                    ensure!(value.len() == DCTCPINFO_BYTES, "truncated DCTCP block");
                    seen.dctcp_blocks += 1;
                }
                _ => {}
            }
        }
        Ok(())
    })?;
    seen.dumps += 1;
    Ok(())
}

/// Checks that a name is printable and null-terminated.
fn check_name(value: &[u8]) -> Result<()> {
    let name = value.split(|byte| *byte == 0).next().unwrap_or(value);
    let is_text = name.iter().all(u8::is_ascii_graphic);
    ensure!(
        is_text && !name.is_empty() && name.len() < value.len(),
        "invalid name of a congestion control: {value:?}"
    );
    Ok(())
}
