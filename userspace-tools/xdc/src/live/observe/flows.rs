// SPDX-License-Identifier: GPL-2.0
//! TCP sockets for display: filter, fields, JSON and rows.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use clap::builder::PossibleValuesParser;
use serde::{Serialize, Serializer};
use serde_json::Value as Json;
use xdc_algo::ALGORITHMS;
use xdc_algo::entry::{Entry, Shown, Value};
use xdc_algo::params::ParamSource;
use xdc_base::error::Result;
use xdc_netlink::diag::{Query, State, TcpSocket};

use super::params::Params;
use super::tlt::{Connections, Tlt};
use super::{View, refused, rounded, short};

/// Socket filter.
#[derive(clap::Args, Default)]
pub struct Filter {
    /// Local address, or a prefix.
    #[arg(long, value_name = "ADDR[/LEN]")]
    src: Option<Prefix>,
    /// Peer address, or a prefix.
    #[arg(long, value_name = "ADDR[/LEN]")]
    dst: Option<Prefix>,
    /// Local port.
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    sport: Option<u16>,
    /// Peer port.
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    dport: Option<u16>,
    /// Congestion controls, by kernel name.
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    cc: Vec<String>,
    /// TCP states, as in ss, or `all` [default: established].
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

    /// Conditions that the kernel's filter lacks.
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

/// Address prefix.
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
        let address: IpAddr =
            address.parse().map_err(|_| format!("'{address}' is not an IP address"))?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => most,
            Some(bits) => bits
                .parse()
                .ok()
                .filter(|bits| *bits <= most)
                .ok_or_else(|| format!("'{bits}' is not a prefix length from 0 to {most}"))?,
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

/// One socket; field names are keys of `xdc ss --json`.
#[derive(Debug, Clone, Serialize)]
pub struct Flow {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    pub state: String,
    pub src: IpAddr,
    pub sport: u16,
    pub dst: IpAddr,
    pub dport: u16,
    /// The kernel's socket id.
    pub cookie: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cc: Option<String>,
    #[serde(flatten)]
    pub tcp: Option<Tcp>,
    #[serde(flatten)]
    pub own: Option<Own>,
    /// TLT state, for a connection that uses it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tlt: Option<Tlt>,
}

/// Fields of every TCP socket.
#[derive(Debug, Clone, Serialize)]
pub struct Tcp {
    pub ca_state: &'static str,
    pub mss_bytes: u32,
    pub cwnd_packets: u32,
    /// None in initial slow start.
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

/// State of one of our algorithms: its [`State`] and fields common to all. In JSON an object with its name.
#[derive(Debug, Clone)]
pub struct Own {
    algorithm: &'static Entry,
    /// The namespace's profile, and whether a parameter deviates from it; None for algorithms without
    /// profiles, Some(None) if the parameters are unknown.
    profile: Option<Option<(&'static str, bool)>>,
    /// Values in the entry's order.
    values: Vec<Option<Value>>,
    slow_start: bool,
    ce_state: bool,
}

/// Sockets of a namespace that match `filter`.
pub fn sample(view: &mut View, filter: &Filter) -> Result<Vec<Flow>> {
    let params = view.params();
    let tlt = view.tlt();
    let found = view.diag.sockets(&filter.query()).map_err(refused)?;
    Ok(found
        .iter()
        .filter(|socket| filter.wants(socket))
        .map(|socket| Flow::new(socket, view.name.as_deref(), &params, &tlt))
        .collect())
}

impl Flow {
    fn new(socket: &TcpSocket, netns: Option<&str>, params: &Params, tlt: &Connections) -> Self {
        let of_tlt = tlt.get(socket.local, socket.peer).cloned();
        let tcp = socket.info.map(Tcp::of);
        let slow_start = tcp.as_ref().is_some_and(|tcp| {
            tcp.ssthresh_packets.is_none_or(|packets| tcp.cwnd_packets < packets)
        });
        Self {
            netns: netns.map(str::to_owned),
            state: socket.state.to_string(),
            src: socket.local.ip(),
            sport: socket.local.port(),
            dst: socket.peer.ip(),
            dport: socket.peer.port(),
            cookie: socket.cookie,
            cc: socket.cc.clone(),
            own: Own::new(socket, slow_start, tcp.as_ref(), params),
            tlt: of_tlt,
            tcp,
        }
    }

    pub fn local(&self) -> String {
        SocketAddr::new(self.src, self.sport).to_string()
    }

    pub fn peer(&self) -> String {
        SocketAddr::new(self.dst, self.dport).to_string()
    }

