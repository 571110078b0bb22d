// SPDX-License-Identifier: GPL-2.0
//! What one guest said in one run, and questions about it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use xdc_proto::{
    Circuits, Dropped, FlowResult, FlowSample, MAX_OUTPUT_BYTES, Message, NetworkSize, Packet,
    QueueResult, QueueSample, RunPlan, Sample, Totals, TraceHead, Unbalanced, WatchedQueue,
};
use xdc_tcpinfo::{COUNTERS, Of};

use crate::explain;
use crate::size::SizeClasses;

/// One run, as it was told.
#[derive(Debug)]
pub struct Record {
    /// As the scenario calls it; the plan has what the kernel calls it.
    pub cc: String,
    /// The guest's task; of the real network once the record is unscaled.
    pub plan: RunPlan,
    /// Where small flows end and large ones begin.
    pub sizes: SizeClasses,
    /// Flows that start earlier are in no figure of completion.
    pub warmup_us: u64,
    /// Of the plan that the guest got.
    pub plan_sha256: String,
    /// Release of the guest's kernel.
    pub kernel: String,
    /// In the order of time.
    pub samples: Vec<Sample>,
    /// In the order of the plan; complete once the run is.
    pub flows: Vec<FlowResult>,
    /// In the order of the plan.
    pub queues: Vec<QueueResult>,
    /// Of all ports of the network.
    pub totals: Option<Totals>,
    /// Where packets were dropped.
    pub dropped: Vec<Dropped>,
    /// Where counters of the guest's kernel disagree.
    pub unbalanced: Vec<Unbalanced>,
    /// Of the guest's kernel, all hosts together: by how much they have grown.
    pub counters: BTreeMap<String, u64>,
    /// Of the circuit switch, where the plan has one.
    pub circuits: Option<Circuits>,
    /// Of each program of the plan.
    pub outputs: Vec<Output>,
    /// Of each tap of the plan.
    pub captures: Vec<Vec<Packet>>,
    /// Of tracepoints, where the plan says to trace.
    pub trace: Option<RawTrace>,
    trace_bytes: usize,
    /// Measured over configured RTT, less 1, of the path that is furthest off.
    pub link_rtt_error: Option<f64>,
    /// RTTs of the flows' paths before the traffic.
    pub link_checks: Vec<LinkCheck>,
    /// Kernel counters that should not have moved.
    pub suspects: Vec<(String, u64)>,
    /// What else the agent has doubts about.
    told: Vec<String>,
    /// When the guest was done, us after the traffic's start.
    pub virtual_us: u64,
    /// The run's duration on this machine.
    pub wall: Duration,
    /// When the guest began to build its network, and how it came out.
    building: Option<Instant>,
    /// The network's size, and how long this machine built it.
    pub network: Option<(NetworkSize, Duration)>,
}

/// The RTT of an idle path.
#[derive(Debug, Clone)]
pub struct LinkCheck {
    /// Sending host.
    pub src: String,
    /// Receiving host.
    pub dst: String,
    /// The topology's RTT, us.
    pub configured_us: f64,
    /// The measured RTT, us.
    pub measured_us: f64,
}

/// What a program wrote, and how it ended.
#[derive(Debug, Clone, Default)]
pub struct Output {
    /// Standard output.
    pub text: String,
    /// None if it ran until the run was over.
    pub code: Option<i32>,
    /// The end of standard error.
    pub errors: String,
    /// It wrote more than is kept.
    pub cut: bool,
}

/// What the agent recorded of tracepoints, as it came.
#[derive(Debug, Default)]
pub struct RawTrace {
    /// Formats of events, and names of nodes.
    pub head: TraceHead,
    /// Processor, and a page of its ring buffer.
    pub pages: Vec<(u32, Vec<u8>)>,
}

/// What a guest may say of a run: twice as much as a scenario may ask for.
const MAX_SAMPLES: usize = 4_000_000;
const MAX_REMARKS: usize = 1_000_000;
const MAX_DOUBTS: usize = 1_000;
const MAX_DOUBT_CHARS: usize = 1_000;
/// Pages of a trace: what agents take for it on a machine of 256 processors.
const MAX_TRACE_BYTES: usize = 1 << 30;
/// Of all taps together, some 400 bytes each.
const MAX_PACKETS: usize = 8_000_000;
/// Of a rack's qdisc.
pub const MAX_QDISC_COUNTERS: usize = 64;
/// How many times slower than its network a guest may be.
pub const MAX_SCALE: u32 = 10_000;
/// A day at the highest scale, and as much again.
const MAX_US: u64 = 2 * 86_400_000_000 * MAX_SCALE as u64;

