// SPDX-License-Identifier: GPL-2.0
//! nftables rules and NFQUEUE, encoded as netlink: a guest has no `nft`.

use std::{
    io::{ErrorKind, Read},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context, Result, anyhow, ensure};
use netlink_packet_core::{NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_REQUEST};
use socket2::{Domain, Protocol, Socket, Type};
use xdc_netlink::connection::messages;

use crate::{
    net::Netns,
    raw::{HEADER_BYTES, Netlink, push_message},
};

const NETLINK_NETFILTER: i32 = 12;
const NFPROTO_IPV4: u8 = 2;

const SUBSYS_QUEUE: u16 = 3;
const SUBSYS_NFTABLES: u16 = 10;
const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;
const NEWTABLE: u16 = 0;
const NEWCHAIN: u16 = 3;
const NEWRULE: u16 = 6;
const NLA_F_NESTED: u16 = 1 << 15;

/// Hook of a chain: `enum nf_inet_hooks`.
#[derive(Debug, Clone, Copy)]
pub enum Hook {
    /// Packets to this host.
    Input = 1,
    /// Packets leaving this host.
    PostRouting = 4,
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(((4 + value.len()) as u16).to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    out.extend(value);
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

fn number(kind: u16, value: u32) -> Vec<u8> {
    attribute(kind, &value.to_be_bytes())
}

fn text(kind: u16, value: &str) -> Vec<u8> {
    let mut bytes = value.as_bytes().to_vec();
    bytes.push(0);
    attribute(kind, &bytes)
}

fn nested(kind: u16, parts: &[Vec<u8>]) -> Vec<u8> {
    attribute(kind | NLA_F_NESTED, &parts.concat())
}

/// `struct nfgenmsg`.
fn head(family: u8, resource: u16) -> Vec<u8> {
    let mut out = vec![family, 0];
    out.extend(resource.to_be_bytes());
    out
}

/// Expression of a rule.
pub struct Step(Vec<u8>);

fn step(name: &str, data: &[Vec<u8>]) -> Step {
    const LIST_ELEM: u16 = 1;
    const NAME: u16 = 1;
    const DATA: u16 = 2;
    Step(nested(LIST_ELEM, &[text(NAME, name), nested(DATA, data)]))
}

const REGISTER: u32 = 1;
const NETWORK_HEADER: u32 = 1;

/// Continues if the IP header has the bytes `value` at `offset`.
pub fn if_ip(offset: u32, value: &[u8]) -> [Step; 2] {
    const EQUAL: u32 = 0;
    [
        step(
            "payload",
            &[
                number(1, REGISTER),
                number(2, NETWORK_HEADER),
                number(3, offset),
                number(4, value.len() as u32),
            ],
        ),
        step("cmp", &[number(1, REGISTER), number(2, EQUAL), nested(3, &[attribute(1, value)])]),
    ]
}

/// Continues if the bits of `mask` at `offset` of the IP header equal those of `value`.
pub fn if_ip_bits(offset: u32, mask: u8, value: u8) -> [Step; 3] {
    let [load, compare] = if_ip(offset, &[value]);
    let select = step(
        "bitwise",
        &[
            number(1, REGISTER),
            number(2, REGISTER),
            number(3, 1),
            nested(4, &[attribute(1, &[mask])]),
            nested(5, &[attribute(1, &[0])]),
        ],
    );
    [load, select, compare]
}

/// Writes an address at `offset` of the IP header, and updates the checksums.
pub fn set_address(offset: u32, address: [u8; 4]) -> [Step; 2] {
    const CSUM_INET: u32 = 1;
    const IP_CHECKSUM: u32 = 10;
    const L4_PSEUDOHEADER: u32 = 1;
    [
        step("immediate", &[number(1, REGISTER), nested(2, &[attribute(1, &address)])]),
        step(
            "payload",
            &[
                number(5, REGISTER),
                number(2, NETWORK_HEADER),
                number(3, offset),
                number(4, address.len() as u32),
                number(6, CSUM_INET),
                number(7, IP_CHECKSUM),
                number(8, L4_PSEUDOHEADER),
            ],
        ),
    ]
}

/// Drops the packet.
pub fn drop_it() -> Step {
    const NF_DROP: u32 = 0;
    let verdict = nested(2, &[number(1, NF_DROP)]);
    step("immediate", &[number(1, 0), nested(2, &[verdict])])
}

/// Passes the packet to [`Queue`].
pub fn queue_it() -> Step {
    step("queue", &[attribute(1, &QUEUE.to_be_bytes()), attribute(2, &1u16.to_be_bytes())])
}

/// Adds an IPv4 chain with one rule to a namespace, until the namespace goes.
pub fn rule(host: &Netns, hook: Hook, priority: i32, steps: Vec<Step>) -> Result<()> {
    let name = format!("t{}p{}", hook as u32, priority);
    let subsystem = SUBSYS_NFTABLES << 8;
    let flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE;
    let steps: Vec<_> = steps.into_iter().map(|step| step.0).collect();
    let mut batch = Vec::new();
    let edge = head(0, SUBSYS_NFTABLES);
    push_message(&mut batch, BATCH_BEGIN, NLM_F_REQUEST, 1, &edge);
    let message = |parts: &[Vec<u8>]| [head(NFPROTO_IPV4, 0), parts.concat()].concat();
    let table = message(&[text(1, &name)]);
    push_message(&mut batch, subsystem | NEWTABLE, flags, 2, &table);
    let place = nested(4, &[number(1, hook as u32), number(2, priority as u32)]);
    let chain = message(&[text(1, &name), text(3, "c"), place, text(7, "filter")]);
    push_message(&mut batch, subsystem | NEWCHAIN, flags, 3, &chain);
    let rule = message(&[text(1, &name), text(2, "c"), nested(4, &steps)]);
    let append = flags | NLM_F_APPEND;
    push_message(&mut batch, subsystem | NEWRULE, append, 4, &rule);
    push_message(&mut batch, BATCH_END, NLM_F_REQUEST, 5, &edge);
    host.run(|| {
        let mut netlink = Netlink::open(NETLINK_NETFILTER)?;
        netlink.send(&batch)?;
        let acks = netlink.acks()?;
        ensure!(acks.len() == 3, "{} answers to a rule", acks.len());
        for ack in acks {
            ensure!(
                ack.errno == 0,
                "rule: step {}: {}",
                ack.sequence,
                std::io::Error::from_raw_os_error(ack.errno)
            );
        }
        Ok(())
    })
}

const QUEUE: u16 = 1;

/// Verdict of user space.
#[derive(Debug, Clone, Copy)]
pub enum Verdict {
    /// Drops packets, without notice to TCP.
    Drop = 0,
    /// Passes packets on.
    Accept = 1,
}

/// Thread that gives a verdict on every packet queued by rules.
pub struct Queue {
    thread: Option<JoinHandle<Result<()>>>,
    stop: Arc<AtomicBool>,
    packets: Arc<AtomicU64>,
}

impl Queue {
    /// Binds the queue in a namespace. GSO packets arrive unsegmented.
    pub fn new(host: &Netns, verdict: Verdict) -> Result<Self> {
        const CONFIG: u16 = 2;
        const F_GSO: u32 = 1 << 2;
        let socket = host.run(|| {
            let netfilter = Some(Protocol::from(NETLINK_NETFILTER));
            let netlink = Domain::from(libc::AF_NETLINK);
            Socket::new(netlink, Type::RAW.cloexec(), netfilter).context("cannot open netlink")
        })?;
        crate::sys::set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 8 << 20)?;
        // A full buffer loses packets, as on any path.
        crate::sys::set_option(&socket, libc::SOL_NETLINK, libc::NETLINK_NO_ENOBUFS, 1)?;
        socket.set_read_timeout(Some(Duration::from_millis(50)))?;
        let command = |parts: &[Vec<u8>]| {
            let mut out = Vec::new();
            let body = [head(0, QUEUE), parts.concat()].concat();
            let kind = SUBSYS_QUEUE << 8 | CONFIG;
            push_message(&mut out, kind, NLM_F_REQUEST | NLM_F_ACK, 1, &body);
            out
        };
        let bind = attribute(1, &[1, 0, 0, NFPROTO_IPV4]);
        // Copy nothing of the packets.
        let params = attribute(2, &[0, 0, 0, 0, 1]);
        let flags = [number(5, F_GSO), number(4, F_GSO)].concat();
        for request in [command(&[bind]), command(&[params, flags])] {
            socket.send(&request)?;
            let mut answer = [0; 256];
            let n = (&socket).read(&mut answer).context("NFQUEUE")?;
            let error = answer.get(HEADER_BYTES..n.min(HEADER_BYTES + 4));
            ensure!(error == Some(&[0; 4]), "NFQUEUE refuses: {error:?}");
        }
        let stop = Arc::new(AtomicBool::new(false));
        let packets = Arc::new(AtomicU64::new(0));
        let (stopped, counted) = (stop.clone(), packets.clone());
        let thread = thread::spawn(move || serve(&socket, verdict, &stopped, &counted));
        Ok(Self { thread: Some(thread), stop, packets })
    }

    /// Packets with a verdict.
    pub fn packets(&self) -> u64 {
        self.packets.load(Ordering::Relaxed)
    }

    /// Stops the thread.
    pub fn end(mut self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().context("the queue has ended")?;
        thread.join().map_err(|_| anyhow!("the queue panicked"))?
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn serve(socket: &Socket, verdict: Verdict, stop: &AtomicBool, packets: &AtomicU64) -> Result<()> {
    const PACKET: u16 = SUBSYS_QUEUE << 8;
    const VERDICT: u16 = SUBSYS_QUEUE << 8 | 1;
    const VERDICT_HDR: u16 = 2;
    let mut buffer = vec![0; 64 << 10];
    while !stop.load(Ordering::Relaxed) {
        let n = match { socket }.read(&mut buffer) {
            Ok(n) => n,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                continue;
            }
            Err(e) => return Err(e).context("NFQUEUE"),
        };
        for message in messages(&buffer[..n]) {
            if u16::from_ne_bytes([message[4], message[5]]) != PACKET {
                continue;
            }
            // The packet header comes first and contains the id.
            let id = message.get(HEADER_BYTES + 8..HEADER_BYTES + 12);
            let id = id.context("a packet has no id")?;
            let mut decided = (verdict as u32).to_be_bytes().to_vec();
            decided.extend(id);
            let body = [head(0, QUEUE), attribute(VERDICT_HDR, &decided)].concat();
            let mut out = Vec::new();
            push_message(&mut out, VERDICT, NLM_F_REQUEST, 1, &body);
            socket.send(&out)?;
            packets.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(())
}
