// SPDX-License-Identifier: GPL-2.0

use xdc_algo::{gemini, unocc};
use xdc_netlink::diag::XdcInfo;
use xdc_tcpinfo::TcpInfo;

use super::*;

pub const UNOCC: Option<u8> = Some(unocc::ENTRY.number);
pub const GEMINI: Option<u8> = Some(gemini::ENTRY.number);

pub fn socket(cc: &str, algorithm: Option<u8>) -> TcpSocket {
    let mut info = TcpInfo::default();
    info.snd_mss = 1448;
    info.snd_cwnd = 120;
    info.snd_ssthresh = 90;
    info.rtt = 1_800;
    info.min_rtt = 1_792;
    info.pacing_rate = u64::MAX;
    info.delivery_rate = 125_000_000;
    info.delivered = 1_000;
    info.delivered_ce = 31;
    TcpSocket {
        state: State::ESTABLISHED,
        local: "10.9.0.1:40000".parse().unwrap(),
        peer: "10.9.0.2:5001".parse().unwrap(),
        cookie: 7,
        cc: Some(cc.to_owned()),
        info: Some(info),
        xdc: algorithm.map(|algorithm| XdcInfo {
            algorithm,
            flags: 2,
            fraction: 1 << 28,
            periods: 12_345,
            base_rtt_us: Some(1_792),
            quick_adapts: 2,
            period_marked: 1 << 14,
        }),
    }
}

/// Initial parameters of namespaces, with manual values for a host's measurements: the papers' links.
pub fn params() -> Params {
    Params::of(|algorithm, name| {
        let row = algorithm.params.iter().find(|row| row.name() == name)?;
        let default = row.defaults[0];
        let value = match (name, algorithm.name()) {
            ("line_rate_mbps", "unocc") => 100_000,
            ("line_rate_mbps", _) => 1_000,
            ("intra_rtt_us", _) => 14,
            _ => default,
        };
        Some(value.to_string())
    })
}

pub fn flow(cc: &str, algorithm: Option<u8>) -> Flow {
    Flow::new(&socket(cc, algorithm), None, &params(), &Connections::default())
}

fn state(flow: &Flow, key: &str) -> Json {
    let all = serde_json::to_value(flow.own.as_ref().unwrap()).unwrap();
    all.as_object().unwrap().values().next().unwrap()[key].clone()
}

#[test]
fn prefixes_contain_their_addresses() {
    let prefix = |text: &str| text.parse::<Prefix>();
    let has = |text: &str, address: &str| prefix(text).unwrap().has(address.parse().unwrap());
    assert!(has("10.9.0.1", "10.9.0.1"));
    assert!(!has("10.9.0.1", "10.9.0.2"));
    assert!(has("10.9.0.0/16", "10.9.200.2"));
    assert!(!has("10.9.0.0/16", "10.8.0.2"));
    assert!(has("0.0.0.0/0", "255.1.2.3"));
    assert!(!has("0.0.0.0/0", "::1"));
    assert!(has("fd09::/64", "fd09::2"));
    assert!(!has("fd09::/64", "fd0a::2"));
    for bad in ["", "10.9.0", "10.9.0.0/33", "fd09::/129", "10.0.0.0/", "a/8"] {
        assert!(prefix(bad).is_err(), "{bad}");
    }
}

#[test]
fn filters_select_sockets() {
    let socket = socket("unocc", None);
    let wants = |change: fn(&mut Filter)| {
        let mut filter = Filter::default();
        change(&mut filter);
        filter.wants(&socket)
    };
    assert!(wants(|_| ()));
    assert!(wants(|f| f.cc = vec!["cubic".into(), "unocc".into()]));
    assert!(!wants(|f| f.cc = vec!["unocc-reno".into()]));
    assert!(wants(|f| f.src = "10.9.0.1".parse().ok()));
    assert!(!wants(|f| f.dst = "10.9.0.1".parse().ok()));
    let query = Filter {
        state: vec!["established".into(), "listen".into()],
        dport: Some(5001),
        ..Filter::default()
    }
    .query();
    assert_eq!((query.states, query.dport), (1 << 1 | 1 << 10, Some(5001)));
    let all = Filter { state: vec!["all".into()], ..Filter::default() };
    assert_eq!(all.query().states, u32::MAX);
    assert_eq!(Filter::default().query(), Query::default());
}

#[test]
fn derived_values_match_the_algorithm() {
    let unocc = flow("unocc", UNOCC);
    let number = |flow: &Flow, key: &str| state(flow, key).as_f64().unwrap();
    assert_eq!(state(&unocc, "profile"), "paper");
    assert_eq!(state(&unocc, "profile_modified"), true);
    assert_eq!(state(&unocc, "intra_rtt_us"), 14);
    assert_eq!(number(&unocc, "e"), 0.25);
    assert_eq!(state(&unocc, "slow_start"), false);
    assert_eq!(state(&unocc, "reduced"), true);

    let gemini = flow("gemini", GEMINI);
    // K = 50 packets, C x RTT = 1 Gbit/s x 1,800 us.
    let f = 4.0 * 50.0 * 1_448.0 / 225_000.0;
    assert!((number(&gemini, "f") - f).abs() < 1e-5);
    // H x C x RTT = 120e-9 x 1.8e6 bits.
    assert!((number(&gemini, "h_packets_per_rtt") - 0.216).abs() < 1e-4);
}

