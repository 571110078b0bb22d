// SPDX-License-Identifier: GPL-2.0

//! Algorithm 1 in floating point. Lines and quotations are the paper's, differences those of
//! modules/algo/unocc.rs.

use super::super::*;
use super::INTRA_US;
use crate::algo::support::{Rng, SEQUENCES, for_each_seed, on_timeout};

struct Reference {
    // Constants of the flow: bytes and microseconds.
    line_rate: f64,
    intra_rtt: f64,
    mss: f64,
    params: Params,

    cwnd: f64,
    ssthresh: f64,
    rtt_base: f64,
    /// The base RTT is the SYN's.
    of_syn: bool,
    t_epoch_ns: f64,
    bytes_acked: f64,
    bytes_marked: f64,
    /// E.
    e: f64,
    t_round: f64,
    /// Quick Adapt or a loss: neither QA nor MD in this RTT.
    skipping: bool,
    /// A comparison was closer than the fixed point resolves, so both outcomes are right.
    tie: bool,
}

impl Reference {
    fn bdp(&self) -> f64 {
        self.line_rate * self.rtt_base
    }

    /// "as a fraction of BDP, e.g., 0.001 x BDP".
    fn alpha(&self) -> f64 {
        f64::from(self.params.ai_ppm) / 1e6 * self.bdp()
    }

    /// Compares, and records a close result.
    fn less(&mut self, a: f64, b: f64, resolution: f64) -> bool {
        self.tie |= (a - b).abs() <= resolution;
        a < b
    }

    fn lower_to(&mut self, cwnd: f64) {
        self.cwnd = self.cwnd.min(cwnd);
        self.ssthresh = self.ssthresh.min(self.cwnd);
    }

    /// Difference 8.
    fn start_at_bdp(&mut self) {
        if self.params.start == 1 && self.ssthresh.is_infinite() {
            self.cwnd = self.bdp();
            self.ssthresh = self.cwnd;
        }
    }

    fn on_ack(&mut self, ack: &Ack) {
        let now = ack.now_us as f64;
        if let Some(rtt) = ack.rtt_us {
            // Difference 2.
            if self.of_syn {
                self.rtt_base = f64::INFINITY;
                self.of_syn = false;
                // "initialized to the time of the ACK arrival"
                self.t_epoch_ns = now * 1e3;
            }
            self.rtt_base = self.rtt_base.min(rtt.into());
        }
        let is_known = self.rtt_base.is_finite();
        if is_known {
            self.start_at_bdp();
        }

        let (acked, marked) = (ack.acked_bytes as f64, ack.marked_bytes as f64);
        if self.cwnd < self.ssthresh {
            // Difference 8.
            if marked > 0.0 {
                self.lower_to(self.cwnd);
            } else if ack.cwnd_limited {
                self.cwnd = (self.cwnd + acked).min(self.ssthresh);
            }
        } else if is_known && ack.cwnd_limited {
            // Lines 2 and 3, per byte; differences 5 and 7.
            self.cwnd += self.alpha() * (acked - marked).min(self.cwnd) / self.cwnd;
        }

        if self.t_round == 0.0 && is_known {
            self.t_round = now;
        }
        self.bytes_acked += if is_known { acked } else { 0.0 };
        self.bytes_marked += if is_known { marked } else { 0.0 };
        if let Some(rtt) = ack.rtt_us.map(f64::from) {
            let sent = now - rtt;
            // "once every RTT"
            if sent >= self.t_round {
                self.t_round = now;
                self.on_qa(ack);
            }
            // "an ACK for a data packet whose T_pkt is >= T_epoch"
            if sent * 1e3 >= self.t_epoch_ns {
                // "a time span proportional to the packet's RTT", in whole nanoseconds.
                let period = (rtt * 1e3 * self.intra_rtt / self.rtt_base).floor();
                self.t_epoch_ns += period;
                // Difference 6.
                if self.t_epoch_ns <= sent * 1e3 {
                    self.t_epoch_ns = sent * 1e3 + period;
                }
                self.on_epoch(rtt);
                (self.bytes_acked, self.bytes_marked) = (0.0, 0.0);
            }
        }
        if self.params.max_cwnd_bdp != 0 && is_known {
            let ceiling = self.bdp() * f64::from(self.params.max_cwnd_bdp) / 1024.0;
            if self.cwnd > ceiling {
                self.lower_to(ceiling);
            }
        }
        self.cwnd = self.cwnd.max(2.0 * self.mss);
    }

