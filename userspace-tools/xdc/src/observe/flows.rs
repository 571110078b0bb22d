// SPDX-License-Identifier: GPL-2.0
//! TCP sockets as people see them: which, what of them, as JSON and as rows.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use clap::builder::PossibleValuesParser;
use serde::Serialize;
use xdc_netlink::diag::{Algorithm, Query, State, TcpSocket, XdcInfo};

use super::params::Params;
use super::{View, refused, rounded, short};
use crate::error::Result;

/// Which sockets.
#[derive(clap::Args, Default)]
pub struct Filter {
    /// Local address, or a prefix.
    #[arg(long, value_name = "ADDR[/LEN]")]
    src: Option<Prefix>,
    /// The peer's address, or a prefix.
    #[arg(long, value_name = "ADDR[/LEN]")]
    dst: Option<Prefix>,
    /// Local port.
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    sport: Option<u16>,
    /// The peer's port.
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    dport: Option<u16>,
    /// Congestion controls, as the kernel names them.
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    cc: Vec<String>,
    /// States of TCP, as ss names them, or `all` [default: established].
    #[arg(long, value_delimiter = ',', value_name = "STATE,...", hide_possible_values = true,
        value_parser = PossibleValuesParser::new(State::names().iter().copied().chain(["all"])))]
    state: Vec<String>,
}

impl Filter {
    fn query(&self) -> Query {
        let bit = |name: &String| State::by_name(name).map_or(u32::MAX, State::bit);
        let states = self.state.iter().map(bit).reduce(|a, b| a | b);
        Query {
            states: states.unwrap_or(Query::default().states),
            sport: self.sport,
            dport: self.dport,
        }
    }

    /// What the kernel does not look at for us.
    fn wants(&self, socket: &TcpSocket) -> bool {
        let within = |prefix: &Option<Prefix>, end: &SocketAddr| {
            prefix.as_ref().is_none_or(|prefix| prefix.has(end.ip()))
        };
        let has_cc = || {
            let cc = socket.cc.as_deref();
            self.cc.iter().any(|name| Some(name.as_str()) == cc)
        };
        within(&self.src, &socket.local)
            && within(&self.dst, &socket.peer)
            && (self.cc.is_empty() || has_cc())
    }
}

/// Addresses that begin alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    address: IpAddr,
    bits: u32,
}

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address
            .parse()
            .map_err(|_| format!("'{address}' is no IP address"))?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => most,
            Some(bits) => bits
                .parse()
                .ok()
                .filter(|bits| *bits <= most)
                .ok_or_else(|| format!("'{bits}' is no prefix length from 0 to {most}"))?,
        };
        Ok(Self { address, bits })
    }
}

impl Prefix {
    fn has(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                (a.to_bits() ^ b.to_bits()).leading_zeros() >= self.bits
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                (a.to_bits() ^ b.to_bits()).leading_zeros() >= self.bits
            }
            _ => false,
        }
    }
}

/// One socket. The names are the keys of `xdc ss --json`.
#[derive(Debug, Clone, Serialize)]
pub struct Flow {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    pub state: String,
    pub src: IpAddr,
    pub sport: u16,
    pub dst: IpAddr,
    pub dport: u16,
    /// The kernel's own name for the socket.
    pub cookie: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cc: Option<String>,
    #[serde(flatten)]
    pub tcp: Option<Tcp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unocc: Option<UnoccState>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gemini: Option<GeminiState>,
}

/// Of every TCP.
#[derive(Debug, Clone, Serialize)]
pub struct Tcp {
    pub ca_state: &'static str,
    pub mss_bytes: u32,
    pub cwnd_packets: u32,
    /// None in slow start that nothing has ended.
    pub ssthresh_packets: Option<u32>,
    pub unacked_packets: u32,
    pub srtt_us: u32,
    pub min_rtt_us: Option<u32>,
    /// None = not paced.
    pub pacing_bytes_per_s: Option<u64>,
    pub delivery_bytes_per_s: u64,
    pub bytes_acked: u64,
    pub bytes_received: u64,
    pub delivered_packets: u32,
    pub delivered_ce_packets: u32,
    pub retransmitted_packets: u32,
}

