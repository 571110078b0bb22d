// SPDX-License-Identifier: GPL-2.0
//! The flows: receivers, timers and measurements in one thread and one epoll; senders in a thread
//! each, blocked in the kernel.
//!
//! A wake-up of this process is the expensive thing in virtual time, so a sender spends its flow
//! in one system call that only the kernel wakes, and receivers ask to be woken for large pieces
//! only and drop what came without copying it. What is measured comes from TCP_INFO, not from these wake-ups.

use std::{
    cmp::Reverse,
    collections::BTreeSet,
    fs::File,
    io,
    net::{Shutdown, SocketAddrV4},
    os::fd::AsRawFd,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use nix::{
    sys::{
        epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout},
        sendfile::sendfile,
        socket::shutdown,
        time::TimeSpec,
        timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags},
    },
    time::{ClockNanosleepFlags, clock_gettime, clock_nanosleep},
};
use socket2::Socket;
use xdc_proto::{FIRST_PORT, Flow, FlowResult, FlowSample, Message, RunPlan, Sample};

use crate::{
    capture::Capture,
    channel::Channel,
    network::Network,
    rng::Rng,
    socket::{self, TcpInfo, TcpOptions, tcp_info},
    watch::{Suspects, Watch},
};

const NS_PER_US: u64 = 1000;

/// Most payload in one system call: below what sendfile takes at most, 2 GiB less a page.
const SEND_BYTES: u64 = 1 << 30;

/// A receiver is woken for a quarter of its buffer, up to this. With an autotuned buffer it is
/// [`AUTOTUNED_WAKE_BYTES`]: more would make the kernel grow the buffer.
const MAX_WAKE_BYTES: u64 = 8 << 20;
const AUTOTUNED_WAKE_BYTES: u64 = 64 << 10;

/// A connection is made this much before its flow starts, beyond a few RTTs.
const CONNECT_LEAD_NS: u64 = 5_000_000;

/// Time without a byte anywhere after which the run is given up: beyond TCP's longest timeout.
const STALL_US: u64 = 300_000_000;

/// Steps of the progress line.
const PROGRESS_STEP: f64 = 0.05;

/// Runs the traffic of a plan and reports it; returns how long it took, us.
pub fn run(network: &Network, run: &RunPlan, channel: &mut Channel) -> Result<u64> {
    Traffic::prepare(network, run)?.run(network, channel)
}

/// Whose event it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Timer,
    Listener(usize),
    Sender(usize),
    Receiver(usize),
}

impl Source {
    const KINDS: u64 = 4;

    fn token(self) -> u64 {
        match self {
            Source::Timer => 0,
            Source::Listener(flow) => flow as u64 * Self::KINDS + 1,
            Source::Sender(flow) => flow as u64 * Self::KINDS + 2,
            Source::Receiver(flow) => flow as u64 * Self::KINDS + 3,
        }
    }

    fn of(token: u64) -> Self {
        let flow = (token / Self::KINDS) as usize;
        match token % Self::KINDS {
            0 => Source::Timer,
            1 => Source::Listener(flow),
            2 => Source::Sender(flow),
            _ => Source::Receiver(flow),
        }
    }
}

/// What happens to a flow at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Action {
    Connect,
    Start,
    /// Index in the flow's switches.
    Switch(usize),
}

/// One flow and its sockets, which stay open to the end: TCP_INFO goes with them.
struct Transfer<'a> {
    plan: &'a Flow,
    destination: SocketAddrV4,
    sender: Socket,
    listener: Socket,
    receiver: Option<Socket>,
    /// The thread that writes the payload, once the flow has started.
    sending: Option<JoinHandle<nix::Result<()>>>,
    start_us: Option<u64>,
    end_us: Option<u64>,
    last: FlowSample,
}

struct Traffic<'a> {
    run: &'a RunPlan,
    transfers: Vec<Transfer<'a>>,
    watches: Vec<Watch>,
    captures: Vec<Capture>,
    suspects: Suspects,
    payload: Arc<File>,
    epoll: Epoll,
    timer: TimerFd,
    /// (time, what, flow), the next one last.
    agenda: Vec<(u64, Action, usize)>,
    /// CLOCK_MONOTONIC at the start of the traffic, ns.
    origin_ns: u64,
    unfinished: usize,
    reported: f64,
}

