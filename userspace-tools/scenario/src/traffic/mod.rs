// SPDX-License-Identifier: GPL-2.0
//! `[[traffic]]`: random flows, drawn on the host and written into the plan.
//!
//! Each block has its own random numbers, independent of other blocks. Their arithmetic gives equal
//! results on every machine.

mod after;
mod collective;
mod file;
mod hpcc;
mod htsim;
mod ideal;
mod listed;
mod sizes;
mod spec;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use xdc_base::error::{Error, Result};
use xdc_base::units::{Fraction, PPM, Time};
use xdc_proto::gates::Gate;
use xdc_proto::rng::Rng;
use xdc_proto::{Flow, MAX_FLOWS, Switch};

use crate::budget::{Budget, text_bytes};
use crate::dscp::{self, Dscp};
use crate::paths::Paths;
use crate::plan::too_many;
use crate::{Scenario, at, names, pairs};

pub use self::after::Waits;
pub use self::file::FlowFile;
pub use self::hpcc::NODE;
pub use self::ideal::{Classes, ideals_ns};
pub use self::sizes::{Cdf, Sizes};
pub use self::spec::{Kind, SIZES, TrafficSpec};

/// Groups of flows by their path.
const INTRA: &str = "intra";
const INTER: &str = "inter";
/// Default groups of flows.
pub const CLASSES: [&str; 2] = [INTRA, INTER];

/// Default share of a Poisson source's intra-DC flows, as in the papers (4:1).
const LOCAL: Fraction = Fraction(800_000);

/// Attempts to draw a permutation without a fixed point; about a third succeed.
const ATTEMPTS: usize = 1_000;

/// A flow's ends and its start, ns.
#[derive(Debug, Clone, PartialEq)]
struct Draft {
    src: String,
    dst: String,
    start_ns: u64,
    /// Size, if the draft draws it. Otherwise it is drawn after all drafts.
    bytes: Option<u64>,
    /// Group, if not the block's.
    group: Option<String>,
    /// Flows that end first, if not the block's.
    waits: Waiting,
}

/// Condition of a draft's start.
#[derive(Debug, Clone, PartialEq, Default)]
enum Waiting {
    /// The block's: `after`, or none.
    #[default]
    Block,
    /// A group, and then the draft's own start alone.
    Group(String),
    /// A gate of [`Drafts`].
    Gate,
}

/// Flows before their sizes are drawn.
#[derive(Default)]
struct Drafts {
    drafts: Vec<Draft>,
    /// Gates by index of `drafts`.
    gates: Vec<Gate>,
}

impl From<Vec<Draft>> for Drafts {
    fn from(drafts: Vec<Draft>) -> Self {
        let gates = Vec::new();
        Self { drafts, gates }
    }
}

impl Draft {
    fn new(src: &str, dst: &str, start_ns: u64) -> Self {
        Self {
            src: src.to_owned(),
            dst: dst.to_owned(),
            start_ns,
            bytes: None,
            group: None,
            waits: Waiting::Block,
        }
    }
}

/// Memory of a flow in bytes.
pub fn flow_bytes(flow: &Flow) -> usize {
    let names = [&flow.src, &flow.dst, &flow.group].map(String::as_str);
    let ccs = flow.cc.iter().chain(&flow.receiver_cc).map(String::as_str);
    let switches = flow.switches.iter().map(|switch| switch.cc.as_str());
    let own = size_of::<Flow>() + flow.switches.len() * size_of::<Switch>();
    own + text_bytes(names.into_iter().chain(ccs).chain(switches))
}

