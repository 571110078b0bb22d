// SPDX-License-Identifier: GPL-2.0

use std::collections::{BTreeMap, BTreeSet};

use xdc_proto::{Job, RunPlan};

use super::*;
use crate::parse;
use crate::plan::plan;

/// Two datacenters of four hosts at 1 Gbit/s, 40 us and 10 ms.
const TWO: &str = r#"
title = "Two datacenters"
engine = "uml"
ccs = ["cubic"]
sample = "1ms"
[topology]
mtu = 1500
hosts = ["a[1-4]", "b[1-4]"]
routers = ["sa", "sb"]
[[topology.links]]
a = "a[1-4]"
b = "sa"
rate = "1gbit"
delay = "10us"
[[topology.links]]
a = "b[1-4]"
b = "sb"
rate = "1gbit"
delay = "10us"
[[topology.links]]
a = "sa"
b = "sb"
rate = "1gbit"
delay = "5ms"
queue = "port"
[queues.port]
limit = "100kb"
[[watch]]
name = "WAN"
from = "sa"
to = "sb"
"#;

fn run_with(traffic: &str, seed: u64, scale: u32, cc: &str) -> Result<RunPlan> {
    let text = format!("{TWO}[[traffic]]\n{traffic}");
    let mut scenario = parse("two", &text, &[])?.scenario;
    scenario.cdfs = sizes::tests::published();
    match plan(&scenario, cc, seed, scale)?.job {
        Job::Run(run) => Ok(run),
        job => panic!("{job:?}"),
    }
}

fn flows(traffic: &str, seed: u64) -> Vec<Flow> {
    run_with(traffic, seed, 1, "cubic").unwrap().flows
}

fn datacenter(host: &str) -> &str {
    &host[..1]
}

fn crosses(flow: &Flow) -> bool {
    datacenter(&flow.src) != datacenter(&flow.dst)
}

const ALL: &str = r#"hosts = ["a[1-4]", "b[1-4]"]"#;

#[test]
fn every_seed_draws_a_permutation() {
    for seed in 0..200 {
        let text = format!("kind = \"permutation\"\n{ALL}\nsizes = \"1mb\"");
        let flows = flows(&text, seed);
        let senders: BTreeSet<_> = flows.iter().map(|flow| &flow.src).collect();
        let receivers: BTreeSet<_> = flows.iter().map(|flow| &flow.dst).collect();
        assert_eq!((senders.len(), receivers.len()), (8, 8), "seed {seed}");
        assert!(flows.iter().all(|flow| flow.src != flow.dst), "seed {seed}");
    }
}

#[test]
fn a_permutation_has_the_given_share_across() {
    for (share, across) in [("0%", 0), ("25%", 2), ("50%", 4), ("75%", 6), ("100%", 8)] {
        for seed in 0..50 {
            let text =
                format!("kind = \"permutation\"\n{ALL}\nsizes = \"1mb\"\nacross = \"{share}\"");
            let flows = flows(&text, seed);
            let crossing = flows.iter().filter(|flow| crosses(flow)).count();
            assert_eq!(crossing, across, "{share}, seed {seed}");
            let receivers: BTreeSet<_> = flows.iter().map(|flow| &flow.dst).collect();
            assert_eq!(receivers.len(), 8);
        }
    }
}

#[test]
fn groups_and_ideals_follow_the_path() {
    let text = format!("kind = \"permutation\"\n{ALL}\nsizes = \"1448b\"\nacross = \"50%\"");
    for flow in flows(&text, 3) {
        let (group, least_ns) = if crosses(&flow) { (INTER, 5_000_000) } else { (INTRA, 20_000) };
        assert_eq!(flow.group, group);
        // Two links that serialize 1514 bytes at 8 ns each, and a port that sends at once.
        assert!((least_ns..least_ns + 50_000).contains(&flow.ideal_ns), "{flow:?}");
    }
}