impl<'a> Traffic<'a> {
    /// Opens all sockets and writes the agenda.
    fn prepare(network: &Network, run: &'a RunPlan) -> Result<Self> {
        let endless = run.flows.iter().any(|flow| flow.bytes == 0);
        ensure!(
            !endless || run.stop_after_us.is_some(),
            "a flow without bytes needs a time to stop the run"
        );
        ensure!(run.sample_us > 0, "the sampling time must not be 0");
        ensure!(
            run.flows.len() <= usize::from(u16::MAX - FIRST_PORT),
            "more flows than ports: at most {} are possible",
            u16::MAX - FIRST_PORT
        );

        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context("epoll")?;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_CLOEXEC)
            .context("cannot create a timer")?;
        // Edge-triggered: setting it again is all that an expiry needs.
        epoll
            .add(
                &timer,
                EpollEvent::new(
                    EpollFlags::EPOLLIN | EpollFlags::EPOLLET,
                    Source::Timer.token(),
                ),
            )
            .context("epoll")?;

        let mut transfers = Vec::new();
        for (i, flow) in run.flows.iter().enumerate() {
            let transfer = Transfer::open(network, run, flow, i).with_context(|| name(i, flow))?;
            watch_events(
                &epoll,
                &transfer.listener,
                Source::Listener(i),
                EpollFlags::EPOLLIN,
            )?;
            transfers.push(transfer);
        }
        let watches = run.watch.iter().map(|watched| Watch::new(network, watched));
        let watches = watches.collect::<Result<_>>()?;
        let suspects = Suspects::read(network, endpoints(network, run)?)?;
        let captured = run.watch.iter().filter(|_| run.capture);
        let captures = captured.map(|watched| Capture::start(network, watched));
        let captures = captures.collect::<Result<_>>()?;

        let lead_ns = CONNECT_LEAD_NS + 4 * slowest_rtt_ns(run);
        let origin_ns = now_ns()? + lead_ns;
        let mut rng = Rng::new(run.seed);
        let mut agenda = Vec::new();
        for (i, flow) in run.flows.iter().enumerate() {
            let start_us = flow.start_us + rng.up_to(flow.start_jitter_us);
            let start_ns = origin_ns + start_us * NS_PER_US;
            agenda.push((start_ns - lead_ns, Action::Connect, i));
            agenda.push((start_ns, Action::Start, i));
            for (n, switch) in flow.switches.iter().enumerate() {
                let at_ns = start_ns + switch.after_us * NS_PER_US;
                agenda.push((at_ns, Action::Switch(n), i));
            }
        }
        agenda.sort_by_key(|entry| Reverse(*entry));

