// SPDX-License-Identifier: GPL-2.0
//! `[[event]]`: changes of links while the traffic runs.

use std::collections::HashMap;

use xdc_base::error::{Error, Result};
use xdc_base::text::nearest;
use xdc_proto::{Change, End, Event, Faults, Topology};

use crate::budget::{Budget, text_bytes};
use crate::limits::MIN_SCALED_BPS;
use crate::{EventSpec, Scenario, at, expand};

/// A link by one of its two names.
#[derive(Clone, Copy)]
struct Named {
    link: usize,
    /// Whether the name begins with the link's `a`.
    forward: bool,
    /// Index among the links between the same nodes.
    parallel: usize,
}

/// Events in order of time. Each direction that changes gets a netem qdisc.
pub fn events(
    budget: &Budget,
    scenario: &Scenario,
    topology: &mut Topology,
    seed: u64,
    scale: u32,
) -> Result<Vec<Event>> {
    if scenario.events.is_empty() {
        return Ok(Vec::new());
    }
    let names = names(topology);
    let mut events = Vec::new();
    for (n, spec) in scenario.events.iter().enumerate() {
        let about = |err: Error| err.at(at!["event", n]);
        let changes = changes(spec, seed.wrapping_add(n as u64), scale).map_err(about)?;
        let mut ends = Vec::new();
        for pattern in spec.link.names() {
            let expanded = expand(budget, pattern).map_err(about)?;
            // Each name is two ends, which are collected and copied into each change.
            let count = expanded.len().saturating_mul(2 * (1 + changes.len()));
            let bytes = size_of::<Event>() + text_bytes([pattern.as_str()]);
            budget.charge("ends of links", count, bytes).map_err(about)?;
            for name in expanded {
                ends.extend(directions(&names, topology, &name, spec).map_err(about)?);
            }
        }
        for (link, forward, _) in &ends {
            let link = &mut topology.links[*link];
            let uplink = topology.rotor.as_ref().is_some_and(|it| it.packet == link.b);
            if uplink && *forward {
                return Err(about(
                    Error::usage(format!("the uplink of {} cannot change", link.a))
                        .hint(format!("from = \"{}\"", link.b)),
                ));
            }
            let direction = match forward {
                true => &mut link.ab,
                false => &mut link.ba,
            };
            direction.faults.get_or_insert_with(Faults::default);
        }
        let ends: Vec<End> = ends.into_iter().map(|(.., end)| end).collect();
        for change in changes {
            events.push(Event {
                at_us: spec.at.0 * u64::from(scale) / 1000,
                ends: ends.clone(),
                change,
                seed: None,
            });
        }
    }
    events.sort_by_key(|event| event.at_us);
    Ok(events)
}

/// Names of each link from both ends: `A-B`, `B-A`; `A-B.1` for the second of parallel links.
fn names(topology: &Topology) -> HashMap<String, Named> {
    let mut names = HashMap::new();
    let mut count: HashMap<(&str, &str), usize> = HashMap::new();
    for (link, ends) in topology.links.iter().enumerate() {
        for (from, to, forward) in [(&ends.a, &ends.b, true), (&ends.b, &ends.a, false)] {
            let nth = count.entry((from, to)).or_default();
            let parallel = *nth;
            *nth += 1;
            let named = Named { link, forward, parallel };
            names.insert(numbered(&format!("{from}-{to}"), parallel), named);
        }
    }
    names
}

/// Name of a port or a link: its neighbor, with a number from the second on.
pub fn numbered(name: &str, nth: usize) -> String {
    match nth {
        0 => name.to_owned(),
        n => format!("{name}.{n}"),
    }
}

/// Error for an unknown link, which suggests the nearest name.
pub fn no_link(name: &str, mut known: Vec<&str>) -> Error {
    known.sort_unstable();
    let near = nearest(name, &known).or(known.first().copied());
    let err = Error::usage(format!("there is no link '{name}'"));
    match near {
        Some(near) => err.hint(format!("a link has the names of its ends: '{near}'")),
        None => err,
    }
}