fn limited<T>(remarks: &[T]) -> Result<(), Refused> {
    match remarks.len() < MAX_REMARKS {
        true => Ok(()),
        false => Err(Refused::because("the guest sent too many messages")),
    }
}

/// Why a message of a guest is refused.
#[derive(Debug)]
pub struct Refused {
    /// In one sentence.
    pub what: String,
    /// For the author of the scenario.
    pub hint: Option<&'static str>,
}

impl Refused {
    fn because(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            hint: None,
        }
    }

    fn hint(self, hint: &'static str) -> Self {
        Self {
            hint: Some(hint),
            ..self
        }
    }
}

impl LinkCheck {
    /// Measured over configured RTT, less 1.
    pub fn error(&self) -> f64 {
        self.measured_us / self.configured_us - 1.0
    }
}

impl Record {
    /// A record without messages.
    pub fn new(cc: &str, plan: RunPlan) -> Self {
        Self {
            cc: cc.to_owned(),
            outputs: vec![Output::default(); plan.programs.len()],
            captures: vec![Vec::new(); plan.taps.len()],
            sizes: SizeClasses {
                small_below_bytes: 100_000,
                large_above_bytes: 1_000_000,
            },
            warmup_us: 0,
            plan,
            plan_sha256: String::new(),
            kernel: String::new(),
            samples: Vec::new(),
            flows: Vec::new(),
            queues: Vec::new(),
            totals: None,
            dropped: Vec::new(),
            unbalanced: Vec::new(),
            counters: BTreeMap::new(),
            circuits: None,
            trace: None,
            trace_bytes: 0,
            link_rtt_error: None,
            link_checks: Vec::new(),
            suspects: Vec::new(),
            told: Vec::new(),
            virtual_us: 0,
            wall: Duration::ZERO,
            building: None,
            network: None,
        }
    }

