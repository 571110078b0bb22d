// SPDX-License-Identifier: GPL-2.0
//! Conditions that change the meaning of a run's figures, one sentence each.

mod flows;
mod ports;

use std::collections::{BTreeMap, BTreeSet};

use xdc_proto::RunPlan;

use crate::bottleneck::Use;
use crate::record::Record;
use crate::run::{Note, NoteKind};

/// Notes from a plan alone, before the run.
pub fn of_plan(plan: &RunPlan) -> Vec<Note> {
    ports::phantoms(plan)
}

/// Notes of a run; `used_by` is the traffic that its utilization counts.
pub(crate) fn of_run(record: &Record, used_by: &Use) -> Vec<Note> {
    let mut notes = flows::without_ecn(record);
    notes.extend(ports::never_mark(record));
    notes.extend(of_plan(&record.plan));
    notes.extend(flows::limited(record));
    notes.extend(flows::never_started(record));
    notes.extend(bypass(record, used_by));
    notes.extend(flows::payload(record));
    notes
}

/// Note about traffic excluded from the watched port's utilization.
fn bypass(record: &Record, used_by: &Use) -> Option<Note> {
    let (queue, _) = record.bottleneck()?;
    let port = format!("'{}' ({}-{})", queue.name, queue.node, queue.peer);
    let all = record.flows.len();
    let (count, text) = match used_by {
        Use::All => return None,
        Use::Some(flows) => {
            let others = all - flows.len();
            let text = format!(
                "the watched port {port} is not on the path of {others} of {all} flows, so utilisation counts the other {}",
                flows.len()
            );
            (others, text)
        }
        Use::None => {
            let text = format!(
                "the watched port {port} is not on the path of any of {all} flows, so utilisation is not defined"
            );
            (all, text)
        }
        Use::Unknown { flows, received_bytes, fits_bytes, is_another_way } => {
            let how = match is_another_way {
                true => "the rest took other paths",
                false => "the rest bypassed its queue",
            };
            let text = format!(
                "the watched port {port} sent {} bytes of payload at most, and its {} flows received {}: {how}, \
                 so utilisation is not defined",
                grouped(*fits_bytes),
                flows.len(),
                grouped(*received_bytes)
            );
            (flows.len(), text)
        }
    };
    Some(Note { kind: NoteKind::Bypass, text, count })
}

/// One note per cause; `text` gets the number of flows and the cause.
fn by_cause<K: Ord>(
    kind: NoteKind,
    causes: impl Iterator<Item = K>,
    text: impl Fn(usize, &K) -> String,
) -> Vec<Note> {
    let mut counts: BTreeMap<K, usize> = BTreeMap::new();
    for cause in causes {
        *counts.entry(cause).or_default() += 1;
    }
    let note = |(cause, count): (K, usize)| Note { kind, text: text(count, &cause), count };
    counts.into_iter().map(note).collect()
}

/// `a, b and 3 others`.
fn names<'n>(names: impl Iterator<Item = &'n str>) -> String {
    const SHOWN: usize = 3;
    let names: BTreeSet<_> = names.collect();
    let shown: Vec<_> = names.iter().copied().take(SHOWN).collect();
    match names.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        1 => format!("{} and 1 other", shown.join(", ")),
        others => format!("{} and {others} others", shown.join(", ")),
    }
}

/// Number with commas between thousands.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 flow`, `2 flows`.
pub(crate) fn flows(count: usize) -> String {
    match count {
        1 => "1 flow".to_owned(),
        count => format!("{count} flows"),
    }
}

#[cfg(test)]
mod tests;
