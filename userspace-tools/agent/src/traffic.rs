// SPDX-License-Identifier: GPL-2.0
//! The flows: receivers, timers and measurements share one thread and one epoll; only large senders have a
//! thread, blocked in the kernel.
//!
//! Process wake-ups dominate the cost in virtual time. So a sender sends its flow in one system call, and
//! receivers wake once per flow or per large piece and drop data uncopied. Measurements come from TCP_INFO. A
//! failed system call takes a microsecond of virtual time, and a connect that waits for its answer does fail,
//! so if possible connections are made while no short flow is active.

mod report;
mod setup;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, VecDeque},
    fs::File,
    os::unix::fs::OpenOptionsExt,
    sync::Arc,
};

use anyhow::{Context, Result, ensure};
use nix::sys::{
    epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout},
    resource::{Resource, getrlimit, setrlimit},
    timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags},
};
use socket2::Socket;
use xdc_proto::{
    Flow, FlowSample, MAX_FLOWS, Message, RunPlan, Sample,
    gates::{End, Gates},
    rng::Rng,
};

use crate::{
    books::Books,
    capture::Capture,
    channel::Channel,
    clock::{NS_PER_US, now_ns, timespec},
    events::Links,
    network::Network,
    programs::Running,
    sending::SEND_BYTES,
    trace::Trace,
    transfer::{DELAYED_ACK_NS, Received, Sockets, Transfer},
    watch::{self, Counters, Watch},
};
use setup::*;

/// Traffic starts at a multiple of this: TCP's timers expire with jiffies, so that runs on different networks
/// have the same phase.
const START_NS: u64 = 10_000_000;

/// How long before its start a flow connects, beyond a few RTTs: at the first if that disturbs no flow, at
/// the second in any case. Start times are rounded down to the third, so that connections are made together.
const CONNECT_FIRST_NS: u64 = 10_000_000;
const CONNECT_LAST_NS: u64 = 5_000_000;
const CONNECT_TOGETHER_NS: u64 = 1_000_000;

/// Upper bound of a connect's duration.
const CONNECT_NS: u64 = 2_000;

/// A flow with a shorter ideal FCT is disturbed by a microsecond.
const SHORT_NS: u64 = 1_000_000;

/// Time without a received byte after which the run fails: beyond TCP's longest timeout.
const STALL_US: u64 = 300_000_000;

/// Step of the progress line, as a fraction of the run.
const PROGRESS_STEP: f64 = 0.05;

/// Descriptors per flow (two ends, a listener), and for everything else.
const FLOW_DESCRIPTORS: u64 = 3;
const OTHER_DESCRIPTORS: u64 = 8192;

/// Runs and reports a plan's traffic; returns its duration, us.
pub fn run(network: &Network, run: &RunPlan, channel: &mut Channel) -> Result<u64> {
    Traffic::prepare(network, run)?.run(channel)
}

/// Origin of an epoll event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Timer,
    Listener(usize),
    Sender(usize),
    Receiver(usize),
    Program(usize),
}

impl Source {
    const KINDS: u64 = 5;

    fn token(self) -> u64 {
        match self {
            Source::Timer => 0,
            Source::Listener(flow) => flow as u64 * Self::KINDS + 1,
            Source::Sender(flow) => flow as u64 * Self::KINDS + 2,
            Source::Receiver(flow) => flow as u64 * Self::KINDS + 3,
            Source::Program(program) => program as u64 * Self::KINDS + 4,
        }
    }

    fn of(token: u64) -> Self {
        let flow = (token / Self::KINDS) as usize;
        match token % Self::KINDS {
            0 => Source::Timer,
            1 => Source::Listener(flow),
            2 => Source::Sender(flow),
            3 => Source::Receiver(flow),
            _ => Source::Program(flow),
        }
    }
}

/// Scheduled action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Action {
    /// An event of the plan.
    Event,
    /// Start of a program of the plan.
    Program,
    Start,
    /// Index in the flow's switches.
    Switch(usize),
}

