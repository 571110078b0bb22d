// SPDX-License-Identifier: GPL-2.0
//! A BPF program switches the congestion control of sending sockets, also inside the ACK that an algorithm
//! has just requested.

use std::{
    fs::{self, File},
    path::Path,
    time::Duration,
};

use anyhow::{Context, Result, anyhow, ensure};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use xdc_bpf::{
    Attached, GET_PRANDOM_U32, Instruction, Kind, add, and, call, copy, exit, load, load_word, set,
    skip, skip_if, store_word,
};
use xdc_netlink::phantom::{Mark, Options};

use crate::{
    Storm,
    background::PATIENCE,
    flow::{Family, Spec, Traffic, Watch},
    live::settled,
    net::{Books, Pair},
};

// include/uapi/linux/bpf.h
const SETSOCKOPT: i32 = 49;
const SOCK_OPS_CB_FLAGS_SET: i32 = 59;
const ACTIVE_ESTABLISHED_CB: i32 = 4;
const PASSIVE_ESTABLISHED_CB: i32 = 5;
const HDR_OPT_LEN_CB: i32 = 14;
const WRITE_HDR_OPT_CB_FLAG: i32 = 1 << 6;

/// Congestion controls to switch to.
const NAMES: [&[u8; 8]; 4] = [b"unocc\0\0\0", b"gemini\0\0", b"reno\0\0\0\0", b"cubic\0\0\0"];
/// Each name is chosen for one packet in this many. A power of two.
const ONE_OF: i32 = 64;

/// Requests a call for each packet that a socket sends, and then switches the socket at random.
fn program() -> Vec<Instruction> {
    let [low, high] = [0, 4].map(|from| {
        move |name: &[u8; 8]| i32::from_ne_bytes(name[from..from + 4].try_into().unwrap_or([0; 4]))
    });
    // Each name takes five instructions.
    let names = NAMES.len() as i16;
    let mut program = vec![
        copy(6, 1),
        load_word(7, 6, 0),
        skip_if(7, ACTIVE_ESTABLISHED_CB, 4),
        skip_if(7, PASSIVE_ESTABLISHED_CB, 3),
        skip_if(7, HDR_OPT_LEN_CB, 7),
        set(0, 1),
        exit(),
        copy(1, 6),
        set(2, WRITE_HDR_OPT_CB_FLAG),
        call(SOCK_OPS_CB_FLAGS_SET),
        set(0, 1),
        exit(),
        call(GET_PRANDOM_U32),
        copy(8, 0),
        and(8, ONE_OF - 1),
    ];
    for i in 0..names {
        // Skips the remaining comparisons, the exit, and the earlier names.
        program.push(skip_if(8, i.into(), names - i - 1 + 2 + 5 * i));
    }
    program.extend([set(0, 1), exit()]);
    for (i, name) in (0..names).zip(NAMES) {
        program.extend([
            set(1, low(name)),
            store_word(10, -8, 1),
            set(1, high(name)),
            store_word(10, -4, 1),
            skip(5 * (names - i - 1)),
        ]);
    }
    program.extend([
        copy(1, 6),
        set(2, libc::SOL_TCP),
        set(3, libc::TCP_CONGESTION),
        copy(4, 10),
        add(4, -8),
        set(5, NAMES[0].len() as i32),
        call(SETSOCKOPT),
        set(0, 1),
        exit(),
    ]);
    program
}