    /// Line 7.
    fn on_epoch(&mut self, rtt: f64) {
        if self.bytes_acked == 0.0 {
            return;
        }
        // "the EWMA of the fraction of ECN-marked packets across epochs"
        let before = self.e;
        let g = f64::from(self.params.ewma) / 1024.0;
        self.e = (1.0 - g) * self.e + g * self.bytes_marked / self.bytes_acked;
        // Line 8; difference 1.
        if self.bytes_marked == 0.0 || self.skipping {
            return;
        }
        // Lines 9 to 13; difference 3.
        let tolerance = 1.0 + f64::from(self.params.delay_tolerance_ppm) / 1e6;
        let md_scale = match rtt <= self.rtt_base * tolerance + 1e-6 {
            true => f64::from(self.params.md_gentle) / 1024.0,
            false => 1.0,
        };
        let k = match self.params.k_bytes {
            // In whole bytes, and at least one.
            0 => (self.line_rate * self.intra_rtt / 7.0).floor().max(1.0),
            k => f64::from(k),
        };
        let md_ecn = self.e * (4.0 * k / (k + self.bdp())).min(1.0);
        // The simulator's rule.
        if self.params.skip_md_when_falling != 0
            && before != 0.0
            && self.less(self.e, before, 1e-7)
            && self.less(self.e, 0.9, 1e-7)
        {
            self.cwnd += self.alpha() * self.bytes_acked.min(self.cwnd) / self.cwnd;
            return;
        }
        // Line 14.
        self.lower_to(self.cwnd * (1.0 - md_ecn * md_scale));
    }

    /// Line 18.
    fn on_qa(&mut self, ack: &Ack) {
        let skipped = std::mem::take(&mut self.skipping);
        let is_measured = ack.interval_us != 0 && !ack.app_limited;
        // Section 4.1.3 skips a round trip after Quick Adapt. See difference 5.
        if skipped || !is_measured || ack.in_recovery || self.cwnd < self.ssthresh {
            return;
        }
        let promised = self.cwnd * f64::from(self.params.qa_beta) / 1024.0;
        let resolution = 4.0 + promised / 1e4;
        if self.less(
            f64::from(ack.prior_in_flight) * self.mss,
            promised,
            resolution,
        ) {
            return;
        }
        // Lines 19 and 20; difference 4.
        let rate = ack.delivered_bytes as f64 / f64::from(ack.interval_us);
        let bytes_acked_in_qa = rate * self.rtt_base;
        if self.less(bytes_acked_in_qa + self.mss, promised, resolution) {
            let keep = f64::from(self.params.qa_keep) / 1024.0;
            self.lower_to(bytes_acked_in_qa * keep);
            self.cwnd = self.cwnd.max(2.0 * self.mss);
            self.skipping = true;
        }
    }

    /// Difference 8.
    fn on_loss(&mut self, now_us: u64) {
        if !self.skipping {
            self.lower_to((self.cwnd / 2.0).max(2.0 * self.mss));
            self.skipping = true;
            self.t_round = now_us as f64;
        }
    }

    fn on_timeout(&mut self, now_us: u64, in_flight_bytes: u64) {
        self.on_loss(now_us);
        let target = match self.cwnd < self.ssthresh {
            true => self.ssthresh,
            false => self.cwnd,
        };
        self.lower_to(in_flight_bytes as f64 + self.mss);
        self.ssthresh = target;
    }

    fn undo(&mut self, prior_bytes: u64, ssthresh_bytes: u64) {
        self.cwnd = self.cwnd.max(prior_bytes as f64);
        let ssthresh = match ssthresh_bytes {
            u64::MAX => f64::INFINITY,
            bytes => bytes as f64,
        };
        self.ssthresh = self.ssthresh.min(self.cwnd).max(ssthresh);
    }
}

#[test]
fn the_fixed_point_follows_the_reference() {
    let ties = for_each_seed(|seed| u64::from(!follows_reference(seed)));
    assert!(ties < SEQUENCES / 50, "{ties} sequences without a verdict");
}