struct Traffic<'a> {
    network: &'a Network<'a>,
    run: &'a RunPlan,
    transfers: Vec<Transfer<'a>>,
    watches: Vec<Watch>,
    captures: Vec<Capture>,
    trace: Option<Trace>,
    /// Counters at the start of the traffic.
    counters: Counters,
    payload: Arc<File>,
    epoll: Epoll,
    timer: TimerFd,
    /// Expiry of the timer, ns.
    timer_ns: u64,
    links: Links,
    /// Started programs, by index in the plan.
    programs: BTreeMap<usize, Running>,
    /// (time, action, index of flow, event or program), next one last.
    agenda: Vec<(u64, Action, usize)>,
    gates: Gates,
    /// (time, flow), next one last.
    connects: Vec<(u64, usize)>,
    /// Complete flows with open sockets, earliest first.
    ended: VecDeque<usize>,
    /// Idle connections of persistent flows, by their two hosts and DSCP.
    idle: BTreeMap<(&'a str, &'a str, u8), Vec<Sockets>>,
    /// CLOCK_MONOTONIC at the start of the traffic, ns.
    origin_ns: u64,
    active: usize,
    /// Number of active flows that are short.
    active_short: usize,
    unfinished: usize,
    taken_bytes: u64,
    reported: f64,
}

