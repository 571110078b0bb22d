// SPDX-License-Identifier: GPL-2.0
//! `xdc acceltor elephants`: classifies elephants from user space for an `acceltor` with `detect filter`. An
//! eBPF classifier counts bytes; xdc reads the counts and marks the largest flows.

#[path = "../../../ebpf/src/elephant_key.rs"]
mod key;

mod line;

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use aya::Ebpf;
use aya::maps::{Array, HashMap as EbpfMap, Map, MapData, MapError};
use aya::programs::SchedClassifier;
use xdc_base::error::{Error, Result};
use xdc_base::interrupt;
use xdc_base::units::{Size, Time};
use xdc_netlink::Connection;
use xdc_netlink::acceltor::{self, Detect, Options, Prefix};
use xdc_netlink::filter::Place;
use xdc_netlink::qdisc::{self, Handle};

use crate::live::ebpf;
use crate::live::qdisc::{index_of, refused};
use key::{BEAT, Key, MAX_ELEPHANTS, MAX_FLOWS};
use line::{ends, line};

const OBJECT: &str = "xdc-elephants.o";
const NEEDS: &str = "as root, on a kernel with CONFIG_NET_CLS_BPF";

/// Filter name in `tc filter`.
const NAME: &str = "xdc-elephants";

/// Priority after the qdisc's other filters.
const LAST: u16 = u16::MAX;

/// Lines buffered for a slow reader; further lines are lost.
const LINES: usize = 10_000;

/// Longest pause after a slow read. A read during which the process was stopped seems slow, and the
/// classifier waits for only 25 s.
const LONGEST_REST: Duration = Duration::from_secs(5);

#[derive(clap::Args)]
pub struct Request {
    /// Device whose root qdisc is an acceltor with `detect filter`.
    device: String,
    /// Payload that makes a flow an elephant [default: the qdisc's sketch-bytes].
    #[arg(long, value_name = "SIZE")]
    bytes: Option<Size>,
    /// Maximum number of elephants, largest flows first [default: the qdisc's elephants for each other rack].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_ELEPHANTS)))]
    top: Option<u32>,
    /// Idle time after which the count of a flow restarts; counts halve every four such times [default:
    /// the qdisc's idle, at least three reads].
    #[arg(long, value_name = "TIME")]
    idle: Option<Time>,
    /// Interval between reads of the counts.
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
    let index = index_of(&request.device)?;
    let port = Port::find(&request.device, index)?;
    let table = &mut Table::new(port.policy(request)?);
    let mut classifier = Classifier::attach(&request.device, index, port.handle)?;
    eprintln!(
        "xdc: the {} largest flows of {} or more are elephants on {}",
        table.policy.top,
        Size(table.policy.bytes),
        request.device
    );
    let lines = Lines::begin();
    let outcome = watch(request, index, table, &mut classifier, &lines);
    drop(classifier);
    // Write pending lines even after an error.
    let written = lines.end();
    outcome.and(written)?;
    Ok(true)
}

/// Marks elephants until interrupted, its output is closed or its filter removed.
fn watch(
    request: &Request,
    index: u32,
    table: &mut Table,
    classifier: &mut Classifier,
    lines: &Lines,
) -> Result<()> {
    let start = Instant::now();
    let pause = Duration::from_nanos(request.every.0);
    let mut took = Duration::ZERO;
    // Reading many flows takes time: limit it to a fifth of a processor.
    while interrupt::sleep(pause.max(LONGEST_REST.min(took * 4))).is_ok() && lines.has_reader()? {
        let now = Instant::now();
        let port = Port::find(&request.device, index)?;
        if !classifier.is_asked_by(port.handle)? {
            // The qdisc may have been removed meanwhile.
            Port::find(&request.device, index)?;
            return Err(Error::failure(
                "the classifier was removed: its qdisc was replaced, or its filter was deleted",
            ));
        }
        let Some(counts) = classifier.counts(&port)? else {
            break;
        };
        let changes = table.look(now, counts);
        classifier.apply(&changes)?;
        for (flow, change) in &changes {
            if let Some(line) = line(request.json, now - start, flow, *change) {
                lines.tell(line);
            }
        }
        took = now.elapsed();
    }
    Ok(())
}

/// The qdisc's handle and options.
struct Port {
    handle: Handle,
    options: Options,
}

