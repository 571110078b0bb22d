// SPDX-License-Identifier: GPL-2.0
//! Flows with a checked payload: a seeded stream enters at one host, and the length and CRC-32 received at
//! the other are compared with those written.
//!
//! One thread and one epoll instance serve both ends of all flows.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    io::{self, ErrorKind, Read},
    net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr},
    sync::LazyLock,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use crc32fast::Hasher;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use socket2::{Domain, Protocol, Socket, Type};

use crate::{
    Storm,
    background::PATIENCE,
    net::{Pair, v4, v6},
};

/// Address family of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4 sockets.
    V4,
    /// IPv6 sockets.
    V6,
    /// IPv6 sockets with IPv4 addresses.
    Mapped,
}

impl Family {
    /// All families.
    pub const ALL: [Self; 3] = [Self::V4, Self::V6, Self::Mapped];
}

/// Parameters of a flow.
#[derive(Debug, Clone)]
pub struct Spec {
    /// TCP_CONGESTION of the sender.
    pub cc: String,
    /// Payload bytes.
    pub bytes: u64,
    /// Address family.
    pub family: Family,
    /// Bytes per burst of the application, and the pause after it.
    pub burst: Option<(u64, Duration)>,
    /// Both ends close without shutdown after this many bytes.
    pub abort_after: Option<u64>,
    /// SO_SNDBUF.
    pub sndbuf_bytes: Option<usize>,
    /// TCP_WINDOW_CLAMP of the sender, which bounds what it advertises.
    pub window_clamp_bytes: Option<u32>,
    /// TCP_MAXSEG.
    pub mss_bytes: Option<u32>,
}

impl Spec {
    /// A bulk flow.
    pub fn new(cc: &str, bytes: u64, family: Family) -> Self {
        Self {
            cc: cc.to_string(),
            bytes,
            family,
            burst: None,
            abort_after: None,
            sndbuf_bytes: None,
            window_clamp_bytes: None,
            mss_bytes: None,
        }
    }
}

/// Block that the payload repeats. A prime length makes flows with different starts differ at every offset.
const BLOCK_BYTES: usize = 65_521;

/// Two blocks, so that any piece up to a block's length is contiguous.
static STREAM: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut block = vec![0; BLOCK_BYTES];
    fastrand::Rng::with_seed(1).fill(&mut block);
    [block.clone(), block].concat()
});

/// Counts of flows.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tally {
    /// Opened flows.
    pub opened: u64,
    /// Flows that arrived complete and intact.
    pub completed: u64,
    /// Flows closed early on purpose.
    pub aborted: u64,
    /// Bytes received by all flows.
    pub bytes: u64,
}

/// One flow.
#[derive(Debug)]
pub struct Flow {
    spec: Spec,
    /// Sender, until all data has arrived.
    pub tx: Socket,
    /// Receiver, once accepted.
    pub rx: Option<Socket>,
    offset: usize,
    sent: u64,
    in_burst: u64,
    received: u64,
    tx_crc: Hasher,
    rx_crc: Hasher,
}

/// Flows between the hosts of a pair, from host 0 to host 1.
pub struct Traffic<'a> {
    pair: &'a Pair,
    epoll: Epoll,
    listeners: [Socket; 2],
    ports: [u16; 2],
    flows: HashMap<u64, Flow>,
    /// Connections not yet accepted, by the sender's address.
    waiting: HashMap<SocketAddr, u64>,
    /// Times at which paused senders continue.
    pauses: BinaryHeap<Reverse<(Instant, u64)>>,
    next: u64,
    buffer: Vec<u8>,
    /// SO_RCVLOWAT of receivers, bytes.
    pub wake_bytes: Option<i32>,
    /// Counts so far.
    pub tally: Tally,
    /// Errors of broken or damaged flows.
    pub failures: Vec<String>,
}

/// Event tokens below this belong to listeners, others to ends of flows.
const LISTENERS: u64 = 2;
/// Ports of the IPv4 and IPv6 listeners.
const PORTS: [u16; 2] = [5000, 6000];

/// Gives up if no flow makes progress for `patience`.
pub struct Watch {
    patience: Duration,
    deadline: Instant,
    /// Bytes received, and open flows.
    last: (u64, usize),
}

