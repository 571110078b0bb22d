// SPDX-License-Identifier: GPL-2.0

use std::collections::BTreeMap;

use super::*;

fn fabric(text: &str) -> Fabric {
    toml::from_str::<FabricSpec>(text).unwrap().expand().unwrap()
}

fn refused(text: &str) -> String {
    let spec: FabricSpec = toml::from_str(text).unwrap();
    spec.expand().unwrap_err().to_string()
}

const UNO: &str = r#"
kind = "fat-tree"
k = 8
datacenters = 2
rate = "100gbit"
delay = "1us"
queue = "port"
border = { links = 8, queue = "border" }
wan = { links = 8, delay = "886us" }
"#;

/// Number of links of each node.
fn degrees(fabric: &Fabric) -> BTreeMap<&str, usize> {
    let mut degrees = BTreeMap::new();
    for end in fabric.links.iter().flat_map(|link| [&link.a, &link.b]) {
        *degrees.entry(end.as_str()).or_default() += 1;
    }
    degrees
}

#[test]
fn uno_has_256_hosts_and_162_switches() {
    let uno = fabric(UNO);
    assert_eq!((uno.hosts.len(), uno.routers.len()), (256, 162));
    let degrees = degrees(&uno);
    assert_eq!(degrees.len(), 418);
    assert!(uno.hosts.iter().all(|host| degrees[host.as_str()] == 1));
    for switch in ["ae0", "be31", "aa31"] {
        assert_eq!(degrees[switch], 8, "{switch}");
    }
    // Eight pods and eight links to the border; 16 cores and eight links to the other side.
    assert_eq!(degrees["ac15"], 16);
    assert_eq!(degrees["bx"], 16 * 8 + 8);
}

#[test]
fn the_layers_have_their_own_delays_and_queues() {
    let uno = fabric(UNO);
    let link = |a: &str, b: &str| {
        let found = uno.links.iter().find(|link| link.a == a && link.b == b);
        found.unwrap_or_else(|| panic!("{a}-{b}"))
    };
    let host = link("a4", "ae1");
    assert_eq!((&host.queue, host.queue_ba.as_deref()), (&None, Some("port")));
    assert_eq!(link("aa5", "ac4").queue.as_deref(), Some("port"));
    assert_eq!(link("ac0", "ax").queue.as_deref(), Some("border"));
    assert_eq!(link("ax", "bx").delay, Time(886_000));
    assert_eq!(link("ac0", "ax").delay, Time(1_000));
}

#[test]
fn aggregation_switches_of_a_pod_reach_different_cores() {
    let tree = fabric("kind = 'fat-tree'\nk = 4\nrate = '1gbit'");
    let above = |name: &str| {
        let links = tree.links.iter().filter(|link| link.a == name);
        links.map(|link| link.b.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(above("ae3"), ["aa2", "aa3"]);
    assert_eq!(above("aa2"), ["ac0", "ac1"]);
    assert_eq!(above("aa3"), ["ac2", "ac3"]);
    assert_eq!(above("ac3"), [""; 0]);
    assert_eq!(tree.hosts.len(), 16);
}

#[test]
fn leaf_spines_and_dumbbells_have_their_switches() {
    let gemini = "kind = 'leaf-spine'\ndatacenters = 2\nleaves = 2\nspines = 0\nhosts = 3\n\
                      rate = '1gbit'\nwan = { delay = '5ms' }";
    let gemini = fabric(gemini);
    assert_eq!(gemini.hosts.join(" "), "a0 a1 a2 a3 a4 a5 b0 b1 b2 b3 b4 b5");
    assert_eq!(gemini.routers.join(" "), "al0 al1 ax bl0 bl1 bx");
    assert_eq!(degrees(&gemini)["ax"], 3);
    let spines = "kind = 'leaf-spine'\nleaves = 4\nspines = 2\nhosts = 8\nrate = '1gbit'";
    assert_eq!(degrees(&fabric(spines))["as1"], 4);
    let dumbbell = fabric("kind = 'dumbbell'\nhosts = 2\nrate = '1gbit'\nqueue = 'port'");
    assert_eq!(dumbbell.hosts.join(" "), "a0 a1 b0 b1");
    assert_eq!(dumbbell.routers.join(" "), "ax bx");
    assert_eq!(dumbbell.links.len(), 5);
}

#[test]
fn invalid_fabrics_are_refused() {
    for (text, why) in [
        ("kind = 'fat-tree'\nk = 3\nrate = '1gbit'", "even"),
        ("kind = 'fat-tree'\nrate = '1gbit'", "'k'"),
        ("kind = 'fat-tree'\nk = 4", "no rate"),
        ("kind = 'fat-tree'\nk = 4\nhosts = 4\nrate = '1gbit'", "'hosts'"),
        ("kind = 'fat-tree'\nk = 4\ndatacenters = 3\nrate = '1gbit'", "1 or 2"),
        ("kind = 'fat-tree'\nk = 4\nrate = '1gbit'\nwan = { links = 2 }", "'wan'"),
        ("kind = 'fat-tree'\nk = 60\nrate = '1gbit'", "at most"),
        ("kind = 'leaf-spine'\nleaves = 2\nhosts = 2\nrate = '1gbit'", "'spines'"),
        ("kind = 'dumbbell'\nhosts = 0\nrate = '1gbit'", "'hosts'"),
        ("kind = 'dumbbell'\nhosts = 1\nrate = '1gbit'\nwan = { links = 0 }", "0 links"),
    ] {
        let said = refused(text);
        assert!(said.contains(why), "{text}: {said}");
    }
}
