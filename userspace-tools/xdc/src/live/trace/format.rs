// SPDX-License-Identifier: GPL-2.0
//! Event formats from tracefs: offsets of fields and names of values. Only the kernel module
//! defines an event.

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use serde_json::Value;
use xdc_base::error::{Error, Result};

use super::record::{COMMON_BYTES, EVENT_BYTES};

/// Possible mount points of tracefs.
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Maximum number of fields. Our events have fewer; more from a guest would make long lines.
const MAX_FIELDS: usize = 64;

/// An event's format from its `format` file.
#[derive(Debug)]
pub struct Format {
    /// Event id in the ring buffer.
    pub id: u32,
    fields: Vec<Field>,
}

#[derive(Debug)]
struct Field {
    name: String,
    offset: usize,
    bytes: usize,
    kind: Kind,
    /// Names of values.
    names: Vec<(u64, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Unsigned,
    Signed,
    Pointer,
    /// NUL-terminated, unless it fills its array.
    Text,
    /// A struct sockaddr_in or sockaddr_in6.
    Address,
    /// A qdisc's handle: two halves, in tc's notation.
    Handle,
}

/// Tracefs folder of our events.
pub fn folder() -> Result<PathBuf> {
    let tracefs = TRACEFS.iter().map(Path::new).find(|dir| dir.join("events").is_dir());
    match tracefs {
        Some(dir) => Ok(dir.join("events/xdc")),
        None if in_uml() => {
            Err(Error::failure("the kernel of --engine uml has no tracepoints")
                .hint("--engine qemu"))
        }
        None => Err(Error::failure(
            "no tracefs: it is not mounted or not readable, or the kernel has no tracepoints",
        )
        .hint("as root: mount -t tracefs none /sys/kernel/tracing")),
    }
}

fn in_uml() -> bool {
    fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| text.contains("User Mode Linux"))
}

/// Reads the format of `event`.
pub fn read(event: &str) -> Result<Format> {
    let path = folder()?.join(event).join("format");
    let text = fs::read_to_string(&path).map_err(|err| {
        let module = match event.split_once('_') {
            Some(("phantom", _)) => "sch_phantom".to_owned(),
            Some((module @ ("tlt" | "unorc"), _)) => module.to_owned(),
            Some((cc, _)) => format!("tcp_{cc}"),
            None => event.to_owned(),
        };
        Error::io(path.display(), &err).or_hint(&format!("as root: modprobe {module}"))
    })?;
    Format::parse(&text).map_err(|why| Error::failure(format!("{}: {why}", path.display())))
}

impl Format {
    /// Parses a `format` file.
    pub fn parse(text: &str) -> std::result::Result<Self, String> {
        let id = text.lines().find_map(|line| line.strip_prefix("ID:"));
        let id = id.and_then(|id| id.trim().parse().ok());
        let id = id.ok_or("has no ID")?;
        let mut fields = Vec::new();
        for line in text.lines() {
            let Some(line) = line.trim().strip_prefix("field:") else {
                continue;
            };
            let field = Field::parse(line).ok_or_else(|| format!("cannot read '{line}'"))?;
            if field.name.starts_with("common_") {
                continue;
            }
            let end = field.offset.saturating_add(field.bytes);
            if field.offset < COMMON_BYTES || end > EVENT_BYTES {
                return Err(format!(
                    "{} lies beyond the {EVENT_BYTES} bytes that xdc reads: the modules are newer than xdc",
                    field.name
                ));
            }
            fields.push(field);
        }
        if fields.is_empty() || fields.len() > MAX_FIELDS {
            return Err(format!("describes {} fields", fields.len()));
        }
        let print = text.lines().find(|line| line.starts_with("print fmt:"));
        for field in &mut fields {
            field.names = names(print.unwrap_or_default(), &field.name);
        }
        Ok(Self { id, fields })
    }

    /// Names and values of the event's fields, in order.
    pub fn decode(&self, event: &[u8]) -> impl Iterator<Item = (&str, Value)> {
        let fields = self.fields.iter();
        fields.map(|field| (field.name.as_str(), field.decode(event)))
    }
}

