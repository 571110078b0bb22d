// SPDX-License-Identifier: GPL-2.0
//! Checks `[queues]` and `[tunnel]`: sizes, and words of our qdiscs and devices.

use std::collections::{BTreeMap, BTreeSet};

use xdc_base::error::{Error, Key};
use xdc_base::units::Amount;
use xdc_netlink::unorc;

use super::Mistakes;
use crate::budget::Budget;
use crate::plan::{of_cc, phantom, tc};
use crate::{QueueSpec, Scenario, at};

/// Ethernet header in bytes, which a queue counts.
const HEADER_BYTES: u32 = 14;

pub fn check(scenario: &Scenario, m: &mut Mistakes) {
    used(scenario, m);
    rtts(scenario, m);
    let mut known = BTreeSet::new();
    let table_bytes: usize = scenario.queues.values().map(bytes_of).sum();
    for name in scenario.ccs.iter().collect::<BTreeSet<_>>() {
        let Ok(cc) = scenario.known_cc(name) else {
            continue;
        };
        let of = of_cc(scenario, &cc);
        let own = of.iter().flat_map(|(_, own)| own.queues.values());
        let bytes = own.map(bytes_of).fold(table_bytes, usize::saturating_add);
        let charge = |budget: &Budget| budget.charge("queues of a congestion control", 1, bytes);
        if m.note(at!["queues"], charge).is_none() {
            return;
        }
        for (queue, base) in &scenario.queues {
            let mut spec = base.clone();
            let mut tables = vec![at!["queues", queue]];
            for (cc, own) in &of {
                if let Some(own) = own.queues.get(queue) {
                    spec = own.over(&spec);
                    tables.push(at!["cc", cc, "queues", queue]);
                }
            }
            if let Err(err) = one(&spec, &cc, scenario.topology.mtu) {
                let said = err.to_string();
                // The last table that has the key.
                let last = tables.iter().rev().find(|table| has_key(scenario, table, err.key()));
                let table = last.unwrap_or(&tables[0]).clone();
                if known.insert((table.clone(), said)) {
                    m.add(table.clone(), err.below(&table));
                }
            }
        }
    }
    for (cc, own) in &scenario.cc {
        for name in own.queues.keys().filter(|name| !scenario.queues.contains_key(*name)) {
            let sentence = format!("[cc.{cc}.queues.{name}] changes a queue that is not defined");
            let err = Error::usage(sentence).hint(format!("[queues.{name}]"));
            m.add(at!["cc", cc, "queues", name], err);
        }
    }
    tunnel(scenario, m);
}

/// Memory for the check of a queue: each byte pair of `tc` may be a word.
fn bytes_of(queue: &QueueSpec) -> usize {
    let tc = queue.tc.as_ref().map_or(0, String::len);
    size_of::<QueueSpec>() + tc * size_of::<String>()
}

/// Returns whether a queue's table has the key.
fn has_key(scenario: &Scenario, table: &Key, key: Option<&Key>) -> bool {
    let Some(key) = key.and_then(|key| key.first()) else {
        return true;
    };
    let spec = match &table[..] {
        [_, name] => scenario.queues.get(name),
        [_, cc, _, name] => scenario.cc.get(cc).and_then(|cc| cc.queues.get(name)),
        _ => None,
    };
    let Some(spec) = spec else { return false };
    match key.as_str() {
        "tc" => spec.tc.is_some(),
        "limit" => spec.limit.is_some(),
        "phantom" => spec.phantom.is_some(),
        "drain" => spec.drain.is_some(),
        "pmin" => spec.pmin.is_some(),
        "pmax" => spec.pmax.is_some(),
        "min" => spec.min.is_some(),
        "max" => spec.max.is_some(),
        _ => true,
    }
}

/// Checks a queue for one congestion control; the error's key is below the queue's.
fn one(spec: &QueueSpec, cc: &crate::Cc, mtu: u32) -> Result<(), Error> {
    if let Some(words) = &spec.tc {
        let about = |err: Error| err.at(at!["tc"]);
        let queue = tc(words, cc.mark).map_err(about)?;
        return limit_of_words(&queue.kind, &queue.words, mtu).map_err(about);
    }
    // Sizes in BDP are checked with their port, so any BDP serves here.
    const ANY_BDP_BYTES: u64 = 1_000_000;
    let options = phantom(spec, cc.mark, ANY_BDP_BYTES)?;
    options
        .check()
        .map_err(|(name, why)| Error::usage(why.sentence).hint(why.range).at(at![name]))?;
    match spec.limit {
        Some(Amount::Bytes(_)) => one_packet(options.limit_bytes.unwrap_or(u32::MAX), mtu)
            .map_err(|err| err.at(at!["limit"])),
        _ => Ok(()),
    }
}

