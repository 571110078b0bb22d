// SPDX-License-Identifier: GPL-2.0
//! Observations beside the flows: queues, and counters that should not move.

use std::{collections::BTreeMap, fs::File, io::Read};

use anyhow::{Context, Result, bail};
use xdc_netlink::{
    Connection, phantom,
    qdisc::{self, QdiscState},
};
use xdc_proto::{Cause, Dropped, Queue, QueueResult, QueueSample, Totals, WatchedQueue};

use crate::{
    books::Books,
    ethtool::Ethtool,
    host::loaded_modules,
    network::{Network, is_queue, is_wire},
};

/// Counters that grow when memory, not the network, limits a result.
const SUSPECTS: &[&str] =
    &["TcpExtTCPMemoryPressures", "TcpExtPruneCalled", "TcpExtRcvPruned", "TcpExtTCPRcvQDrop"];

/// Counters reported in results: of TCP, and all with a module's prefix.
const TOLD: &[&str] = &["TcpExtTCPTimeouts"];
const TOLD_BY_MODULES: &[&str] = &["Tlt", UNORC];

/// Prefix of tunnel counters, summed over all devices.
const UNORC: &str = "Unorc";
/// Devices that sent more than a handshake, and those among them that received a NACK for an unreadable
/// block.
const SENDING: &str = "sending_devices";
const NACKED: &str = "nacked_devices";
const HANDSHAKE_PACKETS: u64 = 16;

/// Counter files in /proc/net, in pairs of lines: of the kernel, and of modules.
const KERNEL_FILE: &str = "netstat";
const MODULE_FILES: &[(&str, &str)] = &[("tlt", "tlt_stat")];

/// Larger than any of these files.
const FILE_BYTES: usize = 16 << 10;

/// The egress of a port under observation.
pub struct Watch {
    /// None for a switch of the fabric.
    connection: Option<Connection>,
    name: String,
    node: usize,
    port: String,
    index: u32,
    /// None = the link's own backlog.
    queue: Option<Queue>,
}

impl Watch {
    /// Finds the queue.
    pub fn new(network: &Network, watched: &WatchedQueue) -> Result<Self> {
        let layout = &network.layout;
        let node = layout.node(&watched.node)?;
        let port = layout.port(node, &watched.peer)?;
        Ok(Self {
            connection: match network.fabric(node) {
                Some(_) => None,
                None => Some(network.inside(node, || Ok(Connection::open()?))?),
            },
            name: watched.name.clone(),
            node,
            port: watched.peer.clone(),
            index: port.index,
            queue: port.egress.queue.clone(),
        })
    }

    fn state(&mut self, network: &Network) -> Result<QdiscState> {
        let (layout, node) = (&network.layout, self.node);
        let connection = match (&mut self.connection, network.fabric(node)) {
            (Some(connection), _) => connection,
            (None, Some(fabric)) => {
                return fabric.queue(layout, node, layout.port(node, &self.port)?);
            }
            (None, None) => bail!("the watched queue {} has no device", self.name),
        };
        let found = qdisc::dump(connection, self.index)?;
        let state = match &self.queue {
            Some(queue) => found.into_iter().find(|state| is_queue(state, queue)),
            // Losses on a link without a queue are not drops.
            None => found.into_iter().find(is_wire).map(|wire| QdiscState { drops: 0, ..wire }),
        };
        state.with_context(|| format!("the watched queue {} has no qdisc", self.name))
    }

    /// The current state of the queue.
    pub fn sample(&mut self, network: &Network) -> Result<QueueSample> {
        let state = self.state(network)?;
        let xstats = phantom::Xstats::of(&state);
        Ok(QueueSample {
            backlog_bytes: state.backlog_bytes,
            phantom_bytes: xstats.map(|x| x.phantom_bytes),
            drops: state.drops,
            marks: marks(&state),
        })
    }

