// SPDX-License-Identifier: GPL-2.0

use super::*;

fn costs(lines: &[&str]) -> Costs {
    let mut costs = Costs::default();
    for line in lines {
        costs.read(line).unwrap();
    }
    costs
}

#[test]
fn the_cost_of_an_ack_sums_its_callbacks() {
    let costs = costs(&[
        "  ok 1 whatever",
        "  # callback dctcp 100 in_ack_event 100 5000",
        "  # callback dctcp 100 ssthresh 10 300",
        "  # callback dctcp 100 min_tso_segs 100 9999",
        "  # callback bbr 100 cong_control 100 10000",
    ]);
    assert_eq!(costs.per_ack("dctcp"), Some(53.0));
    assert_eq!(costs.per_ack("bbr"), Some(100.0));
    assert_eq!(costs.per_ack("unocc"), None);
}

#[test]
fn queues_are_compared_per_packet() {
    let verdict = |four| {
        let judged = costs(&[
            "  # queues phantom 1 1000 2000000",
            &format!("  # queues phantom 4 1000 {four}"),
        ]);
        let mut judged = judged.judge().into_iter();
        judged.find(|line| line.contains("with 4 queues")).unwrap()
    };
    assert!(verdict(2_060_000).starts_with("ok - "));
    assert!(verdict(2_061_000).starts_with("not ok - "));
}

#[test]
fn a_disabled_hook_must_cost_almost_nothing() {
    let verdict = |instructions: u32| {
        let counted = costs(&[
            &format!("  # hook tlt-off data-out 100 {instructions}"),
            "  # hook tlt-on data-out 100 50000",
            "  # hook tlt-off work 0 0",
        ]);
        assert!(counted.tables().contains("| tlt-on | 500 x 100 | ?"));
        let mut judged = counted.judge().into_iter();
        judged.find(|line| line.contains("data-out")).unwrap()
    };
    let most = 100 * OFF_AT_MOST as u32;
    assert!(verdict(most).starts_with("ok - "));
    assert!(verdict(most + 1).starts_with("not ok - "));
    assert_eq!(Costs::default().judge().iter().filter(|line| line.contains("ack-in")).count(), 1);
}

#[test]
fn the_cost_of_a_tunnel_is_its_addition_per_packet() {
    let costs = costs(&[
        "  # tunnel none 100 1000000",
        "  # tunnel vxlan 110 1210000",
        "  # tunnel unorc 100 1460000",
    ]);
    assert_eq!(costs.per_tunneled("vxlan"), Some(1000.0));
    assert_eq!(costs.per_tunneled("unorc"), Some(4600.0));
    assert_eq!(costs.per_tunneled("unorc-8+2"), None);
    let mut judged = costs.judge().into_iter();
    let line = judged.find(|line| line.contains("the addition of vxlan")).unwrap();
    assert!(line.starts_with("not ok - ") && line.ends_with(": 4.60"));
}

#[test]
fn a_target_holds_up_to_its_bound_and_fails_unmeasured() {
    let line = |enqueue| format!("# qdisc phantom-physical all 10 {enqueue} 500 10 0");
    let red = "# qdisc red all 10 600 400 10 0";
    let verdict = |lines: &[&str]| {
        let judged = costs(lines).judge();
        let phantom = "a packet of phantom-physical, marks: all costs at most 1.27 of red";
        let line = judged.iter().find(|line| line.contains(phantom));
        line.unwrap().clone()
    };
    assert!(verdict(&[red, &line(770)]).starts_with("ok - "));
    assert!(verdict(&[red, &line(771)]).starts_with("not ok - "));
    assert!(verdict(&[red]).starts_with("not ok - "));
}

#[test]
fn every_figure_of_the_boots_is_compared() {
    let a = costs(&["# qdisc red all 10 600 400 10 0"]);
    let b = costs(&["# qdisc red all 10 600 410 10 0"]);
    assert!((a.furthest(&b) - 0.01).abs() < 1e-9);
    assert!(a.furthest(&a).abs() < 1e-9);
    assert!(a.furthest(&Costs::default()).is_infinite());
}

#[test]
fn a_broken_count_is_an_error() {
    let mut costs = Costs::default();
    assert!(costs.read("# qdisc red all 10 600 x 10 0").is_err());
}