#[derive(Debug, Clone, Serialize)]
pub struct UnoccState {
    pub profile: Option<&'static str>,
    /// Some parameter is not what the profile says.
    pub profile_modified: Option<bool>,
    /// Average marked fraction.
    pub e: f64,
    pub epochs: u32,
    /// Marked part of the present epoch so far.
    pub epoch_marked: f64,
    pub base_rtt_us: Option<u32>,
    /// 4K / (K + BDP): a decrease takes E times that.
    pub md_scale: Option<f64>,
    /// Additive increase.
    pub increase_bytes_per_rtt: Option<f64>,
    pub quick_adapts: u16,
    /// A mark came in this round trip, so Quick Adapt may act.
    pub round_marked: bool,
    /// This round trip has had its Quick Adapt or loss.
    pub reduced: bool,
    pub slow_start: bool,
    pub ce_state: bool,
}

#[derive(Debug, Clone, Serialize)]
pub struct GeminiState {
    /// Average marked fraction.
    pub alpha: f64,
    /// 4K / (C x RTT): congestion in the datacenter takes alpha times that.
    pub f: Option<f64>,
    /// Additive increase.
    pub h_packets_per_rtt: Option<f64>,
    pub rounds: u32,
    /// Marked part of the present round trip so far.
    pub round_marked: f64,
    pub base_rtt_us: Option<u32>,
    pub wan_congested: bool,
    /// This round trip has had its reduction.
    pub reduced: bool,
    pub slow_start: bool,
    pub ce_state: bool,
}

/// The sockets of a namespace that `filter` lets through.
pub fn sample(view: &mut View, filter: &Filter) -> Result<Vec<Flow>> {
    let params = view.params();
    let found = view.diag.sockets(&filter.query()).map_err(refused)?;
    Ok(found
        .iter()
        .filter(|socket| filter.wants(socket))
        .map(|socket| Flow::new(socket, view.name.as_deref(), &params))
        .collect())
}

impl Flow {
    fn new(socket: &TcpSocket, netns: Option<&str>, params: &Params) -> Self {
        let tcp = socket.info.map(Tcp::of);
        let slow_start = tcp.as_ref().is_some_and(|tcp| {
            tcp.ssthresh_packets
                .is_none_or(|packets| tcp.cwnd_packets < packets)
        });
        let of = |algorithm| {
            socket
                .xdc
                .as_ref()
                .filter(move |xdc| xdc.algorithm == algorithm)
        };
        Self {
            netns: netns.map(str::to_owned),
            state: socket.state.to_string(),
            src: socket.local.ip(),
            sport: socket.local.port(),
            dst: socket.peer.ip(),
            dport: socket.peer.port(),
            cookie: socket.cookie,
            cc: socket.cc.clone(),
            unocc: of(Algorithm::Unocc).map(|xdc| UnoccState::new(xdc, slow_start, params)),
            gemini: of(Algorithm::Gemini)
                .map(|xdc| GeminiState::new(xdc, slow_start, tcp.as_ref(), params)),
            tcp,
        }
    }

    pub fn local(&self) -> String {
        SocketAddr::new(self.src, self.sport).to_string()
    }

    pub fn peer(&self) -> String {
        SocketAddr::new(self.dst, self.dport).to_string()
    }

    /// Of all packets delivered so far.
    fn marked_percent(&self) -> Option<f64> {
        let tcp = self.tcp.as_ref()?;
        (tcp.delivered_packets != 0)
            .then(|| 100.0 * f64::from(tcp.delivered_ce_packets) / f64::from(tcp.delivered_packets))
    }
}

impl Tcp {
    fn of(info: xdc_tcpinfo::TcpInfo) -> Self {
        /// TCP_INFINITE_SSTHRESH.
        const INFINITE: u32 = 0x7fff_ffff;
        const CA_STATES: [&str; 5] = ["open", "disorder", "cwr", "recovery", "loss"];
        Self {
            ca_state: CA_STATES
                .get(usize::from(info.ca_state))
                .copied()
                .unwrap_or("unknown"),
            mss_bytes: info.snd_mss,
            cwnd_packets: info.snd_cwnd,
            ssthresh_packets: Some(info.snd_ssthresh).filter(|packets| *packets < INFINITE),
            unacked_packets: info.unacked,
            srtt_us: info.rtt,
            min_rtt_us: Some(info.min_rtt).filter(|us| *us != u32::MAX),
            pacing_bytes_per_s: Some(info.pacing_rate).filter(|rate| *rate != u64::MAX),
            delivery_bytes_per_s: info.delivery_rate,
            bytes_acked: info.bytes_acked,
            bytes_received: info.bytes_received,
            delivered_packets: info.delivered,
            delivered_ce_packets: info.delivered_ce,
            retransmitted_packets: info.total_retrans,
        }
    }
}