/// Appends the flows of all blocks, each block's in order of their starts.
pub fn expand(
    budget: &Budget,
    scenario: &Scenario,
    paths: &Paths<'_>,
    classes: &Classes,
    (seed, scale): (u64, u32),
    flows: &mut Vec<Flow>,
    waits: &mut Waits,
) -> Result<()> {
    let dscps = dscp::of_hosts(budget, scenario)?;
    for (number, spec) in scenario.traffic.iter().enumerate() {
        // Different blocks, and adjacent seeds, are independent.
        let mut seeds = Rng::new(seed);
        let seed = (0..=number).fold(0, |_, _| seeds.next_bits());
        let block =
            Block { budget, scenario, spec, paths, classes, dscps: &dscps, scale: scale.into() };
        let drafted = block.flows(&mut Rng::new(seed), flows.len(), waits);
        flows.extend(drafted.map_err(|err| err.at(at!["traffic", number]))?);
        if flows.len() > MAX_FLOWS {
            return Err(too_many(flows.len()));
        }
    }
    Ok(())
}

struct Block<'a> {
    budget: &'a Budget,
    scenario: &'a Scenario,
    spec: &'a TrafficSpec,
    paths: &'a Paths<'a>,
    classes: &'a Classes,
    /// DSCPs by host, for blocks without one.
    dscps: &'a HashMap<String, Dscp>,
    scale: u64,
}

