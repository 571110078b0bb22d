// SPDX-License-Identifier: GPL-2.0
//! TLT beside what else holds a sender's packets, or repairs them: pacing, tail loss probes, RACK's timer,
//! cork, Nagle. Round trips have a length here, so this wants virtual time.
//!
//! What is lost is what has the DSCP of the unimportant. The sender's own DSCPs change under way: so a rule that
//! is there from the beginning loses nothing, or everything, for a while.

use std::{io::Read, thread::sleep, time::Duration};

use anyhow::{Result, ensure};
use socket2::Socket;
use xdc_netlink::qdisc::Netem;

use super::{
    CLOCK, DATA, IP_DSFIELD, IP_PROTOCOL, TCP, UNIMPORTANT, connection, enable, timeouts, tlt,
};
use crate::{
    Storm,
    net::{Netns, Pair, counter, root_of},
    netfilter::{self, Hook},
    sys::{set_bytes, set_option},
};

/// Of Ethernet, with timestamps.
const MSS: usize = 1_448;
/// A DSCP that no rule loses.
const SAFE: u8 = 9;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The cases.
pub fn attack(storm: &mut Storm) -> Result<()> {
    type Case = fn() -> Result<()>;
    let cases: [(&str, Case); 9] = [
        ("each burst of a paced flow has an important packet", paced),
        ("a tail loss probe is important", probe),
        ("what follows a tail loss probe is not", behind_probe),
        (
            "an echo leaves the tail loss probe of what was sent after",
            probe_kept,
        ),
        (
            "an echo leaves the timer of the retransmission as it was",
            timer_kept,
        ),
        (
            "a timeout that sends nothing says nothing of the peer",
            unsent,
        ),
        ("data that cork holds are not waited for", corked),
        ("data that Nagle holds are not waited for", nagled),
        ("the ACK of a FIN is not lost with a byte", fin),
    ];
    for (what, case) in cases {
        let outcome = case();
        storm.ktap.case(what, outcome);
    }
    Ok(())
}

/// Has TLT on both, and the first so far from the second; there all is lost that is unimportant.
fn far_pair(pair: Pair, delay: Duration) -> Result<Pair> {
    enable(&pair)?;
    set_delay(&pair.hosts[1], delay)?;
    let sender = &pair.hosts[0];
    sender.sysctl("net/ipv4/tcp_early_retrans", "0")?;
    sender.sysctl("net/ipv4/tcp_congestion_control", "cubic")?;
    lose_nothing(sender)?;
    let mut steps = Vec::from(netfilter::if_ip(IP_PROTOCOL, &TCP));
    steps.extend(netfilter::if_ip_bits(IP_DSFIELD, 0xfc, UNIMPORTANT << 2));
    steps.push(netfilter::drop_it());
    netfilter::rule(&pair.hosts[1], Hook::Input, 0, steps)?;
    Ok(pair)
}

/// What the host sends takes so long.
fn set_delay(host: &Netns, delay: Duration) -> Result<()> {
    let wire = Netem {
        delay_ns: delay.as_nanos() as u64,
        limit_packets: 10_000,
        ..Netem::default()
    };
    host.request(root_of("netem", wire.encode()).replace())
}

/// A connection past its slow start's first windows.
fn warm(pair: &Pair) -> Result<[Socket; 2]> {
    let [tx, rx] = connection(pair, 7_500, 0)?;
    for _ in 0..2 {
        write(&tx, 20_000)?;
        read(&rx, 20_000)?;
        sleep(ms(200));
    }
    Ok([tx, rx])
}

fn write(mut tx: &Socket, bytes: usize) -> Result<()> {
    Ok(std::io::Write::write_all(&mut tx, &vec![b'a'; bytes])?)
}

fn read(mut rx: &Socket, bytes: usize) -> Result<()> {
    Ok(rx.read_exact(&mut vec![0; bytes])?)
}

/// From now on what is unimportant is lost, and with `data` all data.
fn lose(sender: &Netns, data: bool) -> Result<()> {
    sender.sysctl("net/tlt/dscp_unimportant", &UNIMPORTANT.to_string())?;
    let (important, clock) = match data {
        true => (UNIMPORTANT, UNIMPORTANT),
        false => (DATA, CLOCK),
    };
    sender.sysctl("net/tlt/dscp_data", &important.to_string())?;
    sender.sysctl("net/tlt/dscp_clock", &clock.to_string())
}

/// From now on what is unimportant arrives again.
fn lose_nothing(sender: &Netns) -> Result<()> {
    sender.sysctl("net/tlt/dscp_unimportant", &SAFE.to_string())
}

