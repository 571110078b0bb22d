// SPDX-License-Identifier: GPL-2.0
//! Options of a link of kind unorc, as words and as netlink attributes (modules/include/uapi/linux/unorc.h), for ip's
//! plugin and for devices that xdc creates.

pub mod peers;

use std::net::IpAddr;
use xdc_algo::{
    gf256::{MAX_DATA, MAX_PARITY},
    paths::{Freeze, Kind},
    unorc::{Config, Count, MAX_CHANNELS, MAX_WINDOW, MIN_WINDOW},
};

/// Kind of the link.
pub const KIND: &str = "unorc";

/// Usage text of `ip link`.
pub const USAGE: &str = "\
Usage: ip link add NAME type unorc local ADDR [ remote ADDR ] [ port PORT ]
                   [ fec { DATA+PARITY | off } ] [ paths CHOOSER ] [ freeze { loss | timeout | off } ]
                   [ timer { USEC | auto } ] [ flush USEC ] [ channels N ] [ window PACKETS ]
                   [ fwmark MARK ] [ tos { TOS | inherit } ] [ ttl { TTL | auto } ] [ df { set | unset } ]
CHOOSER := { ecmp | rps | ops | plb | unolb | reps | reps-paper | bitmap }
";

const FREEZES: [&str; 3] = ["loss", "timeout", "off"];
const DFS: [&str; 2] = ["unset", "set"];
/// `UNORC_TOS_INHERIT`.
const TOS_INHERIT: u8 = 1;

/// Attribute ids.
#[derive(Clone, Copy)]
enum Attribute {
    Local = 1,
    Remote,
    Port,
    Data,
    Parity,
    Paths,
    Freeze,
    Timer,
    Flush,
    Channels,
    Window,
    Fwmark,
    Tos,
    Ttl,
    Df,
    Local6,
    Remote6,
}

/// Highest attribute id.
pub const MAX_ATTRIBUTE: i32 = Attribute::Remote6 as i32;

/// Options; None = the kernel's choice.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Options {
    local: Option<IpAddr>,
    remote: Option<IpAddr>,
    port: Option<u16>,
    fec: Option<(u8, u8)>,
    paths: Option<u8>,
    freeze: Option<u8>,
    timer_us: Option<u32>,
    flush_us: Option<u32>,
    channels: Option<u8>,
    window: Option<u16>,
    fwmark: Option<u32>,
    tos: Option<u8>,
    ttl: Option<u8>,
    df: Option<u8>,
}

fn number<T: std::str::FromStr>(name: &str, word: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("{name}: invalid value \"{word}\""))
}

/// Parses a mark or a TOS as ip shows them: hexadecimal after `0x`.
fn hex<T: TryFrom<u32>>(name: &str, word: &str) -> Result<T, String> {
    let number = match word.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    };
    number
        .and_then(|number| T::try_from(number).ok())
        .ok_or_else(|| format!("{name}: invalid value \"{word}\""))
}

/// Parses a number, or a word that stands for one.
fn or_word<T>(
    word: &str,
    special: (&str, T),
    parse: impl FnOnce() -> Result<T, String>,
) -> Result<T, String> {
    if word == special.0 {
        return Ok(special.1);
    }
    parse()
}

fn one_of<'a>(
    name: &str,
    word: &str,
    mut names: impl Iterator<Item = &'a str>,
) -> Result<u8, String> {
    match names.position(|name| name == word) {
        Some(at) => Ok(at as u8),
        None => Err(format!("{name}: unknown value \"{word}\"")),
    }
}

fn code(word: &str) -> Result<(u8, u8), String> {
    if word == "off" {
        return Ok((1, 0));
    }
    let (data, parity) = word
        .split_once('+')
        .ok_or_else(|| format!("fec: \"{word}\" is neither DATA+PARITY nor off"))?;
    Ok((number("fec", data)?, number("fec", parity)?))
}

impl Options {
    /// Sets both addresses and the port.
    pub fn between(self, local: impl Into<IpAddr>, remote: impl Into<IpAddr>, port: u16) -> Self {
        Self { local: Some(local.into()), remote: Some(remote.into()), port: Some(port), ..self }
    }