        Ok(Self {
            run,
            unfinished: transfers.len(),
            transfers,
            watches,
            captures,
            suspects,
            payload: Arc::new(open_payload()?),
            epoll,
            timer,
            agenda,
            origin_ns,
            reported: 0.0,
        })
    }

    fn run(mut self, network: &Network, channel: &mut Channel) -> Result<u64> {
        let period_ns = self.run.sample_us * NS_PER_US;
        let stop_ns = self
            .run
            .stop_after_us
            .map_or(u64::MAX, |us| self.origin_ns + us * NS_PER_US);
        let mut sample_ns = self.origin_ns + period_ns;
        let mut moved = (0, 0);
        let mut events = vec![EpollEvent::empty(); 256];
        loop {
            let now = now_ns()?;
            if self.unfinished == 0 || now >= stop_ns {
                break;
            }
            self.act(now)?;
            if now >= sample_ns {
                let sample = self.sample(now)?;
                moved = check_progress(&sample, moved)?;
                self.report_progress(&sample, channel)?;
                channel.send(&Message::Sample(sample))?;
                sample_ns += (now - sample_ns) / period_ns * period_ns + period_ns;
            }
            let next_action = self.agenda.last().map_or(u64::MAX, |(at, ..)| *at);
            self.set_timer(sample_ns.min(stop_ns).min(next_action))?;
            let woken = self.epoll.wait(&mut events, EpollTimeout::NONE);
            for event in &events[..woken.or_else(ignore_interrupt)?] {
                self.handle(Source::of(event.data()))?;
            }
        }
        self.report(network, channel)
    }

    /// Does what the agenda has for now.
    fn act(&mut self, now: u64) -> Result<()> {
        while let Some(&(at, action, flow)) = self.agenda.last()
            && at <= now
        {
            self.agenda.pop();
            match action {
                Action::Connect => self.connect(flow)?,
                Action::Start => {
                    self.transfers[flow].start_us = Some(self.us_since_start(now));
                    self.send(flow)?;
                }
                Action::Switch(n) => self.switch(flow, n)?,
            }
        }
        Ok(())
    }

    fn connect(&mut self, flow: usize) -> Result<()> {
        let transfer = &self.transfers[flow];
        match transfer.sender.connect(&transfer.destination.into()) {
            Ok(()) => {}
            Err(e) if e.raw_os_error() == Some(libc::EINPROGRESS) => {}
            Err(e) => return Err(e).with_context(|| name(flow, transfer.plan)),
        }
        // Errors and hang-ups are always reported.
        watch_events(
            &self.epoll,
            &transfer.sender,
            Source::Sender(flow),
            EpollFlags::empty(),
        )
    }

    fn switch(&mut self, flow: usize, n: usize) -> Result<()> {
        let transfer = &self.transfers[flow];
        socket::set_congestion_control(&transfer.sender, &transfer.plan.switches[n].cc)
            .with_context(|| name(flow, transfer.plan))
    }

    fn handle(&mut self, source: Source) -> Result<()> {
        match source {
            Source::Timer => Ok(()),
            Source::Listener(flow) => self.accept(flow),
            Source::Sender(flow) => self.sender_failed(flow),
            Source::Receiver(flow) => self.receive(flow),
        }
    }

    fn accept(&mut self, flow: usize) -> Result<()> {
        let transfer = &mut self.transfers[flow];
        let (receiver, _) = transfer
            .listener
            .accept()
            .with_context(|| name(flow, transfer.plan))?;
        socket::set_wake_bytes(&receiver, wake_bytes(transfer.plan.rcvbuf_bytes))
            .context("cannot set SO_RCVLOWAT")?;
        watch_events(
            &self.epoll,
            &receiver,
            Source::Receiver(flow),
            EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP,
        )?;
        transfer.receiver = Some(receiver);
        Ok(())
    }

    /// Starts the thread that writes the flow's payload.
    fn send(&mut self, flow: usize) -> Result<()> {
        let transfer = &mut self.transfers[flow];
        let failed = || name(flow, transfer.plan);
        let sender = transfer.sender.try_clone().with_context(failed)?;
        sender.set_nonblocking(false).with_context(failed)?;
        let payload = Arc::clone(&self.payload);
        let application = Application::new(transfer.plan, now_ns()?);
        transfer.sending = Some(thread::spawn(move || {
            let sent = application.send(&sender, &payload);
            if sent.is_err() {
                // The main thread hears of a hang-up.
                let _ = sender.shutdown(Shutdown::Both);
            }
            sent
        }));
        Ok(())
    }

    /// The sender's end reported an error or a hang-up before the flow was complete.
    fn sender_failed(&mut self, flow: usize) -> Result<()> {
        let transfer = &mut self.transfers[flow];
        let name = name(flow, transfer.plan);
        if let Some(error) = transfer.sender.take_error()? {
            return Err(error).context(name);
        }
        let sending = transfer.sending.take().map(JoinHandle::join);
        match sending {
            Some(Ok(Err(error))) => Err(error).context(name),
            _ => bail!("{name} was closed before it was complete"),
        }
    }

    /// Drops what has arrived; at the end of the stream the flow is complete.
    fn receive(&mut self, flow: usize) -> Result<()> {
        let transfer = &mut self.transfers[flow];
        let Some(receiver) = &transfer.receiver else {
            return Ok(());
        };
        match socket::discard(receiver) {
            Ok(0) => {}
            Ok(_) => return Ok(()),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(e) => return Err(e).with_context(|| name(flow, transfer.plan)),
        }
        self.epoll.delete(receiver).context("epoll")?;
        // The sender's end hangs up too from here on.
        self.epoll.delete(&transfer.sender).context("epoll")?;
        let now = now_ns()?;
        transfer.end_us = Some((now - self.origin_ns) / NS_PER_US);
        self.unfinished -= 1;
        Ok(())
    }

    fn sample(&mut self, now: u64) -> Result<Sample> {
        for transfer in &mut self.transfers {
            transfer.update()?;
        }
        let queues = self.watches.iter_mut().map(Watch::sample);
        let queues = queues.collect::<Result<_>>()?;
        Ok(Sample {
            t_us: self.us_since_start(now),
            flows: self.transfers.iter().map(|t| t.last).collect(),
            queues,
        })
    }

    /// Tells how far the run is, in steps.
    fn report_progress(&mut self, sample: &Sample, channel: &mut Channel) -> Result<()> {
        let by_time = self
            .run
            .stop_after_us
            .map_or(0.0, |stop_us| sample.t_us as f64 / stop_us as f64);
        let expected: u64 = self.run.flows.iter().map(|flow| flow.bytes).sum();
        let received: u64 = sample.flows.iter().map(|flow| flow.received_bytes).sum();
        let by_bytes = match self.run.flows.iter().all(|flow| flow.bytes > 0) {
            true => received as f64 / expected as f64,
            false => 0.0,
        };
        let done = by_time.max(by_bytes);
        if done < self.reported + PROGRESS_STEP {
            return Ok(());
        }
        self.reported = done;
        channel.send(&Message::Progress {
            what: format!("{} flows", self.unfinished),
            done: done.min(1.0),
        })
    }

    /// The last sample and the results.
    fn report(mut self, network: &Network, channel: &mut Channel) -> Result<u64> {
        let now = now_ns()?;
        let last = self.sample(now)?;
        channel.send(&Message::Sample(last))?;
        if self.unfinished == 0 {
            // The senders' counters are complete when the last ACKs have come home.
            thread::sleep(Duration::from_nanos(2 * slowest_rtt_ns(self.run)));
        }
        for (flow, transfer) in self.transfers.iter().enumerate() {
            channel.send(&Message::Flow(transfer.result(flow)?))?;
        }
        for (queue, capture) in self.captures.iter().enumerate() {
            capture.report(queue, channel)?;
        }
        for (queue, watch) in self.watches.iter_mut().enumerate() {
            channel.send(&Message::Queue(watch.result(queue)?))?;
        }
        let after = Suspects::read(network, endpoints(network, self.run)?)?;
        for (counter, delta) in after.since(&self.suspects) {
            channel.send(&Message::Suspect {
                counter: counter.to_string(),
                delta,
            })?;
        }
        Ok(self.us_since_start(now))
    }

    fn set_timer(&self, at_ns: u64) -> Result<()> {
        self.timer
            .set(
                Expiration::OneShot(timespec(at_ns)),
                TimerSetTimeFlags::TFD_TIMER_ABSTIME,
            )
            .context("cannot set the timer")
    }

    fn us_since_start(&self, now: u64) -> u64 {
        now.saturating_sub(self.origin_ns) / NS_PER_US
    }
}