/// Mount of the root cgroup, until dropped.
struct Cgroups(&'static Path);

impl Cgroups {
    fn mount() -> Result<Self> {
        let at = Path::new("/tmp/xdc-cgroups");
        fs::create_dir_all(at).with_context(|| format!("cannot make {}", at.display()))?;
        let none: Option<&str> = None;
        mount(none, at, Some("cgroup2"), MsFlags::empty(), none).context("cannot mount cgroup2")?;
        Ok(Self(at))
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        // Errors do not matter: the guest ends soon.
        let _ = umount2(self.0, MntFlags::MNT_DETACH).map(|()| fs::remove_dir(self.0));
    }
}

/// A port that marks the second and third packet of a burst at random and later ones always: the debug kernel
/// sends hardly more.
fn marking() -> Options {
    Options {
        limit_bytes: Some(100_000),
        rate_bytes_per_s: Some(2_000_000),
        phantom_limit_bytes: Some(8_000),
        mark: Some(Mark::Either),
        pmin_ppm: Some(250_000),
        pmax_ppm: Some(250_000),
        ..Default::default()
    }
}

/// The receiver's port after the handshakes: it holds a few ACKs and drops others.
fn narrow() -> Options {
    Options {
        limit_bytes: Some(400),
        rate_bytes_per_s: Some(50_000),
        mark: Some(Mark::Physical),
        ..Default::default()
    }
}

/// The receiver's port during handshakes. If the host's own port drops a retransmitted SYN-ACK, the kernel
/// forgets the request (reqsk_timer_handler) and resets a client that got an earlier SYN-ACK.
fn wide() -> Options {
    Options { limit_bytes: Some(100_000), ..narrow() }
}

/// Flows open at a time.
const AT_ONCE: usize = 8;

/// Runs `count` flows of each algorithm.
pub fn attack(storm: &mut Storm, count: u32) -> Result<()> {
    let cgroups = Cgroups::mount()?;
    let program = load(Kind::SockOps, &program())?;
    let _attached = Attached::new(program, File::open(cgroups.0)?)?;
    let mut acks_dropped = 0;
    for cc in ["unocc", "gemini"] {
        let pair = Pair::new()?;
        pair.sysctl("net/ipv4/tcp_ecn", "1")?;
        pair.port(0, &marking())?;
        pair.port(1, &wide())?;
        let start = Books::read(&pair.hosts[0])?;
        let start_of_acks = Books::read(&pair.hosts[1])?;
        let mut traffic = Traffic::new(&pair, cc)?;
        let (mut opened, mut switched) = (0, 0);
        let outcome = (|| {
            let mut watch = Watch::new(PATIENCE);
            while opened < count || traffic.open_flows() > 0 {
                watch.check(&traffic)?;
                while opened < count && traffic.open_flows() < AT_ONCE {
                    if traffic.waiting() == 0 {
                        pair.port(1, &wide())?;
                    }
                    traffic.open(Spec::new(cc, 120_000, Family::ALL[opened as usize % 3]))?;
                    opened += 1;
                }
                let opening = traffic.waiting() > 0;
                traffic.step(Duration::from_millis(100))?;
                if opening && traffic.waiting() == 0 {
                    pair.port(1, &narrow())?;
                }
                let receivers = traffic.flows().filter_map(|flow| flow.rx.as_ref());
                for receiver in receivers {
                    let name = receiver.tcp_congestion()?;
                    switched += u32::from(!name.starts_with(cc.as_bytes()));
                }
            }
            traffic.verdict()?;
            ensure!(switched > 0, "no receiver switched its algorithm");
            Ok(())
        })();
        storm.ktap.case(
            &format!("{cc}: a sock_ops program switches {count} flows while they send"),
            outcome,
        );
        let tally = traffic.tally;
        storm.flows_case(&format!("{cc}: switched flows"), traffic.verdict().map(|()| tally));
        drop(traffic);
        let port = settled(&pair.hosts[0], &start)?;
        let acks = settled(&pair.hosts[1], &start_of_acks)?;
        storm.ktap.case(
            &format!("{cc}: {} packets were marked, {} ACKs dropped", port.marked, acks.dropped),
            match port.marked > 0 {
                true => Ok(()),
                false => Err(anyhow!("no packet was marked")),
            },
        );
        acks_dropped += acks.dropped;
        storm.balance_case(&format!("{cc}: port of switched flows"), Ok(port));
    }
    // Per algorithm, a slow host's flows may end before the port is narrow.
    storm.ktap.case(
        "the receivers' own port drops ACKs",
        match acks_dropped > 0 {
            true => Ok(()),
            false => Err(anyhow!("no ACK was dropped")),
        },
    );
    Ok(())
}