    /// The queue's totals; `queue` is its index in the plan.
    pub fn result(&mut self, network: &Network, queue: usize) -> Result<QueueResult> {
        let state = self.state(network)?;
        let xstats = phantom::Xstats::of(&state);
        Ok(QueueResult {
            queue,
            sent_packets: state.sent_packets,
            sent_bytes: state.sent_bytes,
            drops: state.drops,
            marks: marks(&state),
            backlog_max_bytes: xstats.map(|x| x.backlog_max_bytes),
            phantom_max_bytes: xstats.map(|x| x.phantom_max_bytes),
        })
    }
}

/// Packets marked, dropped and lost at all ports.
pub fn totals(books: &Books, dropped: &[Dropped]) -> Totals {
    let packets = |causes: &[Cause]| {
        let of = dropped.iter().filter(|it| causes.contains(&it.cause));
        of.map(|it| it.packets).sum()
    };
    let mut totals = Totals {
        drops: packets(&[Cause::Queue, Cause::HostQueue]),
        losses: packets(&[Cause::Link]),
        ..Default::default()
    };
    for state in books.0.iter().flat_map(|node| &node.qdiscs) {
        totals.marks += marks(state);
        if let Some(xstats) = phantom::Xstats::of(state) {
            add_port(&mut totals, &xstats);
        }
    }
    totals
}

/// Adds the counters that only phantom ports have.
fn add_port(totals: &mut Totals, port: &phantom::Xstats) {
    totals.drops_green += port.drops_green;
    let accepted = [port.bytes_green, port.bytes_yellow, port.bytes_red];
    for (sum, bytes) in totals.accepted_bytes.iter_mut().zip(accepted) {
        *sum += bytes;
    }
    let accepted = [port.packets_green, port.packets_yellow, port.packets_red];
    for (sum, packets) in totals.accepted_packets.iter_mut().zip(accepted) {
        *sum += packets;
    }
    totals.backlog_max_bytes = totals.backlog_max_bytes.max(port.backlog_max_bytes);
    totals.red_max_bytes = totals.red_max_bytes.max(port.red_max_bytes);
}

fn marks(state: &QdiscState) -> u64 {
    match phantom::Xstats::of(state) {
        Some(xstats) => xstats.marked(),
        None => state.marks().unwrap_or_default(),
    }
}

/// Kernel counters by nstat name, summed over nodes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Counters(BTreeMap<String, u64>);

impl FromIterator<(String, u64)> for Counters {
    fn from_iter<T: IntoIterator<Item = (String, u64)>>(counters: T) -> Self {
        Self(counters.into_iter().collect())
    }
}

impl Extend<(String, u64)> for Counters {
    fn extend<T: IntoIterator<Item = (String, u64)>>(&mut self, counters: T) {
        self.0.extend(counters);
    }
}

impl Counters {
    /// Reads the counters in the namespaces of `nodes`.
    pub fn read(network: &Network, nodes: impl IntoIterator<Item = usize>) -> Result<Self> {
        let mut sum = Self::default();
        // Look up modules instead of trying files: in UML a failed system call costs time.
        let loaded = loaded_modules();
        let of_modules = MODULE_FILES.iter();
        let of_modules = of_modules.filter(|(module, _)| loaded.contains(*module));
        let files: Vec<_> = of_modules.map(|&(_, file)| file).collect();
        for node in nodes {
            network.inside(node, || {
                for file in files.iter().copied().chain([KERNEL_FILE]) {
                    sum.add(&proc_net(file)?);
                }
                Ok(())
            })?;
        }
        sum.add_tunnels(network)?;
        Ok(sum)
    }

    /// Reads the nonzero counters of IP, TCP and UDP in the current namespace.
    pub fn read_all() -> Result<Self> {
        let mut sum = Self::default();
        for file in ["snmp", KERNEL_FILE] {
            sum.add(&proc_net(file)?);
        }
        let of_ipv6 = proc_net("snmp6")?;
        sum.extend(of_ipv6.lines().filter_map(|line| {
            let (name, value) = line.split_once(char::is_whitespace)?;
            let value = value.trim().parse().ok().filter(|&value| value > 0)?;
            Some((name.to_owned(), value))
        }));
        Ok(sum)
    }

