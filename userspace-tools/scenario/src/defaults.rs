// SPDX-License-Identifier: GPL-2.0
//! Values of missing keys that follow from other keys.

use std::cmp::Reverse;

use xdc_base::error::{Error, Result};
use xdc_base::units::Time;
use xdc_netlink::phantom::{self, Mark};
use xdc_proto::{Direction, Flow, Queue, WatchedQueue};

use crate::Scenario;
use crate::events::numbered;
use crate::paths::Paths;

/// Name of the watched port of a scenario without `[[watch]]`.
pub const BOTTLENECK: &str = "bottleneck";

const NS_PER_MS: u64 = 1_000_000;
/// Minimum number of samples, if a run lasts 500 ms or more.
const SAMPLES: u64 = 500;
const JAIN_WINDOW: Time = Time(10 * NS_PER_MS);

impl Scenario {
    /// The key `sample`, or a 500th of the duration, rounded down to 1, 2 or 5 times a power of ten, and
    /// at least 1 ms.
    pub fn sample(&self) -> Time {
        self.sample.unwrap_or_else(|| {
            let longest_ns = self.duration.map_or(0, |duration| duration.0 / SAMPLES);
            let mut sample_ns = NS_PER_MS;
            for factor in [2, 5, 10].into_iter().cycle() {
                let decade = 10_u64.pow(sample_ns.ilog10());
                let next_ns = decade * factor;
                if next_ns > longest_ns {
                    break;
                }
                sample_ns = next_ns;
            }
            Time(sample_ns)
        })
    }

    /// The key, or else 10 ms or the sample interval, whichever is longer.
    pub fn jain_window(&self) -> Time {
        let window = || JAIN_WINDOW.max(self.sample());
        self.jain_window.unwrap_or_else(window)
    }
}

/// Finds the bottleneck among the ports on the flows' paths: prefers a port with a queue, then the
/// slowest, then the one with most flows, then the first. Returns its link, and whether it is at
/// the link's `a`.
pub fn bottleneck(paths: &Paths<'_>, flows: &[Flow]) -> Result<(usize, bool, WatchedQueue)> {
    let topology = paths.topology();
    let mut crossing = vec![[0_usize; 2]; topology.links.len()];
    for flow in flows {
        for (link, forward) in paths.ports(&flow.src, &flow.dst)? {
            crossing[link][usize::from(!forward)] += 1;
        }
    }
    let any = !flows.is_empty();
    let ports = topology.links.iter().zip(&crossing).enumerate();
    let ports = ports.flat_map(|(n, (link, [ab, ba]))| [(n, &link.ab, *ab), (n, &link.ba, *ba)]);
    let directions = ports.zip([true, false].into_iter().cycle());
    let best = directions
        .filter(|((_, _, flows), _)| *flows > 0 || !any)
        .min_by_key(|((_, port, flows), _)| (port.queue.is_none(), port.rate_bps, Reverse(*flows)));
    let Some(((n, ..), forward)) = best else {
        return Err(Error::usage("there is no port to watch").hint("[[topology.links]]"));
    };
    let link = &topology.links[n];
    let (from, to) = match forward {
        true => (&link.a, &link.b),
        false => (&link.b, &link.a),
    };
    let before = topology.links[..n].iter();
    let parallel =
        before.filter(|it| (&it.a, &it.b) == (from, to) || (&it.b, &it.a) == (from, to)).count();
    let watched = WatchedQueue {
        name: BOTTLENECK.to_owned(),
        node: from.clone(),
        peer: numbered(to, parallel),
    };
    Ok((n, forward, watched))
}