#[test]
fn poisson_sources_offer_their_load() {
    // 8 sources for 20 s at 40 % of 1 Gbit/s: some 19,000 flows of 420 kB.
    let text = format!(
        "kind = \"poisson\"\n{ALL}\nsizes = \"alibaba-storage\"\nload = \"10%\"\nduration = \"20s\""
    );
    let flows = flows(&text, 5);
    let mut bytes: BTreeMap<&str, u64> = BTreeMap::new();
    for flow in &flows {
        *bytes.entry(&flow.src).or_default() += flow.bytes;
        assert!(flow.start_ns < 20_000_000_000);
        assert_ne!(flow.src, flow.dst);
    }
    assert_eq!(bytes.len(), 8);
    let offered = bytes.values().sum::<u64>() as f64 * 8.0 / 20.0 / 8e9;
    assert!((offered / 0.1 - 1.0).abs() < 0.05, "{offered}");
    let across = flows.iter().filter(|flow| crosses(flow)).count() as f64 / flows.len() as f64;
    assert!((across - 0.2).abs() < 0.01, "{across}");
    assert!(flows.is_sorted_by_key(|flow| flow.start_ns));
}

#[test]
fn each_class_has_its_own_sizes_and_the_load_includes_both() {
    let text = format!(
        "kind = \"poisson\"\n{ALL}\nintra_sizes = \"10kb\"\ninter_sizes = \"1mb\"\nload = \"50%\"\n\
         local = \"60%\"\nflows = 20000"
    );
    let flows = flows(&text, 9);
    assert_eq!(flows.len(), 20_000);
    for flow in &flows {
        assert_eq!(flow.bytes, if crosses(flow) { 1_000_000 } else { 10_000 });
    }
    let bits = flows.iter().map(|flow| flow.bytes).sum::<u64>() as f64 * 8.0;
    let offered = bits / (flows.last().unwrap().start_ns as f64) / 8.0;
    assert!((offered / 0.5 - 1.0).abs() < 0.05, "{offered}");
}

#[test]
fn the_seed_decides_flows_and_the_scale_stretches_them() {
    let text =
        format!("kind = \"poisson\"\n{ALL}\nsizes = \"web-search\"\nload = \"40%\"\nflows = 500");
    let key = |flows: &[Flow]| -> Vec<_> {
        flows.iter().map(|flow| (flow.src.clone(), flow.dst.clone(), flow.bytes)).collect()
    };
    let one = flows(&text, 1);
    assert_eq!(format!("{one:?}"), format!("{:?}", flows(&text, 1)));
    assert_ne!(key(&one), key(&flows(&text, 2)));
    let ten = run_with(&text, 1, 10, "cubic").unwrap().flows;
    let last = |flows: &[Flow]| flows.last().unwrap().start_ns as f64;
    assert!((last(&ten) / last(&one) / 10.0 - 1.0).abs() < 1e-3);
}

#[test]
fn flows_share_connections_only_if_persistent() {
    let traffic = "kind = \"incast\"\nhosts = [\"a[1-4]\"]\nto = \"b1\"\nsizes = \"1mb\"";
    assert!(flows(traffic, 1).iter().all(|flow| !flow.persistent));
    let shared = flows(&format!("{traffic}\npersistent = true"), 1);
    assert!(shared.iter().all(|flow| flow.persistent));
}

#[test]
fn incasts_and_bursts_end_at_one_host() {
    let text = "kind = \"incast\"\nhosts = [\"a[1-4]\", \"b[1-4]\"]\nto = \"a1\"\nsizes = \"1mb\"";
    let incast = flows(text, 1);
    assert_eq!(incast.len(), 7);
    assert!(incast.iter().all(|flow| flow.dst == "a1" && flow.start_ns == 0));
    let three: BTreeSet<_> = (0..20)
        .map(|seed| {
            let flows = flows(&format!("{text}\nflows = 3"), seed);
            assert_eq!(flows.len(), 3);
            flows.into_iter().map(|flow| flow.src).collect::<Vec<_>>()
        })
        .collect();
    assert!(three.len() > 5);
    let bursts = text.replace("incast", "bursts") + "\nperiod = \"1ms\"\nduration = \"3ms\"";
    let starts: Vec<_> = flows(&bursts, 1).iter().map(|flow| flow.start_ns).collect();
    assert_eq!(starts.len(), 21);
    assert_eq!((starts[6], starts[7], starts[20]), (0, 1_000_000, 2_000_000));
}

