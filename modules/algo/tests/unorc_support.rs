// SPDX-License-Identifier: GPL-2.0

//! A caller of UnoRC whose packets are vectors and which records sent packets.

use super::{
    gf256::{MAX_PARITY, NoVectors},
    paths::{Freeze, Kind as Chooser},
    random::Random,
    rtt::BaseRtt,
    tunnel::{Channel, Session},
    unorc::{Config, Context, Count, Happened, Io, Packet, Standing},
    unorc_blocks::{Held, HeldBlock, Lent},
    unorc_sender::Sent,
    unorc_wire::{HEADER_BYTES, Header, Kind},
};

impl Packet for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self
    }

    fn cut(&mut self, start: usize, len: usize) {
        self.drain(..start);
        self.truncate(len);
    }
}

pub fn config(x: u8, y: u8) -> Config {
    Config {
        x,
        y,
        timer_us: 0,
        flush_us: 50,
        paths: Chooser::Unolb,
        freeze: Freeze::Loss,
        mtu: 1_000,
        channels: 8,
        window: 8_192,
    }
}

/// Returns an IPv4 UDP packet of a flow, with a number.
pub fn ip(flow: u8, number: u32, len: usize) -> Vec<u8> {
    let len = len.max(32);
    let mut packet = vec![0; len];
    packet[0] = 0x45;
    packet[1] = 2;
    packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    packet[9] = 17;
    packet[12] = 10;
    packet[16] = 10;
    packet[21] = flow;
    packet[28..32].copy_from_slice(&number.to_be_bytes());
    for (i, cell) in packet[32..].iter_mut().enumerate() {
        *cell = (number as usize * 7 + i * 13) as u8;
    }
    packet
}

pub fn flow_and_number(packet: &[u8]) -> (u8, u32) {
    let number = u32::from_be_bytes(packet[28..32].try_into().unwrap());
    assert_eq!(packet, ip(packet[21], number, packet.len()));
    (packet[21], number)
}

#[derive(Default)]
pub struct Caller {
    /// Header, body, and whether it is ECN capable.
    pub sent: Vec<(Header, Vec<u8>, bool)>,
    pub up: Vec<(Vec<u8>, bool)>,
    pub counts: [u64; Count::NAMES.len()],
    /// Trace events, by channel.
    pub traced: Vec<(u8, Happened)>,
    /// Packets that waited for a session.
    pub again: Vec<Vec<u8>>,
    /// One in this number of allocations fails; 0 = none.
    pub fails: u32,
    asked: u32,
}

impl Caller {
    pub fn counted(&self, count: Count) -> u64 {
        self.counts[count as usize]
    }

    fn has_memory(&mut self) -> bool {
        self.asked += 1;
        let has_memory = self.fails == 0 || !self.asked.is_multiple_of(self.fails);
        self.counts[Count::NoMem as usize] += u64::from(!has_memory);
        has_memory
    }
}

impl Io for Caller {
    type Packet = Vec<u8>;
    type Vectors = NoVectors;

    fn vectors(&mut self) -> Option<NoVectors> {
        None
    }

    fn make(&mut self, len: usize) -> Option<Vec<u8>> {
        self.has_memory().then(|| vec![0; len])
    }

    fn copy(&mut self, packet: &Vec<u8>) -> Option<Vec<u8>> {
        self.has_memory().then(|| packet.clone())
    }

    fn send(&mut self, header: &Header, packet: Vec<u8>, is_capable: bool) {
        self.sent.push((*header, packet, is_capable));
    }

    fn again(&mut self, packet: Vec<u8>) {
        self.again.push(packet);
    }

    fn deliver(&mut self, packet: Vec<u8>, is_marked: bool) {
        self.up.push((packet, is_marked));
    }

    fn count(&mut self, count: Count, n: u64) {
        self.counts[count as usize] += n;
    }

    fn trace(&mut self, channel: u8, what: &Happened) {
        self.traced.push((channel, *what));
    }
}

/// The memory of one channel.
pub struct Memory {
    sent: Vec<Sent>,
    pub parities: [Option<Vec<u8>>; MAX_PARITY],
    held: Vec<Held<Vec<u8>>>,
    held_blocks: Vec<HeldBlock>,
}

fn some<T: Default>(n: usize) -> Vec<T> {
    (0..n).map(|_| T::default()).collect()
}

impl Memory {
    pub fn new(config: &Config) -> Self {
        Memory {
            sent: some(config.sent_slots()),
            parities: [const { None }; MAX_PARITY],
            held: some(config.held_slots()),
            held_blocks: some(config.blocks()),
        }
    }

