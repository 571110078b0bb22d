// SPDX-License-Identifier: GPL-2.0
//! Limits of a scenario, which may be untrusted. Each number is checked against a range before it
//! takes memory or time, and products of numbers in range fit their types.

use std::ops::RangeInclusive;

use xdc_base::error::{Error, Key, Result};
use xdc_base::text::{is_control, short};
use xdc_base::units::{Amount, Rate, Size, Time};
use xdc_measure::record::MAX_SCALE;
use xdc_proto::ETHERNET_HEADER_BYTES;

use crate::check::Mistakes;
use crate::traffic::TrafficSpec;
use crate::{QueueSpec, Scenario, at};

/// Maximum bytes of a scenario's file. Some checks take time quadratic in its length.
pub const MAX_SCENARIO_BYTES: u64 = 1 << 20;
/// Maximum bytes of a file that a scenario names: flows, sizes, a BPF object.
pub const MAX_FILE_BYTES: u64 = 4 << 20;
/// Maximum of hosts and routers together.
pub const MAX_NODES: usize = 32_768;
pub const MAX_LINKS: usize = 65_536;
/// Congestion controls of a run, each of which is planned.
const MAX_CCS: usize = 64;
/// Queues that are sampled.
pub const MAX_WATCHED: usize = 4096;
/// Programs of a scenario, and bytes of a command.
pub const MAX_PROGRAMS: usize = 1_000;
pub const MAX_COMMAND_BYTES: usize = 10_000;
/// Cells of a sweep.
pub const MAX_CELLS: usize = 100_000;
/// Bytes of text and values in a sweep's scenarios, all points together. Their memory is a few
/// times as much.
pub const MAX_GRID_BYTES: usize = 512 << 20;
/// Processors of an emulated machine.
pub const MAX_CPUS: u32 = 64;
/// Minimum scaled rate: a lower one is 0 to a qdisc, which counts bytes.
pub const MIN_SCALED_BPS: u64 = 1_000;

const MAX_TITLE: usize = 200;
const MAX_TEXT: usize = 65_536;
const MAX_NAME: usize = 100;
const MAX_SWITCHES: usize = 64;
const MAX_PHASES: usize = 64;
/// Samples, and windows of fairness, of a run with a duration.
const MAX_STEPS: u64 = 2_000_000;

const NS_PER_US: u64 = 1_000;
const NS_PER_S: u64 = 1_000_000_000;
/// A day of virtual time.
pub const LONGEST: Time = Time(86_400 * NS_PER_S);
const SHORTEST: Time = Time(NS_PER_US);
/// Maximum delay of a link.
pub const LONGEST_DELAY: Time = Time(3_600 * NS_PER_S);
pub const RATES: RangeInclusive<Rate> = Rate(MIN_SCALED_BPS)..=Rate(10_000_000_000_000);
/// Maximum size of a flow.
pub const MOST_BYTES: Size = Size(1 << 50);
/// Maximum size of a queue.
const LARGEST_QUEUE: Size = Size(1 << 40);
/// setsockopt() takes an int, and the kernel doubles it.
const LARGEST_BUFFER: Size = Size(1 << 30);

/// Maximum initial window in packets.
const MOST_INITIAL: u32 = 65_535;

