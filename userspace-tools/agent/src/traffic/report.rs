// SPDX-License-Identifier: GPL-2.0
//! Samples, progress and results of a run's traffic.

use super::*;

impl Traffic<'_> {
    pub(super) fn sample(&mut self, now: u64) -> Result<Sample> {
        let network = self.network;
        let queues = self.watches.iter_mut();
        let queues = queues.map(|watch| watch.sample(network));
        let queues = queues.collect::<Result<_>>()?;
        let mut flows: Vec<FlowSample> = Vec::new();
        if self.run.flow_series {
            let states = self.transfers.iter_mut().map(Transfer::sample);
            flows = states.collect::<Result<_>>()?;
        }
        let received = flows.iter().map(|flow| flow.received_bytes).sum();
        Ok(Sample {
            t_us: self.us_since_start(now),
            active_flows: self.active,
            received_bytes: self.taken_bytes.max(received),
            flows,
            queues,
        })
    }

    /// Reports progress, in steps.
    pub(super) fn report_progress(&mut self, sample: &Sample, channel: &mut Channel) -> Result<()> {
        let by_time =
            self.run.stop_after_us.map_or(0.0, |stop_us| sample.t_us as f64 / stop_us as f64);
        let expected: u64 = self.run.flows.iter().map(|flow| flow.bytes).sum();
        let by_bytes = match self.run.flows.iter().all(|flow| flow.bytes > 0) {
            true => sample.received_bytes as f64 / expected as f64,
            false => 0.0,
        };
        let done = by_time.max(by_bytes);
        if done < self.reported + PROGRESS_STEP {
            return Ok(());
        }
        self.reported = done;
        channel.send(&Message::Progress {
            what: match self.run.programs.is_empty() {
                true => format!("{} flows", self.unfinished),
                false => format!("{} flows and programs", self.unfinished),
            },
            done: done.min(1.0),
        })
    }

    /// Sends the last sample and the results.
    pub(super) fn report(mut self, channel: &mut Channel) -> Result<u64> {
        let now = now_ns()?;
        let last = self.sample(now)?;
        channel.send(&Message::Sample(last))?;
        if self.unfinished == 0 {
            // The senders' counters are complete when the last ACKs have arrived.
            let rtts_ns = 2 * slowest_rtt_ns(self.run);
            self.settle(now + rtts_ns, |_| true)?;
            self.settle(now + rtts_ns + DELAYED_ACK_NS, |it| {
                it.ended.iter().any(|&flow| it.transfers[flow].awaits_ack())
            })?;
        }
        for flow in std::mem::take(&mut self.ended) {
            self.finish(flow, channel)?;
        }
        for flow in 0..self.transfers.len() {
            if !self.transfers[flow].is_complete() {
                self.finish(flow, channel)?;
            }
        }
        // Stop all programs before reading their output.
        for running in self.programs.values_mut() {
            running.stop()?;
        }
        for (program, running) in &mut self.programs {
            running.report(*program, channel)?;
        }
        if let Some(trace) = &self.trace {
            trace.report(self.network, self.origin_ns, channel)?;
        }
        for (tap, capture) in self.captures.iter_mut().enumerate() {
            capture.report(tap, &self.run.taps[tap].node, channel)?;
        }
        for (queue, watch) in self.watches.iter_mut().enumerate() {
            channel.send(&Message::Queue(watch.result(self.network, queue)?))?;
        }
        if let Some(circuits) = self.network.circuits() {
            let counted = circuits.counted(self.network, self.origin_ns)?;
            channel.send(&Message::Circuits(counted))?;
        }
        let books = Books::read(self.network)?;
        let lost = self.links.lost_arrivals(self.network)?;
        let mut dropped = books.dropped(self.network, &lost);
        channel.send(&Message::Totals(watch::totals(&books, &dropped)))?;
        let after = Counters::read(self.network, endpoints(self.network, self.run)?)?;
        channel.send(&Message::Counters(after.told_since(&self.counters)))?;
        for (counter, delta) in after.suspects_since(&self.counters) {
            channel.send(&Message::Suspect { counter, delta })?;
        }
        let unbalanced = books.unbalanced(self.network, &mut dropped)?;
        channel.send(&Message::Books { dropped, unbalanced })?;
        Ok(self.us_since_start(now))
    }
}
