// SPDX-License-Identifier: GPL-2.0
//! Queues of a plan.

use super::*;

/// A `[queues.NAME]` for one congestion control.
pub(super) struct OwnQueue {
    pub(super) spec: QueueSpec,
    pub(super) mark: Mark,
    /// Incomplete while sizes in BDPs are missing: [`size_by_bdp`].
    pub(super) queue: Queue,
}

/// Queues of a link from a to b and back, with their names.
pub(super) type PortQueues<'a> = [Option<(&'a str, &'a OwnQueue)>; 2];

/// All queues for one congestion control.
pub(super) fn queues<'a>(scenario: &'a Scenario, cc: &Cc) -> Result<BTreeMap<&'a str, OwnQueue>> {
    let of = of_cc(scenario, cc);
    for (cc, own) in &of {
        if let Some(name) = own.queues.keys().find(|name| !scenario.queues.contains_key(*name)) {
            return Err(Error::usage(format!(
                "[cc.{cc}.queues.{name}] changes a queue that is not defined"
            ))
            .hint(format!("[queues.{name}]")));
        }
    }
    scenario
        .queues
        .iter()
        .map(|(name, base)| {
            let own = of.iter().filter_map(|(_, own)| own.queues.get(name));
            let spec = own.fold(base.clone(), |base, spec| spec.over(&base));
            let about = |err: Error| {
                let table = at!["queues", name];
                err.about(format!("[queues.{name}]")).below(&table)
            };
            let queue = match spec.has_bdps() && spec.tc.is_none() {
                true => Queue { kind: phantom::KIND.to_owned(), ..Queue::default() },
                false => queue(&spec, cc.mark, 0).map_err(about)?,
            };
            let mark = cc.mark;
            Ok((name.as_str(), OwnQueue { spec, mark, queue }))
        })
        .collect()
}