impl Block<'_> {
    /// Draws the block's flows, the first of which becomes number `first`.
    fn flows(&self, rng: &mut Rng, first: usize, waits: &mut Waits) -> Result<Vec<Flow>> {
        let Drafts { drafts, gates } = match self.spec.kind {
            Kind::Incast => self.bursts(rng, 1, 0)?.into(),
            Kind::Bursts => {
                let period_ns = self.burst_period_ns()?;
                let duration_ns = self.scaled(self.spec.duration.unwrap_or_default());
                let bursts = usize::try_from(duration_ns.div_ceil(period_ns));
                self.bursts(rng, bursts.unwrap_or(usize::MAX), period_ns)?.into()
            }
            Kind::Permutation => self.permutation(rng)?.into(),
            Kind::Poisson => self.poisson(rng)?.into(),
            Kind::Rpc => self.rpc(rng)?.into(),
            Kind::Collective => self.collective(rng)?,
            Kind::File | Kind::Htsim | Kind::Hpcc => self.listed()?,
        };
        let mut drafts: Vec<_> = drafts.into_iter().enumerate().collect();
        drafts.sort_by_key(|(_, draft)| draft.start_ns);
        let mut numbers = vec![0; drafts.len()];
        for (place, (n, draft)) in drafts.iter().enumerate() {
            numbers[*n] = first + place;
            let group = match &draft.waits {
                Waiting::Block => self.spec.after.as_ref(),
                Waiting::Group(group) => Some(group),
                Waiting::Gate => None,
            };
            waits.after(first + place, group);
        }
        waits.add(self.budget, &gates, &numbers)?;
        drafts.into_iter().map(|(_, draft)| self.flow(draft, rng)).collect()
    }

    fn flow(&self, draft: Draft, rng: &mut Rng) -> Result<Flow> {
        let Draft { src, dst, group, .. } = draft;
        let start_ns = match draft.waits {
            Waiting::Block => self.scaled(self.spec.start),
            Waiting::Group(_) | Waiting::Gate => 0,
        };
        if src == dst {
            let err = Error::usage(format!("a flow leads from '{src}' to itself"));
            return Err(err.hint("another receiver"));
        }
        let spec = self.spec;
        let base_rtt_us = self.paths.base_rtt_us(&src, &dst)?;
        let inter = self.classes.is_inter(base_rtt_us);
        let bytes = match draft.bytes {
            Some(bytes) => bytes,
            None => self.sizes(inter)?.draw(&self.scenario.cdfs, rng)?,
        };
        let class = if inter { INTER } else { INTRA };
        let dscp = spec.dscp.or(self.dscps.get(&src).copied());
        let dscp = dscp.unwrap_or_default().0;
        let (ideal_ns, ideal_accecn_ns) = ideals_ns(self.paths, (&src, &dst), bytes, false)?;
        let flow = Flow {
            ideal_ns,
            ideal_accecn_ns,
            ack_ns: self.paths.ack_ns(&src, &dst)?,
            src,
            dst,
            group: group.unwrap_or_else(|| spec.group.as_deref().unwrap_or(class).to_owned()),
            bytes,
            start_ns: start_ns.saturating_add(draft.start_ns),
            start_jitter_us: self.scaled(spec.jitter) / 1000,
            cc: None,
            receiver_cc: None,
            switches: Vec::new(),
            burst_bytes: 0,
            period_us: 0,
            persistent: spec.persistent,
            dscp,
            window_known: spec.window_known,
            tunnel: false,
            sndbuf_bytes: spec.sndbuf.0,
            rcvbuf_bytes: spec.rcvbuf.0,
            base_rtt_us,
        };
        self.budget.charge("flows", 1, flow_bytes(&flow))?;
        Ok(flow)
    }

    fn scaled(&self, time: Time) -> u64 {
        time.0 * self.scale
    }

    fn sizes(&self, inter: bool) -> Result<&Sizes> {
        let own = match inter {
            true => &self.spec.inter_sizes,
            false => &self.spec.intra_sizes,
        };
        own.as_ref().or(self.spec.sizes.as_ref()).ok_or_else(|| Error::usage("no sizes"))
    }

    /// Incasts, one every `period_ns`.
    fn bursts(&self, rng: &mut Rng, bursts: usize, period_ns: u64) -> Result<Vec<Draft>> {
        let to = self.spec.to.as_deref().unwrap_or_default();
        let receivers = names::expand(self.budget, to)?;
        let hosts = self.spec.hosts(self.budget)?;
        let per_host = self.spec.per_host.unwrap_or(1);
        self.limit(bursts)?;
        let mut drafts = Vec::new();
        for burst in 0..bursts {
            let to = match &receivers[..] {
                [only] => only,
                several => &several[rng.up_to(several.len() as u64 - 1) as usize],
            };
            // Hosts that are not chosen take time, too.
            self.budget.charge("senders of bursts", hosts.len(), size_of::<&String>())?;
            let mut senders: Vec<_> = hosts.iter().filter(|host| *host != to).collect();
            let count = self.spec.flows.unwrap_or(senders.len());
            if count > senders.len() {
                return Err(Error::usage(format!("{count} flows from {} hosts", senders.len())));
            }
            if count < senders.len() {
                shuffle(&mut senders, rng);
            }
            self.limit(drafts.len().saturating_add(count.saturating_mul(per_host)))?;
            for src in &senders[..count] {
                let draft = Draft::new(src, to, burst as u64 * period_ns);
                drafts.extend(std::iter::repeat_n(draft, per_host));
            }
        }
        Ok(drafts)
    }

    /// Time between bursts: `period`, or by the `load` of all links of the senders.
    fn burst_period_ns(&self) -> Result<u64> {
        let Some(load) = self.spec.load else {
            return Ok(self.scaled(self.spec.period.unwrap_or_default()).max(1));
        };
        let to = self.spec.to.as_deref().unwrap_or_default();
        let to = names::expand(self.budget, to)?;
        let hosts = self.spec.hosts(self.budget)?;
        let others = hosts.iter().filter(|host| to.first() != Some(*host));
        let senders = self.spec.flows.unwrap_or_else(|| others.count());
        let flows = (senders * self.spec.per_host.unwrap_or(1)) as f64;
        let rates = hosts.iter().map(|host| self.rate_bps(host));
        let capacity_bps: u64 = rates.sum::<Result<_>>()?;
        let load = f64::from(load.0) / f64::from(PPM);
        let period_ns = flows * self.mean(false, true)? * 8e9 / (load * capacity_bps as f64);
        Ok((period_ns.round() as u64).max(1))
    }

    /// Refuses more flows than a run can have, before drawing them.
    fn limit(&self, flows: usize) -> Result<()> {
        match flows > MAX_FLOWS {
            true => Err(Error::usage(format!("more than {MAX_FLOWS} flows, one for each port"))),
            false => Ok(()),
        }
    }

    fn permutation(&self, rng: &mut Rng) -> Result<Vec<Draft>> {
        let hosts = self.spec.hosts(self.budget)?;
        let centers = self.spec.across.map(|_| self.datacenters(&hosts));
        let centers = centers.transpose()?.unwrap_or_default();
        for _ in 0..ATTEMPTS {
            let to = match self.spec.across {
                None => {
                    let mut to: Vec<_> = (0..hosts.len()).collect();
                    shuffle(&mut to, rng);
                    to
                }
                Some(share) => crossing(centers.clone(), share, rng)?,
            };
            if to.iter().enumerate().all(|(from, &to)| from != to) {
                let pairs = hosts.iter().zip(to);
                return Ok(pairs.map(|(src, to)| Draft::new(src, &hosts[to], 0)).collect());
            }
        }
        Err(Error::usage("every permutation of these hosts sends a host to itself"))
    }

    /// Groups `hosts` by datacenter, as indices.
    fn datacenters(&self, hosts: &[String]) -> Result<Vec<Vec<usize>>> {
        let names: Vec<_> = hosts.iter().map(String::as_str).collect();
        self.classes.datacenters(self.budget, self.paths, &names)
    }

    /// Draws exponential gaps per source, with mean = mean size / (load x its link's rate).
    fn poisson(&self, rng: &mut Rng) -> Result<Vec<Draft>> {
        let hosts = self.spec.hosts(self.budget)?;
        let centers = self.datacenters(&hosts)?;
        // Hosts of a datacenter are adjacent.
        let all = centers.concat();
        let local = self.spec.local.unwrap_or(LOCAL).0;
        let share = |ppm: u32| f64::from(ppm) / f64::from(PPM);
        let load = share(self.spec.load.unwrap_or_default().0);
        let until_ns = self.spec.duration.map_or(u64::MAX, |time| self.scaled(time));
        let count = self.spec.flows.unwrap_or(usize::MAX);

        let mut sources = Vec::new();
        let mut next = BinaryHeap::new();
        let mut before = 0;
        for members in &centers {
            let center = before..before + members.len();
            before = center.end;
            for own in center.clone() {
                let local = match (center.len() > 1, center.len() < all.len()) {
                    (false, false) => return Err(Error::usage("a single host has no peer")),
                    (false, true) => 0,
                    (true, false) => PPM,
                    (true, true) => local,
                };
                let mean = share(local) * self.mean(false, local > 0)?
                    + share(PPM - local) * self.mean(true, local < PPM)?;
                let gap_ns = mean * 8e9 / (load * self.rate_bps(&hosts[all[own]])? as f64);
                let first_ns = exponential(gap_ns, rng);
                next.push(Reverse((first_ns, sources.len())));
                sources.push((own, center.clone(), local, gap_ns));
            }
        }
        let mut drafts = Vec::new();
        while let Some(Reverse((start_ns, source))) = next.pop()
            && drafts.len() < count
            && start_ns < until_ns
        {
            let (own, center, local, gap_ns) = &sources[source];
            let inter = rng.up_to(u64::from(PPM) - 1) >= u64::from(*local);
            // Peers are all hosts outside of the datacenter, or all others in it.
            let (first, skipped) = match inter {
                true => (0, center.clone()),
                false => (center.start, *own..own + 1),
            };
            let peers = if inter { all.len() } else { center.len() } - skipped.len();
            let drawn = first + rng.up_to(peers as u64 - 1) as usize;
            let to = match drawn < skipped.start {
                true => drawn,
                false => drawn + skipped.len(),
            };
            drafts.push(Draft {
                bytes: Some(self.sizes(inter)?.draw(&self.scenario.cdfs, rng)?),
                ..Draft::new(&hosts[all[*own]], &hosts[all[to]], start_ns)
            });
            self.limit(drafts.len())?;
            let next_ns = start_ns.saturating_add(exponential(*gap_ns, rng));
            next.push(Reverse((next_ns, source)));
        }
        Ok(drafts)
    }

    /// Mean size of a class; 0 if no flow has it.
    fn mean(&self, inter: bool, there: bool) -> Result<f64> {
        match there {
            true => self.sizes(inter)?.mean(&self.scenario.cdfs),
            false => Ok(0.0),
        }
    }

    /// Rate of a host's link.
    fn rate_bps(&self, host: &str) -> Result<u64> {
        let rate_bps = self.paths.rate_bps(host)?.filter(|&bps| bps > 0);
        rate_bps.ok_or_else(|| {
            Error::usage(format!("the links of '{host}' have no rate, which 'load' needs"))
        })
    }

    fn rpc(&self, rng: &mut Rng) -> Result<Vec<Draft>> {
        let to = self.spec.to.as_deref().unwrap_or_default();
        let period_ns = self.scaled(self.spec.period.unwrap_or_default());
        let until_ns = self.spec.duration.map_or(u64::MAX, |time| self.scaled(time));
        let count = self.spec.flows.unwrap_or(usize::MAX);
        let mut drafts = Vec::new();
        for from in &self.spec.hosts {
            for (src, dst) in pairs(self.budget, from, to)? {
                let mut start_ns: u64 = 0;
                let mut sent = 0;
                loop {
                    if self.spec.random {
                        let gap_ns = exponential(period_ns as f64, rng);
                        start_ns = start_ns.saturating_add(gap_ns);
                    }
                    if sent == count || start_ns >= until_ns {
                        break;
                    }
                    drafts.push(Draft::new(&src, &dst, start_ns));
                    self.limit(drafts.len())?;
                    sent += 1;
                    if !self.spec.random {
                        start_ns = start_ns.saturating_add(period_ns);
                    }
                }
            }
        }
        Ok(drafts)
    }
}