#[test]
fn rpcs_come_at_fixed_or_random_times() {
    let text = "kind = \"rpc\"\nhosts = [\"a[1-2]\"]\nto = \"a3\"\nsizes = \"4kb..16kb\"\n\
                start = \"15ms\"\nperiod = \"25us\"\ngroup = \"rpc\"";
    let fixed = flows(&format!("{text}\nflows = 1000"), 1);
    assert_eq!(fixed.len(), 2000);
    assert_eq!(fixed[2].start_ns, 15_025_000);
    assert!(fixed.iter().all(|flow| (4000..=16000).contains(&flow.bytes)));
    assert!(fixed.iter().all(|flow| flow.group == "rpc"));
    let random = flows(&format!("{text}\nrandom = true\nduration = \"250ms\""), 1);
    assert!((random.len() as f64 / 20_000.0 - 1.0).abs() < 0.05, "{}", random.len());
}

#[test]
fn each_burst_has_one_receiver_and_flows_per_host() {
    let text = "kind = \"bursts\"\nhosts = [\"a[1-4]\", \"b[1-4]\"]\nto = \"a[1-4]\"\nsizes = \"1kB\"\n\
                flows = 3\nper_host = 2\nperiod = \"1ms\"\nduration = \"50ms\"";
    let flows = flows(text, 1);
    assert_eq!(flows.len(), 50 * 3 * 2);
    let mut receivers = BTreeSet::new();
    for burst in flows.chunks(6) {
        let to: BTreeSet<_> = burst.iter().map(|flow| flow.dst.as_str()).collect();
        assert_eq!(to.len(), 1);
        receivers.extend(to.iter().copied());
        let mut of: BTreeMap<&str, usize> = BTreeMap::new();
        for flow in burst {
            assert_ne!(flow.src, flow.dst);
            *of.entry(flow.src.as_str()).or_default() += 1;
        }
        assert_eq!(of.into_values().collect::<Vec<_>>(), [2, 2, 2]);
    }
    let all: BTreeSet<_> = ["a1", "a2", "a3", "a4"].into();
    assert_eq!(receivers, all);
}

#[test]
fn a_file_lists_flows() {
    let listed = |csv: &str, scale: u32| {
        let text = format!("{TWO}[[traffic]]\nkind = \"file\"\nfile = \"x.csv\"\nstart = \"1ms\"");
        let mut scenario = parse("two", &text, &[])?.scenario;
        scenario.files.insert("x.csv".to_owned(), file::tests::of(csv));
        match plan(&scenario, "cubic", 1, scale)?.job {
            Job::Run(run) => Ok::<_, Error>(run.flows),
            job => panic!("{job:?}"),
        }
    };
    let header = "start_us,source,destination,bytes,group";
    let flows = listed(&format!("{header}\n30,a1,b1,5000,\n20,a1,a2,7,mice\n"), 2).unwrap();
    let told: Vec<_> = flows
        .iter()
        .map(|flow| (flow.start_ns, flow.dst.as_str(), flow.bytes, flow.group.as_str()))
        .collect();
    let want = [(2_040_000, "a2", 7, "mice"), (2_060_000, "b1", 5000, "inter")];
    assert_eq!(told, want);
    for (row, words) in [
        ("1,a1,zz,1,", "x.csv: line 2: a flow names 'zz', which is not a node"),
        ("1,a1,a1,1,", "line 2: 'a1' sends to itself"),
        ("1,a1,a2,1,=1", "line 2: '=1' is not a valid name of a group"),
    ] {
        let err = listed(&format!("{header}\n{row}\n"), 1).unwrap_err();
        assert!(err.to_string().contains(words), "{err}");
    }
}

