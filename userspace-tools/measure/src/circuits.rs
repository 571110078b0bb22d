// SPDX-License-Identifier: GPL-2.0
//! Circuit usage of a rotor as seen by the circuit switch, and the elephants' windows at their days.

use xdc_proto::Rotor;

use crate::figures::{mean, percentile};
use crate::record::Record;
use crate::run::{Circuits, Shares};

/// Number of first and last weeks with separate figures.
const FEW_WEEKS: usize = 10;

/// Figures of circuits; None without a rotor.
pub fn circuits(record: &Record) -> Option<Circuits> {
    let rotor = record.plan.topology.rotor.as_ref()?;
    let told = record.circuits.as_ref()?;
    let weeks = weeks(record, rotor, told.base_ns);
    let uses: Vec<f64> = weeks.clone().map(|week| week_use(record, rotor, week)).collect();
    let few = FEW_WEEKS.min(uses.len());
    let windows = windows(record, rotor, told.base_ns);
    let week_mbps = week_mbps(record, rotor, told.base_ns, weeks);
    Some(Circuits {
        weeks: uses.len(),
        used: mean(&uses),
        used_first: mean(&uses[..few]),
        used_last: mean(&uses[uses.len() - few..]),
        used_least: uses.iter().copied().reduce(f64::min),
        packets: told.packets,
        night: told.night,
        cut: told.cut,
        misdirected: told.misdirected,
        unaccounted: told.unaccounted,
        window_packets: shares(windows),
        flow_week_mbps: shares(week_mbps),
        qdiscs: told.qdiscs.clone(),
    })
}

/// Weeks within the traffic after the warm-up.
fn weeks(record: &Record, rotor: &Rotor, base_ns: i64) -> std::ops::Range<usize> {
    let week_ns = rotor.week_ns().max(1);
    let since_base = |us: u64| {
        let ns = i64::try_from(us.saturating_mul(1000)).unwrap_or(i64::MAX);
        u64::try_from(ns.saturating_sub(base_ns)).unwrap_or(0)
    };
    let first = since_base(record.warmup_us).div_ceil(week_ns);
    let end = since_base(record.end_us()) / week_ns;
    // The last counted week includes all later ones.
    let end = end.min(u64::from(rotor.weeks.saturating_sub(1)));
    first as usize..end.max(first) as usize
}

/// Share of a week's circuit capacity that a rack used, averaged over racks that ever used any.
fn week_use(record: &Record, rotor: &Rotor, week: usize) -> f64 {
    let told = record.circuits.as_ref();
    let racks = told.into_iter().flat_map(|told| &told.week_bytes);
    let full = rotor.day_bytes() * rotor.racks.len().saturating_sub(1) as f64;
    let uses = racks
        .filter(|weeks| !weeks.is_empty())
        .map(|weeks| weeks.get(week).copied().unwrap_or(0) as f64 / full);
    mean(&uses.collect::<Vec<_>>()).unwrap_or(0.0)
}

/// The rack of a host.
fn rack_of(rotor: &Rotor, host: usize) -> Option<usize> {
    let mut racks = rotor.racks.iter();
    racks.position(|rack| {
        let first = rack.first_host as usize;
        (first..first + rack.hosts as usize).contains(&host)
    })
}

/// Endless flows and the racks of their ends.
fn elephants(record: &Record, rotor: &Rotor) -> Vec<(usize, usize, usize)> {
    let hosts = record.plan.topology.nodes.iter().filter(|node| !node.router);
    let hosts: Vec<&str> = hosts.map(|host| host.name.as_str()).collect();
    let rack = |name: &str| rack_of(rotor, hosts.iter().position(|host| *host == name)?);
    let flows = record.plan.flows.iter().enumerate();
    flows
        .filter(|(_, flow)| flow.bytes == 0)
        .filter_map(|(n, flow)| Some((n, rack(&flow.src)?, rack(&flow.dst)?)))
        .collect()
}

