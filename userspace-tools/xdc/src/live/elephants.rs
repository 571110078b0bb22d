// SPDX-License-Identifier: GPL-2.0
//! `xdc acceltor elephants`: who is an elephant of an `acceltor` with `detect filter`, decided outside of the
//! kernel. A classifier in eBPF counts; we look at its counts and tell it the largest flows.

#[path = "../../../ebpf/src/elephant_key.rs"]
mod key;

use std::collections::HashMap;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use aya::Ebpf;
use aya::maps::{HashMap as EbpfMap, MapData, MapError};
use aya::programs::tc::{NlOptions, TcAttachOptions};
use aya::programs::{SchedClassifier, TcAttachType};
use serde_json::{Value, json};
use xdc_netlink::Connection;
use xdc_netlink::acceltor::{self, Detect, Options};
use xdc_netlink::qdisc::{self, Handle};

use crate::error::{Error, Result};
use crate::interrupt;
use crate::live::ebpf;
use crate::live::qdisc::{index_of, refused};
use crate::units::{Size, Time};
use key::{DESTINATION, Key, MAX_ELEPHANTS, PORTS, SOURCE, VERSION};

const OBJECT: &str = "xdc-elephants.o";
const NEEDS: &str = "as root, on a kernel with CONFIG_NET_CLS_BPF";

#[derive(clap::Args)]
pub struct Request {
    /// The device whose root qdisc is an acceltor with `detect filter`.
    device: String,
    /// Payload that makes a flow an elephant [default: the qdisc's sketch-bytes].
    #[arg(long, value_name = "SIZE")]
    bytes: Option<Size>,
    /// At most so many flows, the largest [default: the qdisc's elephants for each other rack].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_ELEPHANTS)))]
    top: Option<u32>,
    /// A flow that sends nothing for so long begins anew [default: the qdisc's idle].
    #[arg(long, value_name = "TIME")]
    idle: Option<Time>,
    /// Between two looks at the counts.
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = every)]
    every: Time,
    /// Print JSON lines.
    #[arg(long)]
    json: bool,
}

fn every(text: &str) -> std::result::Result<Time, String> {
    let time: Time = text.parse()?;
    match time.0 {
        1_000_000..=10_000_000_000 => Ok(time),
        _ => Err("must be between 1ms and 10s".to_owned()),
    }
}

pub fn command(request: &Request) -> Result<bool> {
    let port = Port::find(&request.device)?;
    let mut table = Table::new(Policy {
        bytes: request.bytes.map_or(port.bytes, |size| size.0),
        top: request.top.unwrap_or(port.top) as usize,
        idle: Duration::from_nanos(request.idle.map_or(port.idle_ns, |time| time.0)),
    });
    let mut classifier = Classifier::attach(&request.device, port.handle)?;
    eprintln!(
        "xdc: the {} largest flows of {} or more are elephants on {}",
        table.policy.top,
        Size(table.policy.bytes),
        request.device
    );
    let start = Instant::now();
    let mut out = io::stdout();
    while interrupt::sleep(Duration::from_nanos(request.every.0)).is_ok() {
        if Port::find(&request.device)?.handle != port.handle {
            return Err(Error::failure(
                "another acceltor has taken the place of this one",
            ));
        }
        let now = Instant::now();
        let changes = table.look(now, classifier.counts()?);
        classifier.apply(&changes)?;
        for (flow, change) in &changes {
            let Some(line) = line(request.json, now - start, flow, *change) else {
                continue;
            };
            match writeln!(out, "{line}").and_then(|()| out.flush()) {
                Err(err) if err.kind() == io::ErrorKind::BrokenPipe => return Ok(true),
                outcome => outcome.map_err(|err| Error::io("writing", &err))?,
            }
        }
    }
    Ok(true)
}

/// What the qdisc says of itself.
struct Port {
    handle: Handle,
    bytes: u64,
    top: u32,
    idle_ns: u64,
}

impl Port {
    fn find(device: &str) -> Result<Self> {
        let index = index_of(device)?;
        let found = Connection::open()
            .and_then(|mut connection| qdisc::dump(&mut connection, index))
            .map_err(refused)?;
        let state = found
            .into_iter()
            .find(|state| state.kind == acceltor::KIND)
            .ok_or_else(|| {
                Error::failure(format!("{device} has no acceltor"))
                    .hint("tc qdisc add dev DEV root handle 1: acceltor racks N detect filter ...")
            })?;
        let options = Options::decode(&state.options)
            .map_err(|err| Error::failure(format!("the options of {device}'s acceltor: {err}")))?;
        if options.detect != Some(Detect::Filter) {
            return Err(
                Error::failure(format!("the acceltor of {device} asks no filter")).hint(format!(
                    "tc qdisc change dev {device} root acceltor detect filter"
                )),
            );
        }
        let others = options.racks.unwrap_or(2).saturating_sub(1);
        let top = options.elephants.unwrap_or(0).saturating_mul(others);
        Ok(Self {
            handle: state.handle,
            bytes: options.sketch_bytes.unwrap_or(0).into(),
            top: top.clamp(1, MAX_ELEPHANTS),
            idle_ns: options.idle_ns.unwrap_or(0),
        })
    }
}

