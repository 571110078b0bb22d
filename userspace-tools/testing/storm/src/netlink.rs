// SPDX-License-Identifier: GPL-2.0
//! Random requests to a qdisc, on a port with traffic and on an idle one.
//!
//! Each request asks for an acknowledgment and must get exactly one. Ids and widths of the options come from
//! a full set of valid ones.

use std::{collections::HashMap, sync::Arc, thread, time::Duration};

use anyhow::{Context, Result, ensure};
use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST};
use netlink_packet_route::tc::TcHandle;
use xdc_netlink::{
    Connection,
    attributes::{self, Attributes},
    link::{self, VethEnd},
    phantom::{self, ColorSource, Gso, Mark, MarkAt, Options, Xstats},
    qdisc::{self, QdiscState},
};

use crate::{
    Storm,
    background::{Background, DIAG_PAUSE, Mix},
    diag::Diag,
    flow::{Family, Spec, Traffic},
    net::{self, DEVICE, Pair},
    raw::{self, Ack, HEADER_BYTES, Netlink},
};

const RTM_NEWQDISC: u16 = 36;
const RTM_DELQDISC: u16 = 37;
const RTM_GETQDISC: u16 = 38;
const RTM_NEWTCLASS: u16 = 40;
const RTM_DELTCLASS: u16 = 41;
const RTM_NEWTFILTER: u16 = 44;
const RTM_DELTFILTER: u16 = 45;

const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_RATE: u16 = 5;
const TCA_STAB: u16 = 8;

/// A device without traffic that stays down: its qdiscs go without waiting for RCU.
pub const IDLE: u32 = 3;

/// Messages per system call, and between two checks of the port.
const BATCH: u32 = 50;
const ROUND: u32 = 2_000;

/// Pause between batches, for the flows: requests take no virtual time.
const PAUSE: Duration = Duration::from_millis(2);

/// A qdisc that receives the messages.
pub trait Target {
    /// TCA_KIND.
    fn kind(&self) -> &'static str;

    /// Options that restore the port after each round.
    fn sane(&self) -> Vec<u8>;

    /// Every option.
    fn full(&self) -> Vec<u8>;

    /// Some options with values in range, though not always consistent.
    fn valid(&self, rng: &mut fastrand::Rng) -> Vec<u8>;

    /// Checks that dumped options are within their bounds after any request.
    fn check(&self, state: &QdiscState) -> Result<()>;
}

struct Phantom;

/// Options that restore the port after each round.
fn sane() -> Options {
    Options {
        limit_bytes: Some(200_000),
        rate_bytes_per_s: Some(125_000_000),
        mark: Some(Mark::Either),
        ..full()
    }
}

/// Every option.
fn full() -> Options {
    Options {
        limit_bytes: Some(1_000_000),
        rate_bytes_per_s: Some(0),
        overhead_bytes: Some(0),
        mpu_bytes: Some(0),
        line_rate_bytes_per_s: Some(125_000_000),
        phantom_limit_bytes: Some(1_000_000),
        drain_ppm: Some(900_000),
        pmin_ppm: Some(20_000),
        pmax_ppm: Some(600_000),
        min_ppm: Some(250_000),
        max_ppm: Some(750_000),
        mark: Some(Mark::Phantom),
        mark_at: Some(MarkAt::Dequeue),
        ecn_drop: Some(false),
        count_acks: Some(true),
        red_limit_bytes: Some(0),
        yellow_limit_bytes: Some(0),
        color_total: Some(false),
        color_source: Some(ColorSource::None),
        dscp_red: Some(0),
        dscp_yellow: Some(0),
        gso: Some(Gso::Auto),
        pool: Some("tor".to_string()),
        pool_limit_bytes: Some(1_000_000),
        pool_alpha_ppm: Some(1_000_000),
        seed: Some(1),
    }
}