/// Sets sizes in BDPs from the port's rate and the queue's `rtt`, or else the longest base RTT
/// across a port with this queue.
pub(super) fn size_by_bdp(
    topology: &mut Topology,
    known_routes: &mut Option<Rc<Routes>>,
    named: &[PortQueues<'_>],
    scale: u32,
) -> Result<()> {
    let wanted = |port: &Option<(&str, &OwnQueue)>| {
        port.is_some_and(|(_, own)| own.spec.has_bdps() && own.spec.tc.is_none())
    };
    if !named.iter().flatten().any(wanted) {
        return Ok(());
    }
    let names: Vec<_> =
        named.iter().map(|ports| ports.map(|port| port.map(|(name, _)| name))).collect();
    let routes = Routes::reuse(known_routes, topology)?;
    let longest_ns = Paths::along(topology, &routes).longest_rtts_ns(&names);
    // The call above treats a path beyond the limit as absent.
    routes.check_steps()?;
    for (link, ports) in topology.links.iter_mut().zip(named) {
        for (direction, port) in [&mut link.ab, &mut link.ba].into_iter().zip(ports) {
            let Some((name, own)) = port.filter(|port| wanted(&Some(*port))) else {
                continue;
            };
            let about = |err: Error| {
                let table = at!["queues", name];
                err.about(format!("[queues.{name}]")).below(&table)
            };
            let stated_ns = own.spec.rtt.map(|rtt| rtt.0 * u64::from(scale));
            let rtt_ns = stated_ns.or(longest_ns.get(name).copied()).ok_or_else(|| {
                about(
                    Error::usage("no path between two hosts crosses a port with this queue, so a bdp is undefined")
                        .hint("rtt = \"1ms\" beside it"),
                )
            })?;
            let bits = u128::from(direction.rate_bps) * u128::from(rtt_ns);
            let bdp_bytes = u64::try_from(bits / 8_000_000_000).unwrap_or(u64::MAX);
            let mut sized = queue(&own.spec, own.mark, bdp_bytes).map_err(about)?;
            sized.seed = direction.queue.as_ref().and_then(|queue| queue.seed);
            direction.queue = Some(sized);
        }
    }
    Ok(())
}

/// The kernel counts a backlog in 32 bits.
pub(super) const MAX_LIMIT: Size = Size(u32::MAX as u64);

/// Builds a queue; `bdp_bytes` is the product of the port's rate and RTT.
pub(super) fn queue(spec: &QueueSpec, mark: Mark, bdp_bytes: u64) -> Result<Queue> {
    match &spec.tc {
        Some(text) => tc(text, mark),
        None => phantom(spec, mark, bdp_bytes).map(|options| of_phantom(&options)),
    }
}

/// Splits tc's words and checks each.
pub fn tc_words(text: &str) -> Result<Queue> {
    let mut words = text.split_whitespace().map(str::to_owned);
    let kind = words.next();
    let kind =
        kind.ok_or_else(|| Error::usage("'tc' is empty").hint("for example \"fq_codel ecn\""))?;
    let queue = Queue { kind, words: words.collect(), seed: None };
    queue.check_names()?;
    Ok(queue)
}

/// Parses a queue in tc's words. Phantom's options are checked here, so that a mistake costs no
/// run.
pub fn tc(text: &str, mark: Mark) -> Result<Queue> {
    let Queue { kind, mut words, .. } = tc_words(text)?;
    if kind == phantom::KIND {
        if !words.iter().any(|word| word == "mark") {
            words.extend(["mark".to_owned(), mark.to_string()]);
        }
        let options = phantom::Options::from_words(&words).map_err(|mistake| {
            let names: Vec<_> = WORDS.iter().map(|word| word.name).collect();
            let near = match &mistake {
                Mistake::Unknown(word) => nearest(word, &names),
                _ => None,
            };
            let err = Error::usage(mistake.to_string());
            match near {
                Some(near) => err.hint(format!("'{near}'?")),
                None => err.hint("xdc qdisc add --help lists the options"),
            }
        })?;
        let checked = options.check();
        checked.map_err(|(_, why)| Error::usage(why.sentence).hint(why.range))?;
    }
    Ok(Queue { kind, words, seed: None })
}

/// Queue of the qdisc phantom.
fn of_phantom(options: &phantom::Options) -> Queue {
    Queue { kind: phantom::KIND.to_owned(), words: options.word_list(), seed: None }
}

/// Options of phantom by a `[queues.NAME]`.
pub fn phantom(spec: &QueueSpec, mark: Mark, bdp_bytes: u64) -> Result<phantom::Options> {
    let bytes = |amount: Amount| amount.bytes(bdp_bytes);
    let limit = spec.limit.map(bytes).filter(|limit| limit.0 > 0).ok_or_else(|| {
        let sentence = spec.limit.map_or("a queue needs a 'limit' above 0".to_owned(), |limit| {
            format!("a limit of {limit} is 0 bytes at a port whose bdp is {bdp_bytes} bytes")
        });
        let err = Error::usage(sentence).hint("limit = \"100kB\"");
        err.at(at!["limit"])
    })?;
    let of_limit = |name: &str, threshold: Option<Threshold>| -> Result<Option<u32>> {
        match threshold {
            None => Ok(None),
            Some(Threshold::OfLimit(fraction)) => Ok(Some(fraction.0)),
            Some(Threshold::Of(amount)) => {
                ppm_of(bytes(amount), limit).map(Some).map_err(|err| err.at(at![name]))
            }
        }
    };
    let limit_bytes = u32::try_from(limit.0).map_err(|_| {
        Error::usage(format!("the limit {limit} is above {MAX_LIMIT}")).at(at!["limit"])
    })?;
    Ok(phantom::Options {
        limit_bytes: Some(limit_bytes),
        phantom_limit_bytes: spec.phantom.map(|amount| bytes(amount).0),
        drain_ppm: spec.drain.map(|fraction| fraction.0),
        pmin_ppm: spec.pmin.map(|fraction| fraction.0),
        pmax_ppm: spec.pmax.map(|fraction| fraction.0),
        min_ppm: of_limit("min", spec.min)?,
        max_ppm: of_limit("max", spec.max)?,
        mark: Some(spec.mark.unwrap_or(mark)),
        ..phantom::Options::default()
    })
}

pub(super) fn ppm_of(bytes: Size, limit: Size) -> Result<u32> {
    u32::try_from(u128::from(bytes.0) * u128::from(PPM) / u128::from(limit.0))
        .ok()
        .filter(|&ppm| ppm <= PPM)
        .ok_or_else(|| Error::usage(format!("the threshold {bytes} is above the limit {limit}")))
}
