// SPDX-License-Identifier: GPL-2.0
//! `xdc unorc`: peers of a tunnel, and their keys.

use std::fs::File;
use std::io::Read;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::rand::{GetRandomFlags, getrandom};
use serde_json::{Value, json};
use xdc_base::error::{Error, Result};
use xdc_netlink::unorc::KIND;
use xdc_netlink::unorc::peers::{Change, Key, Peer, Peers, Range};
use xdc_netlink::{Connection, link};

/// Digits of a key.
const DIGITS: usize = 2 * size_of::<Key>();

/// Mode bits of a file that the group or others can read.
const READABLE: u32 = 0o044;

/// Advice for a missing or wrong file.
const NEW_KEY: &str = "(umask 077; xdc unorc key >FILE) for a new key";

#[derive(clap::Args)]
pub struct Place {
    /// Device of kind unorc.
    device: String,
    /// Outer address of the peer.
    remote: IpAddr,
}

#[derive(clap::Args)]
pub struct Add {
    #[command(flatten)]
    place: Place,
    /// Inner addresses of the peer; taken from other peers of the device.
    #[arg(long, value_name = "RANGE,...", value_delimiter = ',', required = true)]
    allowed: Vec<Range>,
    /// File with the key of both ends: 32 hex digits.
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
}

#[derive(clap::Args)]
pub struct Set {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    values: Values,
}

#[derive(clap::Args)]
#[group(required = true, multiple = true)]
struct Values {
    /// New inner addresses of the peer; taken from other peers of the device.
    #[arg(long, value_name = "RANGE,...", value_delimiter = ',')]
    allowed: Vec<Range>,
    /// File with the key of both ends: 32 hex digits. `none` removes the key.
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
}