impl Target for Phantom {
    fn kind(&self) -> &'static str {
        phantom::KIND
    }

    fn sane(&self) -> Vec<u8> {
        sane().encode()
    }

    fn full(&self) -> Vec<u8> {
        full().encode()
    }

    fn valid(&self, rng: &mut fastrand::Rng) -> Vec<u8> {
        let some = |rng: &mut fastrand::Rng| rng.u8(..10) < 3;
        let ppm =
            |rng: &mut fastrand::Rng| [0, 1, rng.u32(..=1_000_000), 1_000_000][rng.usize(..4)];
        let bytes =
            |rng: &mut fastrand::Rng| [1, 1_514, rng.u32(1..3_000_000), u32::MAX][rng.usize(..4)];
        let rate = |rng: &mut fastrand::Rng| {
            [0, 1, rng.u64(..=125_000_000_000), 1_000_000_000_000_000][rng.usize(..4)]
        };
        macro_rules! maybe {
            ($value:expr) => {
                some(rng).then(|| $value)
            };
        }
        let red = rng.u64(..);
        let pool = maybe!(["", "a", "b", "fifteen letters"][rng.usize(..4)].to_string());
        // A port without a pool has no pool size.
        let pooled = pool.as_ref().is_some_and(|name| !name.is_empty());
        let (a, b) = (ppm(rng), ppm(rng));
        let options = Options {
            limit_bytes: maybe!(bytes(rng)),
            rate_bytes_per_s: maybe!(rate(rng)),
            overhead_bytes: maybe!(rng.i32(-64..=256)),
            mpu_bytes: maybe!(rng.u32(..=256)),
            line_rate_bytes_per_s: maybe!(rate(rng)),
            phantom_limit_bytes: maybe!(match rng.u8(..4) {
                0 => i64::MAX as u64,
                _ => bytes(rng).into(),
            }),
            drain_ppm: maybe!(ppm(rng).max(1)),
            pmin_ppm: maybe!(a.min(b)),
            pmax_ppm: maybe!(a.max(b)),
            min_ppm: maybe!(a.min(b)),
            max_ppm: maybe!(a.max(b)),
            mark: maybe!(Mark::ALL[rng.usize(..Mark::ALL.len())]),
            mark_at: maybe!(MarkAt::ALL[rng.usize(..2)]),
            ecn_drop: maybe!(rng.bool()),
            count_acks: maybe!(rng.bool()),
            red_limit_bytes: maybe!(bytes(rng)),
            yellow_limit_bytes: maybe!(bytes(rng)),
            color_total: maybe!(rng.bool()),
            color_source: maybe!(ColorSource::ALL[rng.usize(..4)]),
            dscp_red: maybe!(red),
            dscp_yellow: maybe!(!red & rng.u64(..)),
            gso: maybe!(Gso::ALL[rng.usize(..3)]),
            pool,
            pool_limit_bytes: (pooled || rng.u8(..50) == 0).then(|| bytes(rng)),
            pool_alpha_ppm: maybe!(rng.u32(1..)),
            seed: maybe!(rng.u64(..)),
        };
        options.encode()
    }

    fn check(&self, state: &QdiscState) -> Result<()> {
        check_options(&Options::decode(&state.options)?)?;
        let xstats = Xstats::of(state).context("no statistics")?;
        let marked = xstats.marked();
        ensure!(xstats.would_mark >= marked, "more packets are marked than chosen");
        Ok(())
    }
}

/// Runs `count` messages.
pub fn attack(storm: &mut Storm, count: u32) -> Result<()> {
    let pair = Pair::new()?;
    pair.hosts[0].run(idle_device)?;
    against(storm, count, pair, &Phantom)
}