impl Field {
    /// Parses "__u32 ifindex; offset:32; size:4; signed:0;".
    fn parse(line: &str) -> Option<Self> {
        let mut parts = line.split(';').map(str::trim);
        let declaration = parts.next()?;
        let mut number = |what: &str| parts.next()?.strip_prefix(what)?.parse::<usize>().ok();
        let offset = number("offset:")?;
        let bytes = number("size:")?;
        let signed = number("signed:")? != 0;

        let (scalar, is_array) = match declaration.split_once('[') {
            Some((scalar, _)) => (scalar, true),
            None => (declaration, false),
        };
        let (kind, name) = scalar.trim().rsplit_once([' ', '*'])?;
        let kind = match (is_array, kind.trim()) {
            (true, "char") => Kind::Text,
            (true, _) if name.ends_with("addr") => Kind::Address,
            (true, _) => return None,
            (false, _) if declaration.contains('*') => Kind::Pointer,
            (false, _) if matches!(name, "handle" | "parent") => Kind::Handle,
            (false, _) if signed => Kind::Signed,
            (false, _) => Kind::Unsigned,
        };
        let is_known = is_array || matches!(bytes, 1 | 2 | 4 | 8);
        is_known.then(|| Self { name: name.to_owned(), offset, bytes, kind, names: Vec::new() })
    }

    fn decode(&self, event: &[u8]) -> Value {
        let Some(bytes) = event.get(self.offset..self.offset + self.bytes) else {
            return Value::Null;
        };
        match self.kind {
            Kind::Text => {
                let text = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
                String::from_utf8_lossy(text).into()
            }
            Kind::Address => address(bytes).into(),
            Kind::Pointer => format!("{:#x}", unsigned(bytes)).into(),
            Kind::Handle => handle(unsigned(bytes)).into(),
            Kind::Signed => {
                let unused = 64 - 8 * self.bytes as u32;
                ((unsigned(bytes) << unused) as i64 >> unused).into()
            }
            Kind::Unsigned => {
                let value = unsigned(bytes);
                let name = self.names.iter().find(|(number, _)| *number == value);
                name.map_or(value.into(), |(_, name)| name.as_str().into())
            }
        }
    }
}

/// Integer in native byte order, as the kernel writes it.
fn unsigned(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    if cfg!(target_endian = "little") {
        word[..bytes.len()].copy_from_slice(bytes);
    } else {
        word[8 - bytes.len()..].copy_from_slice(bytes);
    }
    u64::from_ne_bytes(word)
}

/// Address in a struct sockaddr_in or sockaddr_in6; the port is a separate field.
fn address(sockaddr: &[u8]) -> String {
    const INET: u64 = 2;
    const INET6: u64 = 10;
    let at = |from: usize| sockaddr.get(from..).unwrap_or_default();
    match sockaddr.get(..2).map(unsigned) {
        Some(INET) => at(4).first_chunk().map(|&bytes: &[u8; 4]| Ipv4Addr::from(bytes).to_string()),
        Some(INET6) => {
            at(8).first_chunk().map(|&bytes: &[u8; 16]| Ipv6Addr::from(bytes).to_string())
        }
        _ => None,
    }
    .unwrap_or_default()
}

fn handle(number: u64) -> String {
    match (number >> 16, number & 0xffff) {
        (0xffff, 0xffff) => "root".to_owned(),
        (major, 0) => format!("{major:x}:"),
        (major, minor) => format!("{major:x}:{minor:x}"),
    }
}

