// SPDX-License-Identifier: GPL-2.0
//! TLT beside other mechanisms that delay or repair a sender's packets: pacing, tail loss probes, RACK's
//! timer, cork, Nagle. Round trips have a length here, so this needs virtual time.
//!
//! A fixed rule drops packets with the unimportant DSCP. The cases change the sender's DSCPs to lose none,
//! some or all packets for a while.

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

/// MSS over Ethernet with timestamps.
const MSS: usize = 1_448;
/// A DSCP that is never dropped.
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
        ("data after a tail loss probe are not important", behind_probe),
        ("an echo keeps the tail loss probe of later data", probe_kept),
        ("an echo does not change the retransmission timer", timer_kept),
        ("timeouts that send no data do not end TLT", unsent),
        ("TLT does not wait for corked data", corked),
        ("TLT does not wait for data that Nagle holds", nagled),
        ("a lost clock byte does not lose the ACK of a FIN", fin),
    ];
    for (what, case) in cases {
        let outcome = case();
        storm.ktap.case(what, outcome);
    }
    Ok(())
}

/// Enables TLT on both hosts, delays the second's packets, and drops unimportant packets on their arrival
/// there.
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

/// Delays the packets that the host sends.
fn set_delay(host: &Netns, delay: Duration) -> Result<()> {
    let wire =
        Netem { delay_ns: delay.as_nanos() as u64, limit_packets: 10_000, ..Netem::default() };
    host.request(root_of("netem", wire.encode()).replace())
}

/// Returns a connection past its first windows.
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

/// From now on unimportant packets are lost; if `data`, all data packets.
fn lose(sender: &Netns, data: bool) -> Result<()> {
    sender.sysctl("net/tlt/dscp_unimportant", &UNIMPORTANT.to_string())?;
    let (important, clock) = match data {
        true => (UNIMPORTANT, UNIMPORTANT),
        false => (DATA, CLOCK),
    };
    sender.sysctl("net/tlt/dscp_data", &important.to_string())?;
    sender.sysctl("net/tlt/dscp_clock", &clock.to_string())
}

/// From now on unimportant packets arrive.
fn lose_nothing(sender: &Netns) -> Result<()> {
    sender.sysctl("net/tlt/dscp_unimportant", &SAFE.to_string())
}

fn pace(tx: &Socket, bytes_per_s: u64) -> Result<()> {
    const SO_MAX_PACING_RATE: i32 = 47;
    Ok(set_bytes(tx, libc::SOL_SOCKET, SO_MAX_PACING_RATE, &bytes_per_s.to_ne_bytes())?)
}

fn probes(host: &Netns) -> Result<u64> {
    host.run(|| counter("/proc/net/netstat", "TcpExt:", "TCPLossProbes"))
}

/// TCP sends a burst, waits for its own pacing, and sends the next burst when the first's echo arrives.
fn paced() -> Result<()> {
    const RATE: usize = 2_000_000;
    let pair = far_pair(Pair::bursty()?, ms(1))?;
    let sender = &pair.hosts[0];
    let [tx, rx] = warm(&pair)?;
    pace(&tx, RATE as u64)?;
    let (important, before) = (tlt(sender, "TxData")?, timeouts(sender)?);
    // One second of data; losses occur only in the middle.
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
            thread.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
        }
        // At this RTT a burst has 22 segments, half of a device's maximum (tcp_tso_autosize()).
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

/// All packets are lost, then only the unimportant ones.
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

/// The path becomes longer, so that a probe repeats data that has arrived; then the application writes more.
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
    // The window's last packet, the probe, and one more if the probe is outdated.
    ensure!(important <= 3, "{important} important packets");
    Ok(())
}

/// After urgent data TLT sends no byte, so only TCP's probe remains.
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

/// A path that lengthens by less than the timer's remainder causes no timeout.
fn timer_kept() -> Result<()> {
    let pair = far_pair(Pair::new()?, ms(400))?;
    let sender = &pair.hosts[0];
    let [tx, rx] = connection(&pair, 7_500, 0)?;
    tx.set_tcp_nodelay(true)?;
    // Until the RTT variation is at its minimum.
    for _ in 0..60 {
        write(&tx, 1_000)?;
        sleep(ms(420));
    }
    let before = timeouts(sender)?;
    write(&tx, 1_000)?;
    sleep(ms(30));
    // Delays the echo of the second write.
    set_delay(&pair.hosts[1], ms(700))?;
    sleep(ms(20));
    write(&tx, 1_000)?;
    read(&rx, 62_000)?;
    sleep(ms(2_000));
    let met = timeouts(sender)? - before;
    ensure!(met == 0, "{met} timeouts");
    Ok(())
}

/// While the first transmission is in the host's own queue, TCP does not retransmit. ACKs sent meanwhile do
/// not answer a timeout.
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
    ensure!(given_up == 0, "the flow abandoned TLT");
    Ok(())
}

/// Pacing delays a segment, which is then lost. Cork or Nagle holds back the data after it, which waits for a
/// pacing timer that sends nothing.
fn held(cork: bool, rtt_ms: u64, rate: u64, second: usize, third: usize) -> Result<()> {
    let pair = far_pair(Pair::new()?, ms(rtt_ms))?;
    let sender = &pair.hosts[0];
    let [tx, rx] = warm(&pair)?;
    pace(&tx, rate)?;
    set_option(&tx, libc::IPPROTO_TCP, libc::TCP_CORK, i32::from(cork))?;
    let before = timeouts(sender)?;
    lose(sender, false)?;
    // After a pause, pacing charges a segment half of its time.
    let first_ms = MSS as u64 * 1_000 / rate / 2;
    write(&tx, MSS)?;
    sleep(ms(2));
    write(&tx, second)?;
    sleep(ms(first_ms));
    write(&tx, third)?;
    // The echo of the first segment has arrived.
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

/// Nagle: at most one unacknowledged segment below the MSS.
fn nagled() -> Result<()> {
    held(false, 100, 10_000, 1_000, 100)
}

/// The peer closes its half with data in flight to it. TLT's byte repeats data that the peer has received by
/// then, so the peer ignores the ACK in it.
fn fin() -> Result<()> {
    let pair = far_pair(Pair::new()?, ms(10))?;
    let peer = &pair.hosts[1];
    peer.sysctl("net/ipv4/tcp_early_retrans", "0")?;
    let [tx, rx] = warm(&pair)?;
    tx.set_tcp_nodelay(true)?;
    // TCP acknowledges the first data packets at once.
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
    ensure!(tlt(&pair.hosts[0], "TxClockData")? > bytes, "no clock byte was sent");
    ensure!(again == 0, "the FIN was retransmitted");
    Ok(())
}
