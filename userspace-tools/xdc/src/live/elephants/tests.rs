// SPDX-License-Identifier: GPL-2.0

use super::key::{DESTINATION, PORTS, SOURCE, VERSION};
use super::*;

fn flow(number: u8) -> Key {
    let mut key = [0; 40];
    key[SOURCE..SOURCE + 4].copy_from_slice(&[10, 0, 0, 1]);
    key[DESTINATION..DESTINATION + 4].copy_from_slice(&[10, 9, 1, number]);
    key[PORTS..PORTS + 4].copy_from_slice(&[0x13, 0x88, 0, 80]);
    key[VERSION] = 4;
    key
}

fn table(top: usize) -> Table {
    Table::new(Policy { bytes: 100, top, idle: Duration::from_millis(30) })
}

fn look(table: &mut Table, now: Instant, counts: &[(u8, u64)]) -> Vec<(Key, Change)> {
    let counts = counts.iter().map(|(n, bytes)| (flow(*n), *bytes));
    let mut changes = table.look(now, counts.collect());
    changes.sort_by_key(|(key, _)| *key);
    changes
}

#[test]
fn the_largest_flows_are_elephants() {
    let (mut table, now) = (table(2), Instant::now());
    assert_eq!(
        look(&mut table, now, &[(1, 99), (2, 100), (3, 50)]),
        [(flow(2), Change::Elephant(100))]
    );
    let grown = [(1, 300), (2, 110), (3, 200)];
    assert_eq!(
        look(&mut table, now, &grown),
        [
            (flow(1), Change::Elephant(300)),
            (flow(2), Change::Mouse),
            (flow(3), Change::Elephant(200)),
        ]
    );
    assert_eq!(look(&mut table, now, &grown), []);
}

#[test]
fn idle_flows_are_forgotten() {
    let (mut table, now) = (table(2), Instant::now());
    let at = |ms| now + Duration::from_millis(ms);
    look(&mut table, at(0), &[(1, 200), (2, 10)]);
    assert_eq!(look(&mut table, at(29), &[(1, 200), (2, 11)]), []);
    assert_eq!(look(&mut table, at(30), &[(1, 200), (2, 11)]), [(flow(1), Change::Idle)]);
    assert_eq!(look(&mut table, at(59), &[(2, 11)]), [(flow(2), Change::Forgotten)]);
    // A forgotten flow is counted from zero.
    assert_eq!(look(&mut table, at(60), &[(1, 99)]), []);
}

#[test]
fn flows_that_the_kernel_dropped_are_forgotten() {
    let (mut table, now) = (table(2), Instant::now());
    look(&mut table, now, &[(1, 200)]);
    assert_eq!(look(&mut table, now, &[]), [(flow(1), Change::Idle)]);
    assert!(table.flows.is_empty());
}

#[test]
fn a_reset_count_adds_to_the_earlier_bytes() {
    let (mut table, now) = (table(1), Instant::now());
    look(&mut table, now, &[(1, 200)]);
    assert_eq!(look(&mut table, now, &[(1, 5)]), []);
    assert_eq!(table.flows[&flow(1)].bytes, 205.0);
}

#[test]
fn old_bytes_count_less() {
    let (mut table, now) = (table(1), Instant::now());
    // A byte each 20 ms never makes 100.
    for n in 1..1_000_u64 {
        let now = now + Duration::from_millis(20 * n);
        assert_eq!(look(&mut table, now, &[(1, n)]), []);
    }
    let now = now + Duration::from_secs(20);
    let mut at = 0;
    let mut told = Vec::new();
    look(&mut table, now, &[(2, 10_000)]);
    for n in 1..100 {
        at += 20;
        let now = now + Duration::from_millis(at);
        told.extend(look(&mut table, now, &[(2, 10_000 + n), (3, 1_000 * n)]));
    }
    // A trickling flow gives way to a fast one.
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told.contains(&(flow(2), Change::Mouse)));
}

#[test]
fn only_flows_to_other_racks_count() {
    let prefix = |addr: &str, bits, rack| Prefix { addr: addr.parse().unwrap(), bits, rack };
    let port = |prefixes| Port {
        handle: Handle::ROOT,
        options: Options {
            rack: Some(1),
            racks: Some(4),
            day_ns: Some(240_000),
            night_ns: Some(20_000),
            idle_ns: Some(0),
            prefixes: Some(prefixes),
            ..Options::default()
        },
    };
    assert!(port(vec![prefix("10.9.1.0", 24, 2)]).is_ours(&flow(7)));
    assert!(port(vec![prefix("0.0.0.0", 0, 2)]).is_ours(&flow(7)));
    assert!(!port(vec![prefix("10.9.1.0", 24, 1)]).is_ours(&flow(7)));
    assert!(!port(vec![prefix("10.9.1.8", 30, 2)]).is_ours(&flow(7)));
    // An IPv4 address is mapped to IPv6, as in the kernel.
    assert!(port(vec![prefix("::", 0, 2)]).is_ours(&flow(7)));
    assert!(port(vec![prefix("::fffe:0:0", 95, 2)]).is_ours(&flow(7)));
    assert!(!port(vec![prefix("::", 96, 2)]).is_ours(&flow(7)));
    assert!(!port(vec![prefix("fd00::", 8, 2)]).is_ours(&flow(7)));
    let mut six = flow(7);
    six[VERSION] = 6;
    assert!(port(vec![prefix("::", 0, 2)]).is_ours(&six));
    assert!(!port(vec![prefix("0.0.0.0", 0, 2)]).is_ours(&six));
    assert_eq!(port(vec![]).idle_ns(), 2 * 3 * 260_000);
}

#[test]
fn each_change_prints_a_line() {
    let since = Duration::from_millis(1_500);
    let text = |json, change| line(json, since, &flow(7), change);
    assert_eq!(
        text(false, Change::Elephant(225_000)).unwrap(),
        "    1.500 s  10.0.0.1:5000 > 10.9.1.7:80  elephant, 225000 bytes"
    );
    assert_eq!(
        text(true, Change::Idle).unwrap(),
        r#"{"destination":"10.9.1.7:80","event":"idle","since_start_s":1.5,"source":"10.0.0.1:5000"}"#
    );
    assert_eq!(text(false, Change::Forgotten), None);
    let mut key = flow(7);
    key[VERSION] = 6;
    assert!(ends(&key)[0].is_ipv6());
}