impl UnoccState {
    fn new(xdc: &XdcInfo, slow_start: bool, params: &Params) -> Self {
        use xdc_algo::unocc::Derived;
        let of_path = params
            .unocc
            .zip(xdc.base_rtt_us)
            .map(|(unocc, rtt_us)| (unocc.values, unocc.values.path(rtt_us)));
        Self {
            profile: params.unocc.map(|unocc| unocc.profile_name()),
            profile_modified: params.unocc.map(|unocc| unocc.is_modified()),
            e: rounded(xdc.fraction),
            epochs: xdc.periods,
            epoch_marked: rounded(xdc.period_marked),
            base_rtt_us: xdc.base_rtt_us,
            md_scale: of_path
                .map(|(values, path)| rounded(part_of_one(values.decrease_gain(&path)))),
            increase_bytes_per_rtt: of_path
                .map(|(values, path)| rounded(bytes(values.increase_scaled(&path)))),
            quick_adapts: xdc.quick_adapts,
            round_marked: xdc.round_marked,
            reduced: xdc.reduced,
            slow_start,
            ce_state: xdc.ce_state,
        }
    }

    /// For people, in pieces that stay together.
    pub fn words(&self) -> Vec<String> {
        let modified = if self.profile_modified == Some(true) {
            "*"
        } else {
            ""
        };
        let mut words = vec![
            format!("profile {}{modified}", self.profile.unwrap_or("?")),
            format!("base RTT {} us", or_dash(self.base_rtt_us)),
            format!("E {:.4}", self.e),
            format!("MD scale {}", fixed(self.md_scale)),
            format!("epochs {}", self.epochs),
            format!("QA {}", self.quick_adapts),
        ];
        words.extend(flags(&[
            (self.slow_start, "slow start"),
            (self.reduced, "adapted"),
            (self.round_marked, "marked"),
        ]));
        words
    }
}

impl GeminiState {
    fn new(xdc: &XdcInfo, slow_start: bool, tcp: Option<&Tcp>, params: &Params) -> Self {
        use xdc_algo::gemini::Derived;
        let of_path = params
            .gemini
            .zip(tcp.filter(|tcp| tcp.srtt_us != 0 && tcp.mss_bytes != 0));
        Self {
            alpha: rounded(xdc.fraction),
            f: of_path.map(|(gemini, tcp)| {
                rounded(4.0 * part_of_one(gemini.quarter_of_f(tcp.srtt_us, tcp.mss_bytes)))
            }),
            h_packets_per_rtt: of_path.map(|(gemini, tcp)| {
                let step = gemini.increase_scaled(tcp.srtt_us, tcp.mss_bytes);
                rounded(bytes(step) / f64::from(tcp.mss_bytes))
            }),
            rounds: xdc.periods,
            round_marked: rounded(xdc.period_marked),
            base_rtt_us: xdc.base_rtt_us,
            wan_congested: xdc.wan_congested,
            reduced: xdc.reduced,
            slow_start,
            ce_state: xdc.ce_state,
        }
    }

    /// For people, in pieces that stay together.
    pub fn words(&self) -> Vec<String> {
        let mut words = vec![
            format!("base RTT {} us", or_dash(self.base_rtt_us)),
            format!("alpha {:.4}", self.alpha),
            format!("F {}", fixed(self.f)),
            format!("H {} packets/RTT", fixed(self.h_packets_per_rtt)),
            format!("rounds {}", self.rounds),
        ];
        words.extend(flags(&[
            (self.slow_start, "slow start"),
            (self.reduced, "reduced"),
            (self.wan_congested, "WAN congested"),
        ]));
        words
    }
}

/// A fraction of the algorithms.
fn part_of_one(fraction: u32) -> f64 {
    f64::from(fraction) / f64::from(xdc_algo::fixed::FRACTION_ONE)
}

/// Bytes of the algorithms' 2^-16 bytes.
fn bytes(scaled: u64) -> f64 {
    scaled as f64 / xdc_algo::fixed::BYTE_ONE as f64
}

fn or_dash(value: Option<u32>) -> String {
    value.map_or("-".to_owned(), |value| value.to_string())
}

fn fixed(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.4}"))
}

