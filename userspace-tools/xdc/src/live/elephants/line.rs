// SPDX-License-Identifier: GPL-2.0
//! Lines of output.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use serde_json::{Value, json};

use super::Change;
use super::key::{DESTINATION, Key, PORTS, SOURCE, VERSION};

/// Output line for a change; None for a flow that was never an elephant.
pub(super) fn line(is_json: bool, since: Duration, flow: &Key, change: Change) -> Option<String> {
    let (word, bytes) = match change {
        Change::Elephant(bytes) => ("elephant", Some(bytes)),
        Change::Mouse => ("mouse", None),
        Change::Idle => ("idle", None),
        Change::Forgotten => return None,
    };
    let [source, destination] = ends(flow);
    if is_json {
        let mut line = json!({
            "event": word,
            "since_start_s": since.as_secs_f64(),
            "source": source.to_string(),
            "destination": destination.to_string(),
        });
        if let (Some(bytes), Value::Object(fields)) = (bytes, &mut line) {
            fields.insert("bytes".to_owned(), bytes.into());
        }
        return Some(line.to_string());
    }
    let sent = bytes.map_or_else(String::new, |bytes| format!(", {bytes} bytes"));
    Some(format!("{:9.3} s  {source} > {destination}  {word}{sent}", since.as_secs_f64()))
}

/// Source and destination of a flow.
pub(super) fn ends(flow: &Key) -> [SocketAddr; 2] {
    [(SOURCE, PORTS), (DESTINATION, PORTS + 2)].map(|(address, port)| {
        let bytes: [u8; 16] = std::array::from_fn(|i| flow[address + i]);
        let [a, b, c, d, ..] = bytes;
        let address = match flow[VERSION] {
            4 => IpAddr::V4(Ipv4Addr::new(a, b, c, d)),
            _ => IpAddr::V6(Ipv6Addr::from(bytes)),
        };
        SocketAddr::new(address, u16::from_be_bytes([flow[port], flow[port + 1]]))
    })
}