/// Returns whether the sequence could be compared to its end.
fn follows_reference(seed: u64) -> bool {
    let mut rng = Rng::new(seed);
    let params = random_params(&mut rng);
    let base_us = rng.pick(&[1, 14, 50, 200, 1_792, 10_000, 100_000, 300_000]);
    let mss_bytes = rng.pick(&[536, 1_448, 4_032, 8_948]);
    let mss = u64::from(mss_bytes);
    // No sequence outlasts the period of a base RTT.
    let mut now_us = rng.within(1, 1 << 40);
    let cwnd_bytes = mss * rng.within(2, 1_000);
    // A SYN is as long as a data packet, or shorter.
    let syn_us = Some(base_us - u32::from(base_us > 1)).filter(|_| rng.percent(50));

    let mut flow = Flow::new(&params, now_us, cwnd_bytes, syn_us);
    let mut reference = Reference {
        line_rate: f64::from(params.line_rate_mbps) / 8.0,
        intra_rtt: f64::from(params.intra_rtt_us),
        mss: f64::from(mss_bytes),
        params,
        cwnd: cwnd_bytes as f64,
        ssthresh: f64::INFINITY,
        rtt_base: syn_us.map_or(f64::INFINITY, f64::from),
        of_syn: true,
        t_epoch_ns: 0.0,
        bytes_acked: 0.0,
        bytes_marked: 0.0,
        e: 0.0,
        t_round: 0.0,
        skipping: false,
        tie: false,
    };
    if syn_us.is_some() {
        reference.start_at_bdp();
    }
    let marked_percent = rng.pick(&[5, 30, 90]);
    let acks_per_rtt = rng.pick(&[1, 4, 16]);
    for step in 0..rng.within(15, 35) {
        now_us += rng.within(0, u64::from(base_us) / acks_per_rtt + 1);
        let prior_bytes = flow.cwnd_bytes();
        match rng.within(0, 99) {
            0 | 1 => {
                flow.on_loss(&params, now_us, mss_bytes);
                reference.on_loss(now_us);
            }
            2 => {
                let in_flight_bytes = mss * rng.within(0, 3);
                on_timeout(&mut flow, &params, now_us, in_flight_bytes, mss_bytes);
                reference.on_timeout(now_us, in_flight_bytes);
            }
            3 => {
                let prior_bytes = prior_bytes + mss * rng.within(0, 20);
                let ssthresh_bytes = rng.pick(&[0, prior_bytes / 2, 2 * prior_bytes, u64::MAX]);
                flow.undo(prior_bytes, ssthresh_bytes);
                reference.undo(prior_bytes, ssthresh_bytes);
            }
            4 => now_us += 100_000,
            _ => {
                let ack = rng.ack(now_us, base_us, mss_bytes, prior_bytes, marked_percent);
                flow.on_ack(&params, &ack);
                reference.on_ack(&ack);
            }
        }
        if reference.tie {
            return false;
        }
        let (fixed, float) = (flow.cwnd_bytes() as f64, reference.cwnd);
        let tolerance = f64::from(mss_bytes).max(float / 1_000.0);
        assert!(
            (fixed - float).abs() <= tolerance,
            "seed {seed}, step {step}: {fixed} is not {float}"
        );
    }
    true
}

fn random_params(rng: &mut Rng) -> Params {
    let mut params = Params::of(rng.pick(&Profile::ALL));
    params.line_rate_mbps = rng.pick(&[1_000, 10_000, 100_000, 400_000]);
    params.intra_rtt_us = INTRA_US;
    if rng.percent(50) {
        params.intra_rtt_us = rng.within(1, 500) as u32;
        params.ai_ppm = rng.within(0, 50_000) as u32;
        params.k_bytes = rng.pick(&[0, 10_000, 1_000_000]);
        params.ewma = rng.within(1, 1_024) as u32;
        params.md_gentle = rng.within(0, 1_024) as u32;
        params.delay_tolerance_ppm = rng.within(0, 200_000) as u32;
        params.qa_beta = rng.within(0, 1_024) as u32;
        params.qa_keep = rng.within(1, 2_048) as u32;
        params.max_cwnd_bdp = rng.pick(&[0, 512, 1_024, 2_048]);
    }
    params
}
