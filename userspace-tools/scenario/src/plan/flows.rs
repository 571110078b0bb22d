// SPDX-License-Identifier: GPL-2.0
//! Flows of a plan.

use super::*;

pub(super) fn flows(
    budget: &Budget,
    scenario: &Scenario,
    cc: &Cc,
    paths: &Paths<'_>,
    seed: u64,
    scale: u32,
) -> Result<(Vec<Flow>, Vec<Gate>)> {
    let mut waits = Waits::default();
    let dscps = dscp::of_hosts(budget, scenario)?;
    let mut flows = Vec::new();
    let scaled_us = |time: Time| time.0 * u64::from(scale) / 1000;
    for spec in &scenario.flows {
        let sender_cc = spec.sender_cc.as_ref().or(spec.cc.as_ref());
        let receiver_cc = spec.receiver_cc.as_ref().or(spec.cc.as_ref());
        for cc in sender_cc.into_iter().chain(receiver_cc) {
            single_cc(scenario, cc)?;
        }
        let mut switches = Vec::new();
        for switch in &spec.switch {
            let to = switch.cc.as_deref().unwrap_or(&cc.cc);
            single_cc(scenario, to)?;
            switches.push(Switch { after_us: scaled_us(switch.at), cc: to.to_owned() });
        }
        for (src, dst) in pairs(budget, &spec.src, &spec.dst)? {
            let base_rtt_us = paths.base_rtt_us(&src, &dst)?;
            let ends = (src.as_str(), dst.as_str());
            let (ideal_ns, ideal_accecn_ns) = traffic::ideals_ns(paths, ends, spec.bytes.0, false)?;
            let ack_ns = paths.ack_ns(&src, &dst)?;
            let dscp = spec.dscp.or(dscps.get(&src).copied()).unwrap_or_default().0;
            let flow = Flow {
                src,
                dst,
                group: spec.group.clone(),
                bytes: spec.bytes.0,
                start_ns: spec.start.0 * u64::from(scale),
                start_jitter_us: scaled_us(spec.jitter),
                cc: sender_cc.cloned(),
                receiver_cc: receiver_cc.cloned(),
                switches: switches.clone(),
                burst_bytes: spec.burst.0,
                period_us: scaled_us(spec.period),
                persistent: false,
                dscp,
                window_known: spec.window_known,
                tunnel: false,
                sndbuf_bytes: spec.sndbuf.0,
                rcvbuf_bytes: spec.rcvbuf.0,
                base_rtt_us,
                ideal_ns,
                ack_ns,
                ideal_accecn_ns,
            };
            if flows.len() + spec.count > MAX_FLOWS {
                return Err(too_many(flows.len() + spec.count));
            }
            budget.charge("flows", spec.count, traffic::flow_bytes(&flow))?;
            for number in flows.len()..flows.len() + spec.count {
                waits.after(number, spec.after.as_ref());
            }
            flows.extend(std::iter::repeat_n(flow, spec.count));
        }
    }
    let classes = Classes::new(paths, scenario.inter_rtt, scale);
    let seeded = (seed, scale);
    traffic::expand(budget, scenario, paths, &classes, seeded, &mut flows, &mut waits)?;
    // Drawn times are unbounded: allow a day, plus a day for the block's own start.
    let latest_ns = 2 * LONGEST.0 * u64::from(scale);
    if let Some(late) = flows.iter().find(|flow| flow.start_ns > latest_ns) {
        return Err(Error::usage(format!(
            "a flow from '{}' to '{}' would start after more than two days",
            late.src, late.dst
        ))
        .hint("fewer flows, or a shorter 'period'"));
    }
    if flows.is_empty() && scenario.programs.is_empty() {
        return Err(
            Error::usage("the scenario has no flow").hint("[[flows]], [[traffic]] or [[run]]")
        );
    }
    if flows.len() > MAX_FLOWS {
        return Err(too_many(flows.len()));
    }
    let gates = waits.gates(budget, &flows)?;
    Ok((flows, gates))
}

/// Checks that a full packet fits into each queue on the flows' paths, sizes in `bdp` included.
pub(super) fn have_room(paths: &Paths<'_>, flows: &[Flow]) -> Result<()> {
    let fits = |link: &Link, direction: &Direction| {
        let queue = direction.queue.as_ref().filter(|queue| queue.is_phantom());
        let options = queue.and_then(|queue| phantom::Options::from_words(&queue.words).ok());
        let limit_bytes = options.and_then(|options| options.limit_bytes);
        limit_bytes.map_or(Ok(()), |limit_bytes| one_packet(limit_bytes, link.mtu))
    };
    let mut links = paths.topology().links.iter();
    if links.all(|link| fits(link, &link.ab).is_ok() && fits(link, &link.ba).is_ok()) {
        return Ok(());
    }
    let mut ends: Vec<_> = flows.iter().map(|flow| (&flow.src, &flow.dst)).collect();
    ends.sort_unstable();
    ends.dedup();
    for (src, dst) in ends {
        for (link, direction) in paths.walk(src, dst)? {
            fits(link, direction).map_err(|err| {
                err.about(format!("between '{}' and '{}'", link.a, link.b)).at(at!["queues"])
            })?;
        }
    }
    Ok(())
}

pub fn too_many(flows: usize) -> Error {
    Error::usage(format!("{flows} flows: at most {MAX_FLOWS}, one for each port"))
}

/// Datacenter of each host, if routes choose between two congestion controls. A route's choice
/// overrides a connecting socket's, so no flow may have its own.
pub(super) fn by_route(
    budget: &Budget,
    scenario: &Scenario,
    paths: &Paths<'_>,
    flows: &[Flow],
    (inside, across): (&str, &str),
    scale: u32,
) -> Result<Vec<u32>> {
    if flows.iter().any(|flow| flow.cc.is_some() || flow.receiver_cc.is_some()) {
        return Err(Error::usage(format!(
            "routes choose between {inside} and {across}, so no flow can have its own 'cc'"
        ))
        .hint("another --cc, or flows without 'cc'"));
    }
    let classes = Classes::new(paths, scenario.inter_rtt, scale);
    let nodes = paths.topology().nodes.iter();
    let hosts = nodes.filter(|node| !node.router);
    let names: Vec<_> = hosts.map(|host| host.name.as_str()).collect();
    let centers = classes.datacenters(budget, paths, &names)?;
    let mut sites = vec![0; names.len()];
    for (number, center) in centers.iter().enumerate() {
        center.iter().for_each(|&host| sites[host] = number as u32);
    }
    Ok(sites)
}