    /// Adds a message; an error if it does not fit the plan or is too much.
    pub fn add(&mut self, message: Message) -> Result<(), Refused> {
        match message {
            Message::Hello { kernel, .. } => self.kernel = kernel,
            Message::LinkCheck {
                src,
                dst,
                configured_rtt_us,
                measured_rtt_us,
            } => {
                let check = LinkCheck {
                    src,
                    dst,
                    configured_us: configured_rtt_us,
                    measured_us: measured_rtt_us,
                };
                let worst = self.link_rtt_error.unwrap_or(0.0);
                if check.error().abs() >= worst.abs() {
                    self.link_rtt_error = Some(check.error());
                }
                limited(&self.link_checks)?;
                self.link_checks.push(check);
            }
            Message::Sample(sample) => {
                let flows = self.plan.flows.len() * usize::from(self.plan.flow_series);
                if sample.flows.len() != flows || sample.queues.len() != self.plan.watch.len() {
                    return Err(Refused::because(
                        "a sample from the guest does not fit the plan",
                    ));
                }
                let last = self.samples.last().map_or(0, |last| last.t_us);
                if self.samples.len() == MAX_SAMPLES || sample.t_us < last || sample.t_us > MAX_US {
                    return Err(Refused::because(
                        "a sample from the guest is one too many, or of an impossible time",
                    )
                    .hint("a longer 'sample', or a 'duration'"));
                }
                self.samples.push(sample);
            }
            Message::Flow(flow) => {
                let end_ns = flow.end_ns.max(flow.acked_ns);
                let end_us = end_ns.unwrap_or(0) / 1000;
                if self.flows.len() == self.plan.flows.len()
                    || flow.flow >= self.plan.flows.len()
                    || flow.start_us().max(end_us) > MAX_US
                {
                    return Err(Refused::because(
                        "a flow from the guest does not fit the plan",
                    ));
                }
                self.flows.push(flow);
            }
            Message::Output { program, text } => {
                let output = self.output(program)?;
                if output.text.len() as u64 + text.len() as u64 > 3 * MAX_OUTPUT_BYTES {
                    return Err(Refused::because("a program printed too much"));
                }
                output.text.push_str(&text);
            }
            Message::Ended {
                program,
                code,
                errors,
                cut,
            } => {
                let output = self.output(program)?;
                (output.code, output.errors, output.cut) = (code, errors, cut);
            }
            Message::Queue(queue) => {
                if self.queues.len() == self.plan.watch.len() {
                    return Err(Refused::because(
                        "a queue from the guest does not fit the plan",
                    ));
                }
                self.queues.push(queue);
            }
            Message::Circuits(circuits) => {
                let rotor = self.plan.topology.rotor.as_ref();
                let fits = rotor.is_some_and(|rotor| {
                    let weeks = |of: &Vec<u64>| of.len() <= rotor.weeks as usize;
                    circuits.week_bytes.len() == rotor.racks.len()
                        && circuits.week_bytes.iter().all(weeks)
                        && circuits.qdiscs.len() <= MAX_QDISC_COUNTERS
                });
                if !fits || self.circuits.is_some() {
                    return Err(Refused::because(
                        "what the guest says of circuits does not fit the plan",
                    ));
                }
                self.circuits = Some(circuits);
            }
            Message::Totals(totals) => self.totals = Some(totals),
            Message::Books {
                dropped,
                unbalanced,
            } => {
                if dropped.len().max(unbalanced.len()) > MAX_REMARKS {
                    return Err(Refused::because("the guest lists too many places"));
                }
                (self.dropped, self.unbalanced) = (dropped, unbalanced);
            }
            Message::Counters(counters) => self.counters = counters,
            Message::Doubt { what } => {
                if self.told.len() < MAX_DOUBTS {
                    self.told.push(what.chars().take(MAX_DOUBT_CHARS).collect());
                }
            }
            Message::Packets { tap, packets } => {
                let captured: usize = self.captures.iter().map(Vec::len).sum();
                if captured + packets.len() > MAX_PACKETS {
                    return Err(Refused::because(format!(
                        "more than {MAX_PACKETS} packets are captured"
                    ))
                    .hint("fewer nodes (--pcap=NODE), or less traffic"));
                }
                self.captures
                    .get_mut(tap)
                    .ok_or_else(|| Refused::because("packets from the guest do not fit the plan"))?
                    .extend(packets);
            }
            Message::Trace(head) => {
                if self.plan.trace.is_empty() || self.trace.is_some() {
                    return Err(Refused::because(
                        "the guest sent a trace that was not requested",
                    ));
                }
                self.trace = Some(RawTrace {
                    head,
                    pages: Vec::new(),
                });
            }
            Message::TracePage { cpu, bytes } => {
                self.trace_bytes = self.trace_bytes.saturating_add(bytes.len() / 2);
                if self.trace_bytes > MAX_TRACE_BYTES {
                    return Err(Refused::because("the guest's trace is too large"));
                }
                let page = xdc_proto::from_hex(&bytes);
                match (&mut self.trace, page) {
                    (Some(trace), Some(page)) => trace.pages.push((cpu, page)),
                    _ => return Err(Refused::because("a page of a trace is not readable")),
                }
            }
            Message::Suspect { counter, delta } => {
                limited(&self.suspects)?;
                self.suspects.push((counter, delta));
            }
            Message::Done { virtual_us } => self.virtual_us = virtual_us.min(MAX_US),
            Message::Building => self.building = Some(Instant::now()),
            Message::Network(size) => {
                let took = self
                    .building
                    .map(|since| since.elapsed())
                    .unwrap_or_default();
                self.network = Some((size, took));
            }
            Message::Progress { .. } | Message::Ktap { .. } | Message::Error { .. } => {}
        }
        Ok(())
    }

    fn output(&mut self, program: usize) -> Result<&mut Output, Refused> {
        self.outputs
            .get_mut(program)
            .ok_or_else(|| Refused::because("a program from the guest does not fit the plan"))
    }