/// Plan of the scenario with blocks and a file.
fn with_file(blocks: &str, read: Result<FlowFile>) -> Result<RunPlan> {
    let mut scenario = parse("two", &format!("{TWO}{blocks}"), &[])?.scenario;
    scenario.files.insert("x".to_owned(), read?);
    match plan(&scenario, "cubic", 1, 1)?.job {
        Job::Run(run) => Ok(run),
        job => panic!("{job:?}"),
    }
}

const MATRIX: &str = "[[traffic]]\nkind = \"htsim\"\nfile = \"x\"\nstart_unit = \"us\"\n";

fn with_matrix(more: &str, matrix: &str) -> Result<RunPlan> {
    let read = htsim::parse(matrix, spec::StartUnit::Us);
    with_file(&format!("{MATRIX}{more}"), read)
}

#[test]
fn a_matrix_numbers_the_hosts_and_its_triggers_name_flows() {
    let matrix = "0->4 start 7 size 500 send_done_trigger 1\n1->5 start 5 size 600 recv_done_trigger 1\n\
                  4->0 id 3 trigger 1 size 700\ntrigger id 1 barrier count 2\n";
    let run = with_matrix("start = \"1ms\"\ngroup = \"g\"", matrix).unwrap();
    let told: Vec<_> = run
        .flows
        .iter()
        .map(|flow| (flow.src.as_str(), flow.dst.as_str(), flow.start_ns))
        .collect();
    // The block's start delays only flows without a trigger.
    let want = [("b1", "a1", 0), ("a2", "b2", 1_005_000), ("a1", "b1", 1_007_000)];
    assert_eq!(told, want);
    let gate = Gate { needs: 2, received: vec![1], acked: vec![2], starts: vec![0] };
    assert_eq!(run.gates, [gate]);
    let run = with_matrix("hosts = [\"b[1-4]\", \"a[1-2]\"]", matrix).unwrap();
    assert_eq!((run.flows[1].src.as_str(), run.flows[1].dst.as_str()), ("b2", "a2"));
    for (more, matrix, words) in [
        ("", "0->8 start 0 size 1\n", "x: line 1: there is no host 8: the last of 8 hosts is 7"),
        ("", "3->3 start 0 size 1\n", "line 1: 'a4' sends to itself"),
        ("persistent = true", matrix, "excludes 'persistent'"),
        (
            "",
            "0->1 id 1 trigger 1 size 1 send_done_trigger 1\ntrigger id 1 oneshot\n",
            "the flow from 'a1' to 'a2' in group 'intra' never starts",
        ),
    ] {
        let said = with_matrix(more, matrix).unwrap_err().to_string();
        assert!(said.contains(words), "{matrix}: {said}");
    }
}

#[test]
fn the_unit_of_a_matrix_is_required() {
    let text = format!("{TWO}[[traffic]]\nkind = \"htsim\"\nfile = \"x\"\n");
    let said = parse("two", &text, &[]).unwrap_err().lines().join(" ");
    let both = ["start_unit = \"ps\"", "start_unit = \"us\"", "csg-htsim", "Uno_SC25"];
    assert!(both.iter().all(|words| said.contains(words)), "{said}");
}

