// SPDX-License-Identifier: GPL-2.0
//! What one guest said in one run, and questions about it.

use std::time::{Duration, Instant};

use xdc_proto::{
    FlowResult, FlowSample, Mark, Message, NetworkSize, Packet, Queue, QueueResult, QueueSample,
    RunPlan, Sample, WatchedQueue,
};

use crate::completion::SizeClasses;
use crate::error::{Error, Result};
use crate::trace;

/// One run, as it was told.
#[derive(Debug)]
pub struct Record {
    /// As the scenario calls it; the plan has what the kernel calls it.
    pub cc: String,
    pub plan: RunPlan,
    pub sizes: SizeClasses,
    pub kernel: String,
    pub samples: Vec<Sample>,
    /// In the order of the plan; complete once the run is.
    pub flows: Vec<FlowResult>,
    pub queues: Vec<QueueResult>,
    /// Of each watched port, where the plan says to capture.
    pub captures: Vec<Vec<Packet>>,
    /// Of tracepoints, where the plan says to trace.
    pub trace: Option<trace::of_run::Raw>,
    /// Measured over configured RTT, less 1, of the path that is furthest off.
    pub link_rtt_error: Option<f64>,
    pub link_checks: Vec<LinkCheck>,
    /// Kernel counters that should not have moved.
    pub suspects: Vec<(String, u64)>,
    pub virtual_us: u64,
    pub wall: Duration,
    /// When the guest began to build its network, and how it came out.
    building: Option<Instant>,
    pub network: Option<(NetworkSize, Duration)>,
}

#[derive(Debug, Clone)]
pub struct LinkCheck {
    pub src: String,
    pub dst: String,
    pub configured_us: f64,
    pub measured_us: f64,
}

impl LinkCheck {
    pub fn error(&self) -> f64 {
        self.measured_us / self.configured_us - 1.0
    }
}

impl Record {
    pub fn new(cc: &str, plan: RunPlan) -> Self {
        Self {
            cc: cc.to_owned(),
            captures: vec![Vec::new(); plan.watch.len()],
            sizes: SizeClasses {
                small_below_bytes: 100_000,
                large_above_bytes: 1_000_000,
            },
            plan,
            kernel: String::new(),
            samples: Vec::new(),
            flows: Vec::new(),
            queues: Vec::new(),
            trace: None,
            link_rtt_error: None,
            link_checks: Vec::new(),
            suspects: Vec::new(),
            virtual_us: 0,
            wall: Duration::ZERO,
            building: None,
            network: None,
        }
    }

    pub fn add(&mut self, message: Message) -> Result<()> {
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
                self.link_checks.push(check);
            }
            Message::Sample(sample) => {
                let flows = self.plan.flows.len() * usize::from(self.plan.flow_series);
                if sample.flows.len() != flows || sample.queues.len() != self.plan.watch.len() {
                    return Err(Error::failure(
                        "a sample from the guest does not fit the plan",
                    ));
                }
                self.samples.push(sample);
            }
            Message::Flow(flow) => self.flows.push(flow),
            Message::Queue(queue) => self.queues.push(queue),
            Message::Packets { queue, packets } => self
                .captures
                .get_mut(queue)
                .ok_or_else(|| Error::failure("packets from the guest do not fit the plan"))?
                .extend(packets),
            Message::Trace(head) => {
                self.trace = Some(trace::of_run::Raw {
                    head,
                    pages: Vec::new(),
                });
            }
            Message::TracePage { cpu, bytes } => {
                let page = xdc_proto::from_hex(&bytes);
                match (&mut self.trace, page) {
                    (Some(trace), Some(page)) => trace.pages.push((cpu, page)),
                    _ => return Err(Error::failure("a page of a trace that nobody can read")),
                }
            }
            Message::Suspect { counter, delta } => self.suspects.push((counter, delta)),
            Message::Done { virtual_us } => self.virtual_us = virtual_us,
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

