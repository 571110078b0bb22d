// SPDX-License-Identifier: GPL-2.0
//! An optical circuit switch: a program for each of its ports.
//!
//! It knows the timetable and the clock, and nothing of AccelToR's qdisc: not its code, not its state. By day a
//! packet goes to the port that is matched with the one by which it came. At night, and if it would not be
//! over before the night, it is lost, and so is one that is for another rack.

use std::os::fd::{AsRawFd, OwnedFd};

use anyhow::Result;

use crate::{
    Instruction, KTIME_GET_NS, KTIME_GET_TAI_NS, Kind, MAP_LOOKUP, REDIRECT, SKB_LOAD_BYTES, add,
    add_register, add_to, array, call, copy, divide, divide_register, exit, load, load_double,
    load_half, load_word, look_up, map, multiply, remainder, set, set_double, skip, skip_above,
    skip_below_signed, skip_from, skip_if, skip_unless_equal, store, store_half, store_word,
    subtract_register, to_host_order, update,
};

/// What is counted of the packets from one port to another.
pub const COUNTERS: [&str; 5] = ["packets", "bytes", "night", "cut", "misdirected"];

/// Drop a packet.
const TC_ACT_SHOT: i32 = 2;

/// Where an IPv4 packet in an Ethernet frame has its destination.
const DESTINATION: i32 = 30;

/// Which 16 bits of a packet's destination say whose it is.
#[derive(Debug, Clone, Copy)]
pub enum Half {
    /// 10.RACK.0.0
    Upper,
    /// The number of a host.
    Lower,
}

/// When circuits are there.
#[derive(Debug, Clone, Copy)]
pub struct Timetable {
    /// By CLOCK_TAI, else CLOCK_MONOTONIC.
    pub tai: bool,
    /// Day 0 starts.
    pub base_ns: i64,
    /// How long a circuit lasts.
    pub day_ns: i32,
    /// Until the next one.
    pub night_ns: i32,
    /// Of a circuit.
    pub bytes_per_s: u64,
}

/// The switch: what its programs share.
#[derive(Debug)]
pub struct Switch {
    timetable: Timetable,
    half: Half,
    ports: u32,
    weeks: u32,
    /// The device of each port.
    devices: OwnedFd,
    /// By these 16 bits of an address: the rack, from 1 on; 0 = none.
    racks: OwnedFd,
    /// From, to.
    counts: OwnedFd,
    /// From, week: bytes.
    week_bytes: OwnedFd,
}

impl Switch {
    /// A switch with a port for each of these devices, which counts so many weeks one by one.
    pub fn new(timetable: Timetable, half: Half, devices: &[u32], weeks: u32) -> Result<Self> {
        let ports = devices.len() as u32;
        let switch = Self {
            timetable,
            half,
            ports,
            weeks,
            devices: array(8, ports)?,
            racks: array(8, 1 << 16)?,
            counts: array(8 * COUNTERS.len() as u32, ports * ports)?,
            week_bytes: array(8, ports * weeks)?,
        };
        for (port, device) in (0..).zip(devices) {
            update(switch.devices.as_raw_fd(), port, &[u64::from(*device)])?;
        }
        Ok(switch)
    }

    /// Says whose an address is.
    pub fn has(&self, half: u16, rack: u32) -> Result<()> {
        let racks = self.racks.as_raw_fd();
        update(racks, half.into(), &[u64::from(rack) + 1])
    }

    /// The program of what arrives at a port.
    pub fn program(&self, port: u32) -> Result<OwnedFd> {
        load(Kind::Classifier, &self.instructions(port as i32))
    }

    /// What was counted of the packets from one port to another.
    pub fn counted(&self, from: u32, to: u32) -> Result<[u64; COUNTERS.len()]> {
        look_up(self.counts.as_raw_fd(), from * self.ports + to)
    }

    /// Bytes that were sent on from a port in a week.
    pub fn week_bytes(&self, from: u32, week: u32) -> Result<u64> {
        let [bytes] = look_up(self.week_bytes.as_raw_fd(), from * self.weeks + week)?;
        Ok(bytes)
    }