    pub fn all(&mut self) -> Lent<'_, Vec<u8>> {
        Lent {
            sent: &mut self.sent,
            parities: &mut self.parities,
            slots: &mut self.held,
            blocks: &mut self.held_blocks,
        }
    }
}

/// One end of a tunnel, with the work of the driver.
pub struct End {
    pub session: Session<Vec<u8>>,
    pub channels: Vec<(Channel, Memory)>,
    pub io: Caller,
}

impl End {
    pub fn new(config: Config, seed: u64) -> Self {
        let channel = |number| {
            let channel = Channel::new(config, number, seed ^ u64::from(number) << 32);
            (channel, Memory::new(&config))
        };
        End {
            session: Session::new(config, !seed),
            channels: (0..config.channels).map(channel).collect(),
            io: Caller::default(),
        }
    }

    pub fn is_up(&self) -> bool {
        self.session.standing() == Standing::Up
    }

    pub fn change(&mut self, to: Config) {
        for (channel, _) in &mut self.channels {
            channel.change(to);
        }
    }

    pub fn due_us(&self) -> Option<u64> {
        let dues = self.channels.iter().map(|(channel, _)| channel.due_us);
        dues.chain([self.session.due_us])
            .filter(|&us| us != 0)
            .min()
    }

    /// The flow selects the channel.
    pub fn transmit(&mut self, now_us: u64, packet: Vec<u8>) {
        let theirs = self.session.theirs;
        if theirs == 0 {
            self.session.wait(&mut self.io, now_us, packet);
            return self.resend(now_us);
        }
        let number = usize::from(packet[21]) % self.channels.len();
        let (channel, memory) = &mut self.channels[number];
        channel.transmit(&mut self.io, memory.all(), now_us, theirs, packet);
    }

    fn resend(&mut self, now_us: u64) {
        for packet in std::mem::take(&mut self.io.again) {
            self.transmit(now_us, packet);
        }
    }

    pub fn receive(&mut self, now_us: u64, (ev, packet): (u16, Vec<u8>), is_marked: bool) {
        let Some(header) = packet.first_chunk::<HEADER_BYTES>() else {
            return self.io.count(Count::Malformed, 1);
        };
        let tag = u64::from_be_bytes(header[8..].try_into().unwrap());
        if header[0] & 15 == Kind::Hello as u8 {
            self.session
                .hello(&mut self.io, now_us, &packet[HEADER_BYTES..]);
            return self.resend(now_us);
        }
        if tag != self.session.mine {
            return self.session.stranger(&mut self.io, now_us);
        }
        let theirs = self.session.theirs;
        if theirs == 0 {
            self.session.ask(&mut self.io, now_us);
        }
        match self.channels.get_mut(usize::from(header[1])) {
            Some((channel, memory)) => {
                let packet = (packet, ev, is_marked);
                channel.receive(&mut self.io, memory.all(), now_us, theirs, packet);
            }
            None => self.io.count(Count::Malformed, 1),
        }
    }

    pub fn poll(&mut self, now_us: u64) {
        let is_due = |due_us| due_us != 0 && due_us <= now_us;
        if is_due(self.session.due_us) {
            self.session.poll(&mut self.io, now_us);
        }
        let theirs = self.session.theirs;
        for (channel, memory) in &mut self.channels {
            if is_due(channel.due_us) {
                channel.poll(&mut self.io, memory.all(), now_us, theirs);
            }
        }
    }
}

/// Returns a packet's entropy and bytes.
pub fn wire(header: &Header, tag: u64, body: &[u8]) -> (u16, Vec<u8>) {
    let mut packet = header.to_bytes().to_vec();
    packet[8..].copy_from_slice(&tag.to_be_bytes());
    packet.extend(body);
    (header.ev, packet)
}

/// One half of a channel with its environment.
pub struct Half<T> {
    pub half: T,
    pub config: Config,
    pub memory: Memory,
    pub io: Caller,
    pub rng: Random,
    pub rtt: BaseRtt,
    pub now_us: u64,
}

impl<T: Default> Half<T> {
    pub fn new(config: Config) -> Self {
        let mut rtt = BaseRtt::default();
        rtt.update(1, 100, u32::MAX);
        Half {
            half: T::default(),
            config,
            memory: Memory::new(&config),
            io: Caller::default(),
            rng: Random::new(1),
            rtt,
            now_us: 1_000,
        }
    }

    pub fn run<R>(&mut self, f: impl FnOnce(&mut T, &mut Context<'_, Caller>) -> R) -> R {
        let mut cx = Context {
            io: &mut self.io,
            lent: self.memory.all(),
            config: &self.config,
            rng: &mut self.rng,
            now_us: self.now_us,
            channel: 0,
            rtt: &mut self.rtt,
        };
        f(&mut self.half, &mut cx)
    }
}