/// Congestion windows, packets, of elephants at the start of their days, if each flow is sampled at each
/// start. The traffic begins with one.
fn windows(record: &Record, rotor: &Rotor, base_ns: i64) -> Vec<f64> {
    let slot_us = rotor.slot_ns() / 1000;
    let racks = rotor.racks.len();
    if !record.plan.flow_series || record.plan.sample_us != slot_us || slot_us == 0 || racks < 2 {
        return Vec::new();
    }
    let elephants = elephants(record, rotor);
    let first = u64::try_from(-base_ns).unwrap_or(0) / rotor.slot_ns();
    let mut windows = Vec::new();
    for sample in &record.samples {
        if sample.t_us < record.warmup_us.max(slot_us) || sample.t_us % slot_us > slot_us / 8 {
            continue;
        }
        let label = first + sample.t_us / slot_us;
        let turn = (label % (racks as u64 - 1)) as usize;
        let due = elephants.iter().filter(|(_, from, to)| (from + 1 + turn) % racks == *to);
        let windows_now = due.filter_map(|(flow, ..)| sample.flows.get(*flow));
        windows.extend(
            windows_now.filter(|flow| flow.active).map(|flow| f64::from(flow.cwnd_packets)),
        );
    }
    windows
}

/// Goodput of each elephant in each week, Mbit/s.
fn week_mbps(
    record: &Record,
    rotor: &Rotor,
    base_ns: i64,
    weeks: std::ops::Range<usize>,
) -> Vec<f64> {
    if !record.plan.flow_series {
        return Vec::new();
    }
    let week_ns = rotor.week_ns();
    let at_us = |week: usize| {
        let ns = base_ns.saturating_add_unsigned(week_ns.saturating_mul(week as u64));
        u64::try_from(ns).unwrap_or(0) / 1000
    };
    let mut all = Vec::new();
    for (flow, ..) in elephants(record, rotor) {
        for week in weeks.clone() {
            let received = |week| record.received_at(flow, at_us(week));
            let bytes = received(week + 1) - received(week);
            all.push(bytes * 8e3 / week_ns as f64);
        }
    }
    all
}

fn shares(mut values: Vec<f64>) -> Option<Shares> {
    values.sort_by(f64::total_cmp);
    Some(Shares {
        mean: mean(&values)?,
        p10: percentile(&values, 10.0)?,
        p50: percentile(&values, 50.0)?,
        p90: percentile(&values, 90.0)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::recorded;
    use xdc_proto::{Circuits as Told, Rack};

    fn with(week_bytes: Vec<Vec<u64>>) -> Record {
        let mut record = recorded();
        let rack = |first_host| Rack { first_host, hosts: 1, ..Default::default() };
        // Days of 0.9 ms that carry 112,500 bytes; weeks of 2 ms.
        record.plan.topology.rotor = Some(Rotor {
            racks: vec![rack(0), rack(1), rack(2)],
            day_ns: 900_000,
            night_ns: 100_000,
            rate_bps: 1_000_000_000,
            weeks: 100,
            ..Default::default()
        });
        record.circuits =
            Some(Told { base_ns: -500_000, week_bytes, packets: 7, ..Default::default() });
        record
    }

    #[test]
    fn circuit_use_is_relative_to_the_capacity_of_its_days() {
        let full = 225_000;
        let record = with(vec![vec![1, full, full / 2], Vec::new(), Vec::new()]);
        // Traffic spans 0.5 to 20.5 ms of the schedule: weeks 1 to 9.
        let of = circuits(&record).unwrap();
        assert_eq!((of.weeks, of.packets), (9, 7));
        assert!((of.used.unwrap() - 1.5 / 9.0).abs() < 1e-9);
        assert_eq!(of.used_least, Some(0.0));
        let mut late = with(vec![vec![0, 0, full / 2, full], vec![0; 9], Vec::new()]);
        late.warmup_us = 3_500;
        let of = circuits(&late).unwrap();
        // Two racks ever used circuits, one of them in these weeks, 2 to 9.
        assert_eq!(of.weeks, 8);
        assert!((of.used.unwrap() - 0.75 / 8.0).abs() < 1e-9);
    }

    #[test]
    fn a_run_without_circuits_has_no_circuit_figures() {
        assert!(circuits(&recorded()).is_none());
        let unused = circuits(&with(vec![Vec::new(); 3])).unwrap();
        assert_eq!(unused.used, Some(0.0));
    }
}
