// SPDX-License-Identifier: GPL-2.0
//! The messages of one guest in one run, and queries on them.

mod unbalanced;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use xdc_proto::{
    Circuits, Dropped, FlowResult, FlowSample, MAX_OUTPUT_BYTES, Message, NetworkSize, Packet,
    QueueResult, QueueSample, RunPlan, Sample, Totals, TraceHead, Unbalanced, WatchedQueue,
};
use xdc_tcpinfo::{COUNTERS, Of};

use crate::explain;
use crate::size::SizeClasses;
use unbalanced::unbalanced;

/// One run, as the guest reported it.
#[derive(Debug)]
pub struct Record {
    /// Name in the scenario; the plan has the kernel's name.
    pub cc: String,
    /// The guest's plan; in real units once the record is unscaled.
    pub plan: RunPlan,
    /// Bounds of the size classes.
    pub sizes: SizeClasses,
    /// Flows that start earlier are excluded from completion figures, us.
    pub warmup_us: u64,
    /// SHA-256 of the guest's plan.
    pub plan_sha256: String,
    /// Release of the guest's kernel.
    pub kernel: String,
    /// Samples in time order.
    pub samples: Vec<Sample>,
    /// Flow results in plan order, complete at the end of the run.
    pub flows: Vec<FlowResult>,
    /// Queue results in plan order.
    pub queues: Vec<QueueResult>,
    /// Totals over all ports of the network.
    pub totals: Option<Totals>,
    /// Dropped packets by place and cause.
    pub dropped: Vec<Dropped>,
    /// Disagreements among the counters of the guest's kernel.
    pub unbalanced: Vec<Unbalanced>,
    /// Growth of kernel counters, summed over all hosts.
    pub counters: BTreeMap<String, u64>,
    /// Results of the circuit switch, if the plan has one.
    pub circuits: Option<Circuits>,
    /// Output of each program of the plan.
    pub outputs: Vec<Output>,
    /// Packets of each tap of the plan.
    pub captures: Vec<Vec<Packet>>,
    /// Tracepoint data, if the plan has a trace.
    pub trace: Option<RawTrace>,
    trace_bytes: usize,
    /// Largest deviation of a path: measured over configured RTT, minus 1.
    pub link_rtt_error: Option<f64>,
    /// RTTs of the flows' paths before the traffic.
    pub link_checks: Vec<LinkCheck>,
    /// Kernel counters that should not have moved, and their growth.
    pub suspects: Vec<(String, u64)>,
    /// Other doubts reported by the agent.
    told: Vec<String>,
    /// End of the guest's job, us after the traffic's start.
    pub virtual_us: u64,
    /// The run's duration on this machine.
    pub wall: Duration,
    /// When the guest began to build its network.
    building: Option<Instant>,
    /// The network's size, and its build time on this machine.
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

/// Output and exit status of a program.
#[derive(Debug, Clone, Default)]
pub struct Output {
    /// Standard output.
    pub text: String,
    /// Exit code; None if it ran until the end of the run.
    pub code: Option<i32>,
    /// The end of standard error.
    pub errors: String,
    /// Whether the output was cut.
    pub cut: bool,
}

/// Raw tracepoint data from the agent.
#[derive(Debug, Default)]
pub struct RawTrace {
    /// Event formats and node names.
    pub head: TraceHead,
    /// Processor and ring-buffer page.
    pub pages: Vec<(u32, Vec<u8>)>,
}

/// Limits of a guest's messages: twice the maximum of a scenario.
const MAX_SAMPLES: usize = 4_000_000;
const MAX_REMARKS: usize = 1_000_000;
const MAX_DOUBTS: usize = 1_000;
const MAX_DOUBT_CHARS: usize = 1_000;
/// Trace limit: trace memory of agents on a machine with 256 processors.
const MAX_TRACE_BYTES: usize = 1 << 30;
/// Packets of all taps together, about 400 bytes each.
const MAX_PACKETS: usize = 8_000_000;
/// Maximum number of counters per rack's qdisc.
pub const MAX_QDISC_COUNTERS: usize = 64;
/// Maximum slowdown of a guest against its network.
pub const MAX_SCALE: u32 = 10_000;
/// Twice a day at the highest scale.
const MAX_US: u64 = 2 * 86_400_000_000 * MAX_SCALE as u64;

fn limited<T>(remarks: &[T]) -> Result<(), Refused> {
    match remarks.len() < MAX_REMARKS {
        true => Ok(()),
        false => Err(Refused::because("the guest sent too many messages")),
    }
}

/// Reason to refuse a guest's message.
#[derive(Debug)]
pub struct Refused {
    /// Reason, one sentence.
    pub what: String,
    /// Advice to the scenario's author.
    pub hint: Option<&'static str>,
}

impl Refused {
    fn because(what: impl Into<String>) -> Self {
        Self { what: what.into(), hint: None }
    }