fn flags(flags: &[(bool, &str)]) -> Option<String> {
    let set: Vec<_> = flags
        .iter()
        .filter(|(is_set, _)| *is_set)
        .map(|(_, name)| *name)
        .collect();
    (!set.is_empty()).then(|| format!("[{}]", set.join(", ")))
}

/// An address in a column: what is too long loses its middle, never its port.
fn clipped(text: &str, width: usize) -> String {
    const TAIL: usize = 8;
    if text.len() <= width {
        return text.to_owned();
    }
    // Addresses are ASCII.
    format!(
        "{}~{}",
        &text[..width - 1 - TAIL],
        &text[text.len() - TAIL..]
    )
}

const ADDRESS_WIDTH: usize = 23;
const COLUMNS: usize = 100;

/// Names of the columns of [`Flow::rows`].
pub fn header() -> String {
    format!(
        "{:11} {:ADDRESS_WIDTH$} {:ADDRESS_WIDTH$} {:>8} {:>9} {:>8} {:>8}",
        "CC", "LOCAL", "PEER", "CWND_PKT", "SRTT_US", "MBIT/S", "MARKED_%"
    )
}

impl Flow {
    /// A line of columns, and below it what only some have.
    pub fn rows(&self) -> Vec<String> {
        let tcp = self.tcp.as_ref();
        let text = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        let first = format!(
            "{:11} {:ADDRESS_WIDTH$} {:ADDRESS_WIDTH$} {:>8} {:>9} {:>8} {:>8}",
            self.cc.as_deref().unwrap_or("-"),
            clipped(&self.local(), ADDRESS_WIDTH),
            clipped(&self.peer(), ADDRESS_WIDTH),
            text(tcp.map(|tcp| tcp.cwnd_packets.to_string())),
            text(tcp.map(|tcp| tcp.srtt_us.to_string())),
            text(tcp.map(|tcp| short(tcp.delivery_bytes_per_s as f64 * 8e-6))),
            text(self.marked_percent().map(short)),
        );
        let mut rows = vec![first.trim_end().to_owned()];
        let mut row = String::new();
        for words in self.words() {
            if !row.is_empty() && row.len() + 2 + words.len() > COLUMNS {
                rows.push(std::mem::take(&mut row));
            }
            row += "  ";
            row += &words;
        }
        rows.extend(Some(row).filter(|row| !row.is_empty()));
        rows
    }

