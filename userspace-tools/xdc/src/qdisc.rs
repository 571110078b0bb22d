// SPDX-License-Identifier: GPL-2.0
//! `xdc qdisc`: sch_phantom without a tc plugin, in tc's words and units.

use std::fmt::Write as _;
use std::str::FromStr;

use rustix::net::{AddressFamily, SocketType, netdevice, socket};
use serde_json::{Map, Value, json};
use xdc_netlink::phantom::{self, Color, ColorSource, DscpColors, Options, Xstats};
use xdc_netlink::qdisc::{self, Handle, Qdisc, QdiscState};
use xdc_netlink::{Connection, Request};

use crate::error::{Error, Result};
use crate::units::{Fraction, PPM, Rate, Size};

/// What `add`, `change` and `replace` explain under --help.
pub const OPTIONS_HELP: &str = "\
Syntax:
  dev DEV (root | parent MAJ:MIN) [handle MAJ:] phantom OPTION...

Options (SIZE 22400kb with k = 1024, RATE 10gbit, FRACTION 2% or 0.02):
  limit SIZE             physical queue
  rate RATE              shape to this; 0bit = do not
  overhead BYTES         added to each packet by the shaper
  mpu BYTES              the shaper counts no packet for less
  line-rate RATE         what the phantom queue drains relative to; 0bit = rate or the device's
  phantom SIZE           cap of the phantom queue
  drain FRACTION         of the line rate
  pmin, pmax FRACTION    RED on the phantom queue, of its cap
  min, max FRACTION      RED on the backlog, of the limit
  mark none|phantom|physical|either|both
  at enqueue|dequeue     when to mark
  ecn-drop on|off        drop a chosen packet that is Not-ECT
  count-acks on|off      pure ACKs enter the phantom queue too
  red-limit SIZE         room for red packets; 0b = no limit of their own
  yellow-limit SIZE      the same for yellow
  color-total on|off     colour limits count the whole backlog
  color none|dscp|priority|filter
  dscp-color DSCP:COLOR,...   green, yellow or red
  gso auto|split|whole
  pool NAME              shared buffer of this namespace
  pool-limit SIZE        its size
  pool-alpha FACTOR      this port may hold FACTOR x what is free
What is not given has the module's default, or stays as it is; 'xdc qdisc show' prints every value.

Example:
  xdc qdisc add dev eth1 root phantom limit 1mb rate 10gbit phantom 22400kb drain 0.9 pmin 2% pmax 60%";

