// SPDX-License-Identifier: GPL-2.0

use xdc_measure::figures::{self, Windows};
use xdc_proto::rng::Rng;
use xdc_result::testing::recorded;
use xdc_scenario::plan;

use super::goal::GOALS;
use super::space::{PACKET_BITS, PARAMS};
use super::*;

fn presets() -> [Space; 3] {
    let home = xdc_base::testing::home();
    ["datacenter", "inter-dc", "wan"].map(|name| Space::load(&home, name).unwrap())
}

fn drawn(space: &Space, rng: &mut Rng) -> Case {
    let genome: Vec<_> = space.genes().map(|_| rng.unit()).collect();
    space.decode(&genome)
}

/// A search must not end with a mistake in a scenario that it has made.
#[test]
fn every_network_of_every_preset_can_be_planned() {
    let mut rng = Rng::new(1);
    for space in presets() {
        for n in 0..60 {
            let known = &GOALS[n % GOALS.len()];
            let goal: Goal = known.name.parse().unwrap();
            let mut case = drawn(&space, &mut rng);
            goal.adjust(&mut case);
            let case = space.fit(case);
            let ccs = ["unocc", "gemini", "toll", "dctcp", "bbr"];
            let victim = goal.has_victim().then_some("cubic");
            let text = case.scenario(&ccs, victim);
            let loaded = xdc_scenario::parse("case", &text, &[])
                .unwrap_or_else(|err| panic!("{}: {:?}\n{text}", space.name, err.lines()));
            for cc in ccs {
                plan::plan(&loaded.scenario, cc, 1, 1)
                    .unwrap_or_else(|err| panic!("{}: {:?}\n{text}", space.name, err.lines()));
            }
            // Both what is drawn and what a reduction makes of it is plausible.
            for case in [&case, &space.fit(case.rounded(1))] {
                let packets = case.get(Key::RateMbps) * case.duration_us / PACKET_BITS;
                assert!(packets <= 1.01 * space.packets, "{packets}");
                assert!(case.longest_rtt_us() <= 1e3 * space.longest_rtt_ms);
                let buffer = case.get(Key::BufferBdp) * case.bdp_bits() / PACKET_BITS;
                assert!(buffer >= 0.99 * space.buffer_packets, "{buffer}");
            }
        }
    }
}

/// The corpus can be run again by file.
#[test]
fn every_kept_failure_can_be_planned() {
    let home = xdc_base::testing::home();
    let dir = home.scenarios().join("hunted");
    let names = std::fs::read_dir(dir).unwrap().map(|it| it.unwrap().path());
    let files: Vec<_> = names.filter(|it| it.extension().is_some_and(|it| it == "toml")).collect();
    assert!(files.len() >= 6, "{}", files.len());
    for path in files {
        let loaded = xdc_scenario::load(Some(&home), path.to_str().unwrap(), &[]).unwrap();
        for cc in &loaded.scenario.ccs {
            plan::plan(&loaded.scenario, cc, 1, 1).unwrap();
        }
        // The reference must still do well there.
        assert!(!loaded.scenario.expect.is_empty(), "{}", path.display());
    }
}

#[test]
fn every_parameter_is_in_its_place_and_in_a_preset() {
    let presets = presets();
    for (n, param) in PARAMS.iter().enumerate() {
        assert_eq!(param.key as usize, n, "{}", param.name);
        assert!(presets.iter().any(|it| it.param.contains_key(param.name)), "{}", param.name);
    }
}

