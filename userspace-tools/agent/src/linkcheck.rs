// SPDX-License-Identifier: GPL-2.0
//! Measures the flows' paths before the traffic, to verify the links.

use std::{
    collections::BTreeSet,
    io::IoSliceMut,
    net::{IpAddr, SocketAddr},
    os::fd::AsRawFd,
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use nix::{
    cmsg_space,
    sys::{
        socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg},
        time::TimeSpec,
    },
    time::{ClockId, clock_gettime},
};
use socket2::Socket;
use xdc_proto::{ETHERNET_HEADER_BYTES, Flow, Message, RunPlan, Topology};

use crate::{channel::Channel, network::Network, socket};

/// Probes of one path; the smallest RTT counts.
const PROBES: u32 = 20;

/// Maximum number of paths to probe: more would not improve the check.
const MAX_PATHS: usize = 32;

/// UDP header, bytes.
const UDP_BYTES: u32 = 8;

/// Time to wait for a packet, beyond the path's RTT.
const PATIENCE: Duration = Duration::from_secs(2);

/// Probes the flows' paths and reports their RTTs.
pub fn check(network: &Network, run: &RunPlan, channel: &mut Channel) -> Result<()> {
    let busy_ns = busy_ns(&run.topology);
    for flow in sample(&run.flows) {
        let (src, dst) = (network.layout.node(&flow.src)?, network.layout.node(&flow.dst)?);
        let rtt_ns = probe(network, run, (src, dst), flow.base_rtt_us, busy_ns)
            .with_context(|| format!("the path from {} to {} does not work", flow.src, flow.dst))?;
        channel.send(&Message::LinkCheck {
            src: flow.src.clone(),
            dst: flow.dst.clone(),
            configured_rtt_us: flow.base_rtt_us,
            measured_rtt_us: rtt_ns as f64 / 1e3,
        })?;
    }
    Ok(())
}

/// Serialization time of a full packet at the slowest queue, ns. The queue sends it at once and
/// delays the next packet, so this is not part of an idle path's RTT.
fn busy_ns(topology: &Topology) -> u64 {
    let ports = topology.links.iter().flat_map(|link| {
        let bits = u64::from(link.mtu + ETHERNET_HEADER_BYTES) * 8;
        [&link.ab, &link.ba].map(|direction| (bits, direction))
    });
    let queues = ports.filter(|(_, port)| port.queue.is_some() && port.rate_bps > 0);
    let busy = queues.map(|(bits, port)| (bits * 1_000_000_000).div_ceil(port.rate_bps));
    busy.max().unwrap_or(0)
}

/// One flow per path, up to [`MAX_PATHS`]; beyond that, one of each base RTT first, then others
/// evenly from the list.
fn sample(flows: &[Flow]) -> Vec<&Flow> {
    let mut seen = BTreeSet::new();
    let paths: Vec<&Flow> =
        flows.iter().filter(|flow| seen.insert((&flow.src, &flow.dst))).collect();
    if paths.len() <= MAX_PATHS {
        return paths;
    }
    let mut rtts = BTreeSet::new();
    let mut chosen: BTreeSet<usize> = (0..paths.len())
        .filter(|&i| rtts.insert(paths[i].base_rtt_us.to_bits()))
        .take(MAX_PATHS)
        .collect();
    let evenly = (0..MAX_PATHS).map(|i| i * paths.len() / MAX_PATHS);
    for other in evenly {
        if chosen.len() < MAX_PATHS {
            chosen.insert(other);
        }
    }
    chosen.into_iter().map(|i| paths[i]).collect()
}