/// Checks that a queue has room for a packet.
pub fn one_packet(limit_bytes: u32, mtu: u32) -> Result<(), Error> {
    let packet_bytes = mtu.saturating_add(HEADER_BYTES);
    if limit_bytes >= packet_bytes {
        return Ok(());
    }
    let sentence =
        format!("a limit of {limit_bytes} bytes has no room for a packet of {packet_bytes} bytes");
    Err(Error::usage(sentence).hint("limit = \"100kB\""))
}

/// Refuses limits of 0, and limits below a packet for qdiscs that count bytes.
fn limit_of_words(kind: &str, words: &[String], mtu: u32) -> Result<(), Error> {
    let value = words.windows(2).find(|pair| pair[0] == "limit").map(|pair| &pair[1]);
    let Some(value) = value else { return Ok(()) };
    let Ok(limit) = value.parse::<xdc_netlink::units::Size>() else {
        return Ok(());
    };
    let counts_bytes = ["phantom", "bfifo", "red", "tbf"].contains(&kind);
    match counts_bytes {
        true => one_packet(u32::try_from(limit.0).unwrap_or(u32::MAX), mtu),
        false if limit.0 == 0 => {
            Err(Error::usage("a limit of 0 has no room for a packet").hint("limit 1000"))
        }
        false => Ok(()),
    }
}

/// Refuses a queue that no link uses: probably a typo.
fn used(scenario: &Scenario, m: &mut Mistakes) {
    let topology = &scenario.topology;
    let links = topology.links.iter();
    let named = links.flat_map(|link| [&link.queue, &link.queue_ab, &link.queue_ba]);
    let mut used: BTreeSet<&str> = named.flatten().map(String::as_str).collect();
    if let Some(fabric) = &topology.fabric {
        used.extend(fabric.queues());
    }
    // An undefined name in a link is the likelier mistake and is reported elsewhere.
    if used.iter().any(|name| !scenario.queues.contains_key(*name)) || !m.is_clean(&["topology"]) {
        return;
    }
    for name in scenario.queues.keys().filter(|name| !used.contains(name.as_str())) {
        let err = Error::usage(format!("no link has the queue '{name}' of [queues.{name}]"));
        m.add(at!["queues", name], err.hint(format!("queue = \"{name}\" in a link")));
    }
}

/// Refuses `rtt` in a queue without a size in `bdp`, which alone uses it.
fn rtts(scenario: &Scenario, m: &mut Mistakes) {
    let of_ccs = scenario.cc.values().flat_map(|cc| &cc.queues);
    // By queue: whether a table states an RTT, and whether a size is in bdp.
    let mut all: BTreeMap<&String, (bool, bool)> = BTreeMap::new();
    for (name, queue) in of_ccs.chain(&scenario.queues) {
        let (states, has_bdps) = all.entry(name).or_default();
        *states |= queue.rtt.is_some();
        *has_bdps |= queue.has_bdps();
    }
    for name in scenario.queues.keys() {
        if all.get(name) == Some(&(true, false)) {
            let sentence =
                format!("'rtt' in [queues.{name}] has no effect: no size there is in bdp");
            let err = Error::usage(sentence).hint("phantom = \"1bdp\"");
            m.add(at!["queues", name, "rtt"], err);
        }
    }
}

fn tunnel(scenario: &Scenario, m: &mut Mistakes) {
    let Some(spec) = &scenario.tunnel else {
        return;
    };
    let words = spec.all_words();
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let parsed = unorc::Options::parse(&words).and_then(|options| options.check());
    if let Err(why) = parsed {
        let name = why.split(':').next().unwrap_or_default();
        let key = match words.contains(&name) {
            true => at!["tunnel", name],
            false => at!["tunnel"],
        };
        m.add(key, Error::usage(why).hint("docs/unorc.md lists the options"));
    }
}
