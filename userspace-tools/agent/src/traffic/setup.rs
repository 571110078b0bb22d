// SPDX-License-Identifier: GPL-2.0
//! Descriptors, payload and timers of a run's traffic.

use super::*;

/// Nodes with a flow's end or a program.
pub(super) fn endpoints(network: &Network, run: &RunPlan) -> Result<BTreeSet<usize>> {
    let hosts = run.flows.iter().flat_map(|flow| [&flow.src, &flow.dst]);
    let hosts = hosts.chain(run.programs.iter().map(|program| &program.node));
    hosts.map(|host| network.layout.node(host)).collect()
}

/// The largest base RTT of the flows.
pub(super) fn slowest_rtt_ns(run: &RunPlan) -> u64 {
    let rtts_us = run.flows.iter().map(|flow| flow.base_rtt_us);
    (rtts_us.fold(0.0, f64::max) * 1e3) as u64
}

pub(super) fn watch_events(
    epoll: &Epoll,
    socket: &Socket,
    source: Source,
    flags: EpollFlags,
) -> Result<()> {
    epoll.add(socket, EpollEvent::new(flags, source.token())).context("epoll")
}

/// Event flags. A receiver of a whole flow needs only one event and then no deletion.
pub(super) fn receiver_flags(whole: bool) -> EpollFlags {
    let news = EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP;
    match whole {
        true => news | EpollFlags::EPOLLONESHOT,
        false => news,
    }
}

/// Raises the limit of open files to `count`.
pub(super) fn allow_descriptors(count: u64) -> Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, count, most.max(count))
        .with_context(|| format!("cannot raise the limit of open files to {count}"))
}

/// Opens a file that is one hole. TCP sends its pages, all the same page, without a copy: payload is never
/// written, read or allocated.
pub(super) fn open_payload() -> Result<File> {
    // Unnamed: on a host, other users share /tmp.
    let file = File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_TMPFILE)
        .open("/tmp")
        .and_then(|file| file.set_len(SEND_BYTES).map(|()| file));
    file.context("cannot create a file in /tmp")
}

/// Fails a run without progress for [`STALL_US`]. `moved` is the received payload and when it last grew.
pub(super) fn check_progress(sample: &Sample, moved: (u64, u64)) -> Result<(u64, u64)> {
    if sample.received_bytes > moved.0 || sample.active_flows == 0 {
        return Ok((sample.received_bytes, sample.t_us));
    }
    ensure!(
        sample.t_us - moved.1 < STALL_US,
        "no flow has received anything for {} s: the network loses every packet",
        STALL_US / 1_000_000
    );
    Ok(moved)
}

pub(super) fn ignore_interrupt(error: nix::Error) -> Result<usize> {
    match error {
        nix::Error::EINTR => Ok(0),
        error => Err(error).context("epoll"),
    }
}
