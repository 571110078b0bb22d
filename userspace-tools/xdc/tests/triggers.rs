// SPDX-License-Identifier: GPL-2.0
//! Flows that wait for others, in a guest.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

/// The barrier (2) waits for 2->3 and 1->0. The multishot (3) fires when 2->3 ends, and again when
/// 4->5 ends.
const MATRIX: &str = "\
Nodes 8
Connections 6
Triggers 3
0->1 id 1 start 0 size 100000 recv_done_trigger 1
2->3 id 2 start 0 size 1000000 send_done_trigger 2 recv_done_trigger 3
1->0 id 3 trigger 1 size 10000 send_done_trigger 2
4->5 id 4 trigger 2 size 10000 recv_done_trigger 3
6->7 id 5 trigger 3 size 10000
7->6 id 6 trigger 3 size 10000
trigger id 1 oneshot
trigger id 2 barrier count 2
trigger id 3 multishot
";

#[test]
fn triggers_start_flows_when_others_end() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("order.cm"), MATRIX).unwrap();
    let scenario = dir.path().join("order.toml");
    let text = "extends = \"htsim-alltoall\"\ntitle = \"order\"\n[[traffic]]\nkind = \"htsim\"\n\
                file = \"order.cm\"\nstart_unit = \"ps\"\n";
    fs::write(&scenario, text).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_xdc"))
        .arg("run")
        .arg(&scenario)
        .args(["--cc", "cubic", "--results"])
        .arg(dir.path().join("made"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let table = fs::read_to_string(dir.path().join("made/order/1/flows.csv")).unwrap();
    let mut lines = table.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let names = lines.next().unwrap();
    // Nanoseconds, by sender: start, last byte, and ACK.
    let mut flows = BTreeMap::new();
    for row in lines {
        let of = |wanted: &str| row[names.iter().position(|name| *name == wanted).unwrap()];
        let ns = |wanted: &str| (of(wanted).parse::<f64>().unwrap() * 1e3).round() as u64;
        let (start, end) = (ns("start_us"), ns("end_us"));
        flows.insert(of("src").to_owned(), (start, end, start + ns("fct_acked_us")));
    }
    let of = |src: &str| flows[src];
    // By hand: a0 ends first, a1 waits for it, a2 has the most bytes, a6 starts with the end of a2 and
    // a4 with its ACK, a7 with the end of a4.
    let mut order: Vec<_> = flows.keys().collect();
    order.sort_by_key(|src| flows[*src].1);
    assert_eq!(order, ["a0", "a1", "a2", "a6", "a4", "a7"], "{table}");
    assert_eq!((of("a0").0, of("a2").0), (0, 0));
    assert_eq!(of("a1").0, of("a0").1);
    assert_eq!(of("a6").0, of("a2").1);
    assert_eq!(of("a4").0, of("a2").2.max(of("a1").2));
    assert_eq!(of("a7").0, of("a4").1);
    // No handshake delays a flow that waited: it takes as long as its twin.
    let took = |src: &str| of(src).1 - of(src).0;
    assert_eq!(took("a7"), took("a6"), "{table}");
}
