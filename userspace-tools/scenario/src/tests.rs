// SPDX-License-Identifier: GPL-2.0

use super::*;
use crate::testing::SMALL;

fn with(sets: &[&str]) -> Result<Loaded> {
    let sets: Vec<_> = sets.iter().map(|&set| set.to_owned()).collect();
    parse("small", SMALL, &sets)
}

#[test]
fn name_ranges_expand() {
    let budget = budget::Budget::default();
    assert_eq!(expand(&budget, "a[1-3]").unwrap(), ["a1", "a2", "a3"]);
    assert_eq!(expand(&budget, "tor").unwrap(), ["tor"]);
    for bad in ["a[1-", "a[3-1]", "a[x-y]", "a[1]"] {
        assert!(expand(&budget, bad).is_err(), "{bad}");
    }
    assert_eq!(pairs(&budget, "a[1-2]", "r").unwrap().len(), 2);
    assert_eq!(pairs(&budget, "a[1-2]", "b[3-4]").unwrap()[1].1, "b4");
    assert!(pairs(&budget, "a[1-2]", "b[1-3]").is_err());
}

#[test]
fn errors_name_the_line() {
    let text = SMALL.replace("limit = \"100kb\"", "limit = \"100kg\"");
    let err = parse("small", &text, &[]).unwrap_err().to_string();
    assert!(err.starts_with("small:21: queues.port.limit: "), "{err}");
    assert!(err.contains("100kg"), "{err}");
    let text = SMALL.replace("quickack", "quikack").replace("mtu", "mut");
    let err = parse("small", &text, &[]).unwrap_err().lines().join(" ");
    assert!(err.contains("small:7: topology.mut: unknown word 'mut' try: 'mtu'"), "{err}");
}

#[test]
fn set_overrides_and_refuses_typos() {
    let loaded = with(&[
        "topology.mtu=4096",
        "queues.port.limit=200kb",
        "queues.port.drain=0.95",
        "flows.0.bytes=2mb",
        "net.ipv4.tcp_sack=0",
        "cc.unocc.sysctl.\"net.unocc.profile\"=paper",
        "net.unocc.intra_rtt_us=14",
    ])
    .unwrap();
    let s = &loaded.scenario;
    assert_eq!(s.topology.mtu, 4096);
    let limit = s.queues["port"].limit;
    assert_eq!(limit, Some(Amount::Bytes(Size(200_000))));
    assert!(s.queues["port"].drain.is_some());
    assert_eq!(s.flows[0].bytes, Size(2_000_000));
    assert_eq!(s.sysctl["net.ipv4.tcp_sack"], Scalar::Integer(0));
    assert_eq!(s.cc["unocc"].sysctl["net.unocc.profile"], Scalar::Text("paper".to_owned()));
    // Also if the scenario has its own value.
    let sysctl = &s.cc["unocc"].sysctl;
    assert_eq!(sysctl["net.unocc.intra_rtt_us"], Scalar::Integer(14));
    for bad in [
        "topology.mut=1",
        "nonsense",
        "flows.9.bytes=1mb",
        "queues.port.limit=big",
        "cc.unicc.sysctl.x=1",
    ] {
        assert!(with(&[bad]).is_err(), "{bad}");
    }
    let said = with(&["topology.hots=[\"a\"]"]).unwrap_err().lines().join(" ");
    assert!(said.contains("unknown word 'hots'") && said.contains("'hosts'"), "{said}");
}

#[test]
fn a_queue_without_a_link_is_refused() {
    let text = format!("{SMALL}[queues.prot]\nlimit = \"1mb\"\n");
    let said = parse("small", &text, &[]).unwrap_err().lines().join(" ");
    assert!(said.contains("no link has the queue 'prot'"), "{said}");
}

/// Loads a file that extends another one.
fn variant(base: &str, text: &str, sets: &[&str]) -> Result<Loaded> {
    let dir = tempfile::tempdir().unwrap();
    let base_path = dir.path().join("base.toml");
    std::fs::write(&base_path, base).unwrap();
    let own = dir.path().join("own.toml");
    let text = format!("extends = \"base.toml\"\n{text}");
    std::fs::write(&own, text).unwrap();
    let sets: Vec<_> = sets.iter().map(|&set| set.to_owned()).collect();
    load(None, &own.to_string_lossy(), &sets)
}

fn said(refused: Result<Loaded>) -> String {
    refused.unwrap_err().lines().join(" ")
}

#[test]
fn errors_in_a_variant_name_its_line() {
    let said = said(variant(SMALL, "\n[topology]\nmtuu = 9000\n", &[]));
    assert!(
        said.contains("own.toml:4: topology.mtuu: unknown word 'mtuu'") && said.contains("'mtu'"),
        "{said}"
    );
    let said = self::said(variant(SMALL, "[topology.links.9]\nmtu = 9000\n", &[]));
    assert!(said.contains(":2: topology.links.9: there is no element '9'"), "{said}");
}