/// Runs `count` messages. The first host must have [`IDLE`].
pub fn against(storm: &mut Storm, count: u32, pair: Pair, target: &dyn Target) -> Result<()> {
    let pair = Arc::new(pair);
    // A port may pass almost nothing during a slow guest's round. Flows must survive that, also in SYN_RECV
    // at the receiver, and resume soon.
    for (name, value) in [
        ("tcp_rto_max_ms", "1000"),
        ("tcp_syn_retries", "127"),
        ("tcp_synack_retries", "127"),
        ("tcp_retries2", "255"),
    ] {
        pair.sysctl(&format!("net/ipv4/{name}"), value)?;
    }
    pair.hosts[0].request(net::root_of(target.kind(), target.sane()).replace())?;
    let background = Background::start(
        &pair,
        Mix {
            ccs: storm.ccs(),
            receiver_cc: "unocc".to_string(),
            flows: 2,
            max_bytes: 60_000,
            seed: storm.seed,
        },
    );
    let diag = Diag::start(&pair, Some("unocc"), DIAG_PAUSE);
    let mut fuzzer = Fuzzer::new(target, &pair, storm.seed, storm.debug)?;
    let mut outcome = Ok(());
    let mut sent = 0;
    while sent < count && outcome.is_ok() {
        let n = ROUND.min(count - sent);
        outcome = pair.hosts[0]
            .run(|| fuzzer.round(n))
            .and_then(|()| fuzzer.look(&pair))
            .with_context(|| format!("after {} messages", sent + n));
        storm.progress(sent, sent + n, count);
        sent += n;
    }
    storm.ktap.note(&fuzzer.text());
    let refused = fuzzer.sent - fuzzer.accepted;
    storm.ktap.case(
        &format!("{sent} random netlink messages: each is answered once, and the port carries a flow after each {ROUND}"),
        outcome,
    );
    storm.ktap.case(
        "some messages are accepted, most are refused",
        (|| {
            ensure!(fuzzer.accepted * 50 > fuzzer.sent, "only {} accepted", fuzzer.accepted);
            ensure!(refused * 4 > fuzzer.sent, "only {refused} refused");
            Ok(())
        })(),
    );
    storm.diag_case(diag.stop());
    let tally = background.stop();
    storm.flows_case("flows under random messages", tally);
    Ok(())
}

/// Creates [`IDLE`], which stays down.
fn idle_device() -> Result<()> {
    let end = |name: &str, index, last| VethEnd {
        name: name.to_string(),
        index,
        mac: [2, 0, 0, 0, 1, last],
        netns: None,
    };
    let (a, b) = (end("idle0", IDLE, 1), end("idle1", IDLE + 1, 2));
    Ok(Connection::open()?.request(link::add_veth(&a, &b, 1500, false))?)
}

struct Fuzzer<'a> {
    target: &'a dyn Target,
    rng: fastrand::Rng,
    netlink: Netlink,
    /// Fraction of the requests that may create or delete a qdisc on the idle device, in 1/1000.
    new_in_1000: u16,
    /// Id and width of each option.
    known: Vec<(u16, usize)>,
    sequence: u32,
    sent: u64,
    accepted: u64,
    /// Refused messages by errno.
    refused: HashMap<i32, u64>,
}

impl<'a> Fuzzer<'a> {
    fn new(target: &'a dyn Target, pair: &Pair, seed: u64, debug: bool) -> Result<Self> {
        let rng = fastrand::Rng::with_seed(seed);
        let known = attributes::parse(&target.full())
            .map(|attribute| attribute.map(|(id, value)| (id, value.len())))
            .collect::<xdc_netlink::Result<_>>()?;
        Ok(Self {
            target,
            rng,
            // Lockdep waits for RCU when a qdisc goes, and unregisters its locks one by one.
            new_in_1000: if debug { 20 } else { 1_000 },
            netlink: pair.hosts[0].run(|| Netlink::open(libc::NETLINK_ROUTE))?,
            known,
            sequence: 0,
            sent: 0,
            accepted: 0,
            refused: HashMap::new(),
        })
    }

    fn text(&self) -> String {
        let mut refused: Vec<_> = self.refused.iter().collect();
        refused.sort();
        let refused: Vec<_> = refused
            .iter()
            .map(|(errno, n)| format!("{:?} {n}", nix::errno::Errno::from_raw(**errno)))
            .collect();
        format!(
            "{} messages: {} accepted; refused: {}",
            self.sent,
            self.accepted,
            refused.join(", ")
        )
    }