    /// Parses the words of a command line.
    pub fn parse(words: &[&str]) -> Result<Self, String> {
        let mut options = Options::default();
        let mut words = words.iter().copied();
        while let Some(name) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{name}: the value is missing"));
            let is_new = match name {
                "local" => options.local.replace(number(name, value()?)?).is_none(),
                "remote" => options.remote.replace(number(name, value()?)?).is_none(),
                "port" => options.port.replace(number(name, value()?)?).is_none(),
                "fec" => options.fec.replace(code(value()?)?).is_none(),
                "paths" => {
                    let kinds = Kind::ALL.iter().map(|kind| kind.name());
                    options.paths.replace(one_of(name, value()?, kinds)?).is_none()
                }
                "freeze" => {
                    let freezes = FREEZES.iter().copied();
                    options.freeze.replace(one_of(name, value()?, freezes)?).is_none()
                }
                "timer" => {
                    let us = match value()? {
                        "auto" => 0,
                        word => number(name, word)?,
                    };
                    options.timer_us.replace(us).is_none()
                }
                "flush" => options.flush_us.replace(number(name, value()?)?).is_none(),
                "channels" => options.channels.replace(number(name, value()?)?).is_none(),
                "window" => options.window.replace(number(name, value()?)?).is_none(),
                "fwmark" => options.fwmark.replace(hex(name, value()?)?).is_none(),
                "tos" => {
                    let word = value()?;
                    let tos = or_word(word, ("inherit", TOS_INHERIT), || hex(name, word))?;
                    options.tos.replace(tos).is_none()
                }
                "ttl" => {
                    let word = value()?;
                    let ttl = or_word(word, ("auto", 0), || number(name, word))?;
                    options.ttl.replace(ttl).is_none()
                }
                "df" => {
                    let dfs = DFS.iter().copied();
                    options.df.replace(one_of(name, value()?, dfs)?).is_none()
                }
                _ => return Err(format!("unknown option \"{name}\"")),
            };
            if !is_new {
                return Err(format!("{name}: given twice"));
            }
        }
        Ok(options)
    }

    /// Refuses values that the kernel refuses, by the kernel's rules. Missing options are valid.
    pub fn check(&self) -> Result<(), String> {
        let (x, y) = self.fec.unwrap_or((8, 2));
        let config = Config {
            x,
            y,
            timer_us: 0,
            flush_us: 0,
            paths: Kind::Ecmp,
            freeze: Freeze::Loss,
            mtu: 0,
            channels: self.channels.map_or(1, u8::next_power_of_two),
            window: self.window.unwrap_or(MIN_WINDOW),
        };
        if !config.is_sound() {
            let (x, y) = (MAX_DATA, MAX_PARITY);
            return Err(format!(
                "fec: must be 1 to {x} data packets and 1 to {y} parities, or off"
            ));
        }
        if config.channels > MAX_CHANNELS {
            return Err(format!("channels: must be at most {MAX_CHANNELS}"));
        }
        if !config.has_sound_channels() {
            return Err(format!(
                "window: must be a power of two from {MIN_WINDOW} to {MAX_WINDOW}"
            ));
        }
        Ok(())
    }

    /// Estimates the memory of a device that is up, without packets, from its array sizes: 2 MB with the
    /// defaults.
    pub fn memory_bytes(&self) -> u64 {
        const DEVICE_BYTES: u64 = 64 << 10;
        let packets =
            u64::from(self.channels.unwrap_or(8)) * u64::from(self.window.unwrap_or(8192));
        let packet_bytes = if self.fec == Some((1, 0)) { 40 } else { 32 };
        DEVICE_BYTES + packets * packet_bytes
    }

    /// Encodes the options as attribute ids and bytes.
    pub fn attributes(&self) -> Vec<(u16, Vec<u8>)> {
        let mut all = Vec::new();
        let mut put = |attribute: Attribute, bytes: Option<Vec<u8>>| {
            all.extend(bytes.map(|bytes| (attribute as u16, bytes)));
        };
        for (ip, v4, v6) in [
            (self.local, Attribute::Local, Attribute::Local6),
            (self.remote, Attribute::Remote, Attribute::Remote6),
        ] {
            match ip {
                Some(IpAddr::V4(ip)) => put(v4, Some(ip.octets().to_vec())),
                Some(IpAddr::V6(ip)) => put(v6, Some(ip.octets().to_vec())),
                None => {}
            }
        }
        put(Attribute::Port, self.port.map(|port| port.to_be_bytes().to_vec()));
        put(Attribute::Data, self.fec.map(|(data, _)| vec![data]));
        put(Attribute::Parity, self.fec.map(|(_, parity)| vec![parity]));
        put(Attribute::Paths, self.paths.map(|paths| vec![paths]));
        put(Attribute::Freeze, self.freeze.map(|freeze| vec![freeze]));
        let us = |us: Option<u32>| us.map(|us| us.to_ne_bytes().to_vec());
        put(Attribute::Timer, us(self.timer_us));
        put(Attribute::Flush, us(self.flush_us));
        put(Attribute::Channels, self.channels.map(|channels| vec![channels]));
        put(Attribute::Window, self.window.map(|window| window.to_ne_bytes().to_vec()));
        put(Attribute::Fwmark, self.fwmark.map(|mark| mark.to_ne_bytes().to_vec()));
        put(Attribute::Tos, self.tos.map(|tos| vec![tos]));
        put(Attribute::Ttl, self.ttl.map(|ttl| vec![ttl]));
        put(Attribute::Df, self.df.map(|df| vec![df]));
        all
    }

    /// Decodes the kernel's attributes; `attribute` returns the bytes of an id.
    pub fn read<'a>(attribute: impl Fn(usize) -> Option<&'a [u8]>) -> Self {
        let get = |number: Attribute| attribute(number as usize);
        let byte = |number| get(number)?.first().copied();
        let v4 = |number| Some(IpAddr::from(<[u8; 4]>::try_from(get(number)?).ok()?));
        let v6 = |number| Some(IpAddr::from(<[u8; 16]>::try_from(get(number)?).ok()?));
        let word = |number| Some(u32::from_ne_bytes(get(number)?.try_into().ok()?));
        Options {
            local: v4(Attribute::Local).or_else(|| v6(Attribute::Local6)),
            remote: v4(Attribute::Remote).or_else(|| v6(Attribute::Remote6)),
            port: get(Attribute::Port)
                .and_then(|port| Some(u16::from_be_bytes(port.try_into().ok()?))),
            fec: byte(Attribute::Data).zip(byte(Attribute::Parity)),
            paths: byte(Attribute::Paths),
            freeze: byte(Attribute::Freeze),
            timer_us: word(Attribute::Timer),
            flush_us: word(Attribute::Flush),
            channels: byte(Attribute::Channels),
            window: get(Attribute::Window)
                .and_then(|window| Some(u16::from_ne_bytes(window.try_into().ok()?))),
            fwmark: word(Attribute::Fwmark),
            tos: byte(Attribute::Tos),
            ttl: byte(Attribute::Ttl),
            df: byte(Attribute::Df),
        }
    }

    /// Returns names and values in the form that [`Options::parse`] accepts.
    pub fn words(&self) -> Vec<(&'static str, String)> {
        let mut all = Vec::new();
        let mut put = |name, word: Option<String>| all.extend(word.map(|word| (name, word)));
        put("local", self.local.map(|ip| ip.to_string()));
        put("remote", self.remote.map(|ip| ip.to_string()));
        put("port", self.port.map(|port| port.to_string()));
        let code = |(data, parity)| match (data, parity) {
            (1, 0) => "off".to_owned(),
            _ => format!("{data}+{parity}"),
        };
        put("fec", self.fec.map(code));
        let paths = self.paths.and_then(Kind::of);
        put("paths", paths.map(|paths| paths.name().to_owned()));
        let freeze = self.freeze.filter(|&freeze| Freeze::of(freeze).is_some());
        put(
            "freeze",
            freeze
                .and_then(|freeze| FREEZES.get(usize::from(freeze)).map(|word| (*word).to_owned())),
        );
        let timer = |us| match us {
            0 => "auto".to_owned(),
            us => us.to_string(),
        };
        put("timer", self.timer_us.map(timer));
        put("flush", self.flush_us.map(|us| us.to_string()));
        put("channels", self.channels.map(|n| n.to_string()));
        put("window", self.window.map(|n| n.to_string()));
        put("fwmark", self.fwmark.map(|mark| format!("{mark:#x}")));
        let tos = |tos| match tos {
            TOS_INHERIT => "inherit".to_owned(),
            _ => format!("{tos:#x}"),
        };
        put("tos", self.tos.map(tos));
        let ttl = |ttl: u8| match ttl {
            0 => "auto".to_owned(),
            _ => ttl.to_string(),
        };
        put("ttl", self.ttl.map(ttl));
        let df = self.df.and_then(|df| DFS.get(usize::from(df)));
        put("df", df.map(|word| (*word).to_owned()));
        all
    }
}