impl Watch {
    pub fn new(patience: Duration) -> Self {
        Self { patience, deadline: Instant::now() + patience, last: (0, 0) }
    }

    /// Fails if there was no progress for too long.
    pub fn check(&mut self, traffic: &Traffic) -> Result<()> {
        let now = (traffic.tally.bytes, traffic.flows.len());
        if now != self.last {
            self.last = now;
            self.deadline = Instant::now() + self.patience;
        } else if Instant::now() >= self.deadline {
            bail!("{} flows do not end: {}", now.1, traffic.stuck());
        }
        Ok(())
    }
}

impl<'a> Traffic<'a> {
    /// Listens at host 1.
    pub fn new(pair: &'a Pair, receiver_cc: &str) -> Result<Self> {
        Self::new_at(pair, receiver_cc, PORTS)
    }

    /// Listens at host 1 on these ports for IPv4 and IPv6, besides other listeners.
    pub fn new_at(pair: &'a Pair, receiver_cc: &str, ports: [u16; 2]) -> Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let listeners = pair.hosts[1].run(|| {
            Ok([
                listen(SocketAddr::from((Ipv4Addr::UNSPECIFIED, ports[0])), receiver_cc)?,
                listen(SocketAddr::from((Ipv6Addr::UNSPECIFIED, ports[1])), receiver_cc)?,
            ])
        })?;
        for (token, listener) in listeners.iter().enumerate() {
            epoll.add(listener, EpollEvent::new(EpollFlags::EPOLLIN, token as u64))?;
        }
        Ok(Self {
            pair,
            epoll,
            listeners,
            ports,
            flows: HashMap::new(),
            waiting: HashMap::new(),
            pauses: BinaryHeap::new(),
            next: 0,
            buffer: vec![0; BLOCK_BYTES],
            wake_bytes: None,
            tally: Tally::default(),
            failures: Vec::new(),
        })
    }

    /// Number of open flows.
    pub fn open_flows(&self) -> usize {
        self.flows.len()
    }

    /// The open flows, in any order.
    pub fn flows(&mut self) -> impl Iterator<Item = &mut Flow> {
        self.flows.values_mut()
    }

    /// A random open flow.
    pub fn any_flow(&mut self, rng: &mut fastrand::Rng) -> Option<&mut Flow> {
        let id = self.any_id(rng)?;
        self.flows.get_mut(&id)
    }

    /// Id of a random open flow.
    pub fn any_id(&self, rng: &mut fastrand::Rng) -> Option<u64> {
        let mut ids: Vec<u64> = self.flows.keys().copied().collect();
        // The map's order differs between runs.
        ids.sort_unstable();
        rng.choice(ids)
    }

    /// An open flow by id.
    pub fn flow(&self, id: u64) -> Option<&Flow> {
        self.flows.get(&id)
    }

    /// Continues a flow on another socket of the same connection.
    pub fn replace_tx(&mut self, id: u64, tx: Socket) -> Result<()> {
        let flow = self.flows.get_mut(&id).context("no such flow")?;
        self.epoll.add(&tx, EpollEvent::new(EpollFlags::EPOLLOUT, token(id, Side::Tx)))?;
        flow.tx = tx;
        Ok(())
    }

    /// Number of flows not yet accepted.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Ends all pauses, including later ones.
    pub fn resume_all(&mut self) -> Result<()> {
        for flow in self.flows.values_mut() {
            flow.spec.burst = None;
        }
        self.next_burst()
    }

    /// Ends the current pauses.
    pub fn next_burst(&mut self) -> Result<()> {
        self.pauses.clear();
        for (id, flow) in &mut self.flows {
            flow.in_burst = 0;
            let mut event = EpollEvent::new(EpollFlags::EPOLLOUT, token(*id, Side::Tx));
            self.epoll.modify(&flow.tx, &mut event)?;
        }
        Ok(())
    }

    /// Starts to open a flow; errors appear in later steps.
    pub fn open(&mut self, spec: Spec) -> Result<()> {
        let tx = self.pair.hosts[0].run(|| connect(&spec, self.ports))?;
        let address = tx.local_addr()?.as_socket().context("no address")?;
        let id = self.next;
        self.next += 1;
        self.epoll.add(&tx, EpollEvent::new(EpollFlags::EPOLLOUT, token(id, Side::Tx)))?;
        self.waiting.insert(address, id);
        self.flows.insert(
            id,
            Flow {
                spec,
                tx,
                rx: None,
                offset: (id as usize).wrapping_mul(7_919) % BLOCK_BYTES,
                sent: 0,
                in_burst: 0,
                received: 0,
                tx_crc: Hasher::new(),
                rx_crc: Hasher::new(),
            },
        );
        self.tally.opened += 1;
        Ok(())
    }

    /// Waits at most `patience` for events, and handles them.
    pub fn step(&mut self, patience: Duration) -> Result<()> {
        let now = Instant::now();
        let wait = match self.pauses.peek() {
            Some(Reverse((until, _))) => until.saturating_duration_since(now).min(patience),
            None => patience,
        };
        // Rounded up: a shorter wait would loop without advancing virtual time.
        let wait_ms = wait.as_micros().div_ceil(1_000) as u64;
        let timeout = EpollTimeout::try_from(Duration::from_millis(wait_ms))?;
        let mut events = [EpollEvent::empty(); 256];
        let n = match self.epoll.wait(&mut events, timeout) {
            Err(nix::errno::Errno::EINTR) => 0,
            other => other?,
        };
        for event in &events[..n] {
            match event.data() {
                listener if listener < LISTENERS => self.accept(listener as usize)?,
                data => {
                    let (id, side) = flow_of(data);
                    let outcome = match (self.flows.get_mut(&id), side) {
                        // An earlier event of this round ended the flow.
                        (None, _) => continue,
                        (Some(flow), Side::Tx) => flow.write(),
                        (Some(flow), Side::Rx) => {
                            let before = flow.received;
                            let outcome = flow.read(&mut self.buffer);
                            self.tally.bytes += flow.received - before;
                            outcome
                        }
                    };
                    self.proceed(id, outcome)?;
                }
            }
        }
        let now = Instant::now();
        while let Some(Reverse((until, id))) = self.pauses.peek().copied() {
            if until > now {
                break;
            }
            self.pauses.pop();
            if let Some(flow) = self.flows.get_mut(&id) {
                flow.in_burst = 0;
                let mut event = EpollEvent::new(EpollFlags::EPOLLOUT, token(id, Side::Tx));
                self.epoll.modify(&flow.tx, &mut event)?;
            }
        }
        Ok(())
    }

    /// Steps until no flow is open; fails without progress for `patience`.
    pub fn drain(&mut self, patience: Duration) -> Result<()> {
        let mut watch = Watch::new(patience);
        while !self.flows.is_empty() {
            self.step(Duration::from_millis(500))?;
            watch.check(self)?;
        }
        Ok(())
    }

    /// Closes all flows immediately.
    pub fn abandon(&mut self) {
        self.tally.aborted += self.flows.len() as u64;
        self.flows.clear();
        self.waiting.clear();
    }

    /// Fails unless every ended flow arrived complete, and at least one ended.
    pub fn verdict(&self) -> Result<()> {
        ensure!(
            self.failures.is_empty(),
            "{} flows failed, the first: {}",
            self.failures.len(),
            self.failures[0]
        );
        ensure!(self.tally.completed > 0, "no flow completed");
        Ok(())
    }

    fn stuck(&self) -> String {
        let flow = self.flows.values().next();
        flow.map_or(String::new(), |flow| {
            format!(
                "one of {} over {:?} has sent {} of {} bytes and received {}{}",
                flow.spec.cc,
                flow.spec.family,
                flow.sent,
                flow.spec.bytes,
                flow.received,
                if flow.rx.is_none() { ", never accepted" } else { "" }
            )
        })
    }

    fn accept(&mut self, listener: usize) -> Result<()> {
        loop {
            let (socket, address) = match self.listeners[listener].accept() {
                Ok(accepted) => accepted,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                // The connection was reset before accept().
                Err(e) if e.kind() == ErrorKind::ConnectionAborted => continue,
                Err(e) => return Err(e).context("accept"),
            };
            socket.set_nonblocking(true)?;
            if let Some(bytes) = self.wake_bytes {
                crate::sys::set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVLOWAT, bytes)?;
            }
            let address = address.as_socket().context("no address")?;
            // None: the sender has closed already.
            let Some(id) = self.waiting.remove(&address) else {
                continue;
            };
            if let Some(flow) = self.flows.get_mut(&id) {
                let event = EpollEvent::new(EpollFlags::EPOLLIN, token(id, Side::Rx));
                self.epoll.add(&socket, event)?;
                flow.rx = Some(socket);
            }
        }
    }

    fn proceed(&mut self, id: u64, outcome: io::Result<Next>) -> Result<()> {
        match outcome {
            Ok(Next::Continue) => {}
            Ok(Next::Pause(pause)) => {
                let flow = &self.flows[&id];
                let mut event = EpollEvent::new(EpollFlags::empty(), token(id, Side::Tx));
                self.epoll.modify(&flow.tx, &mut event)?;
                if let Some(pause) = pause {
                    self.pauses.push(Reverse((Instant::now() + pause, id)));
                }
            }
            Ok(Next::Abort) => {
                self.tally.aborted += 1;
                self.forget(id);
            }
            Ok(Next::End) => {
                if let Some(flow) = self.forget(id) {
                    match flow.check() {
                        Ok(()) => self.tally.completed += 1,
                        Err(e) => self.failures.push(format!("{e:#}")),
                    }
                }
            }
            Err(e) => {
                if let Some(flow) = self.forget(id) {
                    let Spec { cc, family, .. } = &flow.spec;
                    self.failures.push(format!(
                        "{cc} over {family:?}, {} bytes sent, {} received: {e}",
                        flow.sent, flow.received
                    ));
                }
            }
        }
        Ok(())
    }

    fn forget(&mut self, id: u64) -> Option<Flow> {
        let flow = self.flows.remove(&id)?;
        if flow.rx.is_none() {
            self.waiting.retain(|_, waiting| *waiting != id);
        }
        Some(flow)
    }
}