/// Draws a permutation with the requested share of inter-DC flows.
fn crossing(mut centers: Vec<Vec<usize>>, share: Fraction, rng: &mut Rng) -> Result<Vec<usize>> {
    let hosts: usize = centers.iter().map(Vec::len).sum();
    if centers.len() != 2 {
        return Err(Error::usage(format!(
            "'across' needs hosts in two datacenters, not in {}",
            centers.len()
        )));
    }
    // Equally many in both directions.
    let wanted = (hosts as u64 * u64::from(share.0) / u64::from(2 * PPM)) as usize;
    if centers.iter().any(|center| center.len() < wanted) {
        return Err(Error::usage(format!("'across' needs {wanted} hosts in each datacenter")));
    }
    let mut to = vec![0; hosts];
    let mut receivers = centers.clone();
    for (senders, receivers) in centers.iter_mut().zip(&mut receivers) {
        shuffle(senders, rng);
        shuffle(receivers, rng);
    }
    for (here, there) in [(0, 1), (1, 0)] {
        for (place, &from) in centers[here].iter().enumerate() {
            to[from] = match place < wanted {
                true => receivers[there][place],
                false => receivers[here][place],
            };
        }
    }
    Ok(to)
}

/// Fisher-Yates shuffle.
fn shuffle<T>(items: &mut [T], rng: &mut Rng) {
    for last in (1..items.len()).rev() {
        items.swap(last, rng.up_to(last as u64) as usize);
    }
}

/// Draws with libm's logarithm, whose bits are equal on every machine.
fn exponential(mean: f64, rng: &mut Rng) -> u64 {
    let drawn = (-mean * libm::log(1.0 - rng.unit())) as u64;
    // Sums over the maximum number of flows fit into 64 bits.
    drawn.min(u64::MAX >> 20)
}

#[cfg(test)]
mod tests;