/// Returns a device's counters by name; `xstats` is `struct unorc_xstats`, or an older version of it.
pub fn counters(xstats: &[u8]) -> impl Iterator<Item = (&'static str, u64)> {
    let (values, _) = xstats.as_chunks();
    let values = values.iter().map(|&value| u64::from_ne_bytes(value));
    let names = Count::NAMES.iter().filter_map(|name| name.to_str().ok());
    names.zip(values)
}

#[cfg(test)]
mod tests {
    use saphyr::{LoadableYamlNode as _, Yaml};

    use super::*;
    use crate::tests::{members_of, of, text};

    #[test]
    fn shown_options_parse_back() {
        for kind in Kind::ALL {
            for (freeze, fec) in FREEZES.iter().zip(["8+2", "off", "28+3"]) {
                let (local, remote) = match fec {
                    "off" => ("fd00::1", "fd00::2"),
                    _ => ("10.0.0.1", "10.0.0.2"),
                };
                let line = format!(
                    "local {local} remote {remote} port 5000 fec {fec} paths {} freeze {freeze} timer auto flush 50 channels 8 window 8192 \
                     fwmark 0x7 tos 0x10 ttl 9 df unset",
                    kind.name()
                );
                let words: Vec<_> = line.split(' ').collect();
                let options = Options::parse(&words).unwrap();
                let attributes = options.attributes();
                let read = Options::read(|number| {
                    let found = attributes.iter().find(|(other, _)| usize::from(*other) == number);
                    found.map(|(_, bytes)| &bytes[..])
                });
                assert_eq!(read, options);
                let shown = read.words().into_iter().map(|(name, word)| format!("{name} {word}"));
                assert_eq!(shown.collect::<Vec<_>>().join(" "), line);
            }
        }
    }