    /// Put the results in the order of the plan and see that none is missing.
    pub fn complete(mut self, wall: Duration) -> Result<Self, Refused> {
        self.wall = wall;
        self.flows.sort_by_key(|flow| flow.flow);
        self.queues.sort_by_key(|queue| queue.queue);
        // Figures are made of windows that are no shorter than a sample.
        let samples = self.end_us() / self.plan.sample_us.max(1);
        if samples > MAX_SAMPLES as u64 {
            return Err(
                Refused::because(format!("a run of {samples} samples is too long"))
                    .hint("a longer 'sample', or a 'duration'"),
            );
        }
        let flows = self.flows.iter().map(|flow| flow.flow);
        let queues = self.queues.iter().map(|queue| queue.queue);
        let complete = flows.eq(0..self.plan.flows.len()) && queues.eq(0..self.plan.watch.len());
        if complete && self.totals.is_some() {
            Ok(self)
        } else {
            Err(Refused::because(
                "the guest finished without a result for every flow and queue, and for the network",
            ))
        }
    }

    /// What a guest that was `scale` times slower measured, as of the network that it stands for:
    /// `plan` is that network's. The one place that undoes a scale; captures and recordings of
    /// tracepoints stay in the guest's own time.
    pub fn unscaled(mut self, scale: u32, plan: RunPlan) -> Self {
        let scale = u64::from(scale.max(1));
        let time = |time: u64| (time + scale / 2) / scale;
        let time_us = |us: u32| time(us.into()) as u32;
        for sample in &mut self.samples {
            sample.t_us = time(sample.t_us);
            for flow in &mut sample.flows {
                flow.srtt_us = time_us(flow.srtt_us);
                flow.pacing_bps = flow.pacing_bps.saturating_mul(scale);
            }
        }
        for flow in &mut self.flows {
            flow.start_ns = time(flow.start_ns);
            flow.late_ns = time(flow.late_ns);
            flow.end_ns = flow.end_ns.map(time);
            flow.acked_ns = flow.acked_ns.map(time);
            flow.min_rtt_us = time_us(flow.min_rtt_us);
            for (counter, value) in COUNTERS.iter().zip(&mut flow.counters) {
                if counter.of == Of::Us {
                    *value = time(*value);
                }
            }
        }
        if let Some(circuits) = &mut self.circuits {
            circuits.base_ns /= scale as i64;
            if let Some(late_ns) = circuits.qdiscs.get_mut("late_max_ns") {
                *late_ns = time(*late_ns);
            }
        }
        for check in &mut self.link_checks {
            check.configured_us /= scale as f64;
            check.measured_us /= scale as f64;
        }
        self.virtual_us = time(self.virtual_us);
        let told = std::mem::replace(&mut self.plan, plan);
        self.plan.taps = told.taps;
        self.plan.trace = told.trace;
        self
    }

    /// Samples that have the state of each flow.
    fn flow_samples(&self) -> &[Sample] {
        match self.plan.flow_series {
            true => &self.samples,
            false => &[],
        }
    }

    /// Payload that `flow` has delivered at a time, between samples by straight line; without
    /// samples, by one from its start to its end.
    pub fn received_at(&self, flow: usize, t_us: u64) -> f64 {
        if !self.plan.flow_series {
            return self.received_without_samples(&self.flows[flow], t_us);
        }
        let at = |sample: &Sample| sample.flows[flow].received_bytes as f64;
        let next = self.samples.partition_point(|sample| sample.t_us < t_us);
        let end = self.flows.get(flow).and_then(|result| {
            let end_us = result.end_us()?;
            Some((end_us, result.received_bytes as f64))
        });
        let (t0, b0) = match next.checked_sub(1) {
            Some(previous) => (self.samples[previous].t_us, at(&self.samples[previous])),
            None => (0, 0.0),
        };
        let (mut t1, mut b1) = match self.samples.get(next) {
            Some(sample) => (sample.t_us, at(sample)),
            None => end.unwrap_or((t0, b0)),
        };
        // The flow's end is a sample too, and the exact one.
        if let Some((end_us, bytes)) = end {
            if t_us >= end_us {
                return bytes;
            }
            if end_us < t1 {
                (t1, b1) = (end_us, bytes);
            }
        }
        if t1 <= t0 || t_us >= t1 {
            return b1.max(b0);
        }
        b0 + (b1 - b0) * (t_us.saturating_sub(t0)) as f64 / (t1 - t0) as f64
    }

    fn received_without_samples(&self, result: &FlowResult, t_us: u64) -> f64 {
        let (start, end) = (result.start_us(), result.end_us().unwrap_or(self.end_us()));
        let share = match end > start {
            true => t_us.saturating_sub(start) as f64 / (end - start) as f64,
            false => f64::from(t_us >= end),
        };
        result.received_bytes as f64 * share.min(1.0)
    }

