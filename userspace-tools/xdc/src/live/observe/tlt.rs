// SPDX-License-Identifier: GPL-2.0
//! Connection state of the module tlt from /proc/net/tlt: a header line, then a line per connection.

use std::collections::HashMap;
use std::fs;
use std::net::SocketAddr;

use serde::Serialize;

/// Local and peer end of a connection.
type Ends = (SocketAddr, SocketAddr);

/// Connections with TLT in one namespace.
#[derive(Debug, Default)]
pub struct Connections(HashMap<Ends, Tlt>);

/// TLT state of a connection; field names are keys of `xdc ss --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Tlt {
    /// State of the sender: `first` window, an important `data` packet or `clock` byte in flight, or the next
    /// one `pending`.
    pub sender: String,
    /// Time in flight, us.
    pub age_us: u64,
    /// Kind of echo that the receiver owes.
    pub owes: String,
    pub echoes: u64,
    /// Replaced important packets, whose echoes may still arrive.
    pub replaced: u64,
}

impl Connections {
    /// Reads the connections of the thread's namespace; empty if the module is not loaded.
    pub fn read() -> Self {
        fs::read_to_string("/proc/thread-self/net/tlt")
            .map_or_else(|_| Self::default(), |text| Self::of(&text))
    }

    /// Parses columns by name: later versions may add some anywhere.
    fn of(text: &str) -> Self {
        let mut lines = text.lines();
        let names: Vec<_> = lines.next().unwrap_or_default().split(' ').collect();
        let connection = |line: &str| {
            let words: Vec<_> = line.split(' ').collect();
            let word = |name: &str| {
                let at = names.iter().position(|known| *known == name)?;
                words.get(at).copied()
            };
            let end = |name: &str| word(name)?.parse().ok().map(plain);
            let tlt = Tlt {
                sender: word("sender")?.to_owned(),
                age_us: word("age_us")?.parse().ok()?,
                owes: word("owes")?.to_owned(),
                echoes: word("echoes")?.parse().ok()?,
                replaced: word("replaced")?.parse().ok()?,
            };
            Some(((end("local")?, end("remote")?), tlt))
        };
        Self(lines.filter_map(connection).collect())
    }

    /// The connection between two ends.
    pub fn get(&self, local: SocketAddr, peer: SocketAddr) -> Option<&Tlt> {
        self.0.get(&(plain(local), plain(peer)))
    }
}

/// IPv4 form of a mapped address: an IPv6 socket may carry IPv4, and the module sees packets.
fn plain(end: SocketAddr) -> SocketAddr {
    SocketAddr::new(end.ip().to_canonical(), end.port())
}

impl Tlt {
    /// Text form.
    pub fn words(&self) -> String {
        let age = match &*self.sender {
            "data" | "clock" => format!(" for {} us", self.age_us),
            _ => String::new(),
        };
        format!("TLT {}{age}, {} echoes", self.sender, self.echoes)
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    const TEXT: &str = "local remote sender age_us owes echoes replaced\n\
        10.9.0.1:40000 10.9.0.2:5001 data 12 none 7 0\n\
        [fd09::1]:40000 [fd09::2]:5001 pending 0 clock 65535 3\n\
        nonsense\n";

    pub fn connections() -> Connections {
        Connections::of(TEXT)
    }

    fn get(local: &str, peer: &str) -> Option<Tlt> {
        let end = |text: &str| text.parse().unwrap();
        connections().get(end(local), end(peer)).cloned()
    }

    #[test]
    fn tlt_connections_are_found_by_address() {
        let tlt = get("10.9.0.1:40000", "10.9.0.2:5001").unwrap();
        assert_eq!((&*tlt.sender, tlt.age_us, tlt.echoes), ("data", 12, 7));
        assert_eq!(tlt.words(), "TLT data for 12 us, 7 echoes");
        let mapped = get("[::ffff:10.9.0.1]:40000", "[::ffff:10.9.0.2]:5001");
        assert_eq!(mapped, Some(tlt));
        let six = get("[fd09::1]:40000", "[fd09::2]:5001").unwrap();
        assert_eq!((&*six.owes, six.replaced), ("clock", 3));
        assert_eq!(six.words(), "TLT pending, 65535 echoes");
        assert_eq!(get("10.9.0.2:5001", "10.9.0.1:40000"), None);
        assert_eq!(Connections::of(TEXT).0.len(), 2);
    }

    #[test]
    fn columns_are_found_by_name() {
        let text = "owes sender new local remote replaced echoes age_us\n\
            data first 9 10.9.0.1:1 10.9.0.2:2 0 0 0\n";
        let found = Connections::of(text);
        let tlt = found.0.values().next().unwrap();
        assert_eq!((&*tlt.owes, &*tlt.sender), ("data", "first"));
        assert!(Connections::of("").0.is_empty());
    }
}
