// SPDX-License-Identifier: GPL-2.0
//! `xdc-witness raw`: encodes options of our qdiscs, valid or not, so that the kernel judges them and not
//! `xdc qdisc`. Exit codes are tc's: 1 for an invalid command line, 2 for a refusal. `raw dump` prints the
//! kernel's answer for an independent decoder.

use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use netlink_packet_core::{DefaultNla, NLA_F_NESTED, Nla as _};
use netlink_packet_route::{RouteNetlinkMessage, tc::TcAttribute};
use nix::net::if_::if_nametoindex;
use xdc_netlink::{
    Connection, Error, Request, acceltor,
    attributes::Attributes,
    phantom,
    qdisc::{self, Handle, Qdisc},
};

/// A qdisc and the numbers of its options.
struct Kind {
    name: &'static str,
    ids: &'static [(&'static str, u16)],
    /// Those of nested attributes.
    nested_ids: &'static [(&'static str, u16)],
}

const KINDS: [Kind; 2] = [
    Kind { name: phantom::KIND, ids: phantom::IDS, nested_ids: &[] },
    Kind { name: acceltor::KIND, ids: acceltor::IDS, nested_ids: acceltor::NESTED_IDS },
];

const TCA_OPTIONS: u16 = 2;

/// Runs the command.
pub fn command(words: &[String]) -> ExitCode {
    let refused = |error: &anyhow::Error| match error.downcast_ref::<Error>() {
        Some(Error::Refused { reason, .. }) => Some(reason.clone()),
        _ => None,
    };
    let done = match words {
        [word] if word == "dump" => dump(),
        words => send(words),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => match refused(&error) {
            Some(reason) => {
                eprintln!("Error: {reason}");
                ExitCode::from(2)
            }
            None => {
                eprintln!("xdc-witness raw: {error:#}");
                ExitCode::FAILURE
            }
        },
    }
}

/// Prints the answer to RTM_GETQDISC for all devices in hexadecimal.
fn dump() -> Result<()> {
    let answer = qdisc::dump_bytes(&mut Connection::open()?)?;
    let digits: String = answer.iter().map(|byte| format!("{byte:02x}")).collect();
    println!("{digits}");
    Ok(())
}

fn send(words: &[String]) -> Result<()> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let [verb, "dev", device, rest @ ..] = words.as_slice() else {
        bail!(
            "usage: raw add|change dev DEV (root | parent MAJ:MIN) KIND [flat] NAME=TYPE:VALUE..."
        );
    };
    let (parent, kind, mut options) = match rest {
        ["root", kind, options @ ..] => (Handle::ROOT, kind, options),
        ["parent", id, kind, options @ ..] => (handle(id)?, kind, options),
        _ => bail!("expected 'root' or 'parent MAJ:MIN', then a kind"),
    };
    let kind = KINDS.iter().find(|known| known.name == *kind);
    let kind = kind.context("kind must be phantom or acceltor")?;
    let is_flat = options.first() == Some(&"flat");
    if is_flat {
        options = &options[1..];
    }
    let qdisc = Qdisc {
        index: if_nametoindex(*device).with_context(|| format!("no device {device}"))?,
        parent,
        handle: Handle::UNSPEC,
        kind: kind.name,
        options: encode(kind, kind.name, options)?,
    };
    let mut request = match *verb {
        "add" => qdisc.add(),
        "change" => qdisc.change(),
        other => bail!("'{other}': must be add or change"),
    };
    if is_flat {
        flatten(&mut request);
    }
    Ok(Connection::open()?.request(request)?)
}

/// Clears the nested flag of TCA_OPTIONS.
fn flatten(request: &mut Request) {
    let RouteNetlinkMessage::NewQueueDiscipline(message) = &mut request.message else {
        return;
    };
    for attribute in &mut message.attributes {
        if let TcAttribute::Other(options) = attribute {
            let mut value = vec![0; options.value_len()];
            options.emit_value(&mut value);
            *options = DefaultNla::new(TCA_OPTIONS, value);
        }
    }
}

fn handle(text: &str) -> Result<Handle> {
    let (major, minor) = text.split_once(':').context("expected MAJ:MIN")?;
    Ok(Handle { major: u16::from_str_radix(major, 16)?, minor: u16::from_str_radix(minor, 16)? })
}

