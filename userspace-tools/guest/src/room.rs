// SPDX-License-Identifier: GPL-2.0
//! Kernel memory of a run: allocated to a guest, but required of the host, where no process limit
//! counts it.

use std::fs;

use xdc_algo::acceltor::{Elephant, Elephants, MAX_QUEUES, Sketch};
use xdc_base::error::{Error, Result};
use xdc_netlink::acceltor;
use xdc_proto::{Direction, Queue, RunPlan};
use xdc_scenario::tunnel;

/// Per node and link: 403 kB measured for a node with its links in fabric-two-dc, and as much again
/// for packets.
const NODE_KB: u64 = 256;
const LINK_KB: u64 = 256;

/// Entry of a qdisc's table; a flow of fq_pie is the largest.
const ENTRY_BYTES: u64 = 128;
/// cake has eight tables of 1,024 flows, fixed in tc.
const CAKE_ENTRIES: u64 = 8 * 1024;

/// Elephants of acceltor: default per pair of racks, and maximum of all.
const PAIR_ELEPHANTS: u64 = 80;
const MAX_ELEPHANTS: u64 = 1 << 18;
/// Queue of acceltor's calendar, bytes.
const LATER_BYTES: u64 = 64;

/// Minimum buffer for an experiment.
const LEAST_BUFFER_BYTES: u64 = 64 << 10;

pub fn network_mb(run: &RunPlan) -> u64 {
    let (nodes, links) = (run.topology.nodes.len(), run.topology.links.len());
    let tunnels = tunnel::memory_bytes(&run.topology.tunnels) >> 20;
    ((nodes as u64 * NODE_KB + links as u64 * LINK_KB) >> 10) + tunnels
}

/// MemAvailable in the text of /proc/meminfo.
pub fn available_mb(meminfo: &str) -> Option<u64> {
    let mut lines = meminfo.lines();
    let rest = lines.find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(rest.split_whitespace().next()?.parse::<u64>().ok()? >> 10)
}

/// Refuses a run that would exhaust this host's memory or the memory of its TCP.
pub fn check(run: &RunPlan) -> Result<()> {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    if let Some(available_mb) = available_mb(&meminfo) {
        check_memory(run, available_mb)?;
    }
    buffer_bytes(run, tcp_bytes()?).map(drop)
}

fn check_memory(run: &RunPlan, available_mb: u64) -> Result<()> {
    let links = run.topology.links.iter();
    let rotor = run.topology.rotor.as_ref();
    let racks = rotor.map_or(0, |rotor| rotor.racks.len() as u64);
    let tables_mb = links
        .flat_map(|link| [&link.ab, &link.ba])
        .map(|direction| table_bytes(direction, racks))
        .fold(0, u64::saturating_add)
        >> 20;
    let sum_mb = network_mb(run).saturating_add(tables_mb);
    match sum_mb > available_mb / 2 {
        false => Ok(()),
        true => Err(Error::usage(format!(
            "this network takes {sum_mb} MB of the kernel's memory for {} nodes, {} links, {} tunnels \
             and {tables_mb} MB of qdiscs' tables; half of this machine's available memory is {} MB",
            run.topology.nodes.len(),
            run.topology.links.len(),
            run.topology.tunnels.len(),
            available_mb / 2
        ))
        .hint("fewer nodes or smaller tables, or --engine uml")),
    }
}

/// Bytes of a port's qdisc tables in a network of `racks`.
fn table_bytes(direction: &Direction, racks: u64) -> u64 {
    match &direction.queue {
        Some(queue) if queue.is_acceltor() => acceltor_bytes(queue, racks),
        Some(queue) => entries(queue).saturating_mul(ENTRY_BYTES),
        None => 0,
    }
}

/// Memory of `Tables` in modules/net/sched/sch_acceltor.rs and of its calendar.
fn acceltor_bytes(queue: &Queue, racks: u64) -> u64 {
    // The agent refuses unparsable words.
    let options = acceltor::Options::from_words(&queue.words).unwrap_or_default();
    let racks = racks.max(options.racks.unwrap_or(2).into());
    let days = racks.saturating_sub(1);
    let of_pair = options.elephants.map_or(PAIR_ELEPHANTS, u64::from);
    let elephants = of_pair.saturating_mul(days).min(MAX_ELEPHANTS);
    let flows = Elephants::slots_for(elephants as usize) * size_of::<Elephant>();
    let sketch = Sketch::CELLS * size_of::<u32>();
    (flows + sketch) as u64 + days.max(MAX_QUEUES).saturating_mul(LATER_BYTES)
}

/// Entries in a qdisc's tables, from tc's words.
fn entries(queue: &Queue) -> u64 {
    let base = if queue.kind == "cake" { CAKE_ENTRIES } else { 0 };
    let is_table = |word: &str| match word {
        "flows" | "buckets" | "divisor" => true,
        word => word == "limit" && queue.kind == "choke",
    };
    let pairs = queue.words.windows(2);
    pairs
        .filter(|pair| is_table(&pair[0]))
        .filter_map(|pair| number(&pair[1]))
        .fold(base, u64::saturating_add)
}

/// A number as tc parses it, including hexadecimal and octal.
fn number(word: &str) -> Option<u64> {
    match word.strip_prefix("0x").or(word.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None if word.len() > 1 && word.starts_with('0') => u64::from_str_radix(word, 8).ok(),
        None => word.parse().ok(),
    }
}

