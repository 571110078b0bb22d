// SPDX-License-Identifier: GPL-2.0
//! Link changes during the traffic.

use std::collections::{BTreeMap, HashMap};

use anyhow::{Context, Result};
use xdc_netlink::Connection;
use xdc_proto::{Change, Direction, End, Event, Faults};

use crate::{drops::Drops, network::Network};

const ALL_PPM: u32 = 1_000_000;

/// Current state of the directions that have changed.
#[derive(Default)]
pub struct Links {
    now: HashMap<(usize, String), State>,
}

struct State {
    direction: Direction,
    down: bool,
    /// None for a switch of the fabric.
    connection: Option<Connection>,
    drops: Option<Drops>,
}

impl Links {
    /// Applies the event to each of its directions.
    pub fn apply(&mut self, network: &Network, event: &Event) -> Result<()> {
        for end in &event.ends {
            self.change(network, end, event)
                .with_context(|| format!("the link from {} to {}", end.node, end.port))?;
        }
        Ok(())
    }

    fn change(&mut self, network: &Network, end: &End, event: &Event) -> Result<()> {
        let node = network.layout.node(&end.node)?;
        let port = network.layout.port(node, &end.port)?;
        let key = (node, end.port.clone());
        if !self.now.contains_key(&key) {
            let state = State {
                direction: port.egress.clone(),
                down: false,
                connection: match network.fabric(node) {
                    Some(_) => None,
                    None => Some(network.inside(node, || Ok(Connection::open()?))?),
                },
                drops: None,
            };
            self.now.insert(key.clone(), state);
        }
        let state = self.now.get_mut(&key).context("just inserted")?;
        if let Some(seed) = event.seed {
            let faults = state.direction.faults.get_or_insert_with(Faults::default);
            faults.seed = seed;
        }
        let mut burst = None;
        match &event.change {
            Change::Down => state.down = true,
            Change::Up => state.down = false,
            Change::Rate { bps } => {
                state.direction.rate_bps = *bps;
                let request = network.rate_request(port, &state.direction)?;
                if let (Some(request), Some(connection)) = (request, &mut state.connection) {
                    connection.request(request)?;
                }
            }
            Change::Delay { ns } => state.direction.delay_ns = *ns,
            Change::Loss { ppm } => {
                let faults = state.direction.faults.get_or_insert_with(Faults::default);
                faults.loss_ppm = *ppm;
            }
            Change::BurstLoss { ppm, seed } if state.connection.is_none() => {
                burst = Some((*ppm, *seed));
            }
            Change::BurstLoss { ppm, seed } => {
                // At the far end, independent of the direction's queue.
                if state.drops.is_none() {
                    let remote = network.layout.remote(port);
                    let drops = Drops::load()?;
                    let attach = drops.attach(remote.index);
                    network.inside(port.peer, || {
                        Connection::open()?.batch(attach)?;
                        Ok(())
                    })?;
                    state.drops = Some(drops);
                }
                if let Some(drops) = &state.drops {
                    drops.set(*ppm, *seed)?;
                }
            }
        }
        // A link that is down drops entering packets; packets in flight arrive.
        let mut direction = state.direction.clone();
        if state.down {
            let faults = direction.faults.get_or_insert_with(Faults::default);
            faults.loss_ppm = ALL_PPM;
        }
        match (&mut state.connection, network.fabric(node)) {
            (Some(connection), _) => Ok(connection.batch(network.wire_requests(port, &direction))?),
            (None, Some(fabric)) => fabric.set(&network.layout, (node, port), &direction, burst),
            (None, None) => Ok(()),
        }
    }

    /// Arrivals dropped by event programs, by node and device.
    pub fn lost_arrivals(&self, network: &Network) -> Result<BTreeMap<(usize, u32), u64>> {
        let lost = self.now.iter().map(|((node, port), state)| {
            let port = network.layout.port(*node, port)?;
            let arrival = (port.peer, network.layout.remote(port).index);
            let lost = match (network.fabric(*node), &state.drops) {
                (Some(fabric), _) => fabric.burst_lost(&network.layout, *node, port)?,
                (None, Some(drops)) => drops.dropped()?,
                (None, None) => 0,
            };
            Ok((arrival, lost))
        });
        lost.collect()
    }
}