impl<'a> Transfer<'a> {
    /// Opens the two ends of a flow in their namespaces.
    fn open(network: &Network, run: &'a RunPlan, plan: &'a Flow, flow: usize) -> Result<Self> {
        let port = FIRST_PORT + flow as u16;
        let open = |host: &str, cc: &'a Option<String>| {
            let node = network.layout.node(host)?;
            let options = TcpOptions {
                congestion_control: cc.as_deref().unwrap_or(&run.cc),
                sndbuf_bytes: plan.sndbuf_bytes,
                rcvbuf_bytes: plan.rcvbuf_bytes,
                local: SocketAddrV4::new(network.address(node)?, port),
            };
            let socket = network.inside(node, || options.open())?;
            anyhow::Ok((socket, options.local))
        };
        let (sender, _) = open(&plan.src, &plan.cc)?;
        let (listener, destination) = open(&plan.dst, &plan.receiver_cc)?;
        listener.listen(1).context("cannot listen")?;
        Ok(Self {
            plan,
            destination,
            sender,
            listener,
            receiver: None,
            sending: None,
            start_us: None,
            end_us: None,
            last: FlowSample::default(),
        })
    }

    /// Payload received so far. TCP counts the FIN, which is no payload.
    fn received_bytes(&self) -> Result<u64> {
        let Some(receiver) = &self.receiver else {
            return Ok(0);
        };
        let received = tcp_info(receiver)?.bytes_received;
        Ok(match self.plan.bytes {
            0 => received,
            bytes => received.min(bytes),
        })
    }

    /// Brings `last` up to date, unless the flow has not begun or is over.
    fn update(&mut self) -> Result<()> {
        if self.start_us.is_none() || (self.end_us.is_some() && !self.last.active) {
            return Ok(());
        }
        let info = tcp_info(&self.sender)?;
        self.last = FlowSample {
            active: self.end_us.is_none(),
            cwnd_packets: info.snd_cwnd,
            cwnd_bytes: u64::from(info.snd_cwnd) * u64::from(info.snd_mss),
            srtt_us: info.rtt,
            received_bytes: self.received_bytes()?,
            retransmits: info.total_retrans.into(),
            pacing_bps: pacing_bps(&info),
        };
        Ok(())
    }

    fn result(&self, flow: usize) -> Result<FlowResult> {
        let info = tcp_info(&self.sender)?;
        Ok(FlowResult {
            flow,
            start_us: self.start_us.unwrap_or(0),
            end_us: self.end_us,
            received_bytes: self.received_bytes()?,
            retransmits: info.total_retrans.into(),
            timeouts: info.total_rto.into(),
            delivered_ce: info.delivered_ce.into(),
            delivered: info.delivered.into(),
            min_rtt_us: match info.min_rtt {
                u32::MAX => 0,
                min_rtt_us => min_rtt_us,
            },
            mss_bytes: info.snd_mss,
        })
    }
}