/// Notes each number out of range.
pub fn check(scenario: &Scenario, m: &mut Mistakes) {
    let times = Time(0)..=LONGEST;
    let steps = [("sample", scenario.sample()), ("jain_window", scenario.jain_window())];
    for (name, step) in steps {
        m.within(at![name], step, SHORTEST..=LONGEST);
    }
    if let Some(scale) = scenario.scale {
        if scale == 0 {
            let err = Error::usage("'scale' must be at least 1").hint("--set scale=1");
            m.add(at!["scale"], err);
        } else {
            m.within(at!["scale"], scale, 1..=MAX_SCALE);
        }
    }
    if let Some(cpus) = scenario.cpus {
        m.within(at!["cpus"], cpus, 1..=MAX_CPUS);
    }
    if let Some(duration) = scenario.duration {
        m.within(at!["duration"], duration, SHORTEST..=LONGEST);
        for (name, step) in steps {
            let count = duration.0 / step.0.max(1);
            if count > MAX_STEPS && SHORTEST <= step && duration <= LONGEST {
                let sentence = format!("'duration' is {count} times '{name}': at most {MAX_STEPS}");
                m.add(at![name], Error::usage(sentence).hint(format!("a longer '{name}'")));
            }
        }
    }
    m.within(at!["ccs"], scenario.ccs.len(), 0..=MAX_CCS);
    m.within(at!["warmup"], scenario.warmup, times.clone());
    m.within(at!["phases"], scenario.phases.len(), 0..=MAX_PHASES);
    for (n, phase) in scenario.phases.iter().enumerate() {
        m.within(at!["phases", n], *phase, times.clone());
    }
    if let Some(inter_rtt) = scenario.inter_rtt {
        m.within(at!["inter_rtt"], inter_rtt, times.clone());
    }
    names(scenario, m);
    links(scenario, m);
    for (name, queue) in &scenario.queues {
        of_queue(queue, &at!["queues", name], m);
    }
    for (cc, spec) in &scenario.cc {
        for (name, queue) in &spec.queues {
            of_queue(queue, &at!["cc", cc, "queues", name], m);
        }
    }
    for (n, flow) in scenario.flows.iter().enumerate() {
        let key = |name: &str| at!["flows", n, name];
        m.within(key("count"), flow.count, 0..=xdc_proto::MAX_FLOWS);
        m.within(key("switch"), flow.switch.len(), 0..=MAX_SWITCHES);
        m.within(key("bytes"), flow.bytes, Size(0)..=MOST_BYTES);
        m.within(key("burst"), flow.burst, Size(0)..=MOST_BYTES);
        m.within(key("start"), flow.start, times.clone());
        m.within(key("jitter"), flow.jitter, times.clone());
        if flow.period > Time(0) {
            m.within(key("period"), flow.period, SHORTEST..=LONGEST);
        }
        for (i, switch) in flow.switch.iter().enumerate() {
            m.within(at!["flows", n, "switch", i, "at"], switch.at, times.clone());
        }
        buffers(flow.sndbuf, flow.rcvbuf, &at!["flows", n], m);
    }
    for (n, event) in scenario.events.iter().enumerate() {
        m.within(at!["event", n, "at"], event.at, times.clone());
        if let Some(rate) = event.rate {
            m.within(at!["event", n, "rate"], rate, RATES);
        }
        let delay = event.delay.unwrap_or_default();
        m.within(at!["event", n, "delay"], delay, Time(0)..=LONGEST_DELAY);
    }
    for (name, host) in &scenario.host {
        for (what, window) in [("initcwnd", host.initcwnd), ("initrwnd", host.initrwnd)] {
            if let Some(packets) = window {
                m.within(at!["host", name, what], packets, 1..=MOST_INITIAL);
            }
        }
    }
    for (n, program) in scenario.programs.iter().enumerate() {
        m.within(at!["run", n, "start"], program.start, times.clone());
    }
    for (n, spec) in scenario.traffic.iter().enumerate() {
        of_traffic(spec, &at!["traffic", n], m);
    }
}

fn below(key: &Key, name: &str) -> Key {
    [key.clone(), at![name]].concat()
}

fn links(scenario: &Scenario, m: &mut Mistakes) {
    let delays = Time(0)..=LONGEST_DELAY;
    let spec = &scenario.topology;
    for (n, link) in spec.links.iter().enumerate() {
        let key = |name: &str| at!["topology", "links", n, name];
        m.within(key("rate"), link.rate, RATES);
        for (name, delay) in [
            ("delay", Some(link.delay)),
            ("delay_ab", link.delay_ab),
            ("delay_ba", link.delay_ba),
            ("jitter_ab", Some(link.jitter_ab)),
            ("jitter_ba", Some(link.jitter_ba)),
        ] {
            m.within(key(name), delay.unwrap_or_default(), delays.clone());
        }
        for policer in link.policers().into_iter().flatten() {
            m.within(key("policer"), policer.rate, RATES);
            // A smaller bucket never has the tokens of a full packet.
            let packet = match spec.offload {
                true => 1 << 16,
                false => spec.mtu,
            };
            let least = Size(u64::from(packet + ETHERNET_HEADER_BYTES));
            m.within(key("policer"), policer.burst, least..=Size(u32::MAX.into()));
        }
    }
    let Some(fabric) = &spec.fabric else {
        return;
    };
    for rate in fabric.rates() {
        m.within(at!["topology", "fabric", "rate"], rate, RATES);
    }
    for delay in fabric.delays() {
        m.within(at!["topology", "fabric", "delay"], delay, delays.clone());
    }
}