/// Flows that stay open during changes to their hosts.
pub struct Load<'a> {
    debug: bool,
    families: &'static [Family],
    /// The open flows.
    pub traffic: Traffic<'a>,
}

impl<'a> Load<'a> {
    /// Creates a load without flows.
    pub fn new(storm: &Storm, pair: &'a Pair, families: &'static [Family]) -> Result<Self> {
        Ok(Self { debug: storm.debug, families, traffic: Traffic::new(pair, "cubic")? })
    }

    /// Opens missing flows and moves some packets. The route must exist.
    pub fn refill(&mut self) -> Result<()> {
        const FLOWS: usize = 6;
        let bytes = if self.debug { 60_000 } else { 400_000 };
        while self.traffic.open_flows() < FLOWS {
            let family = self.families[self.traffic.tally.opened as usize % self.families.len()];
            self.traffic.open(Spec::new("cubic", bytes, family))?;
        }
        self.step()
    }

    /// Moves some packets.
    pub fn step(&mut self) -> Result<()> {
        for _ in 0..3 {
            self.traffic.step(Duration::from_millis(2))?;
        }
        Ok(())
    }

    /// Waits until every byte has arrived.
    pub fn end(mut self) -> Result<()> {
        self.traffic.drain(PATIENCE)?;
        self.traffic.verdict()?;
        ensure!(self.traffic.tally.completed > 0, "no flow completed");
        Ok(())
    }
}

