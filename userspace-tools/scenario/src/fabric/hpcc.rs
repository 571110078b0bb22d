// SPDX-License-Identifier: GPL-2.0
//! Topologies of HPCC's ns-3 simulator: numbers of nodes, switches and links, the switches, then the
//! ends, rate, delay and error rate of each link. Lines after the last link have no meaning.

use xdc_base::error::{Error, Result};
use xdc_base::text::short;
use xdc_base::units::{Fraction, PPM, Rate, Time};

use super::{Fabric, FabricSpec};
use crate::LinkSpec;
use crate::limits::{LONGEST_DELAY, MAX_LINKS, MAX_NODES, RATES, group_name};
use crate::traffic::NODE;

const SHAPE: &str = "\"66 1 65\", the numbers of nodes, switches and links; the switches; then lines such as \
                     \"0 1 100Gbps 0.001ms 0\"";

#[derive(Debug, Clone)]
pub struct Graph {
    /// By number of the node: whether it is a switch.
    switches: Vec<bool>,
    links: Vec<Edge>,
}

#[derive(Debug, Clone)]
struct Edge {
    ends: [usize; 2],
    rate: Rate,
    delay: Time,
    loss: Fraction,
}

impl Graph {
    pub fn parse(text: &str) -> Result<Self> {
        let mut words = text.lines().enumerate().flat_map(|(n, line)| {
            let line = line.split('#').next().unwrap_or_default();
            line.split_whitespace().map(move |word| (n + 1, word))
        });
        let mut next = |name: &str| {
            words.next().ok_or_else(|| {
                let err = Error::usage(format!("the file ends before the {name}"));
                err.hint("the whole file, or smaller numbers in its first line")
            })
        };
        let mut number = |name: &str, below: usize| {
            let (line, word) = next(name)?;
            whole(word, name, below).map_err(|err| err.about(format!("line {line}")).or_hint(SHAPE))
        };
        let nodes = number("number of nodes", MAX_NODES + 1)?;
        let count = number("number of switches", nodes + 1)?;
        let links = number("number of links", MAX_LINKS + 1)?;
        let mut switches = vec![false; nodes];
        for _ in 0..count {
            switches[number("number of a switch", nodes)?] = true;
        }
        let mut edges = Vec::new();
        for _ in 0..links {
            let mut read = || {
                let (line, from) = next("last link")?;
                let ends = [from, next("end of a link")?.1];
                let [rate, delay, loss] = ["rate", "delay", "error rate"].map(&mut next);
                let values = [rate?.1, delay?.1, loss?.1];
                edge(ends, values, nodes)
                    .map_err(|err| err.about(format!("line {line}")).or_hint(SHAPE))
            };
            edges.push(read()?);
        }
        Ok(Self { switches, links: edges })
    }

    pub fn build(&self, spec: &FabricSpec, fabric: &mut Fabric) -> Result<()> {
        spec.queue.as_ref().map(|name| group_name(name)).transpose()?;
        let name = |node: usize| format!("{NODE}{node}");
        for (node, &is_switch) in self.switches.iter().enumerate() {
            match is_switch {
                true => fabric.routers.push(name(node)),
                false => fabric.hosts.push(name(node)),
            }
        }
        for edge in &self.links {
            let [a, b] = edge.ends;
            // A host's own port is its NIC, which never drops.
            let [queue_ab, queue_ba] =
                [a, b].map(|node| spec.queue.clone().filter(|_| self.switches[node]));
            fabric.links.push(LinkSpec {
                a: name(a),
                b: name(b),
                rate: edge.rate,
                delay: edge.delay,
                queue_ab,
                queue_ba,
                loss_ab: edge.loss,
                loss_ba: edge.loss,
                ..LinkSpec::default()
            });
        }
        Ok(())
    }
}

