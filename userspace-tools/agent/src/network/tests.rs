// SPDX-License-Identifier: GPL-2.0

use super::*;
use xdc_proto::Queue;

fn kinds(rate_bps: u64, delay_ns: u64, queue: Option<Queue>) -> Vec<String> {
    let direction = Direction { rate_bps, delay_ns, queue, faults: None, policer: None };
    egress(2, &direction).unwrap().into_iter().map(|request| request.what).collect()
}

#[test]
fn a_direction_has_only_the_needed_qdiscs() {
    let of_tc = |text: &str| {
        let mut words = text.split_whitespace().map(str::to_owned);
        Queue { kind: words.next().unwrap(), words: words.collect(), seed: None }
    };
    let (words, fq_codel) = (of_tc("phantom limit 1kb"), of_tc("fq_codel ecn"));
    assert!(kinds(0, 0, None).is_empty());
    assert_eq!(kinds(8, 0, None), ["add the qdisc netem"]);
    assert_eq!(kinds(8, 0, Some(words.clone())), ["add the qdisc phantom"]);
    assert_eq!(kinds(8, 9, Some(words)), ["add the qdisc netem", "add the qdisc phantom"]);
    assert_eq!(kinds(8, 9, Some(fq_codel.clone())).len(), 3);
    assert_eq!(kinds(0, 0, Some(fq_codel)).len(), 0);
}

#[test]
fn tc_adds_the_leaf_below_shaper_or_delay() {
    let line = |rate_bps, delay_ns| {
        let direction = Direction {
            rate_bps,
            delay_ns,
            queue: Some(Queue {
                kind: "red".to_owned(),
                words: ["limit", "9kb"].map(str::to_owned).to_vec(),
                seed: None,
            }),
            faults: None,
            policer: None,
        };
        let mut batch = TcBatch::default();
        add_leaf(&mut batch, "a.1", &direction).unwrap();
        batch.lines().to_owned()
    };
    let with = |parent: &str| format!("qdisc add dev a.1 {parent} handle 3: red limit 9kb\n");
    assert_eq!(line(8, 9), with("parent 2:1"));
    assert_eq!(line(0, 9), with("parent 1:1"));
    assert_eq!(line(0, 0), with("root"));
}
