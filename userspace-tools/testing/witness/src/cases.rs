// SPDX-License-Identifier: GPL-2.0
//! Groups of cases. The comment above a case names the defects that it detects.

mod color;
mod count;
mod filter;
mod gso;
mod live;
mod parent;
pub mod parents;
mod phantom;
mod red;
mod shaper;
mod tags;
mod tap;

use anyhow::Result;
use xdc_ktap::Ktap;

use crate::lab::{Lab, time_is_virtual};

/// Name and function of a case.
type Case = (&'static str, fn(&mut Lab) -> Result<()>);

const GROUPS: &[(&str, &[Case])] = &[
    ("count", count::CASES),
    ("red", red::CASES),
    ("color", color::CASES),
    ("phantom", phantom::CASES),
    ("shaper", shaper::CASES),
    ("gso", gso::CASES),
    ("filter", filter::CASES),
    ("parent", parent::CASES),
    ("live", live::CASES),
    ("tags", tags::CASES),
];

/// Groups for virtual time only.
const VIRTUAL: &[(&str, &[Case])] = &[("shaper", shaper::FAST_CASES)];

/// Runs the named groups, or all.
pub fn run(names: &[String], ktap: &mut Ktap) -> Result<()> {
    // Two queues allow an mq.
    let mut lab = Lab::new(2)?;
    let more = if time_is_virtual()? { VIRTUAL } else { &[] };
    for (group, cases) in GROUPS.iter().chain(more) {
        if !names.is_empty() && !names.iter().any(|name| name == group) {
            continue;
        }
        for (name, case) in *cases {
            let outcome = lab.clear().and_then(|()| case(&mut lab));
            ktap.case(&format!("{group}: {name}"), outcome);
        }
    }
    Ok(())
}