    /// A counter by name; 0 if absent.
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// Adds the counters of tunnel devices.
    fn add_tunnels(&mut self, network: &Network) -> Result<()> {
        let mut names = Vec::new();
        for (node, device) in network.tunnel_devices() {
            let values = network.inside(*node, || {
                let ethtool = Ethtool::open()?;
                if names.is_empty() {
                    names = ethtool.names(device)?;
                }
                ethtool.counters(device, names.len())
            })?;
            let value = |name: &str| {
                let at = names.iter().position(|known| known == name);
                at.and_then(|at| values.get(at)).copied().unwrap_or(0)
            };
            let sends = value("tx_data") > HANDSHAKE_PACKETS;
            let is_nacked = sends && value("nack_received") > 0;
            let own = [(SENDING, u64::from(sends)), (NACKED, u64::from(is_nacked))];
            let counted = names.iter().map(String::as_str).zip(values.iter().copied());
            for (name, value) in counted.chain(own) {
                *self.0.entry(format!("{UNORC}.{name}")).or_default() += value;
            }
        }
        Ok(())
    }

    /// Counters that should not have grown since `before`, and their growth.
    pub fn suspects_since(&self, before: &Self) -> Vec<(String, u64)> {
        let suspect = |(name, delta): &(String, u64)| SUSPECTS.contains(&&**name) && *delta > 0;
        self.since(before).filter(suspect).collect()
    }

    /// Growth of the counters that belong to a result.
    pub fn told_since(&self, before: &Self) -> BTreeMap<String, u64> {
        let told = |(name, _): &(String, u64)| {
            let of_module = |prefix: &&str| name.starts_with(prefix);
            TOLD.contains(&&**name) || TOLD_BY_MODULES.iter().any(of_module)
        };
        self.since(before).filter(told).collect()
    }

    fn since<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = (String, u64)> + 'a {
        self.0.iter().map(|(name, now)| {
            let before = before.0.get(name).unwrap_or(&0);
            (name.clone(), now.saturating_sub(*before))
        })
    }

    /// Adds a file of line pairs: names above values.
    fn add(&mut self, text: &str) {
        let lines: Vec<&str> = text.lines().collect();
        for pair in lines.chunks_exact(2) {
            let Some((family, names)) = pair[0].split_once(':') else {
                continue;
            };
            // The second line also begins with the family.
            let values = pair[1].split_whitespace().skip(1);
            for (name, value) in names.split_whitespace().zip(values) {
                if let Ok(value) = value.parse::<u64>() {
                    *self.0.entry(format!("{family}{name}")).or_default() += value;
                }
            }
        }
    }
}

/// A file of the current namespace. The kernel returns one record (single_open_net() in fs/proc/proc_net.c),
/// so a read that leaves room is complete: this saves system calls, slow in UML.
fn proc_net(name: &str) -> Result<String> {
    let (mut text, mut len) = (Vec::new(), 0);
    let all = File::open(format!("/proc/self/net/{name}")).and_then(|mut file| {
        while len == text.len() {
            text.resize(len + FILE_BYTES, 0);
            match file.read(&mut text[len..])? {
                0 => break,
                more => len += more,
            }
        }
        Ok(())
    });
    all.with_context(|| format!("/proc/net/{name}"))?;
    text.truncate(len);
    String::from_utf8(text).with_context(|| format!("/proc/net/{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_name_and_compared() {
        let text = |pruned: u64| {
            format!(
                "TcpExt: SyncookiesSent PruneCalled TCPRcvQDrop\nTcpExt: 7 {pruned} 2\n\
                 IpExt: InNoRoutes\nIpExt: 9\n"
            )
        };
        let (mut before, mut after) = (Counters::default(), Counters::default());
        before.add(&text(1));
        after.add(&text(4));
        let suspects = after.suspects_since(&before);
        assert_eq!(suspects, [("TcpExtPruneCalled".to_owned(), 3)]);
        after.add("TcpExt: TCPTimeouts\nTcpExt: 5\nTlt: TxData\nTlt: 7\n");
        let told = after.told_since(&before);
        let told: Vec<_> = told.iter().map(|(name, n)| (&**name, *n)).collect();
        assert_eq!(told, [("TcpExtTCPTimeouts", 5), ("TltTxData", 7)]);
    }
}