/// How errors call a flow.
fn name(flow: usize, plan: &Flow) -> String {
    format!("flow {flow} from {} to {}", plan.src, plan.dst)
}

/// The nodes at the ends of the flows.
fn endpoints(network: &Network, run: &RunPlan) -> Result<BTreeSet<usize>> {
    let hosts = run.flows.iter().flat_map(|flow| [&flow.src, &flow.dst]);
    hosts.map(|host| network.layout.node(host)).collect()
}

/// The largest base RTT of the flows.
fn slowest_rtt_ns(run: &RunPlan) -> u64 {
    let rtts_us = run.flows.iter().map(|flow| flow.base_rtt_us);
    (rtts_us.fold(0.0, f64::max) * 1e3) as u64
}

fn watch_events(epoll: &Epoll, socket: &Socket, source: Source, flags: EpollFlags) -> Result<()> {
    epoll
        .add(socket, EpollEvent::new(flags, source.token()))
        .context("epoll")
}

/// A file of nothing but a hole. TCP sends its pages, which are all the same one, without a copy:
/// payload is never written, read or allocated.
fn open_payload() -> Result<File> {
    const PATH: &str = "/tmp/payload";
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(PATH)
        .and_then(|file| file.set_len(SEND_BYTES).map(|()| file));
    file.with_context(|| format!("cannot create {PATH}"))
}

/// What a sender's application does: writes all of it at once, or a burst at a time.
#[derive(Clone, Copy)]
struct Application {
    bytes: u64,
    burst_bytes: u64,
    period_ns: u64,
    start_ns: u64,
}

impl Application {
    fn new(plan: &Flow, start_ns: u64) -> Self {
        let or_all = |bytes| if bytes == 0 { u64::MAX } else { bytes };
        Self {
            bytes: or_all(plan.bytes),
            burst_bytes: or_all(plan.burst_bytes),
            period_ns: plan.period_us * NS_PER_US,
            start_ns,
        }
    }

