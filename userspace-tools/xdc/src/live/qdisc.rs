// SPDX-License-Identifier: GPL-2.0
//! `xdc qdisc`: controls sch_phantom without a tc plugin, in tc's syntax and units.

use std::fmt::Write as _;
use std::sync::LazyLock;

use rustix::net::{AddressFamily, SocketType, netdevice, socket};
use serde_json::{Map, Value, json};
use xdc_base::error::{Error, Result};
use xdc_base::text::printable;
use xdc_netlink::phantom::{self, Options, Xstats};
use xdc_netlink::qdisc::{self, Handle, Qdisc, QdiscState};
use xdc_netlink::{Connection, Request};

/// --help text of `add`, `change` and `replace`.
pub static HELP: LazyLock<String> = LazyLock::new(|| {
    format!(
        "\
Syntax:
  dev DEV (root | parent MAJ:MIN) [handle MAJ:] phantom OPTION...

{}
A missing option has the module's default, or keeps its value; 'xdc qdisc show' prints every value.

Example:
  xdc qdisc add dev eth1 root phantom limit 1mb rate 10gbit phantom 22400kb drain 0.9 pmin 2% pmax 60%",
        Options::help()
    )
});

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Add,
    Change,
    Replace,
}

/// Position of a qdisc.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    device: String,
    parent: Handle,
    handle: Handle,
}

pub fn attach(verb: Verb, args: &[String]) -> Result<()> {
    let (place, options) = parse(args)?;
    let index = index_of(&place.device)?;
    if verb == Verb::Change {
        refuse_other_kind(index, &place)?;
    }
    let qdisc = Qdisc {
        index,
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

/// Refuses a `change` of another kind, which the kernel treats as a `replace`.
fn refuse_other_kind(index: u32, place: &Place) -> Result<()> {
    let found = Connection::open()
        .and_then(|mut connection| qdisc::dump(&mut connection, index))
        .map_err(refused)?;
    // A device's default qdiscs have no handle.
    let mut other = found.iter().filter(|state| {
        state.parent == place.parent && state.handle.major != 0 && state.kind != phantom::KIND
    });
    match other.next() {
        None => Ok(()),
        Some(state) => Err(Error::failure(format!(
            "the qdisc at this place is a {}, not a phantom",
            state.kind
        ))
        .hint("xdc qdisc show for its place, or xdc qdisc replace")),
    }
}

pub fn delete(args: &[String]) -> Result<()> {
    let (place, rest) = parse_place(args)?;
    // tc accepts a kind here, too.
    match rest {
        [] => {}
        [kind] if kind == phantom::KIND => {}
        [word, ..] => return Err(unexpected(word)),
    }
    send(qdisc::delete(index_of(&place.device)?, place.parent))
}

/// Print the phantom qdiscs of one device or all.
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
            println!("{}", printable(&line(&device, state, &options)));
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
        return Err(syntax("the qdisc is missing: 'phantom'"));
    };
    if kind != phantom::KIND {
        return Err(syntax(&format!("the qdisc must be 'phantom', not '{kind}'")));
    }
    let options = Options::from_words(words).map_err(|mistake| syntax(&mistake.to_string()))?;
    Ok((place, options))
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
                    device: device.ok_or_else(|| syntax("the device is missing"))?,
                    parent: parent.ok_or_else(|| syntax("'root' or 'parent' is missing"))?,
                    handle,
                };
                return Ok((place, rest));
            }
        }
    }
}

pub fn parse_handle(text: &str) -> Result<Handle> {
    let bad = || syntax(&format!("'{text}' is not a handle (example: 1:10)"));
    let (major, minor) = text.split_once(':').ok_or_else(bad)?;
    let number = |text: &str| match text {
        "" => Ok(0),
        text => u16::from_str_radix(text, 16).map_err(|_| bad()),
    };
    Ok(Handle { major: number(major)?, minor: number(minor)? })
}

fn syntax(why: &str) -> Error {
    Error::usage(why).hint("xdc qdisc add --help")
}

fn unexpected(word: &str) -> Error {
    syntax(&format!("unknown word '{word}'"))
}

fn send(request: Request) -> Result<()> {
    Connection::open().and_then(|mut connection| connection.request(request)).map_err(refused)
}

pub(super) fn refused(err: xdc_netlink::Error) -> Error {
    const EPERM: i32 = 1;
    const ENOENT: i32 = 2;
    const EEXIST: i32 = 17;
    let failure = Error::failure(err.to_string());
    match err {
        xdc_netlink::Error::Refused { errno: EPERM, .. } => failure.hint("as root"),
        xdc_netlink::Error::Refused { errno: ENOENT, .. } => {
            failure.hint("modprobe sch_phantom, or xdc qdisc show for the present qdiscs")
        }
        xdc_netlink::Error::Refused { errno: EEXIST, .. } => failure.hint("xdc qdisc replace"),
        _ => failure,
    }
}

pub(super) fn index_of(device: &str) -> Result<u32> {
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

/// All effective values; the text after the parent is valid input.
fn line(device: &str, state: &QdiscState, options: &Options) -> String {
    let parent = match state.parent {
        Handle::ROOT => "root".to_owned(),
        parent => format!("parent {:x}:{:x}", parent.major, parent.minor),
    };
    let mut line = format!("qdisc phantom {:x}: dev {device} {parent}", state.handle.major);
    for (name, value) in options.to_words() {
        // Writing to a String cannot fail.
        let _ = write!(line, " {name} {value}");
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
    let options: Map<_, _> =
        options.to_json().map(|(key, value)| (key.to_owned(), value)).collect();
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
    use xdc_netlink::phantom::{ColorSource, Mark, MarkAt};

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    const FULL: &str = "dev eth1 root phantom limit 1mb rate 10gbit phantom 22400kb drain 0.9 \
                        pmin 2% pmax 60% mark either at enqueue min 25% max 75% red-limit 400kb \
                        yellow-limit 600kb red-dscp 8 yellow-dscp 10";

    #[test]
    fn the_example_of_the_manual_is_parsed() {
        let (place, options) = parse(&words(FULL)).unwrap();
        assert_eq!(place.device, "eth1");
        assert_eq!(place.parent, Handle::ROOT);
        assert_eq!(options.limit_bytes, Some(1 << 20));
        assert_eq!(options.rate_bytes_per_s, Some(1_250_000_000));
        assert_eq!(options.drain_ppm, Some(900_000));
        assert_eq!(options.mark, Some(Mark::Either));
        assert_eq!(options.mark_at, Some(MarkAt::Enqueue));
        assert_eq!(options.color_source, Some(ColorSource::Dscp));
        assert_eq!(options.dscp_red.unwrap() & 1 << 8, 1 << 8);
        assert_eq!(options.pool, None);
    }

    #[test]
    fn shown_qdiscs_parse_back() {
        let (_, mut options) = parse(&words(FULL)).unwrap();
        options.overhead_bytes = Some(-14);
        options.pool = Some(String::new());
        options.pool_alpha_ppm = Some(1_500_000);
        options.ecn_drop = Some(false);
        let state = QdiscState { parent: Handle::ROOT, ..Default::default() };
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
    fn malformed_commands_are_refused() {
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
            "dev e root phantom red-dscp 64",
            "dev e root phantom yellow-dscp pink",
            "dev e parent x phantom",
        ] {
            assert!(parse(&words(bad)).is_err(), "{bad}");
        }
    }
}