fn pace(tx: &Socket, bytes_per_s: u64) -> Result<()> {
    const SO_MAX_PACING_RATE: i32 = 47;
    Ok(set_bytes(
        tx,
        libc::SOL_SOCKET,
        SO_MAX_PACING_RATE,
        &bytes_per_s.to_ne_bytes(),
    )?)
}

fn probes(host: &Netns) -> Result<u64> {
    host.run(|| counter("/proc/net/netstat", "TcpExt:", "TCPLossProbes"))
}

/// TCP sends a burst, waits for its own pacing, and sends the next when the echo of the first has come.
fn paced() -> Result<()> {
    const RATE: usize = 2_000_000;
    let pair = far_pair(Pair::bursty()?, ms(1))?;
    let sender = &pair.hosts[0];
    let [tx, rx] = warm(&pair)?;
    pace(&tx, RATE as u64)?;
    let (important, before) = (tlt(sender, "TxData")?, timeouts(sender)?);
    // A second, of which nothing is lost but in the middle.
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write(&tx, RATE));
        let reader = scope.spawn(|| read(&rx, RATE));
        sleep(ms(500));
        let marked = tlt(sender, "TxData")? - important;
        for _ in 0..4 {
            lose(sender, false)?;
            sleep(ms(20));
            lose_nothing(sender)?;
            sleep(ms(50));
        }
        for thread in [writer, reader] {
            thread
                .join()
                .map_err(|_| anyhow::anyhow!("a thread panicked"))??;
        }
        // A burst is of half of what a device takes at once, 22 segments, at this RTT (tcp_tso_autosize()).
        let packets = RATE as u64 / 2 / MSS as u64;
        ensure!(
            (packets / 32..=packets / 8).contains(&marked),
            "{marked} of {packets} packets are important"
        );
        Ok(())
    })?;
    let met = timeouts(sender)? - before;
    ensure!(met == 0, "{met} timeouts");
    Ok(())
}

/// All that is sent is lost, and then what is unimportant.
fn probe() -> Result<()> {
    let pair = far_pair(Pair::new()?, ms(20))?;
    let sender = &pair.hosts[0];
    sender.sysctl("net/ipv4/tcp_early_retrans", "3")?;
    let [tx, rx] = warm(&pair)?;
    let before = timeouts(sender)?;
    lose(sender, true)?;
    write(&tx, 4_000)?;
    sleep(ms(20));
    lose(sender, false)?;
    read(&rx, 4_000)?;
    let (probed, met) = (probes(sender)?, timeouts(sender)? - before);
    ensure!(probed > 0, "TCP sent no probe");
    ensure!(met == 0, "{met} timeouts after {probed} probes");
    Ok(())
}

/// The path becomes longer, so that a probe goes for what has arrived; then the application writes on.
fn behind_probe() -> Result<()> {
    const WRITES: u64 = 7;
    let pair = far_pair(Pair::new()?, ms(2))?;
    let sender = &pair.hosts[0];
    sender.sysctl("net/ipv4/tcp_early_retrans", "3")?;
    let [tx, rx] = warm(&pair)?;
    tx.set_tcp_nodelay(true)?;
    set_delay(&pair.hosts[1], ms(150))?;
    let (probed, important) = (probes(sender)?, tlt(sender, "TxData")?);
    write(&tx, 3_000)?;
    sleep(ms(60));
    let probed = probes(sender)? - probed;
    ensure!(probed == 1, "{probed} probes");
    for _ in 0..WRITES {
        write(&tx, 500)?;
        sleep(ms(1));
    }
    let important = tlt(sender, "TxData")? - important;
    read(&rx, 3_000 + WRITES as usize * 500)?;
    // The end of the window, the probe, and one more where that is stale.
    ensure!(important <= 3, "{important} important packets");
    Ok(())
}

/// Behind urgent data TLT sends no byte, so TCP's own probe is all there is.
fn probe_kept() -> Result<()> {
    let pair = far_pair(Pair::new()?, ms(20))?;
    let sender = &pair.hosts[0];
    sender.sysctl("net/ipv4/tcp_early_retrans", "3")?;
    let [tx, rx] = warm(&pair)?;
    tx.set_tcp_nodelay(true)?;
    let before = (probes(sender)?, timeouts(sender)?);
    write(&tx, MSS)?;
    lose(sender, false)?;
    tx.send_out_of_band(b"X")?;
    write(&tx, 100)?;
    sleep(ms(5));
    lose_nothing(sender)?;
    read(&rx, MSS + 100)?;
    let (probed, met) = (probes(sender)? - before.0, timeouts(sender)? - before.1);
    ensure!(probed > 0 && met == 0, "{probed} probes and {met} timeouts");
    Ok(())
}

