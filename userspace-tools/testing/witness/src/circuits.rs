// SPDX-License-Identifier: GPL-2.0
//! `xdc-witness circuits`: an optical circuit switch as the witness of AccelToR's racks.
//!
//! A program of eBPF at each port knows the timetable and the clock, and nothing of the qdisc: not its
//! code, not its state. By day a packet goes to the port that is matched with the one by which it came. At night, and
//! if it would not be over before the night, it is lost, and so is one that is for another rack.

use std::{io::Read, os::fd::AsRawFd, process::ExitCode};

use anyhow::{Context, Result, bail, ensure};
use nix::net::if_::if_nametoindex;
use xdc_bpf::{
    Instruction, KTIME_GET_NS, KTIME_GET_TAI_NS, Kind, MAP_LOOKUP, REDIRECT, SKB_LOAD_BYTES, add,
    add_register, add_to, array, call, copy, divide, divide_register, exit, load, load_byte,
    load_word, look_up, map, multiply, remainder, set, set_double, skip, skip_above,
    skip_below_signed, skip_from, skip_if, skip_unless_equal, store, store_word, subtract_register,
    update,
};
use xdc_netlink::{Connection, qdisc};

/// What is counted of the packets from one port to another.
const COUNTERS: [&str; 5] = ["packets", "bytes", "night", "cut", "misdirected"];

/// Drop a packet.
const TC_ACT_SHOT: i32 = 2;

/// Where an IPv4 packet in an Ethernet frame has its destination.
const DESTINATION: i32 = 30;

/// When circuits are there.
struct Timetable {
    tai: bool,
    base_ns: i64,
    day_ns: i32,
    night_ns: i32,
    bytes_per_s: u64,
    ports: i32,
}

/// What the command did: `circuits tai|monotonic BASE DAY NIGHT BYTES_PER_S DEV...`, with times in ns and a
/// device for each rack, whose addresses are 10.RACK.0.0/16. It ends with its input, and prints what it has
/// counted.
pub fn command(words: &[String]) -> ExitCode {
    match run(words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xdc-witness circuits: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[String]) -> Result<()> {
    let [clock, base, day, night, rate, devices @ ..] = words else {
        bail!("tai|monotonic BASE DAY NIGHT BYTES_PER_S DEV...");
    };
    ensure!((2..=255).contains(&devices.len()), "2 to 255 devices");
    let timetable = Timetable {
        tai: clock == "tai",
        base_ns: base.parse()?,
        day_ns: day.parse()?,
        night_ns: night.parse()?,
        bytes_per_s: rate.parse()?,
        ports: devices.len() as i32,
    };
    let n = devices.len() as u32;
    let ports = array(8, n)?;
    let counts = array(8 * COUNTERS.len() as u32, n * n)?;
    let mut connection = Connection::open()?;
    let mut programs = Vec::new();
    for (i, device) in (0..).zip(devices) {
        let index = if_nametoindex(device.as_str()).with_context(|| format!("no {device}"))?;
        update(ports.as_raw_fd(), i, &[u64::from(index)])?;
    }
    for (i, device) in (0..).zip(devices) {
        let index = if_nametoindex(device.as_str())?;
        let code = timetable.program(i, ports.as_raw_fd(), counts.as_raw_fd());
        let program = load(Kind::Classifier, &code)?;
        connection.batch([
            qdisc::clsact(index),
            qdisc::ingress_program(index, "circuits", program.as_raw_fd()),
        ])?;
        programs.push(program);
    }
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    for from in 0..n {
        for to in 0..n {
            let counted: [u64; COUNTERS.len()] = look_up(counts.as_raw_fd(), from * n + to)?;
            if counted.iter().any(|count| *count != 0) {
                let pairs = COUNTERS.iter().zip(counted);
                let text: Vec<_> = pairs
                    .map(|(name, count)| format!("{name} {count}"))
                    .collect();
                println!("from {from} to {to} {}", text.join(" "));
            }
        }
    }
    Ok(())
}

impl Timetable {
    /// The program of port `own`.
    fn program(&self, own: i32, ports: i32, counts: i32) -> Vec<Instruction> {
        const PACKET: u8 = 6;
        const COUNTS: u8 = 7;
        const SINCE: u8 = 8;
        const PEER: u8 = 9;
        const STACK: u8 = 10;
        let clock = if self.tai {
            KTIME_GET_TAI_NS
        } else {
            KTIME_GET_NS
        };
        let slot_ns = self.day_ns + self.night_ns;
        // Adds 1 to a counter and drops the packet.
        let lost = |counter: i16| {
            [
                set(1, 1),
                add_to(COUNTS, counter * 8, 1),
                set(0, TC_ACT_SHOT),
                exit(),
            ]
        };
        // r0 = the element of a map whose index is at the top of the stack; a failure is a dropped packet.
        let element = |fd: i32| {
            let [first, second] = map(1, fd);
            let there = [copy(2, STACK), add(2, -4), call(MAP_LOOKUP)];
            let or_drop = [skip_if(0, 0, 1), skip(2), set(0, TC_ACT_SHOT), exit()];
            [&[first, second][..], &there, &or_drop].concat()
        };
        let mut code = vec![copy(PACKET, 1), call(clock)];
        code.extend(set_double(1, self.base_ns as u64));
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
            remainder(PEER, self.ports - 1),
            add(PEER, own + 1),
            remainder(PEER, self.ports),
            copy(SINCE, 0),
            remainder(SINCE, slot_ns),
            store_word(STACK, -4, PEER),
        ]);
        code.extend(element(ports));
        code.extend([
            load_word(1, 0, 0),
            store(STACK, -16, 1),
            copy(1, PEER),
            add(1, own * self.ports),
            store_word(STACK, -4, 1),
        ]);
        code.extend(element(counts));
        code.push(copy(COUNTS, 0));
        // Night.
        code.extend([skip_from(SINCE, self.day_ns, 1), skip(4)]);
        code.extend(lost(2));
        // Its last bit comes after the day's end.
        code.extend([load_word(1, PACKET, 0), multiply(1, 1_000_000_000)]);
        code.extend(set_double(2, self.bytes_per_s));
        code.extend([
            divide_register(1, 2),
            add_register(1, SINCE),
            skip_above(1, self.day_ns, 1),
            skip(4),
        ]);
        code.extend(lost(3));
        // For whom it is.
        code.extend([
            copy(1, PACKET),
            set(2, DESTINATION),
            copy(3, STACK),
            add(3, -24),
            set(4, 4),
            set(5, 0),
            store(STACK, -24, 5),
            call(SKB_LOAD_BYTES),
            load_byte(1, STACK, -23),
            skip_unless_equal(1, PEER, 1),
            skip(4),
        ]);
        code.extend(lost(4));
        code.extend([
            set(1, 1),
            add_to(COUNTS, 0, 1),
            load_word(1, PACKET, 0),
            add_to(COUNTS, 8, 1),
            load_word(1, STACK, -16),
            set(2, 0),
            call(REDIRECT),
            exit(),
        ]);
        code
    }
}