/// Limits socket buffers to this host's memory; returns the limit in bytes if the run asks for
/// more.
pub fn fit_buffers(run: &mut RunPlan) -> Result<Option<u64>> {
    let most = buffer_bytes(run, tcp_bytes()?)?;
    let mut is_less = false;
    let nodes = run.topology.nodes.iter_mut();
    let of_nodes = nodes.flat_map(|node| &mut node.sysctls);
    for (name, value) in run.topology.sysctls.iter_mut().chain(of_nodes) {
        if !matches!(name.as_str(), "net.ipv4.tcp_rmem" | "net.ipv4.tcp_wmem") {
            continue;
        }
        let words = value.split_whitespace();
        let numbers: std::result::Result<Vec<u64>, _> = words.map(str::parse).collect();
        // The kernel takes the first three numbers of a longer text.
        let Some(numbers) = numbers.ok().filter(|numbers| numbers.len() == 3) else {
            return Err(Error::usage(format!("{name} = {value} must be three numbers of bytes"))
                .hint("minimum, default and maximum"));
        };
        is_less |= numbers.iter().any(|&bytes| bytes > most);
        let words: Vec<_> = numbers.iter().map(|&bytes| bytes.min(most).to_string()).collect();
        *value = words.join(" ");
    }
    Ok(is_less.then_some(most))
}

/// Maximum of each buffer without a stated size, so that all buffers take half of TCP's memory
/// before it comes under pressure.
fn buffer_bytes(run: &RunPlan, tcp_bytes: u64) -> Result<u64> {
    let most = tcp_bytes / 2;
    let buffers = run.flows.iter();
    let buffers = buffers.flat_map(|flow| [flow.sndbuf_bytes, flow.rcvbuf_bytes]);
    let (mut stated, mut others) = (0_u64, 0);
    for bytes in buffers {
        match bytes {
            0 => others += 1,
            // The kernel doubles it for overhead.
            bytes => stated = stated.saturating_add(2 * bytes),
        }
    }
    let each = most.saturating_sub(stated) / u64::max(others, 1);
    match stated > most || (others > 0 && each < LEAST_BUFFER_BYTES) {
        false => Ok(each),
        true => Err(Error::usage(format!(
            "the buffers of {} flows take more than {} MB, half of the TCP memory of this machine \
             ({} MB are set as 'sndbuf' and 'rcvbuf')",
            run.flows.len(),
            most >> 20,
            stated >> 20
        ))
        .hint("fewer flows, smaller 'sndbuf' and 'rcvbuf', or --engine uml")),
    }
}

/// TCP memory pressure threshold, above which the kernel shrinks all sockets' buffers.
fn tcp_bytes() -> Result<u64> {
    const PAGE_BYTES: u64 = 4096;
    const TCP_MEM: &str = "/proc/sys/net/ipv4/tcp_mem";
    let text = fs::read_to_string(TCP_MEM).map_err(|err| Error::io(TCP_MEM, &err))?;
    let pressure = text.split_whitespace().nth(1);
    let pages: u64 = pressure.and_then(|it| it.parse().ok()).unwrap_or(0);
    Ok(pages.saturating_mul(PAGE_BYTES))
}

#[cfg(test)]
mod tests {
    use xdc_proto::Job;

    use super::*;
    use xdc_scenario::plan::plan;
    use xdc_scenario::{parse, testing::SMALL};

    fn run(more: &str) -> RunPlan {
        let loaded = parse("small", &format!("{SMALL}{more}"), &[]).unwrap();
        match plan(&loaded.scenario, "cubic", 1, 1).unwrap().job {
            Job::Run(run) => run,
            job => panic!("{job:?}"),
        }
    }

    const MANY: &str = "\n[[flows]]\nsrc = \"a1\"\ndst = \"r\"\nbytes = 1\ncount = 1000\n";

    #[test]
    fn buffers_take_half_of_the_tcp_memory() {
        let tcp_bytes = 512 << 20;
        let few = run("");
        let flows = few.flows.len() as u64;
        assert_eq!(buffer_bytes(&few, tcp_bytes).unwrap(), (256 << 20) / (2 * flows));
        let large = run(&format!("{MANY}sndbuf = \"1gb\"\nrcvbuf = \"1gb\"\n"));
        let said = buffer_bytes(&large, tcp_bytes).unwrap_err().lines().join(" ");
        assert!(said.contains("256 MB") && said.contains("sndbuf"), "{said}");
        assert!(buffer_bytes(&run(MANY), 64 << 20).is_err());
    }

    #[test]
    fn a_network_takes_at_most_half_of_the_memory() {
        let mut run = run("");
        assert!(check_memory(&run, 64).is_ok());
        let queue = Queue {
            kind: "fq_codel".to_owned(),
            words: ["flows", "0x10000"].map(str::to_owned).to_vec(),
            seed: None,
        };
        let link = run.topology.links[0].clone();
        run.topology.links = vec![link; 100];
        for link in &mut run.topology.links {
            link.ab.queue = Some(queue.clone());
        }
        let said = check_memory(&run, 800).unwrap_err().lines().join(" ");
        assert!(said.contains("800 MB of qdiscs' tables"), "{said}");
        let queue = Queue {
            kind: acceltor::KIND.to_owned(),
            words: ["racks", "1024", "elephants", "256"].map(str::to_owned).to_vec(),
            seed: None,
        };
        for link in &mut run.topology.links {
            link.ab.queue = Some(queue.clone());
        }
        let said = check_memory(&run, 800).unwrap_err().lines().join(" ");
        assert!(said.contains("2015 MB of qdiscs' tables"), "{said}");
        assert_eq!(number("0200"), Some(128));
        assert_eq!(available_mb("MemFree: 1 kB\nMemAvailable:  2048 kB\n"), Some(2));
    }
}