fn of_queue(queue: &QueueSpec, key: &Key, m: &mut Mistakes) {
    for (name, size) in [("limit", queue.limit), ("phantom", queue.phantom)] {
        if let Some(Amount::Bytes(size)) = size {
            m.within(below(key, name), size, Size(1)..=LARGEST_QUEUE);
        }
    }
    if let Some(rtt) = queue.rtt {
        m.within(below(key, "rtt"), rtt, SHORTEST..=LONGEST);
    }
}

fn of_traffic(spec: &TrafficSpec, key: &Key, m: &mut Mistakes) {
    for size in spec.all_sizes() {
        m.within(below(key, "sizes"), Size(size.most()), Size(1)..=MOST_BYTES);
    }
    for (name, time) in [("duration", spec.duration), ("period", spec.period)] {
        // The check of the kind handles 0.
        if let Some(time) = time.filter(|&time| time > Time(0)) {
            m.within(below(key, name), time, SHORTEST..=LONGEST);
        }
    }
    for (name, time) in [("start", spec.start), ("jitter", spec.jitter)] {
        m.within(below(key, name), time, Time(0)..=LONGEST);
    }
    buffers(spec.sndbuf, spec.rcvbuf, key, m);
}

fn buffers(sndbuf: Size, rcvbuf: Size, key: &Key, m: &mut Mistakes) {
    for (name, size) in [("sndbuf", sndbuf), ("rcvbuf", rcvbuf)] {
        m.within(below(key, name), size, Size(0)..=LARGEST_BUFFER);
    }
}

/// Limits texts in tables, plots and pages by length, and refuses formulas of spreadsheets.
fn names(scenario: &Scenario, m: &mut Mistakes) {
    m.within(at!["title"], scenario.title.len(), 0..=MAX_TITLE);
    for (name, text) in [("description", &scenario.description), ("source", &scenario.source)] {
        m.within(at![name], text.len(), 0..=MAX_TEXT);
    }
    for (n, flow) in scenario.flows.iter().enumerate() {
        m.note(at!["flows", n, "group"], |_| group_name(&flow.group));
    }
    for (n, spec) in scenario.traffic.iter().enumerate() {
        if let Some(group) = &spec.group {
            m.note(at!["traffic", n, "group"], |_| group_name(group));
        }
    }
    for (n, link) in scenario.topology.links.iter().enumerate() {
        for (name, queue) in
            [("queue", &link.queue), ("queue_ab", &link.queue_ab), ("queue_ba", &link.queue_ba)]
        {
            if let Some(queue) = queue {
                m.note(at!["topology", "links", n, name], |_| group_name(queue));
            }
        }
    }
    for (n, watch) in scenario.watch.iter().enumerate() {
        m.note(at!["watch", n, "name"], |_| group_name(&watch.name));
    }
}