    fn instructions(&self, own: i32) -> Vec<Instruction> {
        const PACKET: u8 = 6;
        const COUNTS: u8 = 7;
        const SINCE: u8 = 8;
        const PEER: u8 = 9;
        const STACK: u8 = 10;
        /// On the stack: an index, a device, an address, the number of the day.
        const INDEX: i16 = -4;
        const DEVICE: i16 = -16;
        const ADDRESS: i16 = -24;
        const SLOT: i16 = -32;
        let Timetable {
            tai,
            base_ns,
            day_ns,
            night_ns,
            bytes_per_s,
        } = self.timetable;
        let ports = self.ports as i32;
        let clock = if tai { KTIME_GET_TAI_NS } else { KTIME_GET_NS };
        let slot_ns = day_ns + night_ns;
        // Adds 1 to a counter and drops the packet.
        let lost = |counter: i16| {
            [
                set(1, 1),
                add_to(COUNTS, counter * 8, 1),
                set(0, TC_ACT_SHOT),
                exit(),
            ]
        };
        // r0 = the element of a map whose index is on the stack; a failure is a dropped packet.
        let element = |fd: &OwnedFd| {
            let [first, second] = map(1, fd.as_raw_fd());
            let there = [copy(2, STACK), add(2, INDEX.into()), call(MAP_LOOKUP)];
            let or_drop = [skip_if(0, 0, 1), skip(2), set(0, TC_ACT_SHOT), exit()];
            [&[first, second][..], &there, &or_drop].concat()
        };
        let mut code = vec![copy(PACKET, 1), call(clock)];
        code.extend(set_double(1, base_ns as u64));
        code.extend([
            subtract_register(0, 1),
            // Before the first day.
            skip_below_signed(0, 0, 1),
            skip(2),
            set(0, TC_ACT_SHOT),
            exit(),
            // The day, the time since it began, and whom it belongs to.
            copy(PEER, 0),
            divide(PEER, slot_ns),
            store(STACK, SLOT, PEER),
            remainder(PEER, ports - 1),
            add(PEER, own + 1),
            remainder(PEER, ports),
            copy(SINCE, 0),
            remainder(SINCE, slot_ns),
            store_word(STACK, INDEX, PEER),
        ]);
        code.extend(element(&self.devices));
        code.extend([
            load_word(1, 0, 0),
            store(STACK, DEVICE, 1),
            copy(1, PEER),
            add(1, own * ports),
            store_word(STACK, INDEX, 1),
        ]);
        code.extend(element(&self.counts));
        code.push(copy(COUNTS, 0));
        // Night.
        code.extend([skip_from(SINCE, day_ns, 1), skip(4)]);
        code.extend(lost(2));
        // Its last bit comes after the day's end.
        code.extend([load_word(1, PACKET, 0), multiply(1, 1_000_000_000)]);
        code.extend(set_double(2, bytes_per_s));
        code.extend([
            divide_register(1, 2),
            add_register(1, SINCE),
            skip_above(1, day_ns, 1),
            skip(4),
        ]);
        code.extend(lost(3));
        // For whom it is.
        let at = match self.half {
            Half::Upper => 0,
            Half::Lower => 2,
        };
        code.extend([
            copy(1, PACKET),
            set(2, DESTINATION + at),
            copy(3, STACK),
            add(3, ADDRESS.into()),
            set(4, 2),
            set(5, 0),
            store_half(STACK, ADDRESS, 5),
            call(SKB_LOAD_BYTES),
            load_half(1, STACK, ADDRESS),
            to_host_order(1, 16),
            store_word(STACK, INDEX, 1),
        ]);
        code.extend(element(&self.racks));
        code.extend([
            load_word(1, 0, 0),
            add(1, -1),
            skip_unless_equal(1, PEER, 1),
            skip(4),
        ]);
        code.extend(lost(4));
        // The week.
        let last = self.weeks as i32 - 1;
        code.extend([
            load_double(1, STACK, SLOT),
            divide(1, ports - 1),
            skip_above(1, last, 1),
            skip(1),
            set(1, last),
            add(1, own * self.weeks as i32),
            store_word(STACK, INDEX, 1),
        ]);
        code.extend(element(&self.week_bytes));
        code.extend([
            load_word(1, PACKET, 0),
            add_to(0, 0, 1),
            add_to(COUNTS, 8, 1),
            set(1, 1),
            add_to(COUNTS, 0, 1),
            load_word(1, STACK, DEVICE),
            set(2, 0),
            call(REDIRECT),
            exit(),
        ]);
        code
    }
}