impl Port {
    fn find(device: &str, index: u32) -> Result<Self> {
        let found = Connection::open()
            .and_then(|mut connection| qdisc::dump(&mut connection, index))
            .map_err(refused)?;
        let state =
            found.into_iter().find(|state| state.kind == acceltor::KIND).ok_or_else(|| {
                Error::failure(format!("{device} has no acceltor")).hint(format!(
                    "tc qdisc add dev {device} root handle 1: acceltor racks N detect filter ..."
                ))
            })?;
        let options = Options::decode(&state.options)
            .map_err(|err| Error::failure(format!("the options of {device}'s acceltor: {err}")))?;
        if options.detect != Some(Detect::Filter) {
            return Err(Error::failure(format!("the acceltor of {device} uses no filter"))
                .hint(format!("tc qdisc change dev {device} root acceltor detect filter")));
        }
        Ok(Self { handle: state.handle, options })
    }

    /// The requested policy, with defaults from the qdisc.
    fn policy(&self, request: &Request) -> Result<Policy> {
        let others = self.options.racks.unwrap_or(2).saturating_sub(1);
        let top = self.options.elephants.unwrap_or(0).saturating_mul(others).min(MAX_ELEPHANTS);
        if request.top.is_none() && top == 0 {
            return Err(Error::failure("the acceltor has 'elephants 0'").hint("--top N"));
        }
        let least_ns = request.every.0.saturating_mul(3);
        if request.idle.is_some_and(|idle| idle.0 < least_ns) {
            return Err(Error::usage(format!(
                "--idle must be at least three times --every, {}",
                Time(least_ns)
            )));
        }
        let idle_ns = request.idle.map_or(self.idle_ns(), |idle| idle.0);
        Ok(Policy {
            bytes: request.bytes.map_or(self.options.sketch_bytes.unwrap_or(0).into(), |it| it.0),
            top: request.top.unwrap_or(top) as usize,
            idle: Duration::from_nanos(idle_ns.max(least_ns)),
        })
    }

    /// Idle time, ns; 0 in the options is two weeks of the schedule.
    fn idle_ns(&self) -> u64 {
        let options = &self.options;
        let slot_ns = options.day_ns.unwrap_or(0) + options.night_ns.unwrap_or(0);
        let week_ns = slot_ns * u64::from(options.racks.unwrap_or(2).saturating_sub(1));
        match options.idle_ns {
            None | Some(0) => 2 * week_ns,
            Some(idle_ns) => idle_ns,
        }
    }

    /// Whether a flow goes to another rack.
    fn is_ours(&self, flow: &Key) -> bool {
        let [_, to] = ends(flow);
        let own = self.options.rack.unwrap_or(0);
        let mut prefixes = self.options.prefixes.iter().flatten();
        prefixes.any(|prefix| u32::from(prefix.rack) != own && contains(prefix, to.ip()))
    }
}

/// Compares as the kernel does: IPv4 addresses are mapped to IPv6, so `::/0` contains them.
fn contains(prefix: &Prefix, address: IpAddr) -> bool {
    let bits = u32::from(prefix.bits) + if prefix.addr.is_ipv4() { 96 } else { 0 };
    let differ = mapped(prefix.addr) ^ mapped(address);
    differ.leading_zeros() >= bits
}