/// The program at the qdisc. It is taken off with this.
struct Classifier {
    payload: EbpfMap<MapData, Key, u64>,
    elephants: EbpfMap<MapData, Key, u8>,
    /// Holds the program.
    _ebpf: Ebpf,
}

impl Classifier {
    fn attach(device: &str, parent: Handle) -> Result<Self> {
        let (path, mut ebpf) = ebpf::load(OBJECT, NEEDS)?;
        let program: &mut SchedClassifier = ebpf
            .program_mut("elephants")
            .and_then(|program| program.try_into().ok())
            .ok_or_else(|| ebpf::stale(&path, "program"))?;
        let parent = u32::from(parent.major) << 16;
        let options = TcAttachOptions::Netlink(NlOptions::default());
        program
            .load()
            .and_then(|()| {
                program.attach_with_options(device, TcAttachType::Custom(parent), options)
            })
            .map_err(|err| ebpf::refused("attaching the classifier", &err, NEEDS))?;
        let payload = ebpf.take_map("PAYLOAD").and_then(|map| map.try_into().ok());
        let elephants = ebpf
            .take_map("ELEPHANTS")
            .and_then(|map| map.try_into().ok());
        Ok(Self {
            payload: payload.ok_or_else(|| ebpf::stale(&path, "PAYLOAD"))?,
            elephants: elephants.ok_or_else(|| ebpf::stale(&path, "ELEPHANTS"))?,
            _ebpf: ebpf,
        })
    }

    /// Payload of each flow. One that comes or is forgotten meanwhile may be missing.
    fn counts(&self) -> Result<Vec<(Key, u64)>> {
        let counts: Vec<_> = self.payload.iter().filter_map(|entry| entry.ok()).collect();
        Ok(counts)
    }

    fn apply(&mut self, changes: &[(Key, Change)]) -> Result<()> {
        // Those that leave make room.
        for (flow, change) in changes {
            match change {
                Change::Elephant(_) => {}
                Change::Mouse => remove(&mut self.elephants, flow)?,
                Change::Idle | Change::Forgotten => {
                    remove(&mut self.elephants, flow)?;
                    remove(&mut self.payload, flow)?;
                }
            }
        }
        for (flow, change) in changes {
            if let Change::Elephant(_) = change {
                self.elephants
                    .insert(flow, 1, 0)
                    .map_err(|err| Error::failure(format!("naming an elephant: {err}")))?;
            }
        }
        Ok(())
    }
}

/// Unless the kernel has forgotten it before.
fn remove<V: aya::Pod>(map: &mut EbpfMap<MapData, Key, V>, flow: &Key) -> Result<()> {
    match map.remove(flow) {
        Ok(()) | Err(MapError::KeyNotFound) => Ok(()),
        Err(MapError::SyscallError(err)) if err.io_error.kind() == io::ErrorKind::NotFound => {
            Ok(())
        }
        Err(err) => Err(Error::failure(format!("forgetting a flow: {err}"))),
    }
}

struct Policy {
    bytes: u64,
    top: usize,
    idle: Duration,
}

/// What becomes of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    /// With so much payload so far.
    Elephant(u64),
    /// Others are larger.
    Mouse,
    /// An elephant has sent nothing for a while, and is forgotten.
    Idle,
    /// The same of a mouse.
    Forgotten,
}

/// The flows as they were at the last look.
struct Table {
    policy: Policy,
    flows: HashMap<Key, Flow>,
}

struct Flow {
    bytes: u64,
    /// At the first look that saw these bytes.
    moved: Instant,
    is_elephant: bool,
}

impl Table {
    fn new(policy: Policy) -> Self {
        Self {
            policy,
            flows: HashMap::new(),
        }
    }