#[test]
fn mistakes_in_a_space_are_named() {
    let home = xdc_base::testing::home();
    let good = std::fs::read_to_string(home.scenarios().join("hunt/wan.toml")).unwrap();
    for (from, to, named) in [
        ("loss =", "los =", "'los'"),
        ("min = 0.0001", "min = 0", "param.loss"),
        ("min = 10, max = 300", "min = 10, max = 3", "param.rate_mbps"),
        ("max = 0.02, off = 0.7", "max = 0.02, off = 1", "'off'"),
        ("packets = 60000", "packets = 0", "packets"),
        ("rtt_us =", "# rtt_us =", "param.rtt_us is missing"),
    ] {
        assert!(good.contains(from), "{from}");
        let said = Space::parse("x", &good.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(said.contains(named), "{from}: {said}");
    }
}

#[test]
fn capacity_follows_policers_steps_and_outages() {
    let mut case = Case::neutral();
    case.duration_us = 1e6;
    for (key, value) in [(Key::RateMbps, 100.0), (Key::RttUs, 1e4), (Key::BufferBdp, 1.0)] {
        case.set(key, value);
    }
    let whole = case.capacity_mbps();
    assert!((whole / 95.64 - 1.0).abs() < 1e-3, "{whole}");
    let with = |sets: &[(Key, f64)]| {
        let mut case = case.clone();
        sets.iter().for_each(|&(key, value)| case.set(key, value));
        case.capacity_mbps() / whole
    };
    let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
    near(with(&[(Key::PolicerShare, 0.5)]), 0.5);
    // A fifth of the time at half of the rate; the policer hides the step.
    near(with(&[(Key::RateStep, 0.5)]), 0.9);
    near(with(&[(Key::RateStep, 0.5), (Key::PolicerShare, 0.5)]), 0.5);
    near(with(&[(Key::Outage, 10.0)]), 0.9);
}

#[test]
fn a_failure_is_measured_against_the_reference() {
    let mut run = figures::run(&recorded(), &Windows::every_us(1000));
    let mut case = Case::neutral();
    case.duration_us = 1e6;
    for (key, value) in [(Key::RateMbps, 1000.0), (Key::RttUs, 1e4), (Key::BufferBdp, 1.0)] {
        case.set(key, value);
    }
    let goal: Goal = "utilisation".parse().unwrap();
    run.goodput_mbps = 0.9 * case.capacity_mbps();
    let good = goal.value(&run, &case).unwrap();
    assert!(goal.shortfall(good, &run, &case) < 0.0);
    run.goodput_mbps /= 3.0;
    let bad = goal.value(&run, &case).unwrap();
    assert!((goal.times_worse(bad, good) - 3.0).abs() < 1e-9);
    assert!(goal.most_times_worse(bad) >= goal.times_worse(bad, good));
    assert!(goal.shortfall(bad, &run, &case) > 0.0);
    // A reference that leaves the port idle has short queues, and does not do well.
    let goal: Goal = "delay".parse().unwrap();
    assert!(goal.shortfall(1.0, &run, &case) > 0.0);
    let goal: Goal = "high:timeouts".parse().unwrap();
    run.timeouts = 8;
    assert_eq!(goal.value(&run, &case), Some(8.0));
    assert_eq!(goal.times_worse(8.0, 2.0), 4.0);
    let goal: Goal = "low:goodput_mbps".parse().unwrap();
    assert_eq!(goal.times_worse(2.0, 8.0), 4.0);
    for wrong in ["utilization", "high:", "up:drops", "high:drop"] {
        assert!(wrong.parse::<Goal>().is_err(), "{wrong}");
    }
}

#[test]
fn features_tell_failures_apart() {
    let [.., space] = presets();
    let mut rng = Rng::new(2);
    let mut plain = drawn(&space, &mut rng);
    for key in plain.features() {
        plain.drop_feature(key);
    }
    assert!(plain.features().is_empty());
    let mut lossy = plain.clone();
    lossy.set(Key::Loss, 0.01);
    let mut more = lossy.clone();
    more.set(Key::NearFlows, 4.0);
    assert!(space.repeats(&more, &lossy, &[]));
    assert!(!space.repeats(&plain, &lossy, &[]));
    assert!(!space.repeats(&lossy, &more, &[]));
    assert!(space.repeats(&lossy, &more, &[Key::NearFlows]));
    assert!(space.alike(&lossy, &lossy) && !space.alike(&lossy, &more));
    // Rounding makes no feature of a neutral value.
    assert_eq!(lossy.rounded(1).features(), lossy.features());
    // Two of three features are most of them.
    more.set(Key::Offload, 1.0);
    let mut most = more.clone();
    most.drop_feature(Key::Offload);
    assert!(space.repeats(&most, &more, &[]) && space.alike(&most, &more));
    most.set(Key::RateMbps, 10.0);
    more.set(Key::RateMbps, 300.0);
    most.set(Key::Loss, 0.02);
    assert!(!space.alike(&most, &more));
    // A parameter of an effect that is off is no difference.
    plain.set(Key::PolicerMs, 99.0);
    assert!(plain.features().is_empty());
}

#[test]
fn a_budget_is_a_number_or_a_time() {
    assert_eq!("300".parse(), Ok(Budget::Runs(300)));
    assert_eq!("10m".parse(), Ok(Budget::Time(Duration::from_secs(600))));
    for wrong in ["0", "-1", "0s", "ten", ""] {
        assert!(wrong.parse::<Budget>().is_err(), "{wrong}");
    }
}

/// Regenerated by `UPDATE_DOCS=1 cargo test -p xdc-study`.
#[test]
fn the_page_lists_goals_and_parameters() {
    let mut table = "| goal | measure |\n|---|---|\n".to_owned();
    for goal in GOALS {
        let _ = writeln!(table, "| `{}` | {} |", goal.name, goal.meaning);
    }
    xdc_base::testing::holds("hunt.md", "goals", &table);
    let mut table = "| parameter | meaning |\n|---|---|\n".to_owned();
    for param in PARAMS {
        let _ = writeln!(table, "| `{}` | {} |", param.name, param.meaning);
    }
    xdc_base::testing::holds("hunt.md", "parameters", &table);
}