#[test]
fn every_algorithm_shows_its_state() {
    for algorithm in ALGORITHMS {
        let flow = flow(algorithm.name(), Some(algorithm.number));
        let shown = serde_json::to_value(&flow).unwrap();
        let shown = shown[algorithm.name()].as_object().unwrap();
        for state in algorithm.state {
            assert!(!shown[state.key].is_null(), "{} {}", algorithm.name(), state.key);
        }
        let profile = if algorithm.has_profiles() { 2 } else { 0 };
        assert_eq!(shown.len(), algorithm.state.len() + 2 + profile);
    }
    // Unassigned number.
    assert!(flow("stranger", Some(255)).own.is_none());
}

#[test]
fn a_table_fits_100_columns() {
    let mut of_unocc = socket("gemini-reno", UNOCC);
    let xdc = of_unocc.xdc.as_mut().unwrap();
    (xdc.base_rtt_us, xdc.periods, xdc.flags) = (Some(u32::MAX), u32::MAX, 3);
    of_unocc.info.as_mut().unwrap().snd_ssthresh = u32::MAX;
    let mut long = Flow::new(&of_unocc, None, &params(), &Connections::default());
    long.src = "2001:db8:1111:2222:3333:4444:5555:6666".parse().unwrap();
    long.netns = Some("a-long-name".to_owned());
    let tcp = long.tcp.as_mut().unwrap();
    (tcp.cwnd_packets, tcp.srtt_us) = (99_999_999, 999_999_999);
    let mut lines = vec![header()];
    for flow in [flow("unocc", UNOCC), flow("gemini", GEMINI), flow("cubic", None), long] {
        lines.extend(flow.rows());
    }
    for line in &lines {
        assert!(line.len() <= COLUMNS, "{} {line}", line.len());
    }
    assert!(lines.last().unwrap().ends_with("[slow start, reduced]"));
    let text = lines.join("\n");
    assert!(text.contains("unocc       10.9.0.1:40000          10.9.0.2:5001"), "{text}");
    assert!(text.contains("intra RTT 14 us  E 0.2500  epochs 12345  QA 2  [reduced]"), "{text}");
    assert!(text.contains("[2001:db8:1111~6]:40000"), "{text}");
}

#[test]
fn json_has_units_and_only_the_algorithms_own_state() {
    let text = serde_json::to_string(&flow("unocc", UNOCC)).unwrap();
    for key in [
        "\"dst\":\"10.9.0.2\"",
        "\"cwnd_packets\":120",
        "\"srtt_us\":1800",
        "\"pacing_bytes_per_s\":null",
        "\"unocc\":{\"profile\":\"paper\"",
        "\"base_rtt_us\":1792",
    ] {
        assert!(text.contains(key), "{key} in {text}");
    }
    assert!(!text.contains("gemini") && !text.contains("netns"), "{text}");
}

#[test]
fn a_socket_in_time_wait_is_shown() {
    let mut bare = socket("unocc", None);
    (bare.cc, bare.info) = (None, None);
    bare.state = State::by_name("time-wait").unwrap();
    let none = Connections::default();
    let flow = Flow::new(&bare, Some("h1"), &Params::default(), &none);
    let rows = flow.rows();
    assert!(rows[0].starts_with("-           10.9.0.1:40000"), "{rows:?}");
    assert_eq!(rows[1], "  netns h1  state time-wait");
    let text = serde_json::to_string(&flow).unwrap();
    assert!(!text.contains("cwnd"), "{text}");
}

#[test]
fn a_tlt_connection_shows_its_state() {
    let connections = crate::live::observe::tlt::tests::connections();
    let flow = Flow::new(&socket("cubic", None), None, &params(), &connections);
    assert_eq!(flow.rows()[1], "  TLT data for 12 us, 7 echoes");
    let text = serde_json::to_string(&flow).unwrap();
    assert!(text.contains("\"tlt\":{\"sender\":\"data\",\"age_us\":12,"), "{text}");
    assert!(!serde_json::to_string(&self::flow("cubic", None)).unwrap().contains("tlt"));
}

#[test]
fn values_that_need_unknown_parameters_are_missing() {
    let none = Connections::default();
    let flow = Flow::new(&socket("unocc", UNOCC), None, &Params::default(), &none);
    assert!(flow.rows()[1].contains("profile ?  base RTT 1792 us  intra RTT - us  E 0.2500"));
}