    #[test]
    fn remote_is_optional() {
        for local in ["10.0.0.1", "fd00::1"] {
            let options = Options::parse(&["local", local]).unwrap();
            assert_eq!(options.attributes().len(), 1);
            assert_eq!(options.words(), [("local", local.to_owned())]);
        }
    }

    #[test]
    fn malformed_options_are_refused() {
        for line in [
            "local",
            "local 1",
            "port x",
            "fec 8",
            "fec 8+x",
            "paths y",
            "freeze no",
            "what 1",
            "port 1 port 2",
            "timer -1",
            "tos 256",
            "ttl 256",
            "fwmark 0xg",
            "df 1",
        ] {
            let words: Vec<_> = line.split(' ').collect();
            assert!(Options::parse(&words).is_err(), "{line}");
        }
        assert_eq!(Options::parse(&[]), Ok(Options::default()));
    }

    #[test]
    fn check_refuses_what_the_kernel_refuses() {
        let check = |line: &str| {
            let words: Vec<_> = line.split_whitespace().collect();
            Options::parse(&words).unwrap().check()
        };
        for line in ["", "fec off", "fec 28+3", "channels 3", "window 64"] {
            assert_eq!(check(line), Ok(()), "{line}");
        }
        for line in ["fec 0+2", "fec 29+1", "fec 8+4", "fec 8+0", "channels 9", "window 100"] {
            assert!(check(line).is_err(), "{line}");
        }
    }