#[test]
fn a_later_tc_replaces_the_other_keys() {
    let of_cc = format!("{SMALL}[cc.cubic.queues.port]\npmin = \"5%\"\n");
    for loaded in [
        variant(&of_cc, "[queues.port]\ntc = \"fq_codel ecn\"\n", &[]),
        parse("small", &of_cc, &["queues.port.tc=fq_codel ecn".to_owned()]),
        // The last --set wins.
        variant(&of_cc, "", &["queues.port.limit=2MB", "queues.port.tc=fq_codel ecn"]),
    ] {
        let scenario = loaded.unwrap().scenario;
        let port = &scenario.queues["port"];
        assert_eq!(port.tc.as_deref(), Some("fq_codel ecn"));
        assert!(!port.has_keys(), "{port:?}");
        assert!(scenario.cc.values().all(|cc| cc.queues.is_empty()));
        for cc in ["unocc", "cubic"] {
            let plan = plan::plan(&scenario, cc, 1, 1).unwrap();
            assert!(format!("{plan:?}").contains("fq_codel"), "{cc}");
        }
    }
    // For one congestion control only; the other one keeps its keys.
    let scenario = variant(&of_cc, "[cc.cubic.queues.port]\ntc = \"bfifo limit 1mb\"\n", &[])
        .unwrap()
        .scenario;
    assert!(scenario.queues["port"].has_keys());
    assert!(!scenario.cc["cubic"].queues["port"].has_keys());
}

#[test]
fn other_keys_replace_a_tc() {
    let of_tc =
        SMALL.replace("limit = \"100kb\"\nmin = \"25kb\"\nmax = \"75%\"", "tc = \"fq_codel\"");
    assert_ne!(of_tc, SMALL);
    let phantom = "[queues.port]\nlimit = \"1MB\"\n";
    let port = |loaded: Result<Loaded>| loaded.unwrap().scenario.queues["port"].clone();
    let of_file = port(variant(&of_tc, phantom, &[]));
    assert!(of_file.tc.is_none() && of_file.limit.is_some(), "{of_file:?}");
    // A single key belongs to the existing queue.
    let said = said(variant(&of_tc, "", &["queues.port.limit=1MB"]));
    assert!(!said.contains("line "), "{said}");
    assert!(
        said.contains("which excludes 'limit'")
            && said.contains("try: --set unset=queues.port.tc before it"),
        "{said}"
    );
    let sets = ["unset=queues.port.tc", "queues.port.limit=1MB"];
    let of_set = port(variant(&of_tc, "", &sets));
    assert!(of_set.tc.is_none() && of_set.limit.is_some(), "{of_set:?}");
    // For one congestion control.
    let one = format!("{of_tc}[cc.cubic.queues.port]\nlimit = \"1MB\"\n");
    let scenario = parse("small", &one, &[]).unwrap().scenario;
    let port = scenario.cc["cubic"].queues["port"].over(&scenario.queues["port"]);
    assert!(port.tc.is_none() && port.limit.is_some(), "{port:?}");
}

#[test]
fn tc_with_other_keys_is_refused_with_its_line() {
    let both = "[queues.port]\ntc = \"fq_codel\"\nlimit = \"1MB\"\n";
    let sentence = "'tc' excludes all other keys of a queue";
    let own = SMALL.replace("[queues.port]", "[queues.port]\ntc = \"fq_codel\"");
    let text = said(parse("small", &own, &[]));
    assert!(text.contains("small:20: queues.port: ") && text.contains(sentence), "{text}");
    let text = said(variant(SMALL, &format!("\n{both}"), &[]));
    assert!(text.contains("own.toml:3: ") && text.contains(sentence), "{text}");
    let of_cc = both.replace("queues", "cc.cubic.queues");
    let text = said(variant(SMALL, &of_cc, &[]));
    assert!(text.contains("own.toml:2: ") && text.contains(sentence), "{text}");
    let set = "queues.port={tc=\"fq_codel\", limit=\"1MB\"}";
    let text = said(with(&[set]));
    assert!(text.contains(set) && text.contains(sentence), "{text}");
}

#[test]
fn inherited_keys_can_be_unset() {
    let sysctl = "cc.unocc.sysctl.\"net.unocc.intra_rtt_us\"";
    let text =
        format!("unset = [\"queues.port.max\", '{sysctl}', \"topology.links.0.delay_ba\"]\n");
    let sets = [
        "unset=queues.port.max",
        "unset=net.unocc.intra_rtt_us",
        "unset=topology.links.0.delay_ba",
    ];
    for loaded in [variant(SMALL, &text, &[]), with(&sets)] {
        let scenario = loaded.unwrap().scenario;
        let port = &scenario.queues["port"];
        assert!(port.max.is_none() && port.min.is_some());
        assert_eq!(scenario.cc["unocc"].sysctl.len(), 1);
        assert!(scenario.topology.links[0].delay_ba.is_none());
    }
    let text = said(variant(SMALL, "unset = [\"queues.port.mex\"]\n", &[]));
    assert!(
        text.contains(":2: unset: there is no 'mex' to unset") && text.contains("try: 'max'"),
        "{text}"
    );
    let text = said(with(&["unset=queues.prot.max"]));
    assert!(text.contains("--set unset=queues.prot.max") && text.contains("try: 'port'"), "{text}");
    let text = said(variant(SMALL, "unset = 5\n", &[]));
    assert!(text.contains("'unset' must be a list of keys"), "{text}");
    assert!(with(&["unset=topology"]).is_err());
    assert!(with(&["unset=topology.links.7"]).is_err());
}

#[test]
fn unknown_congestion_controls_are_refused() {
    let err = with(&["ccs=[\"quick\"]"]).unwrap_err().to_string();
    assert!(err.contains("quick"), "{err}");
}