impl<'a> Traffic<'a> {
    /// Builds the agenda.
    fn prepare(network: &'a Network<'a>, run: &'a RunPlan) -> Result<Self> {
        let endless = run.flows.iter().any(|flow| flow.bytes == 0);
        ensure!(
            !endless || run.stop_after_us.is_some(),
            "a flow without a size needs a time at which the run stops"
        );
        ensure!(run.sample_us > 0, "the sampling time must not be 0");
        ensure!(
            run.flows.len() <= MAX_FLOWS,
            "more flows than ports: at most {MAX_FLOWS} are possible"
        );
        allow_descriptors(run.flows.len() as u64 * FLOW_DESCRIPTORS + OTHER_DESCRIPTORS)?;

        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context("epoll")?;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_CLOEXEC)
            .context("cannot create a timer")?;
        // Edge-triggered: setting the timer again is enough after an expiry.
        epoll
            .add(
                &timer,
                EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, Source::Timer.token()),
            )
            .context("epoll")?;

        let watches = run.watch.iter().map(|watched| Watch::new(network, watched));
        let watches = watches.collect::<Result<_>>()?;
        let counters = Counters::read(network, endpoints(network, run)?)?;
        let taps = run.taps.iter();
        let captures = taps.map(|tap| Capture::start(network, tap, run.taps.len()));
        let captures = captures.collect::<Result<_>>()?;
        let trace = (!run.trace.is_empty()).then(|| Trace::start(&run.trace)).transpose()?;

        let gates = Gates::new(&run.gates, run.flows.len()).context("a gate without its flows")?;
        // Flows behind gates connect before the traffic: their starts are unknown.
        let gated_ns = gates.gated() as u64 * CONNECT_NS;
        let lead_ns = CONNECT_FIRST_NS + 4 * slowest_rtt_ns(run) + gated_ns;
        let origin_ns = now_ns()? + lead_ns + CONNECT_TOGETHER_NS;
        let origin_ns = match network.circuits() {
            Some(circuits) => circuits.day_start_ns(origin_ns),
            None => origin_ns.next_multiple_of(START_NS),
        };
        let mut rng = Rng::new(run.seed);
        let mut agenda = Vec::new();
        let mut connects = Vec::new();
        let mut transfers = Vec::new();
        for (i, flow) in run.flows.iter().enumerate() {
            let start_ns = flow.start_ns + rng.up_to(flow.start_jitter_us) * NS_PER_US;
            transfers.push(Transfer::new(flow, i, start_ns));
            if gates.has(i) {
                connects.push((origin_ns - lead_ns, i));
                continue;
            }
            let together_ns = start_ns / CONNECT_TOGETHER_NS * CONNECT_TOGETHER_NS;
            connects.push((origin_ns + together_ns - lead_ns, i));
            agenda.extend(actions(flow, i, origin_ns + start_ns));
        }
        for (i, event) in run.events.iter().enumerate() {
            agenda.push((origin_ns + event.at_us * NS_PER_US, Action::Event, i));
        }
        for (i, program) in run.programs.iter().enumerate() {
            agenda.push((origin_ns + program.start_us * NS_PER_US, Action::Program, i));
        }
        agenda.sort_by_key(|entry| Reverse(*entry));
        connects.sort_by_key(|entry| Reverse(*entry));

        Ok(Self {
            network,
            run,
            unfinished: run.flows.len() + run.programs.iter().filter(|it| !it.daemon).count(),
            transfers,
            watches,
            captures,
            trace,
            counters,
            payload: Arc::new(open_payload()?),
            epoll,
            timer,
            timer_ns: 0,
            links: Links::default(),
            programs: BTreeMap::new(),
            agenda,
            gates,
            connects,
            ended: VecDeque::new(),
            idle: BTreeMap::new(),
            origin_ns,
            active: 0,
            active_short: 0,
            taken_bytes: 0,
            reported: 0.0,
        })
    }

    fn run(mut self, channel: &mut Channel) -> Result<u64> {
        let period_ns = self.run.sample_us * NS_PER_US;
        let stop_ns = self.run.stop_after_us.map_or(u64::MAX, |us| self.origin_ns + us * NS_PER_US);
        let mut sample_ns = self.origin_ns + period_ns;
        let mut moved = (0, 0);
        let mut events = vec![EpollEvent::empty(); 256];
        loop {
            let now = now_ns()?;
            if self.unfinished == 0 || now >= stop_ns {
                break;
            }
            self.act(now)?;
            self.retire(now, channel)?;
            if now >= sample_ns {
                let sample = self.sample(now)?;
                moved = check_progress(&sample, moved)?;
                self.report_progress(&sample, channel)?;
                channel.send(&Message::Sample(sample))?;
                for (tap, capture) in self.captures.iter_mut().enumerate() {
                    capture.drain(tap, channel)?;
                }
                sample_ns += (now - sample_ns) / period_ns * period_ns + period_ns;
            }
            let next_action = self.agenda.last().map_or(u64::MAX, |(at, ..)| *at);
            let next_connect = self.next_connect_ns(now);
            let next_ns = sample_ns.min(stop_ns).min(next_action).min(next_connect);
            let patience = match next_ns <= now {
                // More connections are due, but pending events go first.
                true => EpollTimeout::ZERO,
                false => {
                    self.set_timer(next_ns)?;
                    EpollTimeout::NONE
                }
            };
            let woken = self.epoll.wait(&mut events, patience);
            for event in &events[..woken.or_else(ignore_interrupt)?] {
                self.handle(Source::of(event.data()))?;
            }
        }
        self.report(channel)
    }

    /// Runs due actions, and makes one due connection.
    fn act(&mut self, now: u64) -> Result<()> {
        while let Some(&(at, action, flow)) = self.agenda.last()
            && at <= now
        {
            self.agenda.pop();
            match action {
                Action::Event => {
                    self.links.apply(self.network, &self.run.events[flow])?;
                    continue;
                }
                Action::Program => {
                    self.start_program(flow)?;
                    continue;
                }
                Action::Start => self.start(flow, at),
                Action::Switch(n) => {
                    let cc = &self.run.flows[flow].switches[n].cc;
                    self.transfers[flow].switch(cc)
                }
            }
            .with_context(|| self.transfers[flow].name())?;
        }
        match self.next_connect_ns(now) <= now {
            true => self.connect_next().map(drop),
            false => Ok(()),
        }
    }

    /// Makes the next connection; returns false if there is none.
    fn connect_next(&mut self) -> Result<bool> {
        let Some((_, flow)) = self.connects.pop() else {
            return Ok(false);
        };
        let plan = &self.run.flows[flow];
        let idle = self.idle.get_mut(&(plan.src.as_str(), plan.dst.as_str(), plan.dscp));
        let idle = idle.filter(|_| plan.persistent).and_then(Vec::pop);
        let is_new = idle.is_none();
        let transfer = &mut self.transfers[flow];
        let connected = match idle {
            Some(sockets) => transfer.take_over(sockets),
            None => transfer.connect(self.network, self.run),
        };
        connected.with_context(|| transfer.name())?;
        if plan.window_known && is_new {
            self.watch_listener(flow)?;
        }
        Ok(true)
    }

    /// Time of the next connection. It is later while short flows are active or about to start.
    fn next_connect_ns(&self, now: u64) -> u64 {
        let Some(&(first_ns, _)) = self.connects.last() else {
            return u64::MAX;
        };
        let starting = self.agenda.last();
        let starting = starting.is_some_and(|(at, ..)| *at < now.max(first_ns) + CONNECT_NS);
        match starting || self.active_short > 0 {
            true => first_ns + CONNECT_FIRST_NS - CONNECT_LAST_NS,
            false => first_ns,
        }
    }

    fn is_short(&self, flow: usize) -> bool {
        (1..SHORT_NS).contains(&self.run.flows[flow].ideal_ns)
    }

    fn start(&mut self, flow: usize, at: u64) -> Result<()> {
        // Connecting is late: in real time a guest may be slow.
        while !self.transfers[flow].is_connected() && self.connect_next()? {}
        self.active += 1;
        self.active_short += usize::from(self.is_short(flow));
        // With `window_known`, the listener is watched already.
        if !self.accept(flow)? && !self.run.flows[flow].window_known {
            self.watch_listener(flow)?;
        }
        let sending = {
            // Other starts and the accept may have taken time.
            let late_ns = now_ns()?.saturating_sub(at);
            self.transfers[flow].start(late_ns, &self.payload)?
        };
        if let Some(sender) = sending {
            // Errors, hang-ups and the ACK of the last byte are always reported.
            let source = Source::Sender(flow);
            watch_events(&self.epoll, sender, source, EpollFlags::EPOLLET)?;
        }
        Ok(())
    }

    fn watch_listener(&mut self, flow: usize) -> Result<()> {
        let listener = self.transfers[flow].listener()?;
        let source = Source::Listener(flow);
        watch_events(&self.epoll, listener, source, EpollFlags::EPOLLIN)
    }

    fn handle(&mut self, source: Source) -> Result<()> {
        match source {
            Source::Timer => Ok(()),
            Source::Listener(flow) => match self.transfers[flow].is_started() {
                true => self.accept(flow).map(drop),
                false => self.transfers[flow].tell_window(),
            },
            Source::Sender(flow) => {
                let now = now_ns()?;
                let transfer = &mut self.transfers[flow];
                match transfer.is_acked(now.saturating_sub(self.origin_ns))? {
                    true => self.open(flow, End::Acked, now),
                    false if transfer.is_complete() => Ok(()),
                    false => transfer.sender_failed(),
                }
            }
            Source::Receiver(flow) => self.receive(flow),
            Source::Program(program) => self.program_ended(program),
        }
    }

    fn start_program(&mut self, program: usize) -> Result<()> {
        let plan = &self.run.programs[program];
        let running = Running::start(self.network, plan)
            .with_context(|| format!("'{}' on {}", plan.command, plan.node))?;
        let token = Source::Program(program).token();
        let event = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLONESHOT, token);
        self.epoll.add(&running.ended, event).context("epoll")?;
        self.programs.insert(program, running);
        Ok(())
    }

    fn program_ended(&mut self, program: usize) -> Result<()> {
        if let Some(running) = self.programs.get_mut(&program)
            && running.reap()?
            && !self.run.programs[program].daemon
        {
            self.unfinished -= 1;
        }
        Ok(())
    }

    /// Accepts the connection; returns whether the receiver is there.
    fn accept(&mut self, flow: usize) -> Result<bool> {
        let transfer = &mut self.transfers[flow];
        let flags = receiver_flags(transfer.arrives_whole());
        let Some(receiver) = transfer.accept()? else {
            return Ok(false);
        };
        watch_events(&self.epoll, receiver, Source::Receiver(flow), flags)?;
        Ok(true)
    }

    /// Discards received data; the last byte completes the flow.
    fn receive(&mut self, flow: usize) -> Result<()> {
        let persistent = self.run.flows[flow].persistent;
        let transfer = &mut self.transfers[flow];
        let whole = transfer.arrives_whole();
        match transfer.receive()? {
            Received::Some(bytes) => {
                self.taken_bytes += bytes;
                if let Some(receiver) = transfer.receiver()?.filter(|_| whole) {
                    let token = Source::Receiver(flow).token();
                    let mut event = EpollEvent::new(receiver_flags(whole), token);
                    self.epoll.modify(receiver, &mut event).context("epoll")?;
                }
                return Ok(());
            }
            Received::Rest(bytes) => self.taken_bytes += bytes,
        }
        let now = now_ns()?;
        transfer.end(now - self.origin_ns);
        // Both ends report the end of the stream. From the sender only the ACK of the last byte is wanted,
        // which is reported once, as an error is.
        let acked = Source::Sender(flow).token();
        let mut acked = EpollEvent::new(EpollFlags::EPOLLOUT | EpollFlags::EPOLLET, acked);
        match (transfer.sender()?, persistent) {
            ((sender, true), true) => self.epoll.delete(sender),
            ((sender, true), false) => self.epoll.modify(sender, &mut acked),
            ((sender, false), false) => self.epoll.add(sender, acked),
            ((_, false), true) => Ok(()),
        }
        .context("epoll")?;
        if let Some(receiver) = transfer.receiver()?.filter(|_| !whole || persistent) {
            self.epoll.delete(receiver).context("epoll")?;
        }
        self.ended.push_back(flow);
        self.active -= 1;
        self.active_short -= usize::from(self.is_short(flow));
        self.unfinished -= 1;
        self.open(flow, End::Received, now)
    }

    /// Schedules the flows that the end of a flow starts.
    fn open(&mut self, ended: usize, end: End, now: u64) -> Result<()> {
        for flow in self.gates.count(ended, end) {
            let start_ns = self.transfers[flow].wait_until(now.saturating_sub(self.origin_ns));
            let plan = &self.run.flows[flow];
            for action in actions(plan, flow, self.origin_ns + start_ns) {
                let place = self.agenda.partition_point(|other| *other > action);
                self.agenda.insert(place, action);
            }
        }
        Ok(())
    }

    /// Reports settled flows and closes their sockets.
    fn retire(&mut self, now: u64, channel: &mut Channel) -> Result<()> {
        let now = now.saturating_sub(self.origin_ns);
        while let Some(&flow) = self.ended.front() {
            let transfer = &mut self.transfers[flow];
            if transfer.settled_ns().is_none_or(|settled| now < settled) {
                break;
            }
            self.ended.pop_front();
            self.finish(flow, channel)?;
        }
        Ok(())
    }

    fn finish(&mut self, flow: usize, channel: &mut Channel) -> Result<()> {
        if self.transfers[flow].is_complete() {
            // The ACK of the last byte may have been unnoticed.
            self.open(flow, End::Acked, now_ns()?)?;
        }
        let transfer = &mut self.transfers[flow];
        if self.run.flow_series {
            transfer.sample()?;
        }
        let (result, left) = transfer.finish().with_context(|| transfer.name())?;
        if let Some(sockets) = left {
            let plan = &self.run.flows[flow];
            let kind = (plan.src.as_str(), plan.dst.as_str(), plan.dscp);
            self.idle.entry(kind).or_default().push(sockets);
        }
        channel.send(&Message::Flow(result))
    }

    /// Handles events until a time, while a condition holds.
    fn settle(&mut self, until_ns: u64, goes_on: impl Fn(&Self) -> bool) -> Result<()> {
        let mut events = vec![EpollEvent::empty(); 256];
        while goes_on(self) && now_ns()? < until_ns {
            self.set_timer(until_ns)?;
            let woken = self.epoll.wait(&mut events, EpollTimeout::NONE);
            for event in &events[..woken.or_else(ignore_interrupt)?] {
                self.handle(Source::of(event.data()))?;
            }
        }
        Ok(())
    }

    /// Sets the timer to expire once.
    fn set_timer(&mut self, at_ns: u64) -> Result<()> {
        if at_ns == self.timer_ns {
            return Ok(());
        }
        self.timer_ns = at_ns;
        self.timer
            .set(Expiration::OneShot(timespec(at_ns)), TimerSetTimeFlags::TFD_TIMER_ABSTIME)
            .context("cannot set the timer")
    }

    fn us_since_start(&self, now: u64) -> u64 {
        now.saturating_sub(self.origin_ns) / NS_PER_US
    }
}

/// Start of a flow at a time, and its switches.
fn actions(plan: &Flow, flow: usize, at_ns: u64) -> impl Iterator<Item = (u64, Action, usize)> {
    let switches = plan.switches.iter().enumerate();
    let switches = switches.map(move |(n, switch)| {
        let at_ns = at_ns + switch.after_us * NS_PER_US;
        (at_ns, Action::Switch(n), flow)
    });
    std::iter::once((at_ns, Action::Start, flow)).chain(switches)
}

#[cfg(test)]
mod tests;