/// Gives a port without a queue one that never drops or marks, so that its backlog excludes
/// propagating packets. Returns whether the port had no queue.
pub fn make_visible(direction: &mut Direction) -> bool {
    let is_bare = direction.queue.is_none();
    if is_bare {
        let options = phantom::Options {
            limit_bytes: Some(u32::MAX),
            mark: Some(Mark::None),
            ..phantom::Options::default()
        };
        direction.queue =
            Some(Queue { kind: phantom::KIND.to_owned(), words: options.word_list(), seed: None });
    }
    is_bare
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::plan;
    use crate::{Loaded, parse};
    use xdc_proto::{Job, RunPlan};

    /// A scenario of twelve lines.
    const SHORT: &str = r#"title = "two hosts"
ccs = ["cubic"]
duration = "1s"
[topology]
hosts = ["a", "b"]
[[topology.links]]
a = "a"
b = "b"
rate = "100mbit"
[[flows]]
src = "a"
dst = "b"
"#;

    fn planned(loaded: &Loaded) -> RunPlan {
        match plan(&loaded.scenario, "cubic", 1, 1).unwrap().job {
            Job::Run(run) => run,
            job => panic!("{job:?}"),
        }
    }

    fn watched(text: &str) -> (String, String) {
        let port = planned(&parse("short", text, &[]).unwrap()).watch.remove(0);
        (port.node, port.peer)
    }

    fn pair(from: &str, to: &str) -> (String, String) {
        (from.to_owned(), to.to_owned())
    }

    #[test]
    fn a_scenario_of_twelve_lines_is_valid() {
        assert_eq!(SHORT.lines().count(), 12);
        let loaded = parse("short", SHORT, &[]).unwrap();
        let run = planned(&loaded);
        assert_eq!(run.flows[0].group, "all");
        assert_eq!(run.topology.links[0].mtu, 1500);
        assert_eq!(run.watch[0].name, BOTTLENECK);
        assert_eq!(run.sample_us, 2_000);
        let queue = run.topology.direction("a", "b").unwrap().queue.clone();
        assert_eq!(queue.unwrap().words, ["limit", "4294967295b", "mark", "none"]);
        assert!(run.topology.direction("b", "a").unwrap().queue.is_none());
        let metric = "queues.bottleneck.drops".parse().unwrap();
        assert!(loaded.scenario.check_metric(&metric).is_ok());
    }

    #[test]
    fn the_slowest_port_with_a_queue_is_watched() {
        let with = |links: &str| {
            let head = SHORT.replace(
                "hosts = [\"a\", \"b\"]",
                "hosts = [\"a\", \"b\"]\nrouters = [\"s\", \"t\"]",
            );
            let (head, rest) = head.split_once("[[topology.links]]").unwrap();
            let (_, flows) = rest.split_once("[[flows]]").unwrap();
            format!("{head}{links}[[flows]]{flows}[queues.q]\nlimit = \"100kB\"\n")
        };
        let link = |a: &str, b: &str, rest: &str| {
            format!("[[topology.links]]\na = \"{a}\"\nb = \"{b}\"\n{rest}\n")
        };
        let fast = "rate = \"1gbit\"\nqueue = \"q\"";
        let slow = "rate = \"10mbit\"\nqueue = \"q\"";
        let bare = "rate = \"1mbit\"";
        let chain = [link("a", "s", fast), link("t", "s", slow), link("t", "b", bare)].concat();
        assert_eq!(watched(&with(&chain)), pair("s", "t"));
        // Without any queue the slowest port.
        let chain = [link("a", "s", fast), link("s", "t", bare), link("t", "b", bare)].concat();
        let chain = chain.replace("queue = \"q\"", "");
        let text = with(&chain).replace("[queues.q]\nlimit = \"100kB\"\n", "");
        assert_eq!(watched(&text), pair("s", "t"));
    }

    #[test]
    fn the_sample_interval_follows_the_duration() {
        let sample = |duration: &str| {
            let text = SHORT.replace("duration = \"1s\"", duration);
            let scenario = parse("short", &text, &[]).unwrap().scenario;
            (scenario.sample().to_string(), scenario.jain_window().to_string())
        };
        let text = |sample: &str, window: &str| (sample.to_owned(), window.to_owned());
        assert_eq!(sample("duration = \"10ms\""), text("1ms", "10ms"));
        assert_eq!(sample("duration = \"1s\""), text("2ms", "10ms"));
        assert_eq!(sample("duration = \"100s\""), text("200ms", "200ms"));
        assert_eq!(sample("duration = \"86400s\""), text("100s", "100s"));
        let given = "duration = \"1s\"\nsample = \"20ms\"";
        assert_eq!(sample(given), text("20ms", "20ms"));
    }
}
