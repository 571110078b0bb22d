// SPDX-License-Identifier: GPL-2.0
//! Clos networks of htsim (.topo): a fat-tree of three tiers, or leaves and spines, by the radix of
//! each tier. Uplinks have the rate and latency of the tier above.

use xdc_base::error::{Error, Result};
use xdc_base::text::short;
use xdc_base::units::{Rate, Time};

use super::{
    AGGREGATION, CORE, EDGE, Fabric, FabricSpec, LEAF, LayerSpec, MAX_HOSTS, SPINE, switch,
};

const KEYS: &str = "Nodes, Tiers, Podsize, Tier; in a tier Downlink_speed_Gbps, Radix_Down, Radix_Up, \
                    Downlink_Latency_ns, Switch_Latency_ns, Oversubscribed, Bundle";

/// Keys of a tier, by index of [`Tier::values`].
const OF_TIER: [&str; 7] = [
    "downlink_speed_gbps",
    "radix_down",
    "radix_up",
    "downlink_latency_ns",
    "switch_latency_ns",
    "oversubscribed",
    "bundle",
];
const SPEED: usize = 0;
const DOWN: usize = 1;
const UP: usize = 2;
const LATENCY: usize = 3;
const SWITCH: usize = 4;
const OVERSUBSCRIBED: usize = 5;
const BUNDLE: usize = 6;

#[derive(Debug, Clone)]
pub struct Clos {
    tiers: Vec<Tier>,
    pods: u64,
    /// Switches of the lowest and of the next tier in a pod; switches of the third tier.
    tors: u64,
    aggregations: u64,
    cores: u64,
}

#[derive(Debug, Clone, Default)]
struct Tier {
    values: [Option<u64>; OF_TIER.len()],
}

impl Tier {
    fn or(&self, key: usize, default: u64) -> u64 {
        self.values[key].unwrap_or(default)
    }
}

impl Clos {
    pub fn parse(text: &str) -> Result<Self> {
        let mut head = [None; 3];
        let mut tiers = vec![Tier::default(); 3];
        let mut seen = [false; 3];
        let mut tier = None;
        for (n, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default();
            let words: Vec<_> = line.split_whitespace().collect();
            let about = |err: Error| err.about(format!("line {}", n + 1));
            let &[key, value] = &words[..] else {
                match words.is_empty() {
                    true => continue,
                    false => {
                        let sentence =
                            format!("'{}' is not a key and its number", short(line.trim()));
                        return Err(about(Error::usage(sentence).hint(KEYS)));
                    }
                }
            };
            let name = key.to_ascii_lowercase();
            let number = value.parse::<u64>().ok();
            let number = number.filter(|_| value.bytes().all(|c| c.is_ascii_digit()));
            let number =
                number.filter(|number| *number <= u64::from(u32::MAX)).ok_or_else(|| {
                    about(Error::usage(format!("{key} '{}' is not a whole number", short(value))))
                })?;
            let place = match name.as_str() {
                "nodes" => &mut head[0],
                "tiers" => &mut head[1],
                "podsize" => &mut head[2],
                "tier" => {
                    let index = usize::try_from(number).unwrap_or(usize::MAX);
                    if seen.get(index) != Some(&false) {
                        let sentence = format!("tier {number} is there twice, or above 2");
                        return Err(about(Error::usage(sentence).hint("Tier 0, Tier 1, Tier 2")));
                    }
                    seen[index] = true;
                    tier = Some(index);
                    continue;
                }
                _ => match (OF_TIER.iter().position(|known| *known == name), tier) {
                    (Some(key), Some(tier)) => &mut tiers[tier].values[key],
                    (Some(_), None) => {
                        let err = Error::usage(format!("{key} is before the first tier"));
                        return Err(about(err.hint("a line 'Tier 0' before")));
                    }
                    (None, _) => {
                        let err = Error::usage(format!("{key} is not read"));
                        return Err(about(err.hint(match name.starts_with("queue") {
                            true => "no such line, and 'limit' in [queues.NAME]",
                            false => KEYS,
                        })));
                    }
                },
            };
            if place.replace(number).is_some() {
                return Err(about(Error::usage(format!("{key} is there twice")).hint("one line")));
            }
        }
        let [nodes, count, pod] = head;
        let needed = |value: Option<u64>, key: &str| {
            value.filter(|n| *n > 0).ok_or_else(|| {
                Error::usage(format!("there is no '{key}' above 0"))
                    .hint(format!("a line '{key} N'"))
            })
        };
        let (nodes, count) = (needed(nodes, "Nodes")?, needed(count, "Tiers")?);
        let pod = needed(pod, "Podsize")?;
        if !(2..=3).contains(&count) || nodes > u64::from(MAX_HOSTS) {
            return Err(Error::usage(format!("{nodes} nodes in {count} tiers"))
                .hint(format!("2 or 3 tiers, and at most {MAX_HOSTS} nodes")));
        }
        tiers.truncate(count as usize);
        for (n, tier) in tiers.iter().enumerate() {
            let is_top = n + 1 == tiers.len();
            for key in [SPEED, DOWN, UP, LATENCY] {
                if (key != UP || !is_top) && tier.or(key, 0) == 0 {
                    let key = OF_TIER[key];
                    return Err(Error::usage(format!("tier {n} has no '{key}' above 0")).hint(KEYS));
                }
            }
        }
        Self::shaped(tiers, nodes, pod)
    }