fn edge(ends: [&str; 2], [rate, delay, loss]: [&str; 3], nodes: usize) -> Result<Edge> {
    let [a, b] = ends.map(|end| whole(end, "number of a node", nodes));
    let (a, b) = (a?, b?);
    if a == b {
        return Err(Error::usage(format!("the link leads from node {a} to itself")));
    }
    let rates = [("gbps", 1e9), ("mbps", 1e6), ("kbps", 1e3), ("bps", 1.0)];
    let bits = rate.replace("b/s", "bps");
    let bps = scaled(&bits.to_ascii_lowercase(), &rates).filter(|_| bits.ends_with("bps"));
    let bps = bps.filter(|&bps| RATES.contains(&Rate(bps)));
    let times = [("ms", 1e6), ("us", 1e3), ("ns", 1.0), ("s", 1e9), ("", 1e9)];
    let ns = scaled(delay, &times).filter(|&ns| ns <= LONGEST_DELAY.0);
    let ppm = loss.parse::<f64>().ok().filter(|share| (0.0..1.0).contains(share));
    let ppm = ppm.map(|share| share * f64::from(PPM));
    let ppm = ppm.filter(|&ppm| ppm == 0.0 || ppm >= 1.0);
    let wrong = |name: &str, word: &str, example: &str| {
        Error::usage(format!("'{}' is not the {name} of a link", short(word))).hint(example)
    };
    Ok(Edge {
        ends: [a, b],
        rate: Rate(bps.ok_or_else(|| wrong("rate", rate, "100Gbps"))?),
        delay: Time(ns.ok_or_else(|| wrong("delay", delay, "0.001ms"))?),
        loss: Fraction(
            ppm.ok_or_else(|| wrong("error rate", loss, "0, or 0.000001 to 0.999999"))? as u32
        ),
    })
}

/// Reads a number with a unit.
fn scaled(text: &str, units: &[(&str, f64)]) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let (_, factor) = units.iter().find(|(unit, _)| *unit == &text[digits.len()..])?;
    let begins = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    let number = digits.parse::<f64>().ok().filter(|_| begins)?;
    let value = (number * factor).round();
    (value < u64::MAX as f64).then_some(value as u64)
}

fn whole(word: &str, name: &str, below: usize) -> Result<usize> {
    let digits = word.bytes().all(|c| c.is_ascii_digit());
    let number = word.parse().ok().filter(|number| digits && *number < below);
    number.ok_or_else(|| {
        let most = below.saturating_sub(1);
        Error::usage(format!("'{}' is not the {name}, 0 to {most}", short(word)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAR: &str = "4 1 3\r\n0\r\n0 1 100Gbps 0.001ms 0\r\n2 0 25Gbps 1us 0.001\r\n\
                        0 3 40000000Kb/s 1e-6 0.0\r\nFirst line: numbers\r\n";

    #[test]
    fn nodes_switches_and_links_are_read() {
        let spec: FabricSpec = toml::from_str("kind = 'hpcc'\nqueue = 'port'").unwrap();
        let mut fabric = Fabric::default();
        Graph::parse(STAR).unwrap().build(&spec, &mut fabric).unwrap();
        assert_eq!(
            (fabric.hosts.join(" "), fabric.routers.join(" ")),
            ("n1 n2 n3".into(), "n0".into())
        );
        let told = |n: usize| {
            let link = &fabric.links[n];
            let queues = [&link.queue_ab, &link.queue_ba].map(Option::is_some);
            (link.rate.0 / 1_000_000_000, link.delay.0, queues, link.loss_ab.0)
        };
        assert_eq!(told(0), (100, 1000, [true, false], 0));
        assert_eq!(told(1), (25, 1000, [false, true], 1000));
        assert_eq!(told(2), (40, 1000, [true, false], 0));
    }

    #[test]
    fn mistakes_have_line_cause_and_fix() {
        for (text, words) in [
            ("", "ends before the number of nodes try: the whole file"),
            ("4 1\nx", "line 2: 'x' is not the number of links"),
            ("4 5 3\n", "line 1: '5' is not the number of switches, 0 to 4"),
            ("4 1 3\n9\n", "line 2: '9' is not the number of a switch"),
            ("4 1 2\n0\n0 1 100Gbps 1us 0\n", "ends before the last link"),
            ("2 1 1\n0\n0 1 100GBps 1us 0\n", "line 3: '100GBps' is not the rate"),
            ("2 1 1\n0\n0 1 1Gbps 1min 0\n", "line 3: '1min' is not the delay"),
            ("2 1 1\n0\n0 1 1Gbps 1us 2\n", "line 3: '2' is not the error rate"),
            ("2 1 1\n0\n1 1 1Gbps 1us 0\n", "line 3: the link leads from node 1 to itself"),
        ] {
            let said = Graph::parse(text).map(drop).unwrap_err().lines().join(" ");
            assert!(said.contains(words), "{text:?}: {said}");
        }
    }
}
