// SPDX-License-Identifier: GPL-2.0
//! Each mistake is found without a guest, with its line and key.

use crate::{parse, plan::plan, testing::SMALL};

/// Lines of the errors of [`SMALL`] with `from` replaced by `to`.
fn said(from: &str, to: &str) -> String {
    let text = SMALL.replacen(from, to, 1);
    assert_ne!(text, SMALL, "{from}");
    lines(&text)
}

fn lines(text: &str) -> String {
    match parse("small", text, &[]) {
        Ok(_) => String::new(),
        Err(err) => err.lines().join("\n"),
    }
}

#[test]
fn a_mistake_has_its_line_its_key_and_its_fix() {
    let port = "limit = \"100kb\"\nmin = \"25kb\"\nmax = \"75%\"";
    for (from, to, place, cause, fix) in [
        (
            "rate = \"1gbit\"",
            "rate = \"100Mbps\"",
            "small:13: topology.links.0.rate: ",
            "bits per second",
            "100mbit",
        ),
        (
            "rate = \"1gbit\"",
            "rate = 100",
            "small:13: topology.links.0.rate: ",
            "wrong type",
            "10gbit",
        ),
        (
            port,
            "limit = 1000",
            "small:21: queues.port.limit: ",
            "no room for a packet of 1514 bytes",
            "100kB",
        ),
        (
            port,
            "limit = \"1MB\"\ndrain = 0",
            "small:22: queues.port.drain: ",
            "'drain' is 0%",
            "0.0001% to 100%",
        ),
        (
            port,
            "limit = \"1MB\"\npmin = \"60%\"\npmax = \"2%\"",
            "small:22: queues.port.pmin: ",
            "above 'pmax'",
            "at or below",
        ),
        (
            port,
            "limit = \"1MB\"\npmax = \"1%\"",
            "small:22: queues.port.pmax: ",
            "'pmin' is 2%",
            "at or below",
        ),
        (
            port,
            "limit = \"100kB\"\nmin = \"101kB\"",
            "small:22: queues.port.min: ",
            "above the limit",
            "",
        ),
        (
            port,
            "tc = \"phantom limit 1mb pmn 3%\"",
            "small:21: queues.port.tc: ",
            "unknown option 'pmn'",
            "'pmin'",
        ),
        (port, "tc = \"phantom limit 1000\"", "small:21: queues.port.tc: ", "no room", ""),
        (
            port,
            "tc = \"phantom limit 1mb drain 0\"",
            "small:21: queues.port.tc: ",
            "'drain' is 0%",
            "",
        ),
        (port, "tc = \"bfifo limit 1000\"", "small:21: queues.port.tc: ", "no room", ""),
        (port, "tc = \"pfifo limit 0\"", "small:21: queues.port.tc: ", "limit of 0", ""),
        (
            "queue_ab = \"port\"",
            "queue_ab = \"prot\"",
            "small:19: topology.links.1.queue_ab: ",
            "no queue 'prot'",
            "[queues.prot]",
        ),
        (
            "hosts = [\"a[1-2]\", \"r\"]",
            "hosts = [\"a[1-2]\", \"r\", \"x\"]",
            "small:8: topology.hosts.2: ",
            "'x' has no link",
            "",
        ),
        (
            "hosts = [\"a[1-2]\", \"r\"]",
            "hosts = [\"a[1-2]\", \"r\", \"a1\"]",
            "small:8: topology.hosts.2: ",
            "two nodes are named 'a1'",
            "",
        ),
        (
            "b = \"s\"",
            "b = \"x\"",
            "small:12: topology.links.0.b: ",
            "'x', which is not a node",
            "hosts",
        ),
        (
            "a = \"s\"\nb = \"r\"",
            "a = \"s\"\nb = \"s\"",
            "small:17: topology.links.1.b: ",
            "to itself",
            "",
        ),
        ("src = \"a[1-2]\"", "src = \"r\"", "small:31: flows.0.dst: ", "from 'r' to itself", ""),
        ("src = \"a[1-2]\"", "src = \"s\"", "small:30: flows.0.src: ", "'s' is a router", "hosts"),
        ("dst = \"r\"", "dst = \"zz\"", "small:31: flows.0.dst: ", "'zz', which is not a node", ""),
        ("bytes = \"1MiB\"", "bytes = 0", "small:32: flows.0.bytes: ", "at least one byte", ""),
        ("to = \"r\"", "to = \"a1\"", "small:24: watch.0: ", "no queue to watch", ""),
        ("to = \"r\"", "to = \"rr\"", "small:27: watch.0.to: ", "'rr', which is not a node", "'r'"),
        (
            "[cc.unocc.sysctl]",
            "[sysctl]\n\"net.ipv4.tcp_sackk\" = 1\n[cc.unocc.sysctl]",
            "small:34: sysctl.\"net.ipv4.tcp_sackk\": ",
            "no such sysctl",
            "'net.ipv4.tcp_sack'",
        ),
        (
            "[cc.unocc.sysctl]",
            "[tunnel]\nfec = \"40+2\"\n[cc.unocc.sysctl]",
            "small:34: tunnel.fec: ",
            "1 to 28 data packets",
            "",
        ),
        (
            "[cc.unocc.sysctl]",
            "[tunnel]\npaths = \"best\"\n[cc.unocc.sysctl]",
            "small:34: tunnel.paths: ",
            "unknown value \"best\"",
            "",
        ),
        (
            "[cc.unocc.sysctl]",
            "[host.zz]\nsetup = [\"true\"]\n[cc.unocc.sysctl]",
            "small:33: host.zz: ",
            "'zz', which is not a node",
            "",
        ),
        (
            "metric = \"drops\"",
            "metric = \"groups.x.goodput_mbps\"",
            "small:37: expect.0.metric: ",
            "no group of flows 'x'",
            "all",
        ),
    ] {
        let said = said(from, to);
        assert!(said.starts_with(place), "{to}: {said}");
        assert!(said.contains(cause), "{to}: {said}");
        if !fix.is_empty() {
            let hint = said.lines().find(|line| line.starts_with("try: "));
            assert!(hint.is_some_and(|hint| hint.contains(fix)), "{to}: {said}");
        }
        assert!(!said.contains("\nsmall:"), "one mistake only: {said}");
    }
}