    /// Derives the numbers of switches, which the radices must agree on.
    fn shaped(tiers: Vec<Tier>, nodes: u64, pod: u64) -> Result<Self> {
        let of = |tier: usize, key: usize| tiers.get(tier).map_or(1, |it| it.or(key, 1));
        let (down, up) = (of(0, DOWN), of(0, UP));
        let pods = nodes / pod;
        let tors = pod / down;
        let aggregations = tors * up / of(1, DOWN);
        let cores = match tiers.len() {
            2 => 0,
            _ => pods * aggregations * of(1, UP) / of(2, DOWN),
        };
        let rules = [
            ("Podsize divides Nodes", pods * pod == nodes),
            ("two tiers are one pod", tiers.len() == 3 || pods == 1),
            ("Radix_Down of tier 0 divides Podsize", tors * down == pod),
            ("a host has one link", of(0, BUNDLE) == 1),
            (
                "Radix_Down of tier 1 is a pod's switches of tier 0 x Bundle",
                of(1, DOWN) == tors * of(1, BUNDLE),
            ),
            (
                "Radix_Up of tier 0 is a pod's switches of tier 1 x Bundle",
                up == aggregations * of(1, BUNDLE),
            ),
            (
                "Radix_Down of tier 2 is the pods x Bundle",
                tiers.len() == 2 || of(2, DOWN) == pods * of(2, BUNDLE),
            ),
            (
                "Radix_Up of tier 1 reaches each core of its number",
                tiers.len() == 2 || cores * of(2, BUNDLE) == aggregations * of(1, UP),
            ),
        ];
        if let Some((rule, _)) = rules.iter().find(|(_, holds)| !holds) {
            return Err(Error::usage(format!("the tiers do not fit: {rule}"))
                .hint("Podsize, Radix_Down, Radix_Up and Bundle of one network"));
        }
        for (n, pair) in tiers.windows(2).enumerate() {
            let below = pair[0].or(DOWN, 1) * pair[0].or(SPEED, 1);
            let above = pair[0].or(UP, 1) * pair[1].or(SPEED, 1);
            let factor = pair[0].values[OVERSUBSCRIBED];
            if let Some(factor) = factor.filter(|factor| below != above * factor) {
                return Err(Error::usage(format!(
                    "tier {n} has {below} Gbit/s down and {above} Gbit/s up, not 'Oversubscribed {factor}'"
                ))
                .hint("the factor of these rates, or no such line"));
            }
        }
        Ok(Self { tiers, pods, tors, aggregations, cores })
    }