    #[test]
    fn counters_match_the_header() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../modules/include/uapi/linux/unorc.h");
        let header = std::fs::read_to_string(path).unwrap();
        let names = header.lines().filter_map(|line| {
            let name = line.trim().strip_prefix("__u64 ")?;
            Some(name.strip_suffix(';')?.to_owned())
        });
        let bytes: Vec<u8> =
            (0..Count::NAMES.len() as u64 + 1).flat_map(u64::to_ne_bytes).collect();
        assert!(names.eq(counters(&bytes).map(|(name, _)| name.to_owned())));
        assert_eq!(counters(&bytes).nth(3), Some(("tx_feedback", 3)));
        assert_eq!(counters(&bytes[..20]).count(), 2);
    }

    #[test]
    fn the_ynl_specification_matches_the_options() {
        const SPECIFICATION: &str =
            include_str!("../../../modules/Documentation/netlink/specs/unorc.yaml");
        const HEADER: &str = include_str!("../../../modules/include/uapi/linux/unorc.h");
        let documents = Yaml::load_from_str(SPECIFICATION).unwrap();
        let specification = &documents[0];
        let sets = &specification["attribute-sets"];
        let attributes = of(sets, "unorc-attrs", "attributes");
        let names = attributes.iter().map(|described| {
            let name = text(described, "name").unwrap().to_uppercase();
            format!("IFLA_UNORC_{}", name.replace('-', "_"))
        });
        let header = members_of(HEADER, "enum {");
        assert!(names.eq(header[1..=MAX_ATTRIBUTE as usize].iter().copied()));
        // The specified lengths match the encoded ones.
        let words = "local 10.0.0.1 remote 10.0.0.2 port 1 fec 8+2 paths ops freeze off \
                     timer 1 flush 1 channels 8 window 64 fwmark 1 tos 4 ttl 1 df set";
        let words: Vec<_> = words.split_whitespace().collect();
        let mut written = Options::parse(&words).unwrap().attributes();
        let ipv6 = ["local", "fd00::1", "remote", "fd00::2"];
        written.extend(Options::parse(&ipv6).unwrap().attributes());
        assert_eq!(written.len(), attributes.len());
        for (described, (_, bytes)) in attributes.iter().zip(&written) {
            let bits = match text(described, "type").unwrap().strip_prefix('u') {
                Some(bits) => bits.parse().unwrap(),
                None => 8 * described["checks"]["exact-len"].as_integer().unwrap(),
            };
            assert_eq!(bits, 8 * bytes.len() as i64, "{described:?}");
        }
        let definitions = &specification["definitions"];
        let entries = |name: &str| {
            let entries = of(definitions, name, "entries").into_iter();
            entries.filter_map(|e| Some(e.as_str()?.to_owned())).collect::<Vec<_>>()
        };
        assert_eq!(entries("unorc-paths"), Kind::ALL.map(Kind::name));
        assert_eq!(entries("unorc-freeze"), FREEZES);
        assert_eq!(entries("unorc-df"), DFS);
        let fields = of(definitions, "unorc-xstats", "members");
        let fields = fields.into_iter().map(|field| {
            assert_eq!(text(field, "type"), Some("u64"));
            text(field, "name").unwrap().replace('-', "_")
        });
        let names = Count::NAMES.iter().map(|name| name.to_str().unwrap());
        assert!(fields.eq(names));
    }

    #[test]
    fn attributes_match_the_header() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../modules/include/uapi/linux/unorc.h");
        let header = std::fs::read_to_string(path).unwrap();
        let names = header.lines().filter_map(|line| {
            let name = line.trim().strip_prefix("IFLA_UNORC_")?;
            Some(name.split(',').next()?.to_owned())
        });
        let wanted = [
            "UNSPEC", "LOCAL", "REMOTE", "PORT", "DATA", "PARITY", "PATHS", "FREEZE", "TIMER",
            "FLUSH", "CHANNELS", "WINDOW", "FWMARK", "TOS", "TTL", "DF", "LOCAL6", "REMOTE6",
        ];
        assert!(names.eq(wanted.map(str::to_owned)));
        assert_eq!(MAX_ATTRIBUTE as usize, wanted.len() - 1);
    }
}