    /// Those of them that figures of completion are about, and how many others there are.
    pub fn counted(&self, flows: &[usize]) -> (Vec<usize>, usize) {
        let is_counted = |flow: &usize| self.flows[*flow].start_us() >= self.warmup_us;
        let counted: Vec<_> = flows.iter().copied().filter(is_counted).collect();
        let others = flows.len() - counted.len();
        (counted, others)
    }

    /// When the first flow ended, or else the traffic.
    pub fn first_end_us(&self) -> u64 {
        let first = self.flows.iter().filter_map(FlowResult::end_us).min();
        first.unwrap_or_else(|| self.end_us())
    }

    /// When the last flow ended, or the run was stopped.
    pub fn end_us(&self) -> u64 {
        let open = self.flows.iter().any(|flow| flow.end_ns.is_none());
        let last = self.flows.iter().filter_map(FlowResult::end_us).max();
        match last {
            Some(last) if !open => last,
            _ => self.plan.stop_after_us.unwrap_or(self.virtual_us),
        }
    }

    /// (time in us, state) at each sample; nothing without a series of flows.
    pub fn flow_series(&self, flow: usize) -> impl Iterator<Item = (u64, &FlowSample)> {
        self.flow_samples()
            .iter()
            .map(move |sample| (sample.t_us, &sample.flows[flow]))
    }

    /// (time in us, state) of a watched queue at each sample.
    pub fn queue_series(&self, queue: usize) -> impl Iterator<Item = (u64, &QueueSample)> {
        self.samples
            .iter()
            .map(move |sample| (sample.t_us, &sample.queues[queue]))
    }

    /// The first watched queue and its link's rate.
    pub fn bottleneck(&self) -> Option<(&WatchedQueue, u64)> {
        let queue = self.plan.watch.first()?;
        let direction = self.plan.topology.direction(&queue.node, &queue.peer)?;
        Some((queue, direction.rate_bps))
    }

    /// Why the figures of this run should not be believed.
    pub fn doubts(&self) -> Vec<String> {
        const MAX_LINK_ERROR: f64 = 0.01;
        let counters = self
            .suspects
            .iter()
            .map(|(counter, delta)| format!("{counter} moved by {delta}"));
        let programs = self.plan.programs.iter().zip(&self.outputs);
        let programs = programs.filter_map(|(program, output)| {
            let code = output.code.filter(|&code| code != 0 && !program.daemon)?;
            let how = match code {
                -1 => "was ended by a signal".to_owned(),
                code => format!("ended with exit code {code}"),
            };
            let said = output.errors.lines().last().unwrap_or_default();
            Some(format!(
                "'{}' on {} {how}: {said}",
                program.command, program.node
            ))
        });
        let links = self
            .link_checks
            .iter()
            .filter(|check| check.error().abs() > MAX_LINK_ERROR)
            .map(|check| {
                format!(
                    "base RTT {}-{} is {:.1} us, configured {:.1} us",
                    check.src, check.dst, check.measured_us, check.configured_us
                )
            });
        let waiting = self.flows.iter().filter(|flow| !flow.started).count();
        let waiting = (waiting > 0).then(|| format!("{} never started", explain::flows(waiting)));
        let missed = self.trace.as_ref().map_or(0, |trace| trace.head.missed);
        let trace = (missed > 0).then(|| {
            format!(
                "the trace lacks {missed} events: its buffer was full (fewer with --trace=EVENT)"
            )
        });
        let told = self.told.iter().cloned();
        let books = self.unbalanced.iter().map(unbalanced);
        counters
            .chain(books)
            .chain(programs)
            .chain(links)
            .chain(trace)
            .chain(waiting)
            .chain(told)
            .collect()
    }
}

fn unbalanced(of: &Unbalanced) -> String {
    let place = match of.port.as_str() {
        "" => of.node.clone(),
        port => format!("{}, port to {port}", of.node),
    };
    let [from, to] = &of.between;
    match of.packets {
        missing @ 0.. => {
            format!(
                "{place}: {missing} packets vanished between {from} and {to}, and no counter has them"
            )
        }
        more => format!(
            "{place}: {to} counts {} packets more than {from}",
            more.unsigned_abs()
        ),
    }
}

#[cfg(test)]
mod tests;
