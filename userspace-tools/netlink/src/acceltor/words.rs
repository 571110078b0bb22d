// SPDX-License-Identifier: GPL-2.0
//! Options in tc's syntax and units, for `xdc qdisc` and tc's plugin.

use std::net::IpAddr;

use serde_json::{Value, json};

use super::{Options, Peers, Prefix};
use crate::{
    units::{Rate, Time},
    words::{self, Bytes, Named, Switch, Textual, Word, word},
};

pub use crate::words::Mistake;

/// Help text, one line per option.
pub const OPTIONS_HELP: &str = "\
Options (SIZE 500kb with k = 1024, RATE 10gbit, TIME 240us):
  racks N                number of racks
  rack NUMBER            number of this rack, from 0
  prefix CIDR=RACK,...   prefixes of the racks; none = no prefix
  day TIME               duration of a circuit
  night TIME             time between two circuits
  base-time NS           start of day 0 on the clock
  clockid REALTIME|TAI|BOOTTIME|MONOTONIC   clock; cannot be changed later
  peers RACK,...         peer of each day of the week; auto = (rack + 1 + day) mod N
  ocs-rate RATE          rate of a circuit
  eps-rate RATE          rate of the port to the packet network; 0bit = not shaped
  rtt TIME               RTT of the packet network
  k N                    number of queues of the calendar
  hp, lp SIZE            limit for mice, and for accelerated elephants
  limit SIZE             limit of a queue of the calendar
  policy acceltor|blocking|unblocking|packet
  detect sketch|dscp|filter   detection of elephants
  dscp DSCP,...          DSCPs of elephants; none = no DSCP
  elephants N            maximum per pair of racks
  idle TIME              idle time after which an elephant is a mouse; 0ns = 2 weeks
  sketch-bytes SIZE      size from which a flow is an elephant
  overflow drop|lp       drop or accelerate packets for a full queue
  rescue on|off          accelerate elephants that come too early
  guard, lead TIME       unused end of a day; delay to the circuit switch
  ecn SIZE               backlog from which packets are marked; 0b = never";

/// Options in the order of printing.
pub const WORDS: &[Word<Options>] = &[
    word!(Options, "racks", racks, Number),
    word!(Options, "rack", rack, Number),
    word!(Options, "prefix", prefixes, Prefixes),
    word!(Options, "day", day_ns, Time),
    word!(Options, "night", night_ns, Time),
    word!(Options, "base-time", base_time_ns, Number),
    word!(Options, "clockid", clockid, Named),
    word!(Options, "peers", peers, PeersOrAuto),
    word!(Options, "ocs-rate", circuit_bytes_per_s, Rate),
    word!(Options, "eps-rate", packet_bytes_per_s, Rate),
    word!(Options, "rtt", rtt_ns, Time),
    word!(Options, "k", k, Number),
    word!(Options, "hp", high_limit_bytes, Bytes),
    word!(Options, "lp", low_limit_bytes, Bytes),
    word!(Options, "limit", limit_bytes, Bytes),
    word!(Options, "policy", policy, Named),
    word!(Options, "detect", detect, Named),
    word!(Options, "dscp", dscp, Dscps),
    word!(Options, "elephants", elephants, Number),
    word!(Options, "idle", idle_ns, Time),
    word!(Options, "sketch-bytes", sketch_bytes, Bytes),
    word!(Options, "overflow", overflow, Named),
    word!(Options, "rescue", rescue, Switch),
    word!(Options, "guard", guard_ns, Time),
    word!(Options, "lead", lead_ns, Time),
    word!(Options, "ecn", ecn_bytes, Bytes),
];

struct Number;
struct Prefixes;
struct PeersOrAuto;
struct Dscps;

impl Textual<u32> for Number {
    fn read(text: &str) -> Result<u32, String> {
        text.parse().map_err(|_| format!("'{text}' is not a 32-bit number"))
    }
    fn print(value: &u32) -> String {
        value.to_string()
    }
    fn json(value: &u32) -> Value {
        json!(value)
    }
}

impl Textual<i64> for Number {
    fn read(text: &str) -> Result<i64, String> {
        text.parse().map_err(|_| format!("'{text}' is not a number of nanoseconds"))
    }
    fn print(value: &i64) -> String {
        value.to_string()
    }
    fn json(value: &i64) -> Value {
        json!(value)
    }
}

impl Textual<u64> for Time {
    fn read(text: &str) -> Result<u64, String> {
        Ok(text.parse::<Self>()?.0)
    }
    fn print(value: &u64) -> String {
        Self(*value).to_string()
    }
    fn json(value: &u64) -> Value {
        json!(value)
    }
}

/// Text of an empty list.
const NONE: &str = "none";