/// Smallest RTT of a full packet from `src` answered by `dst` with an ACK-sized one, ns.
///
/// Both ends share a clock, and arrival times are the kernel's, so process wake-ups do not count.
fn probe(
    network: &Network,
    run: &RunPlan,
    (src, dst): (usize, usize),
    base_rtt_us: f64,
    busy_ns: u64,
) -> Result<u64> {
    let patience = PATIENCE + Duration::from_nanos((base_rtt_us * 1e3) as u64);
    let open = |node| network.inside(node, || socket::open_probe(network.address(node)?, patience));
    let (near, far) = (open(src)?, open(dst)?);
    let mtu = |node: usize| network.layout.nodes[node].ports[0].mtu;
    let headers = run.topology.ip_header_bytes() + UDP_BYTES;
    let full = vec![0; (mtu(src).min(mtu(dst)) - headers) as usize];
    let answer = vec![0; (run.topology.ack_bytes() - headers) as usize];

    let mut best_ns = u64::MAX;
    for _ in 0..PROBES {
        let there_ns = one_way(&near, &far, network.address(dst)?, &full)?;
        let back_ns = one_way(&far, &near, network.address(src)?, &answer)?;
        let rtt_ns = there_ns + back_ns;
        best_ns = best_ns.min(rtt_ns);
        // Wait until no queue is busy with this probe.
        thread::sleep(Duration::from_nanos(busy_ns.saturating_sub(rtt_ns)));
    }
    Ok(best_ns)
}

/// Sends one packet; returns the time until its arrival, ns.
fn one_way(from: &Socket, to: &Socket, address: IpAddr, payload: &[u8]) -> Result<u64> {
    let port = to.local_addr()?.as_socket().context("the probe's socket has no port")?.port();
    let sent_ns = nanoseconds(clock_gettime(ClockId::CLOCK_REALTIME)?);
    from.send_to(payload, &SocketAddr::new(address, port).into()).context("cannot send a probe")?;

    let mut buffer = [0; 1];
    let mut vector = [IoSliceMut::new(&mut buffer)];
    let mut control = cmsg_space!(TimeSpec);
    let received = recvmsg::<SockaddrStorage>(
        to.as_raw_fd(),
        &mut vector,
        Some(&mut control),
        MsgFlags::empty(),
    )
    .context("a probe did not arrive")?;
    for message in received.cmsgs()? {
        if let ControlMessageOwned::ScmTimestampns(arrived) = message {
            return Ok(nanoseconds(arrived).saturating_sub(sent_ns));
        }
    }
    bail!("the kernel gave a probe no receive timestamp")
}

fn nanoseconds(time: TimeSpec) -> u64 {
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}

#[cfg(test)]
mod tests {
    use xdc_proto::{Direction, Link, Queue};

    use super::*;

    fn flow(src: usize, base_rtt_us: f64) -> Flow {
        Flow { src: format!("a{src}"), dst: "b".to_owned(), base_rtt_us, ..Flow::default() }
    }

    #[test]
    fn the_slowest_queue_sets_the_busy_time() {
        let direction = |rate_bps, is_queue: bool| Direction {
            rate_bps,
            delay_ns: 0,
            queue: is_queue.then(Queue::default),
            faults: None,
            policer: None,
        };
        let link = |rate_bps, is_queue| Link {
            a: "a".to_owned(),
            b: "b".to_owned(),
            mtu: 1486,
            ab: direction(rate_bps, is_queue),
            ba: direction(1_000_000_000, true),
        };
        let busy = |links| busy_ns(&Topology { links, ..Topology::default() });
        assert_eq!(busy(vec![link(100_000_000, true)]), 120_000);
        // A wire without a queue has its serialization in the RTT.
        assert_eq!(busy(vec![link(100_000_000, false)]), 12_000);
        assert_eq!(busy(vec![link(0, true)]), 12_000);
    }

    #[test]
    fn few_paths_are_all_probed_once() {
        let flows: Vec<Flow> = (0..20).map(|i| flow(i / 2, 1.0)).collect();
        assert_eq!(sample(&flows).len(), 10);
    }

    #[test]
    fn every_base_rtt_of_many_paths_is_probed() {
        let flows: Vec<Flow> =
            (0..500).map(|i| flow(i, if i == 499 { 2000.0 } else { 14.0 })).collect();
        let sample = sample(&flows);
        assert_eq!(sample.len(), MAX_PATHS);
        assert!(sample.iter().any(|flow| flow.base_rtt_us == 2000.0));
    }
}