#[test]
fn times_after_the_end_are_refused() {
    let text = format!(
        "{SMALL}[[event]]\nat = \"10s\"\nlink = \"s-r\"\ndown = true\n[[run]]\non = \"a1\"\ncommand = \"true\"\nstart = \"1s\"\n"
    );
    assert_eq!(lines(&text), "");
    let said = lines(&text.replace("sample =", "duration = \"1s\"\nsample ="));
    assert!(said.contains("small:43: event.0.at: the event at 10s"), "{said}");
    assert!(said.contains("small:49: run.0.start: the program at 1s"), "{said}");
}

#[test]
fn a_second_link_needs_ecmp() {
    let second = "[[topology.links]]\na = \"r\"\nb = \"s\"\nrate = \"1gbit\"\n[queues.port]";
    let text = SMALL.replace("[queues.port]", second);
    let said = lines(&text);
    assert!(said.starts_with("small:20: topology.links.2: the second link"), "{said}");
    assert_eq!(lines(&text.replace("mtu = 1500", "mtu = 1500\necmp = true")), "");
}

#[test]
fn all_mistakes_of_a_file_are_reported_in_the_order_of_their_lines() {
    let text = SMALL
        .replace("sample = \"1ms\"", "sample = 1\nsamples = 2")
        .replace("delay_ba", "delay_bb")
        .replace("limit = \"100kb\"", "limit = \"100kg\"")
        .replace("dst = \"r\"", "dst = \"rr\"")
        .replace("max = 0", "maximum = 0")
        .replace("\"net.unocc.intra_rtt_us\" = 100", "\"net.unocc.intra_rtt_us\" = -1");
    let said = lines(&text);
    let places: Vec<_> =
        said.lines().filter_map(|line| line.strip_prefix("small:")?.split(": ").next()).collect();
    assert_eq!(places, ["5", "6", "15", "22", "32", "36", "40"], "{said}");
}

#[test]
fn missing_keys_are_reported_together() {
    let text = SMALL
        .replace("ccs = [\"unocc\", \"cubic\"]\n", "")
        .replace("rate = \"1gbit\"\ndelay_ba", "delay_ba")
        .replace("to = \"r\"\n", "");
    let said = lines(&text);
    for key in ["small: ccs: ", "small:9: topology.links.0.rate: ", "small:22: watch.0.to: "] {
        assert!(said.contains(&format!("{key}the key ")), "{key}: {said}");
    }
    assert_eq!(said.matches("small").count(), 3, "{said}");
}

#[test]
fn every_syntax_error_has_its_line() {
    let text =
        SMALL.replace("mtu = 1500", "mtu = 1500x").replace("bytes = \"1MiB\"", "bytes = 1MiB");
    let said = lines(&text);
    assert!(said.contains("small:7: ") && said.contains("small:32: "), "{said}");
}

#[test]
fn consequences_of_a_mistake_are_not_reported() {
    // Without the nodes no name in a link or a flow is valid.
    let said = said("hosts = ", "hots = ");
    assert_eq!(said.matches("small:").count(), 1, "{said}");
    let said = self::said("[queues.port]", "[queues.prot]");
    assert!(said.contains("no queue 'port'") && !said.contains("no link has"), "{said}");
}

/// kmod takes `./evil.ko` for a file and `--version` for an option.
#[test]
fn a_module_that_is_a_file_or_an_option_is_refused() {
    let own =
        |module: &str| format!("{SMALL}[cc.mine]\nkernel = \"cubic\"\nmodule = \"{module}\"\n");
    let mut scenario = parse("small", &own("tcp_my"), &[]).unwrap().scenario;
    assert!(plan(&scenario, "mine", 1, 1).is_ok());
    for module in ["./evil.ko", "--version", "-Rveth", "a b", "../../../tmp/x"] {
        let said = lines(&own(module));
        assert!(said.contains("cc.mine.module: "), "{said}");
        let hosts = format!("{SMALL}[host.a1]\nmodules = [\"{module}\"]\n");
        assert!(lines(&hosts).contains("name of a kernel module"));
        // Plans are checked too, wherever their modules come from.
        scenario.cc.get_mut("mine").unwrap().module = Some(module.to_owned());
        let refused = plan(&scenario, "mine", 1, 1).unwrap_err().to_string();
        assert!(refused.contains("name of a kernel module"), "{refused}");
    }
}

#[test]
fn tc_words_of_unused_queues_are_checked() {
    for (words, bad) in [
        ("netem delay 1ms 1ms distribution ../../tmp/x", "../../tmp/x"),
        ("../../tmp/evil limit 1", "../../tmp/evil"),
        ("pfifo -batch", "-batch"),
    ] {
        let text = format!("{SMALL}[cc.cubic.queues.port]\ntc = \"{words}\"\n");
        let said = lines(&text);
        assert_eq!(said.matches("is not a valid").count(), 1, "{said}");
        assert!(said.contains(bad), "{said}");
    }
}