/// Parses pairs of `__print_symbolic(REC->FIELD, { 0, "none" }, ...)`.
fn names(print: &str, field: &str) -> Vec<(u64, String)> {
    let start = format!("__print_symbolic(REC->{field},");
    let Some((_, rest)) = print.split_once(&start) else {
        return Vec::new();
    };
    let pairs = rest.split_once(')').map_or(rest, |(pairs, _)| pairs);
    pairs
        .split('{')
        .filter_map(|pair| {
            let (number, name) = pair.split_once('}')?.0.split_once(',')?;
            Some((number.trim().parse().ok()?, name.trim().trim_matches('"').to_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: &str = "name: phantom_mark
ID: 1234
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:const void * skbaddr;\toffset:8;\tsize:8;\tsigned:0;
\tfield:char dev[16];\toffset:16;\tsize:16;\tsigned:0;
\tfield:__u8 saddr[sizeof(struct sockaddr_in6)];\toffset:32;\tsize:28;\tsigned:0;
\tfield:__u32 handle;\toffset:60;\tsize:4;\tsigned:0;
\tfield:int change;\toffset:64;\tsize:4;\tsigned:1;
\tfield:__u8 cause;\toffset:68;\tsize:1;\tsigned:0;

print fmt: \"cause=%s\", __print_symbolic(REC->cause, { 0, \"phantom\" }, { 1, \"physical\" })
";

    fn event() -> Vec<u8> {
        let mut event = vec![0; EVENT_BYTES];
        event[8..16].copy_from_slice(&0xffff_8880_0000_1000_u64.to_ne_bytes());
        event[16..20].copy_from_slice(b"eth2");
        event[32..34].copy_from_slice(&2_u16.to_ne_bytes());
        event[36..40].copy_from_slice(&[10, 1, 0, 2]);
        event[60..64].copy_from_slice(&0x8001_0000_u32.to_ne_bytes());
        event[64..68].copy_from_slice(&(-3_i32).to_ne_bytes());
        event[68] = 1;
        event
    }

    #[test]
    fn an_event_is_decoded_by_its_format() {
        let format = Format::parse(FORMAT).unwrap();
        let decoded: Vec<_> = format.decode(&event()).collect();
        assert_eq!(
            decoded,
            [
                ("skbaddr", "0xffff888000001000".into()),
                ("dev", "eth2".into()),
                ("saddr", "10.1.0.2".into()),
                ("handle", "8001:".into()),
                ("change", (-3).into()),
                ("cause", "physical".into()),
            ]
        );
    }

    #[test]
    fn a_number_without_a_name_stays_a_number() {
        let mut event = event();
        event[68] = 7;
        let format = Format::parse(FORMAT).unwrap();
        let cause = |event| format.decode(event).last().unwrap().1;
        assert_eq!(cause(&event), 7);
        // A truncated event has no values.
        assert_eq!(cause(&event[..20]), Value::Null);
    }

    #[test]
    fn malformed_formats_are_refused() {
        for (from, to, why) in [
            ("size:1;", "size:3;", "cannot read"),
            ("offset:68;", "offset:160;", "newer than xdc"),
            ("offset:68;", "offset:x;", "cannot read"),
            ("offset:68;", "offset:18446744073709551615;", "newer than xdc"),
        ] {
            let error = Format::parse(&FORMAT.replace(from, to)).err().unwrap();
            assert!(error.contains(why), "{error}");
        }
        assert!(Format::parse("").is_err());
        let line = FORMAT.lines().find(|line| line.contains("skbaddr"));
        let many = vec![line.unwrap(); MAX_FIELDS + 1].join("\n");
        assert!(Format::parse(&format!("ID: 1\n{many}")).is_err());
    }

    #[test]
    fn addresses_of_both_families_are_decoded() {
        let mut sockaddr = [0; 28];
        sockaddr[..2].copy_from_slice(&10_u16.to_ne_bytes());
        sockaddr[8] = 0xfd;
        sockaddr[23] = 1;
        assert_eq!(address(&sockaddr), "fd00::1");
        assert_eq!(address(&[0; 28]), "");
        // Lengths from a damaged format.
        for bytes in 0..8 {
            assert_eq!(address(&sockaddr[..bytes]), "");
        }
        assert_eq!(handle(0xffff_ffff), "root");
        assert_eq!(handle(0x1_0002), "1:2");
    }
}
