// SPDX-License-Identifier: GPL-2.0
//! Colors from tc filters, and the accounting of their actions.

use anyhow::{Context, Result, ensure};
use xdc_netlink::{
    phantom::{ColorSource, Options},
    qdisc::Handle,
};

use super::Case;
use crate::{
    lab::{Lab, equal, run},
    sender::{Fate, Frame, Kind},
};

pub const CASES: &[Case] = &[
    // The wrong half of a class id; a filter that is not called.
    ("u32 selects the color", u32_filter),
    ("flower selects the color", flower),
    ("a BPF program selects the color", bpf),
    // A filter called against the configuration.
    ("filters are not called without color filter", not_asked),
    // A dropped packet that no counter has, or that is freed twice.
    ("an action that drops counts as a drop", drop),
    // A stolen packet counted as lost.
    ("an action that steals does not count as a drop", steal),
    // A filter that outlives its qdisc.
    ("filters are deleted with a port that holds packets", gone),
];

fn options() -> Options {
    Options { color_source: Some(ColorSource::Filter), ..Options::default() }
}

/// Sends packets of distinct lengths to ports 1 to 4, and checks their colors.
fn three_colors(lab: &mut Lab, kind: Kind) -> Result<()> {
    for (port, bytes) in [(1, 100), (2, 200), (3, 400), (4, 800)] {
        lab.sender.send_all(3, &Frame::new(bytes).kind(kind).port(port))?;
    }
    lab.drain()?;
    let (_, port) = lab.balance(0)?;
    let x = port.x;
    // Packets without a match are green.
    equal(
        "bytes by color",
        [x.bytes_green, x.bytes_yellow, x.bytes_red],
        [3 * (100 + 800), 3 * 200, 3 * 400],
    )
}

fn u32_filter(lab: &mut Lab) -> Result<()> {
    lab.port(&options())?;
    for port in 1..=3 {
        lab.tc(&format!(
            "filter add dev DEV parent 10: protocol ip prio 1 u32 \
             match ip protocol 17 0xff match ip dport {port} 0xffff classid 10:{port}"
        ))?;
    }
    three_colors(lab, Kind::Udp4)
}

fn flower(lab: &mut Lab) -> Result<()> {
    lab.port(&options())?;
    for port in 1..=3 {
        lab.tc(&format!(
            "filter add dev DEV parent 10: protocol ipv6 prio {port} flower \
             ip_proto udp dst_port {port} classid 10:{port}"
        ))?;
    }
    three_colors(lab, Kind::Udp6)
}

fn bpf(lab: &mut Lab) -> Result<()> {
    lab.port(&options())?;
    for port in 1..=3 {
        // The UDP destination port of IPv4 is at byte 36 of the frame; -1 = the class id.
        lab.tc(&format!(
            "filter add dev DEV parent 10: protocol ip prio {port} bpf bytecode \
             '4,40 0 0 36,21 0 1 {port},6 0 0 4294967295,6 0 0 0' classid 10:{port}"
        ))?;
    }
    three_colors(lab, Kind::Udp4)
}

fn not_asked(lab: &mut Lab) -> Result<()> {
    lab.port(&Options::default())?;
    lab.tc("filter add dev DEV parent 10: protocol all prio 1 matchall classid 10:3 action drop")?;
    lab.sender.send_all(5, &Frame::new(100))?;
    lab.drain()?;
    let (_, port) = lab.balance(0)?;
    equal("bytes_green", port.x.bytes_green, 500)
}

fn drop(lab: &mut Lab) -> Result<()> {
    lab.port(&options())?;
    lab.tc("filter add dev DEV parent 10: protocol ip prio 1 flower \
         ip_proto udp dst_port 7 action drop")?;
    let mut refused = 0;
    for i in 0..30 {
        let fate = lab.sender.send(&Frame::new(300).port(6 + i % 2))?;
        refused += u64::from(fate == Fate::Refused);
    }
    lab.drain()?;
    let (account, port) = lab.balance(0)?;
    equal("drops", port.state.drops, 15)?;
    ensure!(account.missing.iter().all(|r| r.destination_port == 7), "other packets were dropped");
    equal("drops reported to the sender", refused, 15)
}

fn steal(lab: &mut Lab) -> Result<()> {
    run("ip link add sink type dummy && ip link set sink up")?;
    let outcome = ["trap", "mirred egress redirect dev sink"]
        .iter()
        .try_for_each(|action| stolen_by(lab, action));
    run("ip link del sink")?;
    outcome
}

fn stolen_by(lab: &mut Lab, action: &str) -> Result<()> {
    lab.port(&options())?;
    lab.tc(&format!(
        "filter add dev DEV parent 10: protocol ip prio 1 flower \
         ip_proto udp dst_port 7 action {action}"
    ))?;
    for i in 0..30 {
        lab.sender
            .send_all(1, &Frame::new(300).port(6 + i % 2))
            .with_context(|| format!("action {action}"))?;
    }
    lab.drain()?;
    let account = lab.account()?;
    let state = lab.look()?.state;
    equal("stolen", account.missing.len(), 15)?;
    equal("drops", state.drops, 0)?;
    equal("sent", state.sent_packets, 15)?;
    equal("backlog", (state.backlog_packets, state.backlog_bytes), (0, 0))
}

fn gone(lab: &mut Lab) -> Result<()> {
    for _ in 0..3 {
        lab.clear()?;
        lab.hold(Handle::ROOT, &options(), |lab| {
            lab.tc("filter add dev DEV parent 10: protocol all prio 1 matchall classid 10:3")?;
            lab.sender.send_all(10, &Frame::new(1_000))?;
            Ok(10_000)
        })?;
        equal("bytes_red", lab.look()?.x.bytes_red, 10_000)?;
        lab.delete()?;
    }
    Ok(())
}