    /// Marked share of all packets delivered so far, %.
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
            ca_state: CA_STATES.get(usize::from(info.ca_state)).copied().unwrap_or("unknown"),
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

impl Own {
    fn new(
        socket: &TcpSocket,
        slow_start: bool,
        tcp: Option<&Tcp>,
        params: &Params,
    ) -> Option<Self> {
        let xdc = socket.xdc.as_ref()?;
        let cc = socket.cc.as_deref();
        // Variants share a number.
        let numbered = || ALGORITHMS.iter().filter(|one| one.number == xdc.algorithm);
        let mut named = numbered().filter(|one| Some(one.name()) == cc);
        let algorithm = *named.next().or_else(|| numbered().next())?;
        let params = params.get(algorithm);
        let known = |value: fn(&Tcp) -> u32| tcp.map(value).filter(|value| *value != 0);
        let shown = Shown {
            marked_fraction: xdc.fraction,
            period_marked: xdc.period_marked,
            periods: xdc.periods,
            count: xdc.quick_adapts,
            base_rtt_us: xdc.base_rtt_us,
            flags: xdc.flags as u8,
            srtt_us: known(|tcp| tcp.srtt_us),
            mss_bytes: known(|tcp| tcp.mss_bytes),
            params: params.map(|params| params as &dyn ParamSource),
        };
        let profile = params.map(|params| {
            let is_modified = params.is_modified(algorithm);
            (params.profile_name(algorithm), is_modified)
        });
        let states = algorithm.state.iter();
        Some(Self {
            algorithm,
            profile: algorithm.has_profiles().then_some(profile),
            values: states.map(|state| (state.value)(&shown)).collect(),
            slow_start,
            ce_state: xdc.ce_state(),
        })
    }

    /// Text form, as words that are not wrapped.
    fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        let mut flags: Vec<_> =
            Some("slow start").filter(|_| self.slow_start).into_iter().collect();
        if let Some(profile) = self.profile {
            let (name, is_modified) = profile.unwrap_or(("?", false));
            words.push(format!("profile {name}{}", if is_modified { "*" } else { "" }));
        }
        for (state, value) in self.algorithm.state.iter().zip(&self.values) {
            let number = match value {
                _ if state.label.is_empty() => continue,
                Some(Value::Flag(is_so)) => {
                    flags.extend(Some(state.label).filter(|_| *is_so));
                    continue;
                }
                Some(Value::Count(count)) => count.to_string(),
                Some(Value::Ratio { part, of }) => format!("{:.4}", ratio(*part, *of)),
                None => "-".to_owned(),
            };
            let word = format!("{} {number} {}", state.label, state.unit);
            words.push(word.trim_end().to_owned());
        }
        if !flags.is_empty() {
            words.push(format!("[{}]", flags.join(", ")));
        }
        words
    }
}

impl Serialize for Own {
    fn serialize<S: Serializer>(&self, out: S) -> std::result::Result<S::Ok, S::Error> {
        let profile = self.profile.map(|profile| {
            let pairs = [
                ("profile", profile.map(|(name, _)| name.into())),
                ("profile_modified", profile.map(|(_, is_modified)| is_modified.into())),
            ];
            pairs.map(|(key, value)| (key, value.unwrap_or(Json::Null)))
        });
        let states = self.algorithm.state.iter().zip(&self.values);
        let states = states.map(|(state, value)| (state.key, value.map_or(Json::Null, json)));
        let common = [("slow_start", self.slow_start.into()), ("ce_state", self.ce_state.into())];
        let all = profile.into_iter().flatten().chain(states).chain(common);
        out.collect_map([(self.algorithm.name(), InOrder(all.collect()))])
    }
}

/// JSON object in key order.
struct InOrder(Vec<(&'static str, Json)>);

impl Serialize for InOrder {
    fn serialize<S: Serializer>(&self, out: S) -> std::result::Result<S::Ok, S::Error> {
        out.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

fn json(value: Value) -> Json {
    match value {
        Value::Count(count) => count.into(),
        Value::Ratio { part, of } => ratio(part, of).into(),
        Value::Flag(is_so) => is_so.into(),
    }
}

fn ratio(part: u64, of: u64) -> f64 {
    rounded(part as f64 / of as f64)
}

/// Address clipped to a column: drops its middle, never its port.
fn clipped(text: &str, width: usize) -> String {
    const TAIL: usize = 8;
    if text.len() <= width {
        return text.to_owned();
    }
    // Addresses are ASCII.
    format!("{}~{}", &text[..width - 1 - TAIL], &text[text.len() - TAIL..])
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
    /// One line of columns, followed by optional fields.
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

    /// Optional fields.
    pub fn words(&self) -> Vec<String> {
        let netns = self.netns.as_ref().map(|name| format!("netns {name}"));
        let state = Some(format!("state {}", self.state));
        let mut words: Vec<_> = netns.into_iter().collect();
        words.extend(state.filter(|_| self.state != "established"));
        words.extend(self.own.iter().flat_map(Own::words));
        words.extend(self.tlt.as_ref().map(Tlt::words));
        words
    }
}

#[cfg(test)]
pub mod tests;