/// Directions that an event changes: link, whether from a to b, and the end where it starts.
fn directions(
    names: &HashMap<String, Named>,
    topology: &Topology,
    name: &str,
    spec: &EventSpec,
) -> Result<Vec<(usize, bool, End)>> {
    let known = || names.keys().map(String::as_str).collect();
    let named = names.get(name).ok_or_else(|| no_link(name, known()))?;
    let link = &topology.links[named.link];
    let mut both = Vec::new();
    for (forward, from, to) in [(true, &link.a, &link.b), (false, &link.b, &link.a)] {
        let end = End { node: from.clone(), port: numbered(to, named.parallel) };
        both.push((named.link, forward, end));
    }
    // The end that the name begins with comes first.
    if !named.forward {
        both.reverse();
    }
    if let Some(from) = &spec.from {
        both.retain(|(.., end)| end.node == *from);
        if both.is_empty() {
            return Err(Error::usage(format!("the link '{name}' does not start at '{from}'"))
                .hint(format!("from = \"{}\" or \"{}\"", link.a, link.b)));
        }
    }
    Ok(both)
}

pub fn changes(spec: &EventSpec, seed: u64, scale: u32) -> Result<Vec<Change>> {
    let mut changes = Vec::new();
    match (spec.down, spec.up) {
        (None, None) => {}
        (Some(true), None) | (None, Some(false)) => changes.push(Change::Down),
        (None, Some(true)) | (Some(false), None) => changes.push(Change::Up),
        (Some(_), Some(_)) => {
            return Err(Error::usage("'down' and 'up' exclude each other").hint("two events"));
        }
    }
    if let Some(rate) = spec.rate {
        let bps = rate.0 / u64::from(scale);
        if bps < MIN_SCALED_BPS {
            return Err(Error::usage(format!("a rate of {rate} is too low"))
                .hint("down = true to stop a link"));
        }
        changes.push(Change::Rate { bps });
    }
    if let Some(delay) = spec.delay {
        changes.push(Change::Delay { ns: delay.0 * u64::from(scale) });
    }
    if let Some(loss) = spec.loss {
        changes.push(Change::Loss { ppm: loss.0 });
    }
    if let Some(losses) = spec.burst_loss {
        let ppm = losses.map(|fraction| fraction.0);
        if ppm.iter().map(|&ppm| u64::from(ppm)).sum::<u64>() > 1_000_000 {
            return Err(Error::usage(
                "the three probabilities of 'burst_loss' add up to more than 1",
            ));
        }
        changes.push(Change::BurstLoss { ppm, seed });
    }
    if changes.is_empty() {
        return Err(Error::usage("the event changes nothing")
            .hint("down = true, up = true, rate, delay, loss or burst_loss"));
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use xdc_proto::{Change, Job, RunPlan};

    use crate::plan::plan;
    use crate::{parse, testing::SMALL};

    fn planned(event: &str) -> Result<RunPlan, String> {
        let text = format!("{SMALL}[[event]]\n{event}\n");
        let run = parse("small", &text, &[])
            .and_then(|loaded| plan(&loaded.scenario, "cubic", 1, 2))
            .map_err(|err| err.lines().join(" "))?;
        match run.job {
            Job::Run(run) => Ok(run),
            job => panic!("{job:?}"),
        }
    }

    #[test]
    fn links_are_named_by_their_ends() {
        let run = planned("at = \"5ms\"\nlink = \"r-s\"\ndown = true").unwrap();
        let event = &run.events[0];
        assert_eq!((event.at_us, &event.change), (10_000, &Change::Down));
        let ends: Vec<_> =
            event.ends.iter().map(|end| (end.node.as_str(), end.port.as_str())).collect();
        assert_eq!(ends, [("r", "s"), ("s", "r")]);
        let run = planned(
            "at = \"1ms\"\nlink = [\"a[1-2]-s\"]\nfrom = \"s\"\nrate = \"500mbit\"\nloss = 0.01",
        )
        .unwrap();
        assert_eq!(run.events.len(), 2);
        assert_eq!(run.events[0].change, Change::Rate { bps: 250_000_000 });
        assert_eq!(run.events[0].ends.len(), 2);
        let changed = run.topology.links.iter().filter(|link| link.ba.faults.is_some());
        assert_eq!(changed.count(), 2);
    }

    #[test]
    fn mistakes_in_events_are_named() {
        let refused = |event: &str| planned(event).unwrap_err();
        assert!(refused("at = \"1ms\"\nlink = \"s-t\"\ndown = true").contains("'s-r'"));
        assert!(refused("at = \"1ms\"\nlink = \"s-r\"").contains("the event changes nothing"));
        let from = "at = \"1ms\"\nlink = \"s-r\"\nfrom = \"a1\"\ndown = true";
        assert!(refused(from).contains("does not start"));
        assert!(
            refused("at = \"1ms\"\nlink = \"s-r\"\nburst_loss = [0.5, 0.5, 0.5]")
                .contains("more than 1")
        );
    }
}