impl Textual<Vec<Prefix>> for Prefixes {
    fn read(text: &str) -> Result<Vec<Prefix>, String> {
        if text == NONE {
            return Ok(Vec::new());
        }
        let read = |text: &str| {
            let bad = || format!("'{text}' is not CIDR=RACK (example: 10.0.1.0/24=1)");
            let (cidr, rack) = text.split_once('=').ok_or_else(bad)?;
            let (addr, bits) = cidr.split_once('/').ok_or_else(bad)?;
            let addr: IpAddr = addr.parse().map_err(|_| bad())?;
            let bits: u8 = bits.parse().map_err(|_| bad())?;
            if bits > if addr.is_ipv4() { 32 } else { 128 } {
                return Err(bad());
            }
            let rack = rack.parse().map_err(|_| bad())?;
            Ok(Prefix { addr, bits, rack })
        };
        text.split(',').map(read).collect()
    }
    fn print(value: &Vec<Prefix>) -> String {
        list(value, |it| format!("{}/{}={}", it.addr, it.bits, it.rack), NONE)
    }
    fn json(value: &Vec<Prefix>) -> Value {
        let racks = value.iter();
        let racks = racks.map(|it| (format!("{}/{}", it.addr, it.bits), json!(it.rack)));
        Value::Object(racks.collect())
    }
}

/// Text of the default list of peers.
const AUTO: &str = "auto";

impl Textual<Peers> for PeersOrAuto {
    fn read(text: &str) -> Result<Peers, String> {
        if text == AUTO {
            return Ok(Peers::default());
        }
        let bad = |_| format!("'{text}' is not RACK,... (example: 1,2,3)");
        let racks: Result<_, _> = text.split(',').map(str::parse).collect();
        racks.map(Peers).map_err(bad)
    }
    fn print(value: &Peers) -> String {
        list(&value.0, u16::to_string, AUTO)
    }
    fn json(value: &Peers) -> Value {
        json!(Self::print(value))
    }
}

impl Textual<u64> for Dscps {
    fn read(text: &str) -> Result<u64, String> {
        if text == NONE {
            return Ok(0);
        }
        text.split(',').try_fold(0, |bits, dscp| {
            let bit = dscp.parse::<u32>().ok().and_then(|it| 1_u64.checked_shl(it));
            let bit = bit.ok_or_else(|| format!("'{dscp}' is not a DSCP from 0 to 63"))?;
            Ok(bits | bit)
        })
    }
    fn print(value: &u64) -> String {
        let dscps: Vec<_> = (0..u64::BITS).filter(|it| value >> it & 1 != 0).collect();
        list(&dscps, u32::to_string, NONE)
    }
    fn json(value: &u64) -> Value {
        json!(Self::print(value))
    }
}

fn list<T>(items: &[T], print: impl Fn(&T) -> String, none: &str) -> String {
    match items {
        [] => none.to_owned(),
        items => items.iter().map(print).collect::<Vec<_>>().join(","),
    }
}

impl Options {
    /// Reads NAME VALUE NAME VALUE...
    pub fn from_words<S: AsRef<str>>(words: &[S]) -> Result<Self, Mistake> {
        words::read(WORDS, words)
    }

    /// Returns the options that are set as words, in the order of printing.
    pub fn to_words(&self) -> impl Iterator<Item = (&'static str, String)> {
        words::to_words(WORDS, self)
    }

    /// Returns the options that are set as JSON; keys contain the units.
    pub fn to_json(&self) -> impl Iterator<Item = (&'static str, Value)> {
        words::to_json(WORDS, self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acceltor::IDS;

    #[test]
    fn every_attribute_has_a_word() {
        assert_eq!(WORDS.len(), IDS.len());
        for word in WORDS {
            assert!(OPTIONS_HELP.contains(word.name), "{}", word.name);
            assert_eq!(WORDS.iter().filter(|w| w.name == word.name).count(), 1);
        }
        words::check_synopsis(WORDS, include_str!("../../../../docs/man/tc-acceltor.8"));
    }

    const EVERY: &str = "racks 8 rack 3 prefix 10.0.1.0/24=1,fd00:2::/32=2 day 240us night 20us \
        base-time -5 clockid TAI peers 4,5,6,7,0,1,2 ocs-rate 80gbit eps-rate 50gbit rtt 60us k 4 \
        hp 150000b lp 150000b limit 500000b policy blocking detect dscp dscp 8,46 elephants 37 \
        idle 1s sketch-bytes 225000b overflow lp rescue on guard 1us lead 500ns ecn 97500b";

    #[test]
    fn printed_words_parse_back() {
        let words: Vec<_> = EVERY.split_whitespace().collect();
        let options = Options::from_words(&words).unwrap();
        let printed: Vec<_> =
            options.to_words().flat_map(|(name, value)| [name.to_owned(), value]).collect();
        assert_eq!(printed.len(), 2 * WORDS.len());
        assert_eq!(Options::from_words(&printed), Ok(options.clone()));
        assert_eq!(Options::decode(&options.encode()).unwrap(), options);
        assert_eq!(options.to_json().count(), WORDS.len());
        for (name, none) in [("prefix", NONE), ("dscp", NONE), ("peers", AUTO)] {
            let options = Options::from_words(&[name, none]).unwrap();
            assert_eq!(options.to_words().next(), Some((name, none.to_owned())));
        }
    }

    #[test]
    fn each_mistake_has_its_variant() {
        for (name, value) in [
            ("prefix", "10.0.0.0=1"),
            ("prefix", "10.0.0.0/33=1"),
            ("prefix", "10.0.0.0/8"),
            ("peers", "1,two"),
            ("dscp", "64"),
            ("k", "-1"),
            ("base-time", "soon"),
            ("day", "5"),
            ("policy", "none"),
        ] {
            let mistake = Options::from_words(&[name, value]).unwrap_err();
            assert!(matches!(mistake, Mistake::Value(n, v, _) if n == name && v == value));
        }
    }
}