/// Encodes `NAME=TYPE:VALUE` and `NAME=[NAME=...,...]`; `cut=hex:...` is appended unchanged.
fn encode(kind: &Kind, parent: &str, options: &[&str]) -> Result<Vec<u8>> {
    let mut attributes = Attributes::default();
    let mut tail = Vec::new();
    for option in options {
        let (name, value) = option.split_once('=').context("expected NAME=TYPE:VALUE")?;
        let nest = value.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        if let Some(nest) = nest {
            let content = encode(kind, name, &split(nest))?;
            attributes.push(id(kind, parent, name)? | NLA_F_NESTED, &content);
            continue;
        }
        let value = bytes(value).with_context(|| format!("'{option}'"))?;
        if name == "cut" {
            tail = value;
            continue;
        }
        attributes.push(id(kind, parent, name)?, &value);
    }
    Ok([attributes.into_bytes(), tail].concat())
}

/// Splits at the commas outside of brackets.
fn split(nest: &str) -> Vec<&str> {
    let mut depth = 0;
    nest.split(|c: char| {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    })
    .filter(|option| !option.is_empty())
    .collect()
}

/// Number of an attribute, by its name in the qdisc's yaml file or by number.
fn id(kind: &Kind, parent: &str, name: &str) -> Result<u16> {
    if let Ok(id) = name.parse() {
        return Ok(id);
    }
    let (ids, prefix) = match parent == kind.name {
        true => (kind.ids, format!("TCA_{parent}")),
        false => (kind.nested_ids, format!("TCA_{}_{parent}", kind.name)),
    };
    let wanted = format!("{prefix}_{name}").replace('-', "_").to_uppercase();
    ids.iter()
        .find(|(known, _)| *known == wanted)
        .map(|(_, id)| *id)
        .with_context(|| format!("no option '{name}'"))
}

fn bytes(text: &str) -> Result<Vec<u8>> {
    let (width, value) = text.split_once(':').context("expected TYPE:VALUE")?;
    Ok(match width {
        "u8" => value.parse::<u8>()?.to_ne_bytes().to_vec(),
        "u32" => value.parse::<u32>()?.to_ne_bytes().to_vec(),
        "s32" => value.parse::<i32>()?.to_ne_bytes().to_vec(),
        "u64" => value.parse::<u64>()?.to_ne_bytes().to_vec(),
        "str" => [value.as_bytes(), &[0]].concat(),
        // COUNTxBYTE
        "fill" => {
            let (count, byte) = value.split_once('x').context("expected COUNTxBYTE")?;
            vec![byte.parse()?; count.parse()?]
        }
        "hex" => {
            ensure!(value.len() % 2 == 0, "odd number of digits");
            (0..value.len())
                .step_by(2)
                .map(|at| {
                    let digits = value.get(at..at + 2).context("invalid digits")?;
                    Ok(u8::from_str_radix(digits, 16)?)
                })
                .collect::<Result<_>>()?
        }
        other => bail!("unknown type '{other}'"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_encoded_as_netlink_attributes() {
        let [phantom, acceltor] = &KINDS;
        let encode = |kind: &Kind, options: &[&str]| encode(kind, kind.name, options);
        assert_eq!(
            encode(phantom, &["pq-drain-ppm=u32:5", "mark=u8:9", "cut=hex:0c00"]).unwrap(),
            [8, 0, 8, 0, 5, 0, 0, 0, 5, 0, 13, 0, 9, 0, 0, 0, 0x0c, 0]
        );
        assert_eq!(encode(phantom, &["99=fill:2x7"]).unwrap(), [6, 0, 99, 0, 7, 7, 0, 0]);
        assert_eq!(encode(acceltor, &["queues=u32:3"]).unwrap(), [8, 0, 11, 0, 3, 0, 0, 0]);
        assert_eq!(
            encode(acceltor, &["prefixes=[prefix=[len=u32:8,rack=u8:1],2=u8:3]"]).unwrap(),
            [
                32, 0, 26, 0x80, 20, 0, 1, 0x80, 8, 0, 3, 0, 8, 0, 0, 0, 5, 0, 4, 0, 1, 0, 0, 0, 5,
                0, 2, 0, 3, 0, 0, 0
            ]
        );
        assert!(encode(acceltor, &["mark=u8:1"]).is_err());
        assert!(encode(acceltor, &["peers=[len=u32:1]"]).is_err());
        assert!(encode(phantom, &["nonsense=u8:1"]).is_err());
        assert!(encode(phantom, &["mark=u8:256"]).is_err());
        assert!(encode(phantom, &["cut=hex:0g"]).is_err());
    }
}