fn mapped(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// The attached filter program, removed on drop and when the process ends.
struct Classifier {
    payload: EbpfMap<MapData, Key, u64>,
    elephants: EbpfMap<MapData, Key, u8>,
    beat: Array<MapData, u64>,
    beats: u64,
    filter: Filter,
    _on_end: interrupt::OnEnd,
    /// Keeps the program loaded.
    _ebpf: Ebpf,
}

/// The filter, which another user may delete or replace.
#[derive(Clone, Copy)]
struct Filter {
    place: Place,
    program: u32,
}

impl Filter {
    fn is_there(&self) -> Result<bool> {
        let found = Connection::open()
            .and_then(|mut connection| self.place.programs(&mut connection))
            .map_err(refused)?;
        Ok(found.contains(&self.program))
    }

    fn remove(&self) {
        // The filter may be gone with its qdisc.
        if self.is_there().unwrap_or(false) {
            let _ = Connection::open()
                .and_then(|mut connection| connection.request(self.place.delete()));
        }
    }
}

impl Drop for Classifier {
    fn drop(&mut self) {
        self.filter.remove();
    }
}

impl Classifier {
    fn attach(device: &str, index: u32, handle: Handle) -> Result<Self> {
        let (path, mut ebpf) = ebpf::load(OBJECT, NEEDS)?;
        let mut map = |name: &str| ebpf.take_map(name).ok_or_else(|| ebpf::stale(&path, name));
        let stale =
            |name| move |_: MapError| Error::failure(format!("{name} has another map type"));
        let payload = map("PAYLOAD")?.try_into().map_err(stale("PAYLOAD"))?;
        let elephants = map("ELEPHANTS")?.try_into().map_err(stale("ELEPHANTS"))?;
        let beat = Map::try_into(map(BEAT)?).map_err(stale(BEAT))?;
        let program: &mut SchedClassifier = ebpf
            .program_mut("elephants")
            .and_then(|program| program.try_into().ok())
            .ok_or_else(|| ebpf::stale(&path, "program"))?;
        let loading = |err| ebpf::refused("loading the classifier", &err, NEEDS);
        program.load().map_err(loading)?;
        let fd = program.fd().map_err(loading)?.as_fd().as_raw_fd();
        let filter = Filter {
            place: Place { index, parent: handle, priority: LAST },
            program: program.info().map_err(loading)?.id(),
        };
        Connection::open()
            .and_then(|mut connection| connection.request(filter.place.add(NAME, fd)))
            .map_err(|err| match err {
                xdc_netlink::Error::Refused { errno: EEXIST, .. } => {
                    Error::failure("another 'xdc acceltor elephants' is running, or was killed")
                        .hint(format!(
                            "tc filter del dev {device} parent {:x}: pref {LAST}",
                            handle.major
                        ))
                }
                _ => refused(err).hint(NEEDS),
            })?;
        // No failure may follow: dropping this removes the filter.
        Ok(Self {
            payload,
            elephants,
            beat,
            beats: 0,
            filter,
            _on_end: interrupt::on_end(move || filter.remove()),
            _ebpf: ebpf,
        })
    }

    fn is_asked_by(&self, handle: Handle) -> Result<bool> {
        Ok(handle == self.filter.place.parent && self.filter.is_there()?)
    }

    /// Payload of each flow to another rack; None when the process is to end. If the current key vanishes,
    /// the kernel restarts the iteration, so flows may come twice or not at all.
    fn counts(&self, port: &Port) -> Result<Option<HashMap<Key, u64>>> {
        let mut counts = HashMap::new();
        for entry in self.payload.iter().take(2 * MAX_FLOWS as usize) {
            if interrupt::check().is_err() {
                return Ok(None);
            }
            let (flow, bytes) = entry.map_err(|err| map_failed("reading the counts", err))?;
            if port.is_ours(&flow) {
                counts.insert(flow, bytes);
            }
        }
        Ok(Some(counts))
    }

    fn apply(&mut self, changes: &[(Key, Change)]) -> Result<()> {
        // Apply removals first, to make room.
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
                    .map_err(|err| map_failed("adding an elephant", err))?;
            }
        }
        self.beats += 1;
        self.beat.set(0, self.beats, 0).map_err(|err| map_failed("updating the heartbeat", err))
    }
}

const EEXIST: i32 = 17;

/// Removes a flow, unless the kernel has dropped it already.
fn remove<V: aya::Pod>(map: &mut EbpfMap<MapData, Key, V>, flow: &Key) -> Result<()> {
    match map.remove(flow) {
        Ok(()) | Err(MapError::KeyNotFound) => Ok(()),
        Err(MapError::SyscallError(err)) if err.io_error.kind() == io::ErrorKind::NotFound => {
            Ok(())
        }
        Err(err) => Err(map_failed("removing a flow", err)),
    }
}

fn map_failed(doing: &str, err: MapError) -> Error {
    ebpf::refused(doing, &err, NEEDS)
}

/// Standard output, written by a separate thread so that a slow reader does not delay the next read.
struct Lines {
    to: SyncSender<String>,
    /// Error that ended the writer early.
    failed: Receiver<io::Error>,
    is_lost: Arc<AtomicBool>,
}

impl Lines {
    fn begin() -> Self {
        let (to, lines) = sync_channel::<String>(LINES);
        let (failure, failed) = sync_channel(1);
        let is_lost = Arc::new(AtomicBool::new(false));
        let has_lost = Arc::clone(&is_lost);
        std::thread::spawn(move || {
            let mut out = io::stdout();
            let mut has_said = false;
            for line in lines {
                if let Err(err) = writeln!(out, "{line}").and_then(|()| out.flush()) {
                    let _ = failure.send(err);
                    break;
                }
                // Reported by this thread: standard error may block, too.
                if !has_said && has_lost.load(Ordering::Relaxed) {
                    has_said = true;
                    eprintln!("xdc: lines were lost, because the reader was too slow");
                }
            }
        });
        Self { to, failed, is_lost }
    }