    /// Adds a datacenter, and returns its top switches.
    pub fn build(&self, own: &FabricSpec, dc: char, fabric: &mut Fabric) -> Result<Vec<String>> {
        let spec = self.layers(own)?;
        let (leaf, spine) = match self.tiers.len() {
            2 => (LEAF, SPINE),
            _ => (EDGE, AGGREGATION),
        };
        let (key, layer) = match self.tiers.len() {
            2 => ("core", &spec.core),
            _ => ("edge", &spec.edge),
        };
        let name = |layer, n: u64| switch(dc, layer, n as u32);
        let hosts = self.tiers[0].or(DOWN, 1);
        for tor in 0..self.pods * self.tors {
            let below = name(leaf, tor);
            for host in tor * hosts..(tor + 1) * hosts {
                spec.host(dc, host as u32, &below, fabric)?;
            }
            let pod = tor / self.tors * self.aggregations;
            for above in pod..pod + self.aggregations {
                spec.join(key, layer, &below, &name(spine, above), fabric)?;
            }
            fabric.routers.push(below);
        }
        let spines: Vec<_> = (0..self.pods * self.aggregations).map(|n| name(spine, n)).collect();
        fabric.routers.extend(spines.iter().cloned());
        if self.cores == 0 {
            return Ok(spines);
        }
        let cores: Vec<_> = (0..self.cores).map(|n| name(CORE, n)).collect();
        for (n, below) in spines.iter().enumerate() {
            let place = n % self.aggregations as usize;
            for above in cores.iter().skip(place).step_by(self.aggregations as usize) {
                spec.join("core", &spec.core, below, above, fabric)?;
            }
        }
        fabric.routers.extend(cores.iter().cloned());
        Ok(cores)
    }