    /// `counts` is the payload of each flow. One that is not among them has been forgotten by the kernel.
    fn look(&mut self, now: Instant, counts: Vec<(Key, u64)>) -> Vec<(Key, Change)> {
        let mut before = std::mem::take(&mut self.flows);
        let mut changes = Vec::new();
        for (key, bytes) in counts {
            let seen = before.remove(&key);
            let flow = match seen {
                Some(flow) if flow.bytes == bytes => flow,
                seen => Flow {
                    bytes,
                    moved: now,
                    is_elephant: seen.is_some_and(|flow| flow.is_elephant),
                },
            };
            if now - flow.moved >= self.policy.idle {
                changes.push((key, forgotten(&flow)));
            } else {
                self.flows.insert(key, flow);
            }
        }
        changes.extend(before.iter().map(|(key, flow)| (*key, forgotten(flow))));
        let mut largest: Vec<_> = self
            .flows
            .iter()
            .filter(|(_, flow)| flow.bytes >= self.policy.bytes)
            .map(|(key, flow)| (flow.bytes, *key))
            .collect();
        largest.sort_unstable_by(|a, b| b.cmp(a));
        for (place, (bytes, key)) in largest.into_iter().enumerate() {
            let Some(flow) = self.flows.get_mut(&key) else {
                continue;
            };
            let is_elephant = place < self.policy.top;
            if is_elephant != flow.is_elephant {
                flow.is_elephant = is_elephant;
                let change = match is_elephant {
                    true => Change::Elephant(bytes),
                    false => Change::Mouse,
                };
                changes.push((key, change));
            }
        }
        changes
    }
}

fn forgotten(flow: &Flow) -> Change {
    match flow.is_elephant {
        true => Change::Idle,
        false => Change::Forgotten,
    }
}

/// A line for a change; none for a flow that never was an elephant.
fn line(is_json: bool, since: Duration, flow: &Key, change: Change) -> Option<String> {
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
    Some(format!(
        "{:9.3} s  {source} > {destination}  {word}{sent}",
        since.as_secs_f64()
    ))
}

/// Where a flow comes from and where it goes.
fn ends(flow: &Key) -> [SocketAddr; 2] {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(number: u8) -> Key {
        let mut key = [0; 40];
        key[SOURCE..SOURCE + 4].copy_from_slice(&[10, 0, 0, 1]);
        key[DESTINATION..DESTINATION + 4].copy_from_slice(&[10, 9, 1, number]);
        key[PORTS..PORTS + 4].copy_from_slice(&[0x13, 0x88, 0, 80]);
        key[VERSION] = 4;
        key
    }

    fn table(top: usize) -> Table {
        Table::new(Policy {
            bytes: 100,
            top,
            idle: Duration::from_millis(30),
        })
    }

    #[test]
    fn the_largest_are_elephants() {
        let (mut table, now) = (table(2), Instant::now());
        let small = vec![(flow(1), 99), (flow(2), 100), (flow(3), 50)];
        assert_eq!(table.look(now, small), [(flow(2), Change::Elephant(100))]);
        let grown = vec![(flow(1), 300), (flow(2), 110), (flow(3), 200)];
        assert_eq!(
            table.look(now, grown),
            [
                (flow(1), Change::Elephant(300)),
                (flow(3), Change::Elephant(200)),
                (flow(2), Change::Mouse),
            ]
        );
        let same = vec![(flow(1), 300), (flow(2), 110), (flow(3), 200)];
        assert_eq!(table.look(now, same), []);
    }

    #[test]
    fn who_is_idle_is_forgotten() {
        let (mut table, now) = (table(2), Instant::now());
        let at = |ms| now + Duration::from_millis(ms);
        table.look(at(0), vec![(flow(1), 200), (flow(2), 10)]);
        assert_eq!(table.look(at(29), vec![(flow(1), 200), (flow(2), 11)]), []);
        assert_eq!(
            table.look(at(30), vec![(flow(1), 200), (flow(2), 11)]),
            [(flow(1), Change::Idle)]
        );
        assert_eq!(
            table.look(at(59), vec![(flow(2), 11)]),
            [(flow(2), Change::Forgotten)]
        );
        // It is counted from zero.
        assert_eq!(table.look(at(60), vec![(flow(1), 99)]), []);
    }

    #[test]
    fn whom_the_kernel_forgets_is_none() {
        let (mut table, now) = (table(2), Instant::now());
        table.look(now, vec![(flow(1), 200)]);
        assert_eq!(table.look(now, vec![]), [(flow(1), Change::Idle)]);
        assert!(table.flows.is_empty());
    }

    #[test]
    fn a_change_is_a_line() {
        let since = Duration::from_millis(1_500);
        let text = |json, change| line(json, since, &flow(7), change);
        assert_eq!(
            text(false, Change::Elephant(225_000)).unwrap(),
            "    1.500 s  10.0.0.1:5000 > 10.9.1.7:80  elephant, 225000 bytes"
        );
        assert_eq!(
            text(true, Change::Idle).unwrap(),
            r#"{"destination":"10.9.1.7:80","event":"idle","since_start_s":1.5,"source":"10.0.0.1:5000"}"#
        );
        assert_eq!(text(false, Change::Forgotten), None);
        let mut key = flow(7);
        key[VERSION] = 6;
        assert!(ends(&key)[0].is_ipv6());
    }
}
