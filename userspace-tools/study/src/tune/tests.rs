// SPDX-License-Identifier: GPL-2.0

use super::*;

#[test]
fn the_table_shows_the_outcome() {
    let log2 = |mean: f64| {
        let (low, high) = (mean - 0.01, mean + 0.01);
        Some(Log2 { low, mean, high, n: 5 })
    };
    let held =
        |cell: &str, mean| HeldOut { cell: cell.to_owned(), tuned_over_default_log2: log2(mean) };
    let tuned = Tuned {
        schema: SCHEMA,
        cc: "mine".to_owned(),
        budget: 7,
        on: vec!["S1".to_owned()],
        hold_out: vec!["S3".to_owned()],
        knobs: vec![Chosen { knob: "gain".to_owned(), default: 4.0, tuned: 8.0 }],
        a: OnA { default_log2: -2.0, tuned_log2: -1.5 },
        b: vec![held("one", 0.5), held("two", 0.0), held("three", -0.5)],
        factor_of_two: vec![Cost { knob: "gain".to_owned(), factor: 0.5, log2: -0.25 }],
    };
    let dir = tempfile::tempdir().unwrap();
    let json = serde_json::to_string(&tuned).unwrap();
    fs::write(dir.path().join("mine.json"), json).unwrap();
    let table = table(&all_in(dir.path()).unwrap());
    let row = "| mine | 7 | -2.00 | -1.50 | 1 | 1 | 1 | 0 | `gain` 4 to 8 | `gain` x 0.50: -0.25 |";
    assert!(table.contains(row), "{table}");
}

#[test]
fn proposals_are_valid_and_end_near_the_best() {
    for cc in ["unocc", "gemini", "dctcp"] {
        let knobs = knobs(cc).unwrap();
        let default: Setting = knobs.iter().map(|knob| knob.default).collect();
        let mut rng = Rng::new(7);
        for n in 0..100 {
            let setting = propose(&mut rng, &knobs, &default, n < 50);
            for (knob, value) in knobs.iter().zip(&setting) {
                assert!((knob.min..=knob.max).contains(value), "{}", knob.name);
            }
            let changed = setting.iter().zip(&default).filter(|(a, b)| a != b).count();
            assert!(n < 50 || changed <= 2);
        }
    }
    assert!(knobs("bbr").is_err());
}

#[test]
fn every_knob_is_a_key_of_the_base_network() {
    let home = xdc_base::testing::home();
    let row = &choose(Row::load_all(&home).unwrap(), &["S6".to_owned()]).unwrap()[0];
    for cc in ["unocc", "gemini", "dctcp"] {
        let knobs = knobs(cc).unwrap();
        let mut sets: Vec<String> = ELSEWHERE.map(str::to_owned).to_vec();
        sets.extend(knobs.iter().flat_map(|knob| knob.sets(knob.fit(knob.default * 1.5))));
        let form = Form { quick: true, ccs: &[cc.to_owned()], seeds: &SEEDS_A, sets: &sets };
        let grid = row.expand(&home, &form).unwrap();
        for cell in &grid.cells {
            let scenario = &grid.points[cell.point].loaded.scenario;
            xdc_scenario::plan::plan(scenario, cc, 1, 1).unwrap();
        }
    }
}
