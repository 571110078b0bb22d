// SPDX-License-Identifier: GPL-2.0
//! Nodes and links of a plan.

use super::*;

/// The topology, and its directions with a trace.
pub(super) fn topology<'a>(
    budget: &Budget,
    known_routes: &mut Option<Rc<Routes>>,
    scenario: &'a Scenario,
    cc: &Cc,
    seed: u64,
    scale: u32,
) -> Result<(Topology, Vec<Traced<'a>>)> {
    let spec = &scenario.topology;
    let fabric = match &spec.fabric {
        Some(fabric) => fabric.expand().map_err(|err| err.about("[topology.fabric]"))?,
        None => Fabric::default(),
    };
    let mut nodes: Vec<Node> = Vec::new();
    for (own, patterns, router) in
        [(&fabric.hosts, &spec.hosts, false), (&fabric.routers, &spec.routers, true)]
    {
        for name in own.iter().cloned().chain(expand_all(budget, patterns)?) {
            check_name(&name)?;
            budget.charge("nodes", 1, size_of::<Node>() + text_bytes([name.as_str()]))?;
            if nodes.len() == MAX_NODES {
                return Err(Error::usage(format!("more than {MAX_NODES} nodes")));
            }
            nodes.push(Node {
                name,
                router,
                sysctls: Vec::new(),
                setup: Vec::new(),
                spray: router && spec.spray,
                site: 0,
                initcwnd: 0,
                initrwnd: 0,
            });
        }
    }
    if spec.ecmp() {
        for (i, node) in nodes.iter_mut().enumerate().filter(|(_, node)| node.router) {
            node.sysctls = multipath(seed, i, node.spray, spec.ip);
            budget.charge("routers", 1, sysctl_bytes(&node.sysctls))?;
        }
    }
    let mut by_name: HashMap<String, &mut Node> = HashMap::new();
    for node in &mut nodes {
        let name = node.name.clone();
        if by_name.insert(name.clone(), node).is_some() {
            return Err(Error::usage(format!("two nodes are named '{name}'")));
        }
    }
    for (pattern, spec) in &scenario.host {
        let about = |err: Error| err.at(at!["host", pattern]);
        let names = expand(budget, pattern).map_err(about)?;
        let sysctls = spec.sysctl.iter().map(|(name, value)| {
            let value = scaled(name, value, scale);
            sysctl::check(name, &value)?;
            Ok((name.clone(), value))
        });
        let sysctls: Vec<_> = sysctls.collect::<Result<_>>()?;
        spec.setup.iter().try_for_each(|text| check_command(text))?;
        let setup = text_bytes(spec.setup.iter().map(String::as_str));
        for (what, bytes) in [("'sysctl'", sysctl_bytes(&sysctls)), ("'setup'", setup)] {
            budget.charge(what, names.len(), bytes).map_err(about)?;
        }
        for name in names {
            if !by_name.contains_key(&name) {
                let nodes = by_name.keys().map(String::as_str);
                return Err(no_node(format!("[host.{pattern}] names "), &name, nodes));
            }
            let Some(node) = by_name.get_mut(&name) else {
                continue;
            };
            node.sysctls.extend(sysctls.iter().cloned());
            node.setup.extend(spec.setup.iter().cloned());
            node.initcwnd = spec.initcwnd.unwrap_or(node.initcwnd);
            node.initrwnd = spec.initrwnd.unwrap_or(node.initrwnd);
        }
    }
    let queues = queues(scenario, cc)?;
    let mut links: Vec<Link> = Vec::new();
    let mut named: Vec<PortQueues> = Vec::new();
    let mut traced = Vec::new();
    let own = spec.links.iter().map(|link| (link, link.traces()));
    for (link, traces) in fabric.links.iter().map(|link| (link, [None; 2])).chain(own) {
        for (a, b) in pairs(budget, &link.a, &link.b)? {
            for name in [&a, &b] {
                if !by_name.contains_key(name) {
                    let nodes = by_name.keys().map(String::as_str);
                    return Err(no_node("a link names ".to_owned(), name, nodes));
                }
            }
            if links.len() == MAX_LINKS {
                return Err(Error::usage(format!("more than {MAX_LINKS} links")));
            }
            // The two directions must not draw equal numbers.
            let seed_ab = seed.wrapping_add(2 * links.len() as u64);
            let seed_ba = seed_ab.wrapping_add(1);
            let [jitter_ab_ns, jitter_ba_ns] =
                [link.jitter_ab, link.jitter_ba].map(|jitter| jitter.0 * u64::from(scale));
            let faults_ab = faults(seed_ab, link.loss_ab, link.reorder_ab, jitter_ab_ns);
            let faults_ba = faults(seed_ba, link.loss_ba, link.reorder_ba, jitter_ba_ns);
            let [own_ab, own_ba] = [&link.queue_ab, &link.queue_ba]
                .map(|own| own.as_deref().or(link.queue.as_deref()));
            let words = [own_ab, own_ba].map(|own| {
                let own = own.and_then(|name| queues.get(name));
                own.map_or(0, |own| words_bytes(&own.queue))
            });
            let bytes = size_of::<Link>() + text_bytes([a.as_str(), &b]) + words[0] + words[1];
            budget.charge("links", 1, bytes)?;
            let mut ab = direction(link, link.delay_ab, own_ab, &queues, scale)?;
            let mut ba = direction(link, link.delay_ba, own_ba, &queues, scale)?;
            for (direction, spec) in [&mut ab, &mut ba].into_iter().zip(link.policers()) {
                direction.policer = spec.map(|spec| policer(spec, scale)).transpose()?;
            }
            seed_queue(&mut ab, seed_ab);
            seed_queue(&mut ba, seed_ba);
            let named_queue = |name| queues.get_key_value(name).map(|(name, own)| (*name, own));
            named.push([own_ab, own_ba].map(|own| own.and_then(named_queue)));
            for (file, forward) in traces.into_iter().zip([true, false]) {
                traced.extend(file.map(|file| Traced { link: links.len(), forward, file }));
            }
            links.push(Link {
                a,
                b,
                mtu: spec.mtu,
                ab: Direction { faults: faults_ab, ..ab },
                ba: Direction { faults: faults_ba, ..ba },
            });
        }
    }
    let sysctls = sysctls(scenario, cc, scale)?;
    let names = sysctls.iter().map(|(name, _)| name);
    let mut topology = Topology {
        nodes,
        links,
        of_hosts: names.filter(|name| sysctl::is_of_hosts(name)).cloned().collect(),
        sysctls,
        tcp_usec_ts: spec.tcp_usec_ts,
        quickack: spec.quickack,
        offload: spec.offload,
        ipv6: spec.ip == 6,
        fabric: false,
        ecmp: spec.ecmp(),
        congctl: None,
        tunnels: Vec::new(),
        rotor: None,
    };
    if let Some(shape) = &fabric.rotor {
        let base = scenario.acceltor.clone().unwrap_or_default();
        let own = of_cc(scenario, cc).into_iter().filter_map(|(_, own)| own.acceltor.as_ref());
        let spec = own.fold(base, |base, own| own.over(&base));
        rotor::place(scenario, &spec, shape, &mut topology, scale)?;
    }
    size_by_bdp(&mut topology, known_routes, &named, scale)?;
    Ok((topology, traced))
}