/// A word of the syntax: how its value is read into the options, printed, and put into JSON.
struct Word {
    name: &'static str,
    set: fn(&mut Options, &str) -> std::result::Result<(), String>,
    get: fn(&Options) -> Option<String>,
    json: fn(&Options) -> Option<(&'static str, Value)>,
}

/// A field of the options as it is on the wire, and as a person reads and writes it.
macro_rules! word {
    ($name:literal, $field:ident, $($text:tt)+) => {
        Word {
            name: $name,
            set: |options, text| {
                options.$field = Some(<$($text)+ as Textual<_>>::read(text)?);
                Ok(())
            },
            get: |options| Some(<$($text)+ as Textual<_>>::print(options.$field.as_ref()?)),
            json: |options| Some((
                stringify!($field),
                <$($text)+ as Textual<_>>::json(options.$field.as_ref()?),
            )),
        }
    };
}

/// In the order of printing.
const WORDS: &[Word] = &[
    word!("limit", limit_bytes, Bytes),
    word!("rate", rate_bytes_per_s, Rate),
    word!("overhead", overhead_bytes, Plain),
    word!("mpu", mpu_bytes, Plain),
    word!("line-rate", line_rate_bytes_per_s, Rate),
    word!("phantom", phantom_limit_bytes, Bytes),
    word!("drain", drain_ppm, Fraction),
    word!("pmin", pmin_ppm, Fraction),
    word!("pmax", pmax_ppm, Fraction),
    word!("mark", mark, Named),
    word!("at", mark_at, Named),
    word!("min", min_ppm, Fraction),
    word!("max", max_ppm, Fraction),
    word!("ecn-drop", ecn_drop, Switch),
    word!("count-acks", count_acks, Switch),
    word!("red-limit", red_limit_bytes, Bytes),
    word!("yellow-limit", yellow_limit_bytes, Bytes),
    word!("color-total", color_total, Switch),
    word!("color", color_source, Named),
    word!("dscp-color", dscp_color, Colors),
    word!("gso", gso, Named),
    word!("pool", pool, Name),
    word!("pool-limit", pool_limit_bytes, Bytes),
    word!("pool-alpha", pool_alpha_ppm, Factor),
];

/// How a wire value of type `T` is written.
trait Textual<T> {
    fn read(text: &str) -> std::result::Result<T, String>;
    fn print(value: &T) -> String;
    fn json(value: &T) -> Value;
}

struct Bytes;
struct Plain;
struct Named;
struct Switch;
struct Colors;
struct Name;
struct Factor;

impl Textual<u64> for Bytes {
    fn read(text: &str) -> std::result::Result<u64, String> {
        Ok(text.parse::<Size>()?.0)
    }
    fn print(value: &u64) -> String {
        Size(*value).to_string()
    }
    fn json(value: &u64) -> Value {
        json!(value)
    }
}

/// The kernel counts bytes per second, tc bits.
impl Textual<u64> for Rate {
    fn read(text: &str) -> std::result::Result<u64, String> {
        Ok(text.parse::<Rate>()?.0 / 8)
    }
    fn print(value: &u64) -> String {
        Rate(value.saturating_mul(8)).to_string()
    }
    fn json(value: &u64) -> Value {
        json!(value)
    }
}

impl Textual<u32> for Fraction {
    fn read(text: &str) -> std::result::Result<u32, String> {
        Ok(text.parse::<Fraction>()?.0)
    }
    fn print(value: &u32) -> String {
        Fraction(*value).to_string()
    }
    fn json(value: &u32) -> Value {
        json!(value)
    }
}

impl Textual<u32> for Factor {
    fn read(text: &str) -> std::result::Result<u32, String> {
        let bad = || format!("'{text}' is not a factor (example: 0.5)");
        let ppm = text.parse::<f64>().map_err(|_| bad())? * f64::from(PPM);
        if (0.0..=f64::from(u32::MAX)).contains(&ppm) {
            Ok(ppm.round() as u32)
        } else {
            Err(bad())
        }
    }
    fn print(value: &u32) -> String {
        (f64::from(*value) / f64::from(PPM)).to_string()
    }
    fn json(value: &u32) -> Value {
        json!(value)
    }
}

impl<T: FromStr + ToString + Copy + Into<i64>> Textual<T> for Plain {
    fn read(text: &str) -> std::result::Result<T, String> {
        text.parse()
            .map_err(|_| format!("'{text}' is not a number of bytes"))
    }
    fn print(value: &T) -> String {
        value.to_string()
    }
    fn json(value: &T) -> Value {
        json!(Into::<i64>::into(*value))
    }
}

impl<T: FromStr<Err = String> + ToString> Textual<T> for Named {
    fn read(text: &str) -> std::result::Result<T, String> {
        text.parse()
    }
    fn print(value: &T) -> String {
        value.to_string()
    }
    fn json(value: &T) -> Value {
        json!(value.to_string())
    }
}

impl Textual<bool> for Switch {
    fn read(text: &str) -> std::result::Result<bool, String> {
        match text {
            "on" => Ok(true),
            "off" => Ok(false),
            _ => Err(format!("'{text}' is neither on nor off")),
        }
    }
    fn print(value: &bool) -> String {
        if *value { "on" } else { "off" }.to_owned()
    }
    fn json(value: &bool) -> Value {
        json!(value)
    }
}

/// `none` is how no pool is written, so no pool can have that name.
impl Textual<String> for Name {
    fn read(text: &str) -> std::result::Result<String, String> {
        Ok(match text {
            "none" => String::new(),
            name => name.to_owned(),
        })
    }
    fn print(value: &String) -> String {
        if value.is_empty() { "none" } else { value }.to_owned()
    }
    fn json(value: &String) -> Value {
        json!(value)
    }
}

/// Those that are not green; `0:green` if all are.
impl Textual<DscpColors> for Colors {
    fn read(text: &str) -> std::result::Result<DscpColors, String> {
        let mut colors = [Color::Green; 64];
        for pair in text.split(',') {
            let bad = || format!("'{pair}' is not DSCP:COLOR (example: 8:red)");
            let (dscp, color) = pair.split_once(':').ok_or_else(bad)?;
            let place = dscp
                .parse::<usize>()
                .ok()
                .and_then(|dscp| colors.get_mut(dscp))
                .ok_or_else(|| format!("'{dscp}' is not a DSCP from 0 to 63"))?;
            *place = color.parse()?;
        }
        Ok(DscpColors(colors))
    }
    fn print(value: &DscpColors) -> String {
        let pairs: Vec<_> = value
            .0
            .iter()
            .enumerate()
            .filter(|(_, color)| **color != Color::Green)
            .map(|(dscp, color)| format!("{dscp}:{color}"))
            .collect();
        if pairs.is_empty() {
            "0:green".to_owned()
        } else {
            pairs.join(",")
        }
    }
    fn json(value: &DscpColors) -> Value {
        let colors = value.0.iter().enumerate();
        colors
            .filter(|(_, color)| **color != Color::Green)
            .map(|(dscp, color)| (dscp.to_string(), json!(color.to_string())))
            .collect::<Map<_, _>>()
            .into()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Add,
    Change,
    Replace,
}

/// Where a qdisc is.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    device: String,
    parent: Handle,
    handle: Handle,
}

pub fn attach(verb: Verb, args: &[String]) -> Result<()> {
    let (place, options) = parse(args)?;
    let qdisc = Qdisc {
        index: index_of(&place.device)?,
        parent: place.parent,
        handle: place.handle,
        kind: phantom::KIND,
        options: options.encode(),
    };
    send(match verb {
        Verb::Add => qdisc.add(),
        Verb::Change => qdisc.change(),
        Verb::Replace => qdisc.replace(),
    })
}

pub fn delete(args: &[String]) -> Result<()> {
    let (place, rest) = parse_place(args)?;
    // tc takes a kind here too.
    match rest {
        [] => {}
        [kind] if kind == phantom::KIND => {}
        [word, ..] => return Err(unexpected(word)),
    }
    send(qdisc::delete(index_of(&place.device)?, place.parent))
}

/// Print the phantom qdiscs of a device, or of all.
pub fn show(args: &[String], statistics: bool, json: bool) -> Result<()> {
    let device = match args {
        [] => None,
        [dev, name] if dev == "dev" => Some(name),
        [word, ..] => return Err(unexpected(word)),
    };
    let index = device.map_or(Ok(0), |name| index_of(name))?;
    let found = Connection::open()
        .and_then(|mut connection| qdisc::dump(&mut connection, index))
        .map_err(refused)?;
    let mut rows = Vec::new();
    for state in found.iter().filter(|state| state.kind == phantom::KIND) {
        let options = Options::decode(&state.options).map_err(refused)?;
        let device = match device {
            Some(name) => name.clone(),
            None => name_of(state.index)?,
        };
        if json {
            rows.push(as_json(&device, state, &options));
        } else {
            println!("{}", line(&device, state, &options));
            if statistics {
                print!("{}", statistics_text(state));
            }
        }
    }
    if json {
        println!("{:#}", Value::Array(rows));
    }
    Ok(())
}

fn parse(args: &[String]) -> Result<(Place, Options)> {
    let (place, rest) = parse_place(args)?;
    let Some((kind, words)) = rest.split_first() else {
        return Err(syntax("no qdisc is named: 'phantom' is missing"));
    };
    if kind != phantom::KIND {
        return Err(syntax(&format!("'{kind}' is not 'phantom'")));
    }
    Ok((place, parse_options(words)?))
}

fn parse_place(args: &[String]) -> Result<(Place, &[String])> {
    let mut device = None;
    let mut parent = None;
    let mut handle = Handle::UNSPEC;
    let mut rest = args;
    loop {
        rest = match rest {
            [dev, name, rest @ ..] if dev == "dev" => {
                device = Some(name.clone());
                rest
            }
            [root, rest @ ..] if root == "root" => {
                parent = Some(Handle::ROOT);
                rest
            }
            [word, id, rest @ ..] if word == "parent" => {
                parent = Some(parse_handle(id)?);
                rest
            }
            [word, id, rest @ ..] if word == "handle" => {
                handle = parse_handle(id)?;
                rest
            }
            rest => {
                let place = Place {
                    device: device.ok_or_else(|| syntax("no device is named"))?,
                    parent: parent.ok_or_else(|| syntax("neither 'root' nor 'parent' is given"))?,
                    handle,
                };
                return Ok((place, rest));
            }
        }
    }
}

fn parse_options(words: &[String]) -> Result<Options> {
    let mut options = Options::default();
    let mut rest = words;
    while let [name, tail @ ..] = rest {
        let word = WORDS
            .iter()
            .find(|word| word.name == name)
            .ok_or_else(|| unexpected(name))?;
        let [value, tail @ ..] = tail else {
            return Err(syntax(&format!("'{name}' has no value")));
        };
        (word.set)(&mut options, value).map_err(|why| syntax(&format!("{name}: {why}")))?;
        rest = tail;
    }
    // A table that nobody looks into would be a trap.
    if options.dscp_color.is_some() && options.color_source.is_none() {
        options.color_source = Some(ColorSource::Dscp);
    }
    Ok(options)
}

pub fn parse_handle(text: &str) -> Result<Handle> {
    let bad = || syntax(&format!("'{text}' is no handle (example: 1:10)"));
    let (major, minor) = text.split_once(':').ok_or_else(bad)?;
    let number = |text: &str| match text {
        "" => Ok(0),
        text => u16::from_str_radix(text, 16).map_err(|_| bad()),
    };
    Ok(Handle {
        major: number(major)?,
        minor: number(minor)?,
    })
}

fn syntax(why: &str) -> Error {
    Error::usage(why).hint("xdc qdisc add --help")
}

fn unexpected(word: &str) -> Error {
    syntax(&format!("what is '{word}'?"))
}

fn send(request: Request) -> Result<()> {
    Connection::open()
        .and_then(|mut connection| connection.request(request))
        .map_err(refused)
}

fn refused(err: xdc_netlink::Error) -> Error {
    const EPERM: i32 = 1;
    const ENOENT: i32 = 2;
    const EEXIST: i32 = 17;
    let failure = Error::failure(err.to_string());
    match err {
        xdc_netlink::Error::Refused { errno: EPERM, .. } => failure.hint("as root"),
        xdc_netlink::Error::Refused { errno: ENOENT, .. } => {
            failure.hint("modprobe sch_phantom, or xdc qdisc show for what is there")
        }
        xdc_netlink::Error::Refused { errno: EEXIST, .. } => failure.hint("xdc qdisc replace"),
        _ => failure,
    }
}

fn index_of(device: &str) -> Result<u32> {
    any_socket()
        .and_then(|fd| netdevice::name_to_index(fd, device))
        .map_err(|_| Error::failure(format!("there is no device '{device}'")).hint("ip link"))
}

fn name_of(index: u32) -> Result<String> {
    any_socket()
        .and_then(|fd| netdevice::index_to_name(fd, index))
        .map_err(|err| Error::io(format!("name of device {index}"), &err.into()))
}

fn any_socket() -> rustix::io::Result<std::os::fd::OwnedFd> {
    socket(AddressFamily::INET, SocketType::DGRAM, None)
}

/// Every effective value; what follows the parent can be typed back.
fn line(device: &str, state: &QdiscState, options: &Options) -> String {
    let parent = match state.parent {
        Handle::ROOT => "root".to_owned(),
        parent => format!("parent {:x}:{:x}", parent.major, parent.minor),
    };
    let mut line = format!(
        "qdisc phantom {:x}: dev {device} {parent}",
        state.handle.major
    );
    for word in WORDS {
        if let Some(value) = (word.get)(options) {
            // Writing to a String cannot fail.
            let _ = write!(line, " {} {value}", word.name);
        }
    }
    line
}

fn statistics_text(state: &QdiscState) -> String {
    let mut text = format!(
        " Sent {} bytes {} pkt (dropped {}, overlimits {}, requeues {})\n backlog {}b {}p\n",
        state.sent_bytes,
        state.sent_packets,
        state.drops,
        state.overlimits,
        state.requeues,
        state.backlog_bytes,
        state.backlog_packets
    );
    if let Some(xstats) = Xstats::of(state) {
        for (name, value) in Xstats::FIELDS.iter().zip(xstats.values()) {
            let _ = writeln!(text, " {name} {value}");
        }
    }
    text
}

fn as_json(device: &str, state: &QdiscState, options: &Options) -> Value {
    let options: Map<_, _> = WORDS
        .iter()
        .filter_map(|word| (word.json)(options))
        .map(|(key, value)| (key.to_owned(), value))
        .collect();
    let xstats: Map<_, _> = Xstats::of(state)
        .into_iter()
        .flat_map(|xstats| xstats.values().collect::<Vec<_>>())
        .zip(Xstats::FIELDS)
        .map(|(value, name)| ((*name).to_owned(), json!(value)))
        .collect();
    json!({
        "kind": state.kind,
        "handle": format!("{:x}:", state.handle.major),
        "dev": device,
        "root": state.parent == Handle::ROOT,
        "parent": format!("{:x}:{:x}", state.parent.major, state.parent.minor),
        "options": options,
        "bytes": state.sent_bytes,
        "packets": state.sent_packets,
        "drops": state.drops,
        "overlimits": state.overlimits,
        "requeues": state.requeues,
        "backlog": state.backlog_bytes,
        "qlen": state.backlog_packets,
        "xstats": xstats,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use xdc_netlink::phantom::{Mark, MarkAt};

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    const FULL: &str = "dev eth1 root phantom limit 1mb rate 10gbit phantom 22400kb drain 0.9 \
                        pmin 2% pmax 60% mark either at enqueue min 25% max 75% red-limit 400kb \
                        yellow-limit 600kb dscp-color 8:red,10:yellow";

    #[test]
    fn the_manuals_example_is_understood() {
        let (place, options) = parse(&words(FULL)).unwrap();
        assert_eq!(place.device, "eth1");
        assert_eq!(place.parent, Handle::ROOT);
        assert_eq!(options.limit_bytes, Some(1 << 20));
        assert_eq!(options.rate_bytes_per_s, Some(1_250_000_000));
        assert_eq!(options.drain_ppm, Some(900_000));
        assert_eq!(options.mark, Some(Mark::Either));
        assert_eq!(options.mark_at, Some(MarkAt::Enqueue));
        assert_eq!(options.color_source, Some(ColorSource::Dscp));
        assert_eq!(options.dscp_color.unwrap().0[8], Color::Red);
        assert_eq!(options.pool, None);
    }

    #[test]
    fn what_is_shown_can_be_typed_back() {
        let (_, mut options) = parse(&words(FULL)).unwrap();
        options.overhead_bytes = Some(-14);
        options.pool = Some(String::new());
        options.pool_alpha_ppm = Some(1_500_000);
        options.ecn_drop = Some(false);
        let state = QdiscState {
            parent: Handle::ROOT,
            ..Default::default()
        };
        let shown = line("eth1", &state, &options);
        let typed = shown.strip_prefix("qdisc phantom 0: ").unwrap();
        let typed = typed.replace("root ", "root phantom ");
        assert_eq!(parse(&words(&typed)).unwrap().1, options);
    }

    #[test]
    fn parents_are_hexadecimal() {
        let (place, _) = parse_place(&words("dev e parent 1:1f handle 8001:")).unwrap();
        assert_eq!((place.parent.minor, place.handle.major), (0x1f, 0x8001));
    }

    #[test]
    fn mistakes_are_refused() {
        for bad in [
            "root phantom",
            "dev e phantom",
            "dev e root fifo",
            "dev e root",
            "dev e root phantom limit",
            "dev e root phantom limit big",
            "dev e root phantom speed 1gbit",
            "dev e root phantom mark sometimes",
            "dev e root phantom drain 1.5",
            "dev e root phantom dscp-color 64:red",
            "dev e root phantom dscp-color 8:pink",
            "dev e parent x phantom",
        ] {
            assert!(parse(&words(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn every_option_is_in_the_help() {
        for word in WORDS {
            assert!(OPTIONS_HELP.contains(word.name), "{}", word.name);
        }
    }
}