#[derive(clap::Args)]
pub struct Show {
    /// Device of kind unorc.
    device: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Adds a peer; refuses an address that has one.
pub fn add(request: Add) -> Result<bool> {
    let Add { place, allowed, key } = request;
    set(&place, key.as_deref(), allowed, true)
}

/// Changes a peer.
pub fn change(request: Set) -> Result<bool> {
    let Values { allowed, key } = request.values;
    set(&request.place, key.as_deref(), allowed, false)
}

fn set(place: &Place, key: Option<&Path>, allowed: Vec<Range>, is_new: bool) -> Result<bool> {
    let key = key.map(read_key).transpose()?;
    let Place { device, remote } = place;
    let mut peers = open(device)?;
    let all = peers.list().map_err(refused)?;
    match (is_new, all.iter().any(|peer| peer.remote == *remote)) {
        (true, true) => {
            return Err(Error::failure(format!("{device} has the peer {remote} already"))
                .hint(format!("xdc unorc peer set {device} {remote}")));
        }
        (false, false) => {
            return Err(Error::failure(format!("{device} has no peer {remote}"))
                .hint(format!("xdc unorc peer add {device} {remote} --allowed RANGE")));
        }
        _ => {}
    }
    let change = Change { key, allowed };
    peers.set(*remote, &change).map_err(refused)?;
    Ok(true)
}

/// Removes a peer.
pub fn delete(place: &Place) -> Result<bool> {
    let mut peers = open(&place.device)?;
    peers.delete(place.remote).map_err(refused)?;
    Ok(true)
}

/// Prints the peers of a device.
pub fn show(request: &Show) -> Result<bool> {
    let peers = open(&request.device)?.list().map_err(refused)?;
    if request.json {
        println!("{:#}", to_json(&peers));
    } else {
        print!("{}", table(&peers));
    }
    Ok(true)
}

/// Prints a new key.
pub fn new_key() -> Result<bool> {
    let mut key = Key::default();
    // The kernel returns this many bytes at once.
    getrandom(&mut key[..], GetRandomFlags::empty())
        .map_err(|err| Error::io("cannot get random bytes", &err.into()))?;
    println!("{:0DIGITS$x}", u128::from_be_bytes(key));
    Ok(true)
}

/// Opens the peers of a device. Asks for the module first, because no device has the kind without it.
fn open(device: &str) -> Result<Peers> {
    const ENOENT: i32 = 2;
    let found = Connection::open()
        .and_then(|mut connection| link::dump(&mut connection))
        .map_err(refused)?;
    let found = found.into_iter().find(|it| it.name == device);
    let index = found.as_ref().map_or(0, |it| it.index);
    let peers = Peers::open(index).map_err(|err| match err {
        xdc_netlink::Error::Refused { errno: ENOENT, .. } => {
            Error::failure("the kernel has no peers of tunnels: its module unorc is not loaded")
                .hint("modprobe unorc")
        }
        err => refused(err),
    })?;
    match found {
        None => Err(Error::failure(format!("there is no device '{device}'"))
            .hint("ip link show type unorc")),
        Some(it) if it.kind != KIND => {
            Err(Error::failure(format!("{device} is not of kind {KIND}"))
                .hint("ip link show type unorc"))
        }
        Some(_) => Ok(peers),
    }
}

fn refused(err: xdc_netlink::Error) -> Error {
    const EPERM: i32 = 1;
    let failure = Error::failure(err.to_string());
    match err {
        xdc_netlink::Error::Refused { errno: EPERM, .. } => failure.hint("as root"),
        _ => failure,
    }
}

/// Reads the key in a file; zeros for `none`. Warns of a file that other users can read.
fn read_key(path: &Path) -> Result<Key> {
    if path == Path::new("none") {
        return Ok(Key::default());
    }
    let name = path.display();
    let failed = |err| Error::io(format!("the key {name}"), &err).or_hint(NEW_KEY);
    let file = File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.permissions().mode();
    let mut bytes = Vec::new();
    // A longer file has no key.
    file.take(256).read_to_end(&mut bytes).map_err(failed)?;
    let key = parse_key(&bytes)
        .map_err(|why| Error::failure(format!("the key {name}: {why}")).hint(NEW_KEY))?;
    if mode & READABLE != 0 {
        eprintln!("xdc: other users can read the key {name}\ntry: chmod 600 {name}");
    }
    Ok(key)
}

fn parse_key(bytes: &[u8]) -> std::result::Result<Key, String> {
    let digits = bytes.trim_ascii();
    let is_hex = digits.len() == DIGITS && digits.iter().all(u8::is_ascii_hexdigit);
    let text = str::from_utf8(digits).ok().filter(|_| is_hex);
    match text.map(|text| u128::from_str_radix(text, 16)) {
        Some(Ok(0)) => Err("not all digits may be zero".to_owned()),
        Some(Ok(key)) => Ok(key.to_be_bytes()),
        _ => Err(format!("it must have {DIGITS} hex digits")),
    }
}

fn ranges(peer: &Peer) -> Vec<String> {
    peer.allowed.iter().map(Range::to_string).collect()
}

fn table(peers: &[Peer]) -> String {
    let title = ["remote", "session", "key", "allowed"].map(str::to_owned);
    let mut rows = vec![title];
    rows.extend(peers.iter().map(|peer| {
        let key = if peer.has_key { "yes" } else { "no" };
        [peer.remote.to_string(), peer.session.to_string(), key.to_owned(), ranges(peer).join(",")]
    }));
    let width = rows.iter().map(|row| row[0].len()).max().unwrap_or(0);
    let lines = rows.iter().map(|[remote, session, key, allowed]| {
        let line = format!("{remote:width$}  {session:7}  {key:3}  {allowed}");
        format!("{}\n", line.trim_end())
    });
    lines.collect()
}

fn to_json(peers: &[Peer]) -> Value {
    let rows = peers.iter().map(|peer| {
        json!({
            "remote": peer.remote,
            "session": peer.session.to_string(),
            "key": peer.has_key,
            "allowed": ranges(peer),
        })
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};

    use clap::Parser;
    use xdc_netlink::unorc::peers::Session;

    use super::*;

    fn peers() -> [Peer; 2] {
        [
            Peer {
                remote: "10.0.0.2".parse().unwrap(),
                session: Session::Up,
                has_key: true,
                allowed: ["10.50.0.2/32", "fd50::/64"].map(|range| range.parse().unwrap()).to_vec(),
            },
            Peer {
                remote: "fd00::3".parse().unwrap(),
                session: Session::Down,
                has_key: false,
                allowed: Vec::new(),
            },
        ]
    }

    #[test]
    fn peers_are_shown_as_a_table() {
        let wanted = "\
remote    session  key  allowed
10.0.0.2  up       yes  10.50.0.2/32,fd50::/64
fd00::3   down     no
";
        assert_eq!(table(&peers()), wanted);
    }

    #[test]
    fn peers_are_shown_as_json() {
        let wanted = json!([
            { "remote": "10.0.0.2", "session": "up", "key": true,
              "allowed": ["10.50.0.2/32", "fd50::/64"] },
            { "remote": "fd00::3", "session": "down", "key": false, "allowed": [] },
        ]);
        assert_eq!(to_json(&peers()), wanted);
    }

    #[test]
    fn keys_are_hex_digits() {
        let key = parse_key(b"000102030405060708090a0b0c0d0eFf\n").unwrap();
        assert_eq!((key[1], key[15]), (1, 255));
        let zeros = [b'0'; DIGITS];
        let sign = [&b"+"[..], &zeros[1..]].concat();
        for bytes in [b"", &zeros[..], &zeros[1..], &sign, &[b'1'; DIGITS + 1]] {
            assert!(parse_key(bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn a_key_is_read_from_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let missing = read_key(&path).unwrap_err().lines().join("\n");
        assert!(missing.contains("try: (umask 077; xdc unorc key"), "{missing}");
        fs::write(&path, "f".repeat(DIGITS)).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        assert_eq!(read_key(&path).unwrap(), [255; 16]);
        fs::write(&path, "secret").unwrap();
        let wrong = read_key(&path).unwrap_err().lines().join("\n");
        assert!(wrong.contains("32 hex digits"), "{wrong}");
        assert!(!wrong.contains("secret"), "{wrong}");
        assert_eq!(read_key(Path::new("none")).unwrap(), Key::default());
    }

    #[test]
    fn set_needs_a_value_and_add_needs_ranges() {
        #[derive(Parser)]
        enum Line {
            Add(Add),
            Set(Set),
        }
        let parse = |line: &str| Line::try_parse_from(line.split(' '));
        for line in [
            "xdc add u0 10.0.0.2 --allowed 10.50.0.2/32,fd00::/64 --key k",
            "xdc set u0 fd00::2 --key none",
            "xdc set u0 fd00::2 --allowed ::/0",
        ] {
            assert!(parse(line).is_ok(), "{line}");
        }
        for line in [
            "xdc add u0 10.0.0.2",
            "xdc add u0 10.0.0.2 --allowed 10.50.0.2/24",
            "xdc set u0 10.0.0.2",
            "xdc set u0 b --key k",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
