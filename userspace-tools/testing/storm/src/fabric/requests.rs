// SPDX-License-Identifier: GPL-2.0
//! Requests of the netlink family fabric: bad ones and random ones.

use std::{thread, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use xdc_netlink::{
    Connection,
    attributes::Attributes,
    fabric::{KIND, Network, Peer, Size, Switch},
    generic::Family as Genl,
    link::{self, VethEnd},
};

use super::chain::{Chain, build};
use crate::{
    Storm,
    flow::Family,
    net::{DEVICE, Netns, mac},
};

/// Commands and attributes of modules/include/uapi/linux/fabric.h.
const SET_SWITCH: u8 = 2;
const SET_PORT: u8 = 3;
const DELETE: u8 = 5;
const ATTRIBUTES: u16 = 29;

/// Sends a command in the thread's namespace.
fn command(command: u8, attributes: Attributes) -> Result<()> {
    Ok(Genl::open(KIND, 1)?.request("test the fabric", command, attributes)?)
}

/// Deletes the network; its links stay.
pub fn delete(chain: &Chain) -> Result<()> {
    chain.home.run(|| command(DELETE, Attributes::default()))
}

/// Reads all counters in the thread's namespace; returns the number of ports and switches.
pub fn dump() -> Result<usize> {
    let mut genl = Genl::open(KIND, 1)?;
    Ok(genl.dump("dump", 4, Attributes::default())?.len())
}

/// Checks that a request fails, for a reason.
fn refused<T>(why: &str, outcome: Result<T>) -> Result<()> {
    match outcome {
        Ok(_) => bail!("accepted, without \"{why}\""),
        Err(error) => {
            let text = format!("{error:#}");
            ensure!(text.contains(why), "\"{text}\" lacks \"{why}\"");
            Ok(())
        }
    }
}

/// Bad requests, and a loop.
pub fn refusals(_storm: &Storm, _rounds: u32) -> Result<()> {
    const NO_PORT: &str = "no such port";
    const NO_SWITCH: &str = "no such switch";
    let chain = Chain::new(Family::V4)?;
    chain.home.run(|| refused("has a network", build(1)))?;
    let elsewhere = Netns::create()?;
    let size =
        |ports, switches, hosts| Size { switches, ports, devices: 1, hosts, ..Size::default() };
    elsewhere.run(|| {
        for (ports, switches, hosts) in [(1_000_001, 1, 1), (0, 1, 1), (1, 65_537, 1), (1, 1, 0)] {
            let made = Network::create(&size(ports, switches, hosts));
            refused("range", made.map_err(Into::into))?;
        }
        // The largest network.
        Network::create(&Size { devices: 65_536, ..size(1_000_000, 65_536, 32_765) })?;
        command(DELETE, Attributes::default())?;
        refused("no network", command(SET_PORT, id(0)))?;
        refused("", command(DELETE, Attributes::default()))?;
        let end = VethEnd { name: "eth0".to_string(), index: DEVICE, mac: mac(0), netns: None };
        let made = Connection::open()?.request(link::add_fabric(&end, 1500, true, 0, 0));
        refused("no network", made.map_err(Into::into))
    })?;
    for peer in [Peer::Switch(3), Peer::Device(2), Peer::Switch(u32::MAX)] {
        refused("", chain.set(|port| port.peer = peer, 0))?;
    }
    refused(NO_PORT, chain.set(|port| port.pool = Some(2), 0))?;
    refused(NO_PORT, chain.set(|port| port.id = 7, 0))?;
    refused("", chain.set(|port| port.queue = Some(vec![1, 2, 3]), 0))?;
    refused("no such port", chain.home.run(|| command(SET_PORT, id(0))))?;
    let set = |table: Vec<u16>, ways| {
        let switch = Switch { table, ways, ..Switch::default() };
        Ok(chain.network.borrow_mut().set_switch(&switch)?)
    };
    refused(NO_SWITCH, set(vec![0], vec![vec![0]]))?;
    refused(NO_SWITCH, set(vec![0, 1], vec![vec![0]]))?;
    refused(NO_SWITCH, set(vec![0, 0], vec![vec![7]]))?;
    refused(NO_SWITCH, set(vec![0, 0], vec![]))?;
    // Whole numbers only: TABLE, STARTS and HOPS with a byte too many.
    for odd in [11u16, 12, 13] {
        let mut attributes = id(0);
        for (it, value) in [(11, vec![0; 4]), (12, vec![0; 8]), (13, vec![])] {
            let extra = if it == odd { 1 } else { 0 };
            attributes.push(it, &[value, vec![0; extra]].concat());
        }
        let made = chain.home.run(|| command(SET_SWITCH, attributes));
        refused(NO_SWITCH, made).with_context(|| format!("the odd attribute {odd}"))?;
    }
    // A loop ends by the packets' hops.
    let mut network = chain.network.borrow_mut();
    for (id, port) in [(0, 1), (1, 2)] {
        network.set_switch(&Switch {
            id,
            table: vec![0, 0],
            ways: vec![vec![port]],
            ..Switch::default()
        })?;
    }
    chain.flood(0, 100)?;
    thread::sleep(Duration::from_millis(100));
    let (_, switches) = network.dump()?;
    let expired: u64 = switches.iter().map(|switch| switch.expired).sum();
    ensure!(expired >= 100, "{expired} of 100 packets have expired");
    Ok(())
}

fn id(id: u32) -> Attributes {
    let mut attributes = Attributes::default();
    attributes.push(8, &id.to_ne_bytes());
    attributes
}

/// Random requests, and dumps among them.
pub fn random(storm: &Storm, rounds: u32) -> Result<()> {
    let home = Netns::create()?;
    let mut rng = fastrand::Rng::with_seed(storm.seed);
    let (mut accepted, mut all) = (0, 0);
    home.run(|| {
        let mut genl = Genl::open(KIND, 1)?;
        for _ in 0..rounds * 200 {
            let mut attributes = Attributes::default();
            for _ in 0..[0, 1, 3, 20][rng.usize(..4)] {
                let id = rng.u16(1..=ATTRIBUTES);
                let small = [0, 1, 2, 3, 7, 100, 1_000_001, 1 << 31, u32::MAX][rng.usize(..9)];
                let value = match rng.u8(..4) {
                    0 => (0..rng.usize(..60)).map(|_| rng.u8(..)).collect(),
                    1 => u64::from(small).to_ne_bytes().to_vec(),
                    _ => small.to_ne_bytes().to_vec(),
                };
                attributes.push(id | [0, 0x8000][rng.usize(..2)], &value);
            }
            // What a network and a port need, often.
            if rng.bool() {
                for (id, value) in [(2, 3u32), (3, 100), (4, 2), (6, 1), (7, 3), (8, 1), (14, 1)] {
                    attributes.push(id, &value.to_ne_bytes());
                }
            }
            all += 1;
            let outcome = genl.request("random", rng.u8(..7), attributes);
            accepted += u32::from(outcome.is_ok());
            if rng.u8(..20) == 0 {
                let _ = build(1);
                let _ = dump();
            }
        }
        Ok(())
    })?;
    ensure!(accepted > 10, "{accepted} of {all} requests were accepted");
    Ok(())
}