/// Next action for an end of a flow.
enum Next {
    Continue,
    /// The sender pauses for this long; None: until the end.
    Pause(Option<Duration>),
    Abort,
    End,
}

impl Flow {
    /// Bytes not yet written.
    pub fn remaining(&self) -> u64 {
        self.spec.bytes - self.sent
    }

    fn write(&mut self) -> io::Result<Next> {
        // Reports a refused connection. Once data is sent, SO_ERROR also reports a briefly missing route
        // (sk_err_soft), which ends nothing.
        if self.sent == 0
            && let Some(error) = self.tx.take_error()?
        {
            return Err(error);
        }
        loop {
            if self.spec.abort_after.is_some_and(|bytes| self.sent >= bytes) {
                return Ok(Next::Abort);
            }
            let mut room = self.remaining();
            if room == 0 {
                self.tx.shutdown(Shutdown::Write)?;
                return Ok(Next::Pause(None));
            }
            if let Some((burst_bytes, pause)) = self.spec.burst {
                if self.in_burst >= burst_bytes {
                    return Ok(Next::Pause(Some(pause)));
                }
                room = room.min(burst_bytes - self.in_burst);
            }
            let start = (self.offset + (self.sent % BLOCK_BYTES as u64) as usize) % BLOCK_BYTES;
            let length = room.min(BLOCK_BYTES as u64) as usize;
            let piece = &STREAM[start..start + length];
            let sent = match self.tx.send_with_flags(piece, libc::MSG_NOSIGNAL) {
                Ok(sent) => sent,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(Next::Continue),
                Err(e) => return Err(e),
            };
            self.tx_crc.update(&piece[..sent]);
            self.sent += sent as u64;
            self.in_burst += sent as u64;
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<Next> {
        let Some(rx) = &self.rx else {
            return Ok(Next::Continue);
        };
        loop {
            match (&*rx).read(buffer) {
                Ok(0) => return Ok(Next::End),
                Ok(n) => {
                    self.rx_crc.update(&buffer[..n]);
                    self.received += n as u64;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(Next::Continue),
                Err(e) => return Err(e),
            }
        }
    }

    fn check(&self) -> Result<()> {
        let Spec { cc, family, bytes, .. } = &self.spec;
        ensure!(
            self.received == *bytes,
            "{cc} over {family:?}: {} of {bytes} bytes arrived",
            self.received
        );
        ensure!(
            self.rx_crc.clone().finalize() == self.tx_crc.clone().finalize(),
            "{cc} over {family:?}: {bytes} bytes arrived, but they differ from those sent"
        );
        Ok(())
    }
}

#[derive(Clone, Copy)]
enum Side {
    Tx,
    Rx,
}

fn token(id: u64, side: Side) -> u64 {
    LISTENERS + id * 2 + side as u64
}

fn flow_of(token: u64) -> (u64, Side) {
    let side = if token.is_multiple_of(2) { Side::Tx } else { Side::Rx };
    ((token - LISTENERS) / 2, side)
}

/// A nonblocking TCP socket in the thread's namespace.
pub fn tcp_socket(domain: Domain) -> Result<Socket> {
    Socket::new(domain, Type::STREAM.nonblocking().cloexec(), Some(Protocol::TCP))
        .context("cannot open a TCP socket")
}

fn listen(address: SocketAddr, cc: &str) -> Result<Socket> {
    let socket = tcp_socket(Domain::for_address(address))?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.set_tcp_congestion(cc.as_bytes()).with_context(|| format!("TCP_CONGESTION {cc}"))?;
    // An earlier listener may have left sockets in TIME_WAIT.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(8192)?;
    Ok(socket)
}

fn connect(spec: &Spec, ports: [u16; 2]) -> Result<Socket> {
    let to = match spec.family {
        Family::V4 => SocketAddr::from((v4(1), ports[0])),
        Family::V6 => SocketAddr::from((v6(1), ports[1])),
        Family::Mapped => SocketAddr::from((v4(1).to_ipv6_mapped(), ports[1])),
    };
    let socket = tcp_socket(Domain::for_address(to))?;
    socket
        .set_tcp_congestion(spec.cc.as_bytes())
        .with_context(|| format!("TCP_CONGESTION {}", spec.cc))?;
    if let Some(bytes) = spec.sndbuf_bytes {
        socket.set_send_buffer_size(bytes)?;
    }
    if let Some(bytes) = spec.mss_bytes {
        socket.set_tcp_mss(bytes)?;
    }
    if let Some(bytes) = spec.window_clamp_bytes {
        crate::sys::set_option(&socket, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, bytes as i32)?;
    }
    match socket.connect(&to.into()) {
        Ok(()) => {}
        Err(e) if e.raw_os_error() == Some(libc::EINPROGRESS) => {}
        Err(e) => return Err(e).with_context(|| format!("connect to {to}")),
    }
    Ok(socket)
}