    /// Sends `count` messages in the namespace of the port.
    fn round(&mut self, count: u32) -> Result<()> {
        let mut left = count;
        while left > 0 {
            let n = left.min(BATCH);
            left -= n;
            let first = self.sequence + 1;
            let mut bytes = Vec::new();
            for _ in 0..n {
                self.sequence += 1;
                self.push(&mut bytes);
            }
            // The kernel stops reading at a message with an invalid length.
            if self.rng.u8(..) < 64 {
                let start = bytes.len();
                bytes.extend((0..self.rng.usize(0..64)).map(|_| self.rng.u8(..)));
                if let Some(length) = bytes.get_mut(start..start + 4) {
                    let wrong = [0, 15, u32::MAX, 1 << 31, 4_000_000];
                    let wrong = wrong[self.rng.usize(..wrong.len())];
                    length.copy_from_slice(&u32::to_ne_bytes(wrong));
                }
            }
            self.netlink.send(&bytes).context("send")?;
            let acks = self.netlink.acks()?;
            self.count(first, n, &acks)?;
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn count(&mut self, first: u32, n: u32, acks: &[Ack]) -> Result<()> {
        let mut answered = vec![0; n as usize];
        for ack in acks {
            // Answers to the invalid message after the batch have other sequence numbers.
            let index = ack.sequence.wrapping_sub(first) as usize;
            let Some(answers) = answered.get_mut(index) else {
                continue;
            };
            *answers += 1;
            match ack.errno {
                0 => self.accepted += 1,
                errno => *self.refused.entry(errno).or_default() += 1,
            }
        }
        self.sent += u64::from(n);
        let wrong = answered.iter().position(|answers| *answers != 1);
        ensure!(
            wrong.is_none(),
            "message {} of a batch has {} answers",
            wrong.unwrap_or(0),
            wrong.map_or(0, |index| answered[index])
        );
        Ok(())
    }

    fn push(&mut self, bytes: &mut Vec<u8>) {
        let rng = &mut self.rng;
        let live = rng.bool();
        let (kind, mut flags) = match rng.u8(..100) {
            0..80 => {
                let flags = [
                    0,
                    0,
                    NLM_F_CREATE,
                    NLM_F_CREATE | NLM_F_EXCL,
                    NLM_F_CREATE | NLM_F_REPLACE,
                    NLM_F_REPLACE,
                ];
                (RTM_NEWQDISC, flags[rng.usize(..flags.len())])
            }
            80..86 => (RTM_DELQDISC, 0),
            86..91 => (RTM_GETQDISC, 0),
            91..94 => (RTM_NEWTFILTER, NLM_F_CREATE),
            94..96 => (RTM_DELTFILTER, 0),
            96..98 => (RTM_NEWTCLASS, NLM_F_CREATE),
            _ => (RTM_DELTCLASS, 0),
        };
        let mut kind = kind;
        // Deleting a qdisc of a device that is up waits for RCU, so do it rarely.
        let new_in_1000 = if live { 3 } else { self.new_in_1000 };
        if (flags != 0 || kind == RTM_DELQDISC) && rng.u16(..1_000) >= new_in_1000 {
            (kind, flags) = (RTM_NEWQDISC, 0);
        }
        let mut body = self.tcmsg(live);
        self.attributes(&mut body, kind);
        if self.rng.u8(..100) < 4 {
            body.truncate(self.rng.usize(..=body.len()));
        }
        let flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        raw::push_message(bytes, kind, flags, self.sequence, &body);
        debug_assert!(bytes.len() >= HEADER_BYTES);
    }

    /// struct tcmsg: family, ifindex, handle, parent, info.
    fn tcmsg(&mut self, live: bool) -> Vec<u8> {
        const ROOT: u32 = u32::MAX;
        const INGRESS: u32 = 0xffff_fff1;
        let rng = &mut self.rng;
        let ordinary = rng.u8(..100) < 90;
        let index = match ordinary || rng.bool() {
            true if live => DEVICE,
            true => IDLE,
            false => rng.u32(..),
        };
        let handle = match ordinary || rng.bool() {
            true => [0, 0, 1 << 16][rng.usize(..3)],
            false => rng.u32(..),
        };
        let parent = match ordinary || rng.bool() {
            true => ROOT,
            false => [INGRESS, 0, 1 << 16, 1 << 16 | 1, rng.u32(..)][rng.usize(..5)],
        };
        let mut body = vec![if ordinary { 0 } else { rng.u8(..) }, 0, 0, 0];
        for word in [index, handle, parent, if ordinary { 0 } else { rng.u32(..) }] {
            body.extend_from_slice(&word.to_ne_bytes());
        }
        body
    }

    fn attributes(&mut self, body: &mut Vec<u8>, kind: u16) {
        let options = self.options();
        let ours = self.target.kind();
        let rng = &mut self.rng;
        let mut attributes = Attributes::after(std::mem::take(body));
        let name = match rng.u8(..100) {
            0..94 if kind < RTM_NEWTFILTER => format!("{ours}\0"),
            0..97 if kind >= RTM_NEWTFILTER => {
                ["u32\0", "matchall\0", "flower\0"][rng.usize(..3)].to_string()
            }
            94 => "pfifo\0".to_string(),
            95 => ours.to_string(),
            96 => format!("{ours}-of-the-opera\0"),
            97 => "\0".to_string(),
            98 => "%n%s%p\0".to_string(),
            _ => String::new(),
        };
        if !name.is_empty() {
            attributes.push(TCA_KIND, name.as_bytes());
        }
        if rng.u8(..100) < 96 {
            let flag = if rng.u8(..10) == 0 { 0 } else { 0x8000 };
            attributes.push(TCA_OPTIONS | flag, &options);
        }
        if rng.u8(..100) < 3 {
            let extra = [TCA_RATE, TCA_STAB, TCA_OPTIONS, TCA_KIND, rng.u16(..)];
            let garbage: Vec<u8> = (0..rng.usize(..64)).map(|_| rng.u8(..)).collect();
            attributes.push(extra[rng.usize(..extra.len())], &garbage);
        }
        *body = attributes.into_bytes();
    }

    /// TCA_OPTIONS.
    fn options(&mut self) -> Vec<u8> {
        match self.rng.u8(..100) {
            0..35 => self.target.valid(&mut self.rng),
            35..65 => {
                let mut bytes = self.target.valid(&mut self.rng);
                for _ in 0..self.rng.u8(1..4) {
                    self.mutate(&mut bytes);
                }
                bytes
            }
            65..92 => self.structured(),
            92..98 => {
                let length = self.rng.usize(..512);
                (0..length).map(|_| self.rng.u8(..)).collect()
            }
            _ => vec![self.rng.u8(..); self.rng.usize(8_000..30_000)],
        }
    }

    /// Well-formed attributes whose ids, widths and values may be wrong.
    fn structured(&mut self) -> Vec<u8> {
        let rng = &mut self.rng;
        let mut attributes = Attributes::default();
        for _ in 0..rng.usize(..12) {
            let (id, width) = self.known[rng.usize(..self.known.len())];
            let id = match rng.u8(..20) {
                0 => [0, 1, 28, 29, 255, 0x3fff][rng.usize(..6)],
                1 => id | [0x8000, 0x4000, 0xc000][rng.usize(..3)],
                _ => id,
            };
            let width = match rng.u8(..10) {
                0 => [0, 1, 2, 3, 4, 7, 8, 9, 16, 17, 4_000][rng.usize(..11)],
                _ => width,
            };
            let fill = [0, 0xff, 0x7f, 0x80, 1][rng.usize(..5)];
            let value: Vec<u8> = match rng.u8(..4) {
                0 => vec![fill; width],
                1 => (0..width).map(|i| if i == 0 { rng.u8(..6) } else { 0 }).collect(),
                2 => (0..width).map(|i| if i < 3 { rng.u8(..) } else { 0 }).collect(),
                _ => (0..width).map(|_| rng.u8(..)).collect(),
            };
            attributes.push(id, &value);
        }
        attributes.into_bytes()
    }

    /// Corrupts a list of attributes.
    fn mutate(&mut self, bytes: &mut Vec<u8>) {
        let rng = &mut self.rng;
        if bytes.is_empty() {
            return;
        }
        // Offsets of the attributes.
        let mut starts = vec![0];
        while let Some(length) = starts
            .last()
            .and_then(|start| bytes.get(*start..*start + 2))
            .map(|length| usize::from(u16::from_ne_bytes([length[0], length[1]])))
            .filter(|length| *length >= 4)
        {
            let next = starts.last().unwrap_or(&0) + length.next_multiple_of(4);
            if next >= bytes.len() {
                break;
            }
            starts.push(next);
        }
        let start = starts[rng.usize(..starts.len())];
        match rng.u8(..7) {
            0 => {
                let at = rng.usize(..bytes.len());
                bytes[at] ^= 1 << rng.u8(..8);
            }
            1 => bytes.truncate(rng.usize(..bytes.len())),
            2 => {
                // A wrong length.
                let length = [0, 1, 3, 4, 5, u16::MAX, rng.u16(..64)][rng.usize(..7)];
                if let Some(field) = bytes.get_mut(start..start + 2) {
                    field.copy_from_slice(&length.to_ne_bytes());
                }
            }
            3 => {
                // Another id.
                let id = rng.u16(..40);
                if let Some(field) = bytes.get_mut(start + 2..start + 4) {
                    field.copy_from_slice(&id.to_ne_bytes());
                }
            }
            4 => {
                // All attributes twice.
                let copy = bytes.clone();
                bytes.extend(copy);
            }
            5 => {
                // One level of nesting too deep.
                let inner = std::mem::take(bytes);
                let mut outer = Attributes::default();
                outer.push(TCA_OPTIONS, &inner);
                *bytes = outer.into_bytes();
            }
            _ => {
                let at = rng.usize(..=bytes.len());
                bytes.insert(at, rng.u8(..));
            }
        }
    }

    /// Checks that the port can be dumped and restored, and then carries a flow.
    fn look(&mut self, pair: &Pair) -> Result<()> {
        pair.hosts[0].run(|| {
            let mut connection = Connection::open()?;
            for state in qdisc::dump(&mut connection, 0)? {
                if state.kind == self.target.kind() {
                    self.target.check(&state)?;
                }
            }
            // The port may have another qdisc; filters disappear with it.
            let _ = connection.request(qdisc::delete(DEVICE, TcHandle::ROOT));
            connection.request(net::root_of(self.target.kind(), self.target.sane()).add())?;
            Ok(())
        })?;
        let mut traffic = Traffic::new_at(pair, "gemini", [5001, 6001])?;
        traffic.open(Spec::new("unocc", 20_000, Family::V4))?;
        traffic.drain(crate::background::PATIENCE)?;
        traffic.verdict()
    }
}

/// Checks that a dump is within bounds, whatever was requested.
fn check_options(options: &Options) -> Result<()> {
    let of = |value: Option<u32>| value.context("missing option");
    let limit = options.limit_bytes.context("no limit")?;
    ensure!(limit > 0, "limit 0");
    ensure!((1..=1_000_000).contains(&of(options.drain_ppm)?), "drain");
    let (pmin, pmax) = (of(options.pmin_ppm)?, of(options.pmax_ppm)?);
    ensure!(pmin <= pmax && pmax <= 1_000_000, "pmin {pmin} pmax {pmax}");
    let (min, max) = (of(options.min_ppm)?, of(options.max_ppm)?);
    ensure!(min <= max && max <= 1_000_000, "min {min} max {max}");
    ensure!((-64..=256).contains(&options.overhead_bytes.context("no overhead")?), "overhead");
    ensure!(of(options.mpu_bytes)? <= 256, "mpu");
    let pooled = options.pool.as_ref().is_some_and(|name| !name.is_empty());
    ensure!(!pooled || options.pool_limit_bytes > Some(0), "a pool without a size");
    check_count(&options.encode(), &full().encode())
}

/// Checks that a dump has every option.
pub fn check_count(dumped: &[u8], full: &[u8]) -> Result<()> {
    let [dumped, full] = [dumped, full].map(|bytes| attributes::parse(bytes).count());
    ensure!(dumped == full, "{dumped} options of {full}");
    Ok(())
}