/// Memory of tc's words in bytes.
pub(super) fn words_bytes(queue: &Queue) -> usize {
    text_bytes(queue.words.iter().map(String::as_str))
}

pub(super) fn sysctl_bytes(sysctls: &[(String, String)]) -> usize {
    text_bytes(sysctls.iter().flat_map(|(name, value)| [name.as_str(), value]))
}

/// Sysctls by which a router picks among shortest paths: its own hash of the 5-tuple (fields 0x37;
/// policy 1 may use the sender's hash, equal everywhere), or, if spraying, the packet's hash, drawn
/// anew at every router.
pub(super) fn multipath(seed: u64, router: usize, spray: bool, ip: u8) -> Vec<(String, String)> {
    let key = |name: &str| format!("net.ipv{ip}.fib_multipath_hash_{name}");
    if spray {
        return vec![(key("policy"), "1".to_owned())];
    }
    // 0 would let the kernel choose a seed.
    let hash_seed = (mix(mix(seed) ^ router as u64) as u32).max(1);
    vec![
        (key("policy"), "3".to_owned()),
        (key("fields"), "55".to_owned()),
        // IPv4's key seeds both versions.
        ("net.ipv4.fib_multipath_hash_seed".to_owned(), hash_seed.to_string()),
    ]
}

/// The finalizer of SplitMix64.
pub fn mix(n: u64) -> u64 {
    let z = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

pub(super) fn faults(
    seed: u64,
    loss: Fraction,
    reorder: Fraction,
    jitter_ns: u64,
) -> Option<Faults> {
    let any = loss.0 > 0 || reorder.0 > 0 || jitter_ns > 0;
    any.then_some(Faults { seed, loss_ppm: loss.0, reorder_ppm: reorder.0, jitter_ns })
}

/// Seeds a queue. The seed is mixed, since netem uses `seed` itself.
pub(super) fn seed_queue(direction: &mut Direction, seed: u64) {
    if let Some(queue) = &mut direction.queue {
        queue.seed = Some(mix(seed));
    }
}

pub fn check_name(name: &str) -> Result<()> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
    let is_option = name.starts_with('-');
    if name.is_empty() || name.len() > MAX_NAME || is_option || !name.chars().all(allowed) {
        return Err(Error::usage(format!("'{name}' is not a valid name for a node"))
            .hint(format!("1 to {MAX_NAME} of a-z, 0-9, _ and -, and no - in front")));
    }
    Ok(())
}