/// Checks a cell of a table: the name of a group, a queue or an axis, or an axis label.
pub fn group_name(name: &str) -> Result<()> {
    let formula = name.starts_with(['=', '+', '-', '@']);
    if name.is_empty() || name.len() > MAX_NAME || formula || name.contains(is_control) {
        return Err(Error::usage(format!(
            "'{}' is not a valid name of a group, a queue or an axis",
            short(name)
        ))
        .hint(format!(
            "1 to {MAX_NAME} characters on one line that does not begin with =, +, - or @"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::plan::plan;
    use crate::{parse, testing::SMALL};

    #[track_caller]
    fn refused(sets: &[&str], word: &str) {
        let sets: Vec<_> = sets.iter().map(|&set| set.to_owned()).collect();
        let planned = parse("small", SMALL, &sets)
            .and_then(|loaded| plan(&loaded.scenario, "cubic", 1, 1).map(drop));
        let said = planned.expect_err(&sets.join(" ")).lines().join(" ");
        assert!(said.contains(word), "{sets:?} should say '{word}': {said}");
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        for (set, word) in [
            ("sample=999ns", "'sample' is 999ns"),
            ("duration=18446744073s", "'duration' is"),
            ("scale=4000000000", "'scale' is 4000000000"),
            ("scale=0", "at least 1"),
            ("cpus=65", "1 to 64"),
            ("phases=[\"18446744073s\"]", "'phases' is"),
            ("topology.links.0.rate=1bit", "'rate' is 1bit"),
            ("topology.links.0.rate=18446744tbit", "'rate' is"),
            ("topology.links.0.delay_ba=18446744073s", "'delay_ba' is"),
            ("queues.port.limit=17179869183gb", "'limit' is"),
            ("queues.port.limit=0", "'limit' is 0"),
            ("topology.links.0.policer={rate=\"1bit\",burst=\"9kB\"}", "'policer' is 1bit"),
            ("topology.links.0.policer_ab={rate=\"1mbit\",burst=\"1kB\"}", "'policer' is 1kB"),
            ("topology.links.0.policer={rate=\"1kbit\",burst=\"1MB\"}", "250 s or more"),
            ("flows.0.bytes=17179869183gb", "'bytes' is"),
            ("flows.0.sndbuf=17179869183gb", "'sndbuf' is"),
            ("flows.0.start=18446744073s", "'start' is"),
            ("flows.0.jitter=18446744073s", "'jitter' is"),
            ("flows.0.count=1000000000000", "'count' is"),
            ("flows.0.count=50000", "one for each port"),
            ("flows.0.src=a[1-4294967295]", "names"),
            ("topology.hosts=[\"h[1-4294967295]\"]", "names"),
            ("topology.hosts=[\"a[1-65000]\", \"r\"]", "nodes"),
            ("topology.hosts=[\"a[1-65000]\", \"b[1-65000]\"]", "nodes"),
        ] {
            refused(&[set], word);
        }
        refused(&["jain_window=1ns", "sample=1ns"], "'sample' is 1ns");
        refused(&["duration=10000s"], "times 'sample'");
        refused(&["flows.0.burst=1b", "flows.0.period=1ns"], "'period' is 1ns");
    }

    /// Each number is in range, but their product is not.
    #[test]
    fn large_products_are_refused() {
        let hosts = "topology.hosts=[\"a[1-2]\", \"r\", \"h[1-20000]\"]";
        let sysctls: Vec<_> = (0..100).map(|n| format!("\"net.x{n}\"=1")).collect();
        let sysctls = format!("host.\"h[1-20000]\".sysctl={{{}}}", sysctls.join(","));
        let links = "topology.links=[{a=\"a[1-2]\",b=\"s\",rate=\"1gbit\"},\
                     {a=\"s\",b=\"r\",rate=\"1gbit\",queue_ab=\"port\"},\
                     {a=\"h[1-20000]\",b=\"s\",rate=\"1gbit\"}]";
        refused(&[hosts, links, &sysctls], "'sysctl': 20000 times");
        let rpc = "traffic=[{kind=\"rpc\", hosts=[\"a1\"], to=\"r\", period=\"86400s\", \
                   flows=40, sizes=\"1kb\"}]";
        refused(&[rpc], "more than two days");
        // At the lowest speed, the sum overflows.
        let sets = [rpc, "topology.links.0.rate=1tbit", "topology.links.1.rate=1tbit"];
        let sets: Vec<_> = sets.iter().map(|&set| set.to_owned()).collect();
        let scenario = parse("small", SMALL, &sets).unwrap().scenario;
        assert!(plan(&scenario, "cubic", 1, super::MAX_SCALE).is_err());
    }

    #[test]
    fn invalid_names_and_control_characters_are_refused() {
        for name in ["=cmd|' /C calc'!A0", "", "a\\nb"] {
            refused(&[&format!("flows.0.group=\"{name}\"")], "not a valid name of a group");
        }
        for set in [
            "title=\"\\u001b]0;owned\\u0007\"",
            "watch.0.name=\"\\u001b[31mRED\"",
            "expect.0.source=\"\\u009b2J\"",
        ] {
            refused(&[set], "control character");
        }
        let fine = "flows.0.group=\"WAN, <a> to b\"".to_owned();
        assert!(parse("small", SMALL, &[fine]).is_ok());
    }
}