    /// What only some have.
    pub fn words(&self) -> Vec<String> {
        let netns = self.netns.as_ref().map(|name| format!("netns {name}"));
        let state = Some(format!("state {}", self.state));
        let unocc = self.unocc.iter().flat_map(UnoccState::words);
        let gemini = self.gemini.iter().flat_map(GeminiState::words);
        let mut words: Vec<_> = netns.into_iter().collect();
        words.extend(state.filter(|_| self.state != "established"));
        words.extend(unocc.chain(gemini));
        words
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use xdc_algo::{gemini, unocc};
    use xdc_tcpinfo::TcpInfo;

    const PARAMS: Params = Params {
        unocc: None,
        gemini: None,
    };

    pub fn socket(cc: &str, algorithm: Option<Algorithm>) -> TcpSocket {
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
                round_marked: true,
                reduced: false,
                wan_congested: false,
                ce_state: false,
                fraction: 0.25,
                periods: 12_345,
                base_rtt_us: Some(1_792),
                quick_adapts: 2,
                period_marked: 0.5,
            }),
        }
    }

    pub fn params() -> Params {
        Params {
            unocc: Some(super::super::params::Unocc {
                values: unocc::Params::of(unocc::Profile::Linux),
                profile: unocc::Profile::Linux,
            }),
            gemini: Some(gemini::Params::of(gemini::Profile::Paper)),
        }
    }

    pub fn flow(cc: &str, algorithm: Option<Algorithm>) -> Flow {
        Flow::new(&socket(cc, algorithm), None, &params())
    }

    #[test]
    fn prefixes() {
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
        for bad in [
            "",
            "10.9.0",
            "10.9.0.0/33",
            "fd09::/129",
            "10.0.0.0/",
            "a/8",
        ] {
            assert!(prefix(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn filters_pick() {
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
        let all = Filter {
            state: vec!["all".into()],
            ..Filter::default()
        };
        assert_eq!(all.query().states, u32::MAX);
        assert_eq!(Filter::default().query(), Query::default());
    }

    #[test]
    fn what_follows_from_parameters_is_the_algorithms_own() {
        let unocc = flow("unocc", Some(Algorithm::Unocc)).unocc.unwrap();
        assert_eq!(
            (unocc.profile, unocc.profile_modified),
            (Some("linux"), Some(false))
        );
        // K = a quarter of 100 Gbit/s x 14 us, BDP = 100 Gbit/s x 1,792 us: 4 x 3.5 / (3.5 + 1792).
        assert!((unocc.md_scale.unwrap() - 14.0 / 1_795.5).abs() < 1e-5);
        // 6,000 ppm of that BDP.
        assert!((unocc.increase_bytes_per_rtt.unwrap() - 134_400.0).abs() < 0.1);
        assert!(!unocc.slow_start);

        let gemini = flow("gemini", Some(Algorithm::Gemini)).gemini.unwrap();
        // K = 50 packets, C x RTT = 1 Gbit/s x 1,800 us.
        let f = 4.0 * 50.0 * 1_448.0 / 225_000.0;
        assert!((gemini.f.unwrap() - f).abs() < 1e-5);
        // H x C x RTT = 120e-9 x 1.8e6 bits.
        assert!((gemini.h_packets_per_rtt.unwrap() - 0.216).abs() < 1e-4);
    }

    #[test]
    fn a_table_fits_100_columns() {
        let mut long = flow("gemini-reno", Some(Algorithm::Unocc));
        long.src = "2001:db8:1111:2222:3333:4444:5555:6666".parse().unwrap();
        long.netns = Some("a-long-name".to_owned());
        let unocc = long.unocc.as_mut().unwrap();
        (unocc.base_rtt_us, unocc.epochs) = (Some(u32::MAX), u32::MAX);
        (unocc.slow_start, unocc.reduced) = (true, true);
        let tcp = long.tcp.as_mut().unwrap();
        (tcp.cwnd_packets, tcp.srtt_us) = (99_999_999, 999_999_999);
        let mut lines = vec![header()];
        for flow in [
            flow("unocc", Some(Algorithm::Unocc)),
            flow("gemini", Some(Algorithm::Gemini)),
            flow("cubic", None),
            long,
        ] {
            lines.extend(flow.rows());
        }
        for line in &lines {
            assert!(line.len() <= COLUMNS, "{} {line}", line.len());
        }
        assert!(
            lines
                .last()
                .unwrap()
                .ends_with("[slow start, adapted, marked]")
        );
        let text = lines.join("\n");
        assert!(
            text.contains("unocc       10.9.0.1:40000          10.9.0.2:5001"),
            "{text}"
        );
        assert!(
            text.contains("E 0.2500  MD scale 0.0078  epochs 12345  QA 2  [marked]"),
            "{text}"
        );
        assert!(text.contains("[2001:db8:1111~6]:40000"), "{text}");
    }

    #[test]
    fn json_has_units_and_no_state_of_others() {
        let text = serde_json::to_string(&flow("unocc", Some(Algorithm::Unocc))).unwrap();
        for key in [
            "\"dst\":\"10.9.0.2\"",
            "\"cwnd_packets\":120",
            "\"srtt_us\":1800",
            "\"pacing_bytes_per_s\":null",
            "\"unocc\":{\"profile\":\"linux\"",
            "\"base_rtt_us\":1792",
        ] {
            assert!(text.contains(key), "{key} in {text}");
        }
        assert!(
            !text.contains("gemini") && !text.contains("netns"),
            "{text}"
        );
    }

    #[test]
    fn a_socket_without_a_full_sock_is_shown_too() {
        let mut bare = socket("unocc", None);
        (bare.cc, bare.info) = (None, None);
        bare.state = State::by_name("time-wait").unwrap();
        let flow = Flow::new(&bare, Some("h1"), &PARAMS);
        let rows = flow.rows();
        assert!(
            rows[0].starts_with("-           10.9.0.1:40000"),
            "{rows:?}"
        );
        assert_eq!(rows[1], "  netns h1  state time-wait");
        let text = serde_json::to_string(&flow).unwrap();
        assert!(!text.contains("cwnd"), "{text}");
    }

    #[test]
    fn without_the_modules_parameters_their_numbers_are_missing() {
        let flow = Flow::new(&socket("unocc", Some(Algorithm::Unocc)), None, &PARAMS);
        assert!(flow.rows()[1].contains("profile ?  base RTT 1792 us  E 0.2500  MD scale -"));
    }
}