    /// Put the results in the order of the plan and see that none is missing.
    pub fn complete(mut self, wall: Duration) -> Result<Self> {
        self.wall = wall;
        self.flows.sort_by_key(|flow| flow.flow);
        self.queues.sort_by_key(|queue| queue.queue);
        let flows = self.flows.iter().map(|flow| flow.flow);
        let queues = self.queues.iter().map(|queue| queue.queue);
        if flows.eq(0..self.plan.flows.len()) && queues.eq(0..self.plan.watch.len()) {
            Ok(self)
        } else {
            Err(Error::failure(
                "the guest finished without a result for every flow and queue",
            ))
        }
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

    pub fn flow_series(&self, flow: usize) -> impl Iterator<Item = (u64, &FlowSample)> {
        self.flow_samples()
            .iter()
            .map(move |sample| (sample.t_us, &sample.flows[flow]))
    }

    pub fn queue_series(&self, queue: usize) -> impl Iterator<Item = (u64, &QueueSample)> {
        self.samples
            .iter()
            .map(move |sample| (sample.t_us, &sample.queues[queue]))
    }

    /// The first watched queue and its link's rate.
    pub fn bottleneck(&self) -> Option<(&WatchedQueue, u64)> {
        let queue = self.plan.watch.first()?;
        let direction =
            crate::paths::find_direction(&self.plan.topology, &queue.node, &queue.peer)?;
        Some((queue, direction.rate_bps))
    }

    /// Whether a watched queue marks by its phantom counter; else the counter means nothing.
    pub fn marks_by_phantom(&self, queue: usize) -> bool {
        let watched = &self.plan.watch[queue];
        let direction =
            crate::paths::find_direction(&self.plan.topology, &watched.node, &watched.peer);
        let Some(Queue::Phantom(queue)) = direction.and_then(|d| d.queue.as_ref()) else {
            return false;
        };
        matches!(queue.mark, Some(Mark::Phantom | Mark::Either | Mark::Both))
    }

    /// Why the figures of this run should not be believed.
    pub fn doubts(&self) -> Vec<String> {
        const MAX_LINK_ERROR: f64 = 0.01;
        let counters = self
            .suspects
            .iter()
            .map(|(counter, delta)| format!("{counter} moved by {delta}"));
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
        let missed = self.trace.as_ref().map_or(0, |trace| trace.head.missed);
        let trace = (missed > 0).then(|| {
            format!(
                "the trace lacks {missed} events: its buffer was full (fewer with --trace=EVENT)"
            )
        });
        counters.chain(links).chain(trace).collect()
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::plan::plan;
    use crate::scenario::{parse, tests::SMALL};
    use xdc_proto::{Job, Message};

    /// Two flows of 1 MiB to one host over 1 Gbit/s; flow 0 at twice the rate of flow 1 for the
    /// first half, then at equal rates until flow 0 ends at 16 ms and flow 1 at 20 ms.
    pub fn recorded() -> Record {
        let scenario = parse("small", SMALL, &[]).unwrap().scenario;
        let Job::Run(run) = plan(&scenario, "unocc", 1, 1).unwrap().job else {
            panic!("not a run");
        };
        let mut record = Record::new("unocc", run);
        record
            .add(Message::Hello {
                version: xdc_proto::VERSION,
                kernel: "7.3.4".to_owned(),
            })
            .unwrap();
        record
            .add(Message::LinkCheck {
                src: "a1".to_owned(),
                dst: "r".to_owned(),
                configured_rtt_us: 100.0,
                measured_rtt_us: 100.5,
            })
            .unwrap();
        let bytes = 1u64 << 20;
        for ms in 0..=20u64 {
            let share = |done: u64| FlowSample {
                active: done < bytes,
                cwnd_packets: 10,
                cwnd_bytes: 14_480,
                srtt_us: 200 + ms as u32,
                received_bytes: done.min(bytes),
                retransmits: 0,
                pacing_bps: 0,
            };
            let fast = (bytes / 12) * ms.min(8) + (bytes / 24) * ms.saturating_sub(8);
            let slow = (bytes / 24) * ms + (bytes / 24) * ms.saturating_sub(16);
            record
                .add(Message::Sample(Sample {
                    t_us: ms * 1000,
                    flows: vec![share(fast), share(slow)],
                    active_flows: 2,
                    received_bytes: fast + slow,
                    queues: vec![QueueSample {
                        backlog_bytes: ms * 100,
                        phantom_bytes: Some(ms * 1000),
                        drops: 0,
                        marks: ms,
                    }],
                }))
                .unwrap();
        }
        for (flow, end_us) in [(1, 20_000), (0, 16_000)] {
            record
                .add(Message::Flow(FlowResult {
                    flow,
                    start_ns: 0,
                    end_ns: Some(end_us * 1000),
                    received_bytes: bytes,
                    retransmits: 0,
                    timeouts: 0,
                    delivered_ce: 10,
                    delivered: 725,
                    min_rtt_us: 130,
                    mss_bytes: 1448,
                }))
                .unwrap();
        }
        record
            .add(Message::Queue(QueueResult {
                queue: 0,
                sent_packets: 1450,
                sent_bytes: 2 << 20,
                drops: 0,
                marks: 20,
                backlog_max_bytes: Some(5000),
                phantom_max_bytes: Some(20_000),
            }))
            .unwrap();
        record.add(Message::Done { virtual_us: 20_000 }).unwrap();
        record.complete(Duration::from_secs(1)).unwrap()
    }

    #[test]
    fn bytes_between_samples_lie_on_a_line() {
        let record = recorded();
        let step = f64::from(1 << 20) / 12.0;
        assert_eq!(record.received_at(0, 0), 0.0);
        assert!((record.received_at(0, 1500) - 1.5 * step).abs() < 1.0);
        assert_eq!(record.received_at(0, 30_000), f64::from(1 << 20));
        assert_eq!((record.first_end_us(), record.end_us()), (16_000, 20_000));
    }

    #[test]
    fn doubts_name_links_and_counters() {
        let mut record = recorded();
        assert!(record.doubts().is_empty());
        record.suspects.push(("PruneCalled".to_owned(), 3));
        record.link_checks[0].measured_us = 102.0;
        assert_eq!(record.doubts().len(), 2);
    }

    #[test]
    fn a_run_without_every_result_is_an_error() {
        let mut record = recorded();
        record.flows.pop();
        assert!(record.complete(Duration::ZERO).is_err());
    }
}