    /// The fabric's layers with rates and delays of the tiers. A switch's latency delays
    /// packets that arrive at it.
    fn layers(&self, own: &FabricSpec) -> Result<FabricSpec> {
        if self.tiers.len() == 2 && own.edge.is_set() {
            return Err(Error::usage("a file of two tiers takes no 'edge'").hint("'core'"));
        }
        let mut spec = own.clone();
        let below: [&mut LayerSpec; 3] = match self.tiers.len() {
            2 => [&mut spec.host, &mut spec.core, &mut spec.edge],
            _ => [&mut spec.host, &mut spec.edge, &mut spec.core],
        };
        let ns = |tier: usize, key: usize| Time(self.tiers[tier].or(key, 0));
        for (n, (layer, tier)) in below.into_iter().zip(&self.tiers).enumerate() {
            let delay = layer.delay.or(layer.delay_up).or(layer.delay_down);
            if layer.rate.is_some() || delay.is_some() || layer.links.is_some() {
                return Err(Error::usage(format!("layer {n} of the fabric has its own values"))
                    .hint("rates, delays and links in the file alone"));
            }
            let latency = ns(n, LATENCY).0;
            layer.rate = Some(Rate(tier.or(SPEED, 0) * 1_000_000_000));
            layer.delay_up = Some(Time(latency + ns(n, SWITCH).0));
            let switch = if n == 0 { 0 } else { ns(n - 1, SWITCH).0 };
            layer.delay_down = Some(Time(latency + switch));
            layer.links = Some(tier.or(BUNDLE, 1) as u32);
        }
        Ok(spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four leaves of two hosts and two spines, with switch latencies.
    const SMALL: &str = "# x\r\nnodes 8\r\nTiers 2\r\nPodsize 8\r\n\r\nTier 0\r\n\
        Downlink_speed_Gbps 10\r\nRadix_Down 2\r\nRadix_Up 2\r\nDownlink_Latency_ns 1000\r\n\
        Switch_Latency_ns 5\r\nOversubscribed 1\r\nTier 1\r\nDownlink_speed_Gbps 10\r\n\
        Radix_Down 4\r\nDownlink_Latency_ns 2000\r\nSwitch_Latency_ns 7\r\n";
    /// Two pods of two edge and two aggregation switches, and two cores with two links each.
    const THREE: &str = "Nodes 8\nTiers 3\nPodsize 4\nTier 0\nDownlink_speed_Gbps 1\nRadix_Down 2\n\
        Radix_Up 2\nDownlink_Latency_ns 1\nTier 1\nDownlink_speed_Gbps 1\nRadix_Down 2\nRadix_Up 2\n\
        Downlink_Latency_ns 1\nTier 2\nDownlink_speed_Gbps 1\nRadix_Down 4\nDownlink_Latency_ns 1\n\
        Bundle 2\n";

    fn built(text: &str, more: &str) -> Result<Fabric> {
        let mut spec: FabricSpec =
            toml::from_str(&format!("kind = 'htsim'\nfile = 'x'\n{more}")).unwrap();
        let content = super::super::Content::Clos(Clos::parse(text)?);
        let (name, text) = ("x".to_owned(), text.to_owned());
        spec.content = Some(super::super::FabricFile { name, text, content });
        spec.expand()
    }

    fn count(fabric: &Fabric, a: &str, b: &str) -> usize {
        let links = fabric.links.iter();
        links.filter(|link| link.a.starts_with(a) && link.b.starts_with(b)).count()
    }

    #[test]
    fn two_tiers_are_leaves_and_spines() {
        let fabric = built(SMALL, "queue = 'port'").unwrap();
        assert_eq!((fabric.hosts.len(), fabric.routers.len()), (8, 6));
        assert_eq!((count(&fabric, "a", "al"), count(&fabric, "al", "as")), (16 - 8, 8));
        let link = fabric.links.iter().find(|link| link.a == "a3").unwrap();
        assert_eq!((link.b.as_str(), link.rate), ("al1", Rate(10_000_000_000)));
        assert_eq!((link.delay_ab, link.delay_ba), (Some(Time(1005)), Some(Time(1000))));
        assert_eq!((&link.queue_ab, link.queue_ba.as_deref()), (&None, Some("port")));
        let link = fabric.links.iter().find(|link| link.b == "as1").unwrap();
        assert_eq!((link.delay_ab, link.delay_ba), (Some(Time(2007)), Some(Time(2005))));
    }

    #[test]
    fn three_tiers_have_parallel_links_to_their_cores() {
        let fabric = built(THREE, "").unwrap();
        let routers: Vec<_> = fabric.routers.iter().map(String::as_str).collect();
        let want = ["ae0", "ae1", "ae2", "ae3", "aa0", "aa1", "aa2", "aa3", "ac0", "ac1"];
        assert_eq!(routers, want);
        for (a, b, links) in [
            ("ae0", "aa0", 1),
            ("ae0", "aa1", 1),
            ("ae0", "aa2", 0),
            ("ae3", "aa2", 1),
            ("aa0", "ac0", 2),
            ("aa0", "ac1", 0),
            ("aa3", "ac1", 2),
        ] {
            assert_eq!(count(&fabric, a, b), links, "{a} {b}");
        }
        let two = "datacenters = 2\n[border]\nrate = '1gbit'\n[wan]\nrate = '1gbit'";
        let fabric = built(THREE, two).unwrap();
        assert_eq!((fabric.hosts.len(), count(&fabric, "bc", "bx")), (16, 2));
    }

    #[test]
    fn mistakes_have_line_cause_and_fix() {
        for (from, to, words) in [
            ("Radix_Up 2\r\n", "", "tier 0 has no 'radix_up'"),
            ("Radix_Up 2", "Radix_Up two", "line 9: Radix_Up 'two' is not a whole number"),
            ("Radix_Up 2", "Radix_Up 3", "not 'Oversubscribed 1'"),
            ("Radix_Down 4", "Radix_Down 3", "the tiers do not fit: Radix_Down of tier 1"),
            ("Tier 1", "Tier 0", "line 13: tier 0 is there twice"),
            ("Podsize 8", "Podsize 4", "two tiers are one pod"),
            ("Oversubscribed 1", "Oversubscribed 4", "not 'Oversubscribed 4'"),
            (
                "Oversubscribed 1",
                "Queue_Up 9000",
                "Queue_Up is not read try: no such line, and 'limit'",
            ),
            ("nodes 8\r\n", "", "there is no 'Nodes' above 0"),
            ("Tiers 2", "Tiers 4", "8 nodes in 4 tiers"),
        ] {
            let said = built(&SMALL.replacen(from, to, 1), "").unwrap_err().lines().join(" ");
            assert!(said.contains(words), "{to}: {said}");
        }
        let said = built(SMALL, "rate = '1gbit'").unwrap_err().to_string();
        assert!(said.contains("takes no 'rate'"), "{said}");
        let said = built(SMALL, "host = { rate = '1gbit' }").unwrap_err().to_string();
        assert!(said.contains("has its own values"), "{said}");
    }
}