/// A path that becomes longer by less than the timer has left costs no timeout.
fn timer_kept() -> Result<()> {
    let pair = far_pair(Pair::new()?, ms(400))?;
    let sender = &pair.hosts[0];
    let [tx, rx] = connection(&pair, 7_500, 0)?;
    tx.set_tcp_nodelay(true)?;
    // Until the variation of the RTT is the least that there is.
    for _ in 0..60 {
        write(&tx, 1_000)?;
        sleep(ms(420));
    }
    let before = timeouts(sender)?;
    write(&tx, 1_000)?;
    sleep(ms(30));
    // This is for the echo of the second.
    set_delay(&pair.hosts[1], ms(700))?;
    sleep(ms(20));
    write(&tx, 1_000)?;
    read(&rx, 62_000)?;
    sleep(ms(2_000));
    let met = timeouts(sender)? - before;
    ensure!(met == 0, "{met} timeouts");
    Ok(())
}

/// While the first copy is in the host's own queue TCP sends no second one, and ACKs that leave meanwhile are no answer
/// to a timeout.
fn unsent() -> Result<()> {
    let pair = far_pair(Pair::new()?, ms(1))?;
    let sender = &pair.hosts[0];
    let [tx, rx] = connection(&pair, 7_500, 0)?;
    rx.set_tcp_nodelay(true)?;
    set_delay(sender, ms(2_000))?;
    write(&tx, 5)?;
    for _ in 0..18 {
        write(&rx, 100)?;
        sleep(ms(100));
    }
    read(&rx, 5)?;
    let (met, given_up) = (timeouts(sender)?, tlt(sender, "Fallback")?);
    ensure!(met >= 2, "{met} timeouts");
    ensure!(given_up == 0, "the peer is given up");
    Ok(())
}

/// Pacing holds a segment back, which is lost, and then something that cork or Nagle keeps: it waits for the timer of the
/// pacing, which sends nothing.
fn held(cork: bool, rtt_ms: u64, rate: u64, second: usize, third: usize) -> Result<()> {
    let pair = far_pair(Pair::new()?, ms(rtt_ms))?;
    let sender = &pair.hosts[0];
    let [tx, rx] = warm(&pair)?;
    pace(&tx, rate)?;
    set_option(&tx, libc::IPPROTO_TCP, libc::TCP_CORK, i32::from(cork))?;
    let before = timeouts(sender)?;
    lose(sender, false)?;
    // A segment after a pause pays half of its time.
    let first_ms = MSS as u64 * 1_000 / rate / 2;
    write(&tx, MSS)?;
    sleep(ms(2));
    write(&tx, second)?;
    sleep(ms(first_ms));
    write(&tx, third)?;
    // The echo of the first has come.
    sleep(ms(rtt_ms));
    lose_nothing(sender)?;
    read(&rx, MSS + second)?;
    let met = timeouts(sender)? - before;
    ensure!(met == 0, "{met} timeouts");
    set_option(&tx, libc::IPPROTO_TCP, libc::TCP_CORK, 0)?;
    read(&rx, third)
}

fn corked() -> Result<()> {
    held(true, 30, 60_000, MSS, 100)
}

/// Of less than a segment only one may be unacknowledged.
fn nagled() -> Result<()> {
    held(false, 100, 10_000, 1_000, 100)
}

/// The peer ends its half while data are under way to it. It has them when a byte for their first comes, and does not look
/// at the ACK in that.
fn fin() -> Result<()> {
    let pair = far_pair(Pair::new()?, ms(10))?;
    let peer = &pair.hosts[1];
    peer.sysctl("net/ipv4/tcp_early_retrans", "0")?;
    let [tx, rx] = warm(&pair)?;
    tx.set_tcp_nodelay(true)?;
    // TCP delays no ACK of the first data that come.
    for _ in 0..3 {
        write(&rx, 500)?;
        read(&tx, 500)?;
        sleep(ms(20));
    }
    let again = || peer.run(|| counter("/proc/net/snmp", "Tcp:", "RetransSegs"));
    let (before, bytes) = (again()?, tlt(&pair.hosts[0], "TxClockData")?);
    rx.shutdown(std::net::Shutdown::Write)?;
    sleep(ms(5));
    write(&tx, 1_000)?;
    sleep(ms(3));
    write(&tx, 3_000)?;
    sleep(ms(600));
    read(&rx, 4_000)?;
    let again = again()? - before;
    ensure!(
        tlt(&pair.hosts[0], "TxClockData")? > bytes,
        "no byte was sent"
    );
    ensure!(again == 0, "the FIN was sent again");
    Ok(())
}