    fn tell(&self, line: String) {
        if let Err(TrySendError::Full(_)) = self.to.try_send(line) {
            self.is_lost.store(true, Ordering::Relaxed);
        }
    }

    fn has_reader(&self) -> Result<bool> {
        match self.failed.try_recv() {
            Ok(err) => unwritten(&err).map(|()| false),
            Err(TryRecvError::Empty) => Ok(true),
            Err(TryRecvError::Disconnected) => Ok(false),
        }
    }

    /// Writes pending lines, if they are read soon.
    fn end(self) -> Result<()> {
        drop(self.to);
        match self.failed.recv_timeout(Duration::from_millis(200)) {
            Ok(err) => unwritten(&err),
            Err(_) => Ok(()),
        }
    }
}

/// Error of a failed write; none for a closed reader such as `head`.
fn unwritten(err: &io::Error) -> Result<()> {
    match err.kind() {
        io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(Error::io("writing to standard output", err)),
    }
}

struct Policy {
    bytes: u64,
    top: usize,
    idle: Duration,
}

/// Change of a flow's class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    /// New elephant, with its payload in bytes.
    Elephant(u64),
    /// Elephant displaced by larger flows.
    Mouse,
    /// Elephant idle and removed.
    Idle,
    /// Mouse idle and removed.
    Forgotten,
}

/// Flows at the last read.
struct Table {
    policy: Policy,
    flows: HashMap<Key, Flow>,
    looked: Option<Instant>,
}

struct Flow {
    /// Raw count of the kernel, bytes.
    counted: u64,
    /// Bytes with exponential decay.
    bytes: f64,
    /// Time of the first read with this count.
    moved: Instant,
    is_elephant: bool,
}

/// Half-life of bytes in units of `idle`: 8 weeks for the default of two.
const HALF_LIFE: f64 = 4.0;

impl Table {
    fn new(policy: Policy) -> Self {
        Self { policy, flows: HashMap::new(), looked: None }
    }

    /// Updates flows from `counts`, the payload of each. A missing flow was dropped by the kernel.
    fn look(&mut self, now: Instant, counts: HashMap<Key, u64>) -> Vec<(Key, Change)> {
        let since = self.looked.map_or(Duration::ZERO, |looked| now - looked);
        self.looked = Some(now);
        let half_life = HALF_LIFE * self.policy.idle.as_secs_f64();
        let less = (-since.as_secs_f64() / half_life).exp2();
        let mut before = std::mem::take(&mut self.flows);
        let mut changes = Vec::new();
        for (key, counted) in counts {
            let flow = match before.remove(&key) {
                Some(mut flow) => {
                    // A smaller count has restarted.
                    let more = counted.checked_sub(flow.counted).unwrap_or(counted);
                    if counted != flow.counted {
                        flow.moved = now;
                    }
                    flow.counted = counted;
                    flow.bytes = flow.bytes * less + more as f64;
                    flow
                }
                None => Flow { counted, bytes: counted as f64, moved: now, is_elephant: false },
            };
            if now - flow.moved >= self.policy.idle {
                changes.push((key, forgotten(&flow)));
            } else {
                self.flows.insert(key, flow);
            }
        }
        changes.extend(before.iter().map(|(key, flow)| (*key, forgotten(flow))));
        let least = self.policy.bytes as f64;
        let mut largest: Vec<_> = self
            .flows
            .iter()
            // Hysteresis: an elephant remains one down to half of the threshold.
            .filter(|(_, flow)| flow.bytes >= if flow.is_elephant { least / 2.0 } else { least })
            .map(|(key, flow)| (flow.bytes, *key))
            .collect();
        largest.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)));
        largest.truncate(self.policy.top);
        let largest: HashSet<Key> = largest.into_iter().map(|(_, key)| key).collect();
        for (key, flow) in &mut self.flows {
            let is_elephant = largest.contains(key);
            if is_elephant != flow.is_elephant {
                flow.is_elephant = is_elephant;
                let change = match is_elephant {
                    true => Change::Elephant(flow.bytes as u64),
                    false => Change::Mouse,
                };
                changes.push((*key, change));
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

#[cfg(test)]
mod tests;
