// SPDX-License-Identifier: GPL-2.0
//! A recorded run of a scenario for tests.

use xdc_measure::record::Record;
use xdc_measure::testing::told;
use xdc_proto::{Job, RunPlan};
use xdc_scenario::plan::plan;
use xdc_scenario::{parse, testing::SMALL};

/// [`told`] at scale 1.
pub fn recorded() -> Record {
    scaled(1)
}

/// [`told`] by a guest `scale` times slower.
pub fn scaled(scale: u32) -> Record {
    told(planned(scale), scale)
}

/// [`scaled`] by ten, then unscaled.
pub fn unscaled() -> Record {
    scaled(10).unscaled(10, planned(1))
}

fn planned(scale: u32) -> RunPlan {
    let scenario = parse("small", SMALL, &[]).unwrap().scenario;
    match plan(&scenario, "unocc", 1, scale).unwrap().job {
        Job::Run(run) => run,
        _ => panic!("not a run"),
    }
}
