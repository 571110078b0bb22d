// SPDX-License-Identifier: GPL-2.0
//! An optical circuit switch: one BPF program per port.
//!
//! The switch knows the timetable and the clock, but shares neither code nor state with AccelToR's qdisc. By
//! day it sends a packet to the port that is matched with the packet's ingress port. It drops packets at
//! night, packets whose last bit would arrive at night, and packets for another rack.

use std::os::fd::{AsRawFd, OwnedFd};

use anyhow::Result;

use crate::{
    Instruction, KTIME_GET_NS, KTIME_GET_TAI_NS, Kind, MAP_LOOKUP, REDIRECT, SKB_LOAD_BYTES, add,
    add_register, add_to, array, call, copy, divide, divide_register, exit, load, load_double,
    load_half, load_word, look_up, map, multiply, remainder, set, set_double, skip, skip_above,
    skip_below_signed, skip_from, skip_if, skip_unless_equal, store, store_half, store_word,
    subtract_register, to_host_order, update,
};

/// Counters for each pair of ingress and egress ports.
pub const COUNTERS: [&str; 5] = ["packets", "bytes", "night", "cut", "misdirected"];

/// Drops the packet.
const TC_ACT_SHOT: i32 = 2;

/// Offset of an IPv4 packet's destination address in an Ethernet frame.
const DESTINATION: i32 = 30;

/// The 16 bits of a destination address that identify the rack.
#[derive(Debug, Clone, Copy)]
pub enum Half {
    /// 10.RACK.0.0
    Upper,
    /// Number of a host.
    Lower,
}

/// Timetable of the circuits.
#[derive(Debug, Clone, Copy)]
pub struct Timetable {
    /// CLOCK_TAI instead of CLOCK_MONOTONIC.
    pub tai: bool,
    /// Start of day 0.
    pub base_ns: i64,
    /// Duration of a circuit.
    pub day_ns: i32,
    /// Time between two circuits.
    pub night_ns: i32,
    /// Rate of a circuit.
    pub bytes_per_s: u64,
}

/// The switch: maps and constants that its programs share.
#[derive(Debug)]
pub struct Switch {
    timetable: Timetable,
    half: Half,
    ports: u32,
    weeks: u32,
    /// Interface index of each port.
    devices: OwnedFd,
    /// Rack number + 1 by 16 bits of an address; 0 = no rack.
    racks: OwnedFd,
    /// [`COUNTERS`] by ingress and egress port.
    counts: OwnedFd,
    /// Bytes by ingress port and week.
    week_bytes: OwnedFd,
}

impl Switch {
    /// Makes a switch with one port per device that counts this many weeks separately.
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

    /// Assigns addresses to a rack.
    pub fn has(&self, half: u16, rack: u32) -> Result<()> {
        let racks = self.racks.as_raw_fd();
        update(racks, half.into(), &[u64::from(rack) + 1])
    }

    /// Loads the program for packets that arrive at a port.
    pub fn program(&self, port: u32) -> Result<OwnedFd> {
        load(Kind::Classifier, &self.instructions(port as i32))
    }

    /// Returns the counters for packets from one port to another.
    pub fn counted(&self, from: u32, to: u32) -> Result<[u64; COUNTERS.len()]> {
        look_up(self.counts.as_raw_fd(), from * self.ports + to)
    }

    /// Returns the bytes that were forwarded from a port in a week.
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
        /// Stack slots: map index, egress device, address bits, number of the day.
        const INDEX: i16 = -4;
        const DEVICE: i16 = -16;
        const ADDRESS: i16 = -24;
        const SLOT: i16 = -32;
        let Timetable { tai, base_ns, day_ns, night_ns, bytes_per_s } = self.timetable;
        let ports = self.ports as i32;
        let clock = if tai { KTIME_GET_TAI_NS } else { KTIME_GET_NS };
        let slot_ns = day_ns + night_ns;
        // Increments a counter and drops the packet.
        let lost =
            |counter: i16| [set(1, 1), add_to(COUNTS, counter * 8, 1), set(0, TC_ACT_SHOT), exit()];
        // Loads into r0 the element of a map whose index is on the stack; drops the packet on failure.
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
            // Drop packets before the first day.
            skip_below_signed(0, 0, 1),
            skip(2),
            set(0, TC_ACT_SHOT),
            exit(),
            // Compute the day, the time since its start, and the peer rack.
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
        // Drop packets at night.
        code.extend([skip_from(SINCE, day_ns, 1), skip(4)]);
        code.extend(lost(2));
        // Drop packets whose last bit would arrive after the day's end.
        code.extend([load_word(1, PACKET, 0), multiply(1, 1_000_000_000)]);
        code.extend(set_double(2, bytes_per_s));
        code.extend([
            divide_register(1, 2),
            add_register(1, SINCE),
            skip_above(1, day_ns, 1),
            skip(4),
        ]);
        code.extend(lost(3));
        // Drop packets for another rack.
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
        code.extend([load_word(1, 0, 0), add(1, -1), skip_unless_equal(1, PEER, 1), skip(4)]);
        code.extend(lost(4));
        // Count bytes by week; the last week counts all later ones.
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