/// tc has 32 bits for the time in which a bucket fills, in steps of 64 ns.
const LONGEST_FILL_S: u64 = 250;

fn policer(spec: PolicerSpec, scale: u32) -> Result<Policer> {
    let rate_bps = spec.rate.0 / u64::from(scale);
    match spec.burst.0 * 8 / rate_bps.max(1) < LONGEST_FILL_S {
        true => Ok(Policer { rate_bps, burst_bytes: spec.burst.0 as u32 }),
        false => Err(Error::usage(format!(
            "a policer's burst of {} at {} takes {LONGEST_FILL_S} s or more to fill",
            spec.burst, spec.rate
        ))
        .hint("a smaller 'burst'")),
    }
}

pub(super) fn direction(
    link: &LinkSpec,
    delay: Option<Time>,
    queue: Option<&str>,
    queues: &BTreeMap<&str, OwnQueue>,
    scale: u32,
) -> Result<Direction> {
    let queue = match queue {
        None => None,
        Some(name) => {
            let own = queues.get(name).ok_or_else(|| {
                Error::usage(format!("a link names queue '{name}', which is not defined"))
                    .hint(format!("[queues.{name}]"))
            })?;
            Some(own.queue.clone())
        }
    };
    let rate_bps = link.rate.0 / u64::from(scale);
    if rate_bps < MIN_SCALED_BPS {
        return Err(Error::usage(format!(
            "a rate of {} is too low for the scale {scale}",
            link.rate
        ))
        .hint(format!("a smaller --set scale=N, which leaves at least {}", Rate(MIN_SCALED_BPS))));
    }
    Ok(Direction {
        rate_bps,
        delay_ns: delay.unwrap_or(link.delay).0 * u64::from(scale),
        queue,
        faults: None,
        policer: None,
    })
}