    /// Writes the payload, and the end of the stream.
    fn send(&self, socket: &Socket, payload: &File) -> nix::Result<()> {
        let mut unsent = self.bytes;
        let mut next_ns = self.start_ns;
        while unsent > 0 {
            let burst = unsent.min(self.burst_bytes);
            send_payload(socket, payload, burst)?;
            unsent -= burst;
            next_ns += self.period_ns;
            if unsent > 0 && self.period_ns > 0 {
                sleep_until(next_ns)?;
            }
        }
        shutdown(socket.as_raw_fd(), nix::sys::socket::Shutdown::Write)
    }
}

fn sleep_until(at_ns: u64) -> nix::Result<()> {
    let at = timespec(at_ns);
    loop {
        match clock_nanosleep(
            nix::time::ClockId::CLOCK_MONOTONIC,
            ClockNanosleepFlags::TIMER_ABSTIME,
            &at,
        ) {
            Err(nix::Error::EINTR) => {}
            other => return other.map(drop),
        }
    }
}

fn timespec(ns: u64) -> TimeSpec {
    TimeSpec::new((ns / 1_000_000_000) as i64, (ns % 1_000_000_000) as i64)
}

fn send_payload(socket: &Socket, payload: &File, bytes: u64) -> nix::Result<()> {
    let mut unsent = bytes;
    while unsent > 0 {
        let sent = sendfile(
            socket,
            payload,
            Some(&mut 0),
            unsent.min(SEND_BYTES) as usize,
        )?;
        unsent -= sent as u64;
    }
    Ok(())
}

fn wake_bytes(rcvbuf_bytes: u64) -> u64 {
    match rcvbuf_bytes {
        0 => AUTOTUNED_WAKE_BYTES,
        bytes => (bytes / 4).clamp(1, MAX_WAKE_BYTES),
    }
}

fn pacing_bps(info: &TcpInfo) -> u64 {
    match info.pacing_rate {
        u64::MAX => 0,
        bytes_per_s => bytes_per_s.saturating_mul(8),
    }
}

/// Fails a run in which nothing has moved for [`STALL_US`]. `moved` is the payload received so
/// far and when it last grew.
fn check_progress(sample: &Sample, moved: (u64, u64)) -> Result<(u64, u64)> {
    let received: u64 = sample.flows.iter().map(|flow| flow.received_bytes).sum();
    let waiting = sample.flows.iter().any(|flow| flow.active);
    if received > moved.0 || !waiting {
        return Ok((received, sample.t_us));
    }
    ensure!(
        sample.t_us - moved.1 < STALL_US,
        "no flow has received anything for {} s: the network loses every packet",
        STALL_US / 1_000_000
    );
    Ok(moved)
}

fn ignore_interrupt(error: nix::Error) -> Result<usize> {
    match error {
        nix::Error::EINTR => Ok(0),
        error => Err(error).context("epoll"),
    }
}

fn now_ns() -> Result<u64> {
    let now = clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).context("clock")?;
    Ok(now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_names_its_source() {
        for source in [
            Source::Timer,
            Source::Listener(0),
            Source::Sender(7),
            Source::Receiver(123),
        ] {
            assert_eq!(Source::of(source.token()), source);
        }
    }

    #[test]
    fn a_receiver_wakes_for_a_part_of_its_buffer() {
        assert_eq!(wake_bytes(0), AUTOTUNED_WAKE_BYTES);
        assert_eq!(wake_bytes(4 << 20), 1 << 20);
        assert_eq!(wake_bytes(1 << 30), MAX_WAKE_BYTES);
    }

    #[test]
    fn a_stalled_run_is_given_up() {
        let mut sample = Sample {
            t_us: STALL_US,
            flows: vec![FlowSample {
                active: true,
                received_bytes: 5,
                ..Default::default()
            }],
            queues: Vec::new(),
        };
        assert_eq!(check_progress(&sample, (4, 0)).unwrap(), (5, STALL_US));
        assert!(check_progress(&sample, (5, 0)).is_err());
        sample.flows[0].active = false;
        assert!(check_progress(&sample, (5, 0)).is_ok());
    }
}