#[test]
fn an_iteration_of_a_collective_begins_after_the_one_before() {
    let block = "[[traffic]]\nkind = \"collective\"\npattern = \"tree\"\nhosts = [\"a[1-3]\"]\n\
                 sizes = \"9kB\"\niterations = 2\nperiod = \"5us\"\nstart = \"3us\"\n";
    let run = with_file(block, Ok(FlowFile::default())).unwrap();
    let starts: Vec<_> = run.flows.iter().map(|flow| flow.start_ns).collect();
    assert_eq!(starts.iter().filter(|&&ns| ns == 3_000).count(), 2);
    assert_eq!(starts.iter().filter(|&&ns| ns == 5_000).count(), 2);
    let last = run.gates.iter().find(|gate| gate.needs == 4).unwrap();
    let groups = |flows: &[usize]| -> Vec<_> {
        flows.iter().map(|&n| run.flows[n].group.as_str()).collect()
    };
    assert_eq!(groups(&last.received), ["collective-1"; 4]);
    assert_eq!(groups(&last.starts), ["collective-2"; 2]);
}

#[test]
fn a_group_starts_after_another() {
    let blocks = "[[flows]]\nsrc = \"a1\"\ndst = \"b1\"\nbytes = \"1kB\"\ncount = 2\ngroup = \"one\"\n\
                  [[traffic]]\nkind = \"incast\"\nhosts = [\"a[1-2]\"]\nto = \"b1\"\nsizes = \"1kB\"\n\
                  group = \"two\"\nafter = \"one\"\nstart = \"3us\"\n\
                  [[traffic]]\nkind = \"file\"\nfile = \"x\"\nstart = \"9us\"\n";
    let header = "start_us,source,destination,bytes,group,after\n";
    let with = |rows: &str| with_file(blocks, Ok(file::tests::of(&format!("{header}{rows}"))));
    let run = with("5,a3,b3,10,three,two\n1,a4,b4,10,,\n").unwrap();
    let starts: Vec<_> = run.flows.iter().map(|flow| flow.start_ns).collect();
    // Rows that wait are not delayed by the block's start.
    assert_eq!(starts, [0, 0, 3_000, 3_000, 10_000, 5_000]);
    let gate = |received: &[usize], starts: &[usize]| Gate {
        needs: received.len(),
        received: received.to_vec(),
        acked: Vec::new(),
        starts: starts.to_vec(),
    };
    assert_eq!(run.gates, [gate(&[0, 1], &[2, 3]), gate(&[2, 3], &[5])]);
    for (rows, words) in [
        ("1,a4,b4,10,,tow\n", "after = 'tow': no flow is in this group"),
        (
            "1,a4,b4,10,three,four\n1,a3,b4,10,four,three\n",
            "never starts: it waits for its own end",
        ),
    ] {
        let said = with(rows).unwrap_err().to_string();
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn a_flow_of_size_0_needs_a_duration_and_nothing_waits_for_it() {
    let endless = "0->1 start 0 size 0\n";
    let said = with_matrix("", endless).unwrap_err().to_string();
    assert!(said.contains("x: line 1: a flow of size 0 never ends"), "{said}");
    let of = |matrix: &str| {
        let read = htsim::parse(matrix, spec::StartUnit::Us).unwrap();
        let mut scenario =
            parse("two", &format!("duration = \"1s\"\n{TWO}{MATRIX}"), &[]).unwrap().scenario;
        scenario.files.insert("x".to_owned(), read);
        plan(&scenario, "cubic", 1, 1)
    };
    assert!(of(endless).is_ok());
    let waits = "0->1 start 0 size 0 send_done_trigger 1\n1->0 id 2 trigger 1 size 5\ntrigger id 1 oneshot\n";
    let said = of(waits).unwrap_err().to_string();
    assert!(said.contains("from 'a1' to 'a2' never ends"), "{said}");
}

#[test]
fn bursts_offer_their_load() {
    let text = format!(
        "kind = \"bursts\"\n{ALL}\nto = \"a1\"\nsizes = \"10kB\"\nload = \"2%\"\nflows = 4\n\
         per_host = 2\nduration = \"1s\""
    );
    let flows = flows(&text, 3);
    let bits = flows.iter().map(|flow| flow.bytes).sum::<u64>() as f64 * 8.0;
    assert!((bits / 8e9 / 0.02 - 1.0).abs() < 0.01, "{bits}");
    // A burst of 80 kB in 8 Gbit/s x 2 %.
    assert_eq!((flows[7].start_ns, flows[8].start_ns), (0, 4_000_000));
    for more in ["\nperiod = \"1ms\"", "\nflows = 0"] {
        let text = text.replace("\nflows = 4", "") + more;
        assert!(run_with(&text, 1, 1, "cubic").is_err(), "{more}");
    }
}

#[test]
fn missing_and_unused_keys_of_a_kind_are_named() {
    for (text, word) in [
        ("kind = \"poisson\"\nhosts = [\"a1\"]\nsizes = \"1mb\"\nflows = 1", "load"),
        (
            "kind = \"incast\"\nhosts = [\"a1\"]\nsizes = \"1mb\"\nto = \"b1\"\nload = \"9%\"",
            "load",
        ),
        (
            "kind = \"rpc\"\nhosts = [\"a1\"]\nsizes = \"1mb\"\nto = \"b1\"\nperiod = \"1us\"",
            "flows",
        ),
        ("kind = \"incast\"\nhosts = [\"a1\"]\nto = \"b1\"", "sizes"),
        ("kind = \"incast\"\nhosts = [\"a1\", \"a1\"]\nsizes = \"1mb\"\nto = \"b1\"", "twice"),
        (
            "kind = \"incast\"\nhosts = [\"a1\"]\nsizes = \"1mb\"\nto = \"b1\"\nper_host = 0",
            "per_host",
        ),
        (
            "kind = \"incast\"\nhosts = [\"a1\"]\nsizes = \"1mb\"\nto = \"b1\"\nper_host = 60000",
            "55536",
        ),
        ("kind = \"incast\"\nsizes = \"1mb\"\nto = \"b1\"", "needs 'hosts'"),
        ("kind = \"file\"\nfile = \"x.csv\"\nsizes = \"1mb\"", "takes no 'sizes'"),
        ("kind = \"file\"", "needs 'file'"),
        ("kind = \"file\"\nfile = \"x.csv\"", "was not read"),
        ("kind = \"incast\"\nhosts = [\"a1\"]\nsizes = \"1mb\"\nto = \"zz\"", "zz"),
        ("kind = \"incast\"\nhosts = [\"a1\"]\nsizes = \"nobodys\"\nto = \"b1\"", "nobodys"),
        (
            "kind = \"permutation\"\nhosts = [\"a[1-2]\"]\nsizes = \"1mb\"\nacross = \"50%\"",
            "two datacenters",
        ),
        ("kind = \"permutation\"\nhosts = [\"a1\"]\nsizes = \"1mb\"", "itself"),
        (
            "kind = \"rpc\"\nhosts = [\"a1\"]\nsizes = \"1b\"\nto = \"b1\"\nperiod = \"1us\"\nduration = \"1s\"",
            "55536",
        ),
    ] {
        let err = run_with(text, 1, 1, "cubic").unwrap_err().to_string();
        assert!(err.contains(word), "{text}: {err}");
    }
}

#[test]
fn bbr_runs_between_datacenters_and_dctcp_inside() {
    let text = format!("kind = \"permutation\"\n{ALL}\nsizes = \"1mb\"\nacross = \"50%\"");
    let run = run_with(&text, 1, 1, "bbr-dctcp").unwrap();
    let congctl = run.topology.congctl.as_ref().unwrap();
    assert_eq!((congctl.inside.as_str(), congctl.across.as_str()), ("dctcp", "bbr"));
    let site = |name: &str| run.topology.nodes.iter().find(|node| node.name == name).unwrap().site;
    assert!(run.flows.iter().any(crosses));
    for flow in &run.flows {
        assert_eq!(site(&flow.src) != site(&flow.dst), crosses(flow), "{flow:?}");
        // A socket's choice would hide the route's.
        assert_eq!((&flow.cc, &flow.receiver_cc), (&None, &None));
    }
}