    fn hint(self, hint: &'static str) -> Self {
        Self { hint: Some(hint), ..self }
    }
}

impl LinkCheck {
    /// Relative error: measured over configured RTT, minus 1.
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
            sizes: SizeClasses { small_below_bytes: 100_000, large_above_bytes: 1_000_000 },
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

    /// Adds a message; an error if it does not fit the plan or exceeds a limit.
    pub fn add(&mut self, message: Message) -> Result<(), Refused> {
        match message {
            Message::Hello { kernel, .. } => self.kernel = kernel,
            Message::LinkCheck { src, dst, configured_rtt_us, measured_rtt_us } => {
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
                    return Err(Refused::because("a sample from the guest does not fit the plan"));
                }
                let last = self.samples.last().map_or(0, |last| last.t_us);
                if self.samples.len() == MAX_SAMPLES || sample.t_us < last || sample.t_us > MAX_US {
                    return Err(Refused::because(
                        "the guest sent too many samples, or one with an impossible time",
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
                    return Err(Refused::because("a flow from the guest does not fit the plan"));
                }
                self.flows.push(flow);
            }
            Message::Output { program, text } => {
                let output = self.output(program)?;
                if output.text.len() as u64 + text.len() as u64 > 3 * MAX_OUTPUT_BYTES {
                    return Err(Refused::because("the output of a program is too large"));
                }
                output.text.push_str(&text);
            }
            Message::Ended { program, code, errors, cut } => {
                let output = self.output(program)?;
                (output.code, output.errors, output.cut) = (code, errors, cut);
            }
            Message::Queue(queue) => {
                if self.queues.len() == self.plan.watch.len() {
                    return Err(Refused::because("a queue from the guest does not fit the plan"));
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
                        "circuit counters from the guest do not fit the plan",
                    ));
                }
                self.circuits = Some(circuits);
            }
            Message::Totals(totals) => self.totals = Some(totals),
            Message::Books { dropped, unbalanced } => {
                if dropped.len().max(unbalanced.len()) > MAX_REMARKS {
                    return Err(Refused::because("the guest lists too many places of drops"));
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
                    return Err(Refused::because("the guest sent a trace that was not requested"));
                }
                self.trace = Some(RawTrace { head, pages: Vec::new() });
            }
            Message::TracePage { cpu, bytes } => {
                self.trace_bytes = self.trace_bytes.saturating_add(bytes.len() / 2);
                if self.trace_bytes > MAX_TRACE_BYTES {
                    return Err(Refused::because("the guest's trace is too large"));
                }
                let page = xdc_proto::from_hex(&bytes);
                match (&mut self.trace, page) {
                    (Some(trace), Some(page)) => trace.pages.push((cpu, page)),
                    _ => {
                        return Err(Refused::because(
                            "a trace page from the guest cannot be decoded",
                        ));
                    }
                }
            }
            Message::Suspect { counter, delta } => {
                limited(&self.suspects)?;
                self.suspects.push((counter, delta));
            }
            Message::Done { virtual_us } => self.virtual_us = virtual_us.min(MAX_US),
            Message::Building => self.building = Some(Instant::now()),
            Message::Network(size) => {
                let took = self.building.map(|since| since.elapsed()).unwrap_or_default();
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

    /// Sorts the results by plan order; an error if any is missing.
    pub fn complete(mut self, wall: Duration) -> Result<Self, Refused> {
        self.wall = wall;
        self.flows.sort_by_key(|flow| flow.flow);
        self.queues.sort_by_key(|queue| queue.queue);
        // The number of windows is bounded: none is shorter than a sample.
        let samples = self.end_us() / self.plan.sample_us.max(1);
        if samples > MAX_SAMPLES as u64 {
            return Err(Refused::because(format!("a run of {samples} samples is too long"))
                .hint("a longer 'sample', or a 'duration'"));
        }
        let flows = self.flows.iter().map(|flow| flow.flow);
        let queues = self.queues.iter().map(|queue| queue.queue);
        let complete = flows.eq(0..self.plan.flows.len()) && queues.eq(0..self.plan.watch.len());
        if complete && self.totals.is_some() {
            Ok(self)
        } else {
            Err(Refused::because(
                "the guest finished without results of all flows, all queues and the network",
            ))
        }
    }

    /// Converts a guest's measurements, `scale` times slower, to the real network of `plan`. No
    /// other code undoes a scale; captures and tracepoints stay in guest time.
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

    /// Samples with the state of each flow.
    fn flow_samples(&self) -> &[Sample] {
        match self.plan.flow_series {
            true => &self.samples,
            false => &[],
        }
    }

    /// Payload of `flow` delivered at a time, interpolated linearly between samples, or without
    /// samples between its start and end.
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
        // The flow's end is an exact sample, too.
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

    /// Flows included in completion figures, and the number of others.
    pub fn counted(&self, flows: &[usize]) -> (Vec<usize>, usize) {
        let is_counted = |flow: &usize| self.flows[*flow].start_us() >= self.warmup_us;
        let counted: Vec<_> = flows.iter().copied().filter(is_counted).collect();
        let others = flows.len() - counted.len();
        (counted, others)
    }

    /// End of the first flow to complete, else of the traffic.
    pub fn first_end_us(&self) -> u64 {
        let first = self.flows.iter().filter_map(FlowResult::end_us).min();
        first.unwrap_or_else(|| self.end_us())
    }

    /// End of the last flow, or of the run if it was stopped.
    pub fn end_us(&self) -> u64 {
        let open = self.flows.iter().any(|flow| flow.end_ns.is_none());
        let last = self.flows.iter().filter_map(FlowResult::end_us).max();
        match last {
            Some(last) if !open => last,
            _ => self.plan.stop_after_us.unwrap_or(self.virtual_us),
        }
    }

    /// (time in us, state) at each sample; empty without flow series.
    pub fn flow_series(&self, flow: usize) -> impl Iterator<Item = (u64, &FlowSample)> {
        self.flow_samples().iter().map(move |sample| (sample.t_us, &sample.flows[flow]))
    }

    /// (time in us, state) of a watched queue at each sample.
    pub fn queue_series(&self, queue: usize) -> impl Iterator<Item = (u64, &QueueSample)> {
        self.samples.iter().map(move |sample| (sample.t_us, &sample.queues[queue]))
    }

    /// The first watched queue and its link's rate.
    pub fn bottleneck(&self) -> Option<(&WatchedQueue, u64)> {
        let queue = self.plan.watch.first()?;
        let direction = self.plan.topology.direction(&queue.node, &queue.peer)?;
        Some((queue, direction.rate_bps))
    }

    /// Reasons to distrust the figures of this run.
    pub fn doubts(&self) -> Vec<String> {
        const MAX_LINK_ERROR: f64 = 0.01;
        let counters =
            self.suspects.iter().map(|(counter, delta)| format!("{counter} increased by {delta}"));
        let programs = self.plan.programs.iter().zip(&self.outputs);
        let programs = programs.filter_map(|(program, output)| {
            let code = output.code.filter(|&code| code != 0 && !program.daemon)?;
            let how = match code {
                -1 => "was killed by a signal".to_owned(),
                code => format!("ended with exit code {code}"),
            };
            let said = output.errors.lines().last().unwrap_or_default();
            Some(format!("'{}' on {} {how}: {said}", program.command, program.node))
        });
        let links =
            self.link_checks.iter().filter(|check| check.error().abs() > MAX_LINK_ERROR).map(
                |check| {
                    format!(
                        "base RTT {}-{} is {:.1} us, configured {:.1} us",
                        check.src, check.dst, check.measured_us, check.configured_us
                    )
                },
            );
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

#[cfg(test)]
mod tests;
