// SPDX-License-Identifier: GPL-2.0
//! Notes about flows.

use xdc_proto::{Ecn, Flow, FlowResult, RunPlan};
use xdc_tcpinfo::COUNTERS;

use super::{by_cause, flows, grouped, names};
use crate::fct::packet_payload_bytes;
use crate::record::Record;
use crate::run::{Note, NoteKind};

/// Suffix that the kernel adds to a congestion control's name when the flow falls back to Reno.
const RENO_SUFFIX: &str = "-reno";

/// Share of time above which a limit changes the meaning of a rate.
const MOST: f64 = 0.5;

/// Minimum time with a limit: TCP counts in ticks of a millisecond.
const LEAST_US: u64 = 10_000;

/// Minimum number of samples per flow.
const LEAST_SAMPLES: u32 = 10;

const TCP_ECN: &str = "net.ipv4.tcp_ecn";

pub(super) fn pairs(record: &Record) -> impl Iterator<Item = (&FlowResult, &Flow)> {
    record.flows.iter().zip(&record.plan.flows)
}

/// Value of net.ipv4.tcp_ecn on a host.
fn tcp_ecn<'a>(plan: &'a RunPlan, host: &str) -> Option<&'a str> {
    let topology = &plan.topology;
    let node = topology.nodes.iter().find(|node| node.name == host);
    let own = node.into_iter().flat_map(|node| &node.sysctls);
    let all = topology.sysctls.iter().chain(own);
    let mut values = all.filter(|(name, _)| name == TCP_ECN);
    values.next_back().map(|(_, value)| value.as_str())
}

/// Reason for missing ECN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Why {
    /// By the receiver's sysctl.
    Refused,
    /// AccECN was negotiated but failed.
    Failed,
    /// Unknown to both ends.
    NotAgreed,
}

impl Why {
    fn of(record: &Record, result: &FlowResult, flow: &Flow) -> Self {
        match result.ecn {
            Some(Ecn::AccurateFailed) => Self::Failed,
            _ if tcp_ecn(&record.plan, &flow.dst) == Some("0") => Self::Refused,
            _ => Self::NotAgreed,
        }
    }

    fn sentence(self, receivers: &str) -> String {
        match self {
            Self::Refused => format!("{receivers} refused ECN ({TCP_ECN} = 0 there)"),
            Self::Failed => {
                "AccECN failed: one end cannot read the counters of the other".to_owned()
            }
            Self::NotAgreed => {
                "the handshake did not negotiate ECN: its flags were cleared on the path, or its SYN was lost"
                    .to_owned()
            }
        }
    }
}

/// Notes about flows that fell back to Reno, and ECN requests without ECN.
pub(super) fn without_ecn(record: &Record) -> Vec<Note> {
    let cc_of = |flow: &Flow| flow.cc.as_deref().unwrap_or(&record.plan.cc).to_owned();
    let fell_back = |result: &FlowResult, flow: &Flow| {
        let base = result.cc.strip_suffix(RENO_SUFFIX)?;
        let is_plans_own = record.plan.congestion_controls().any(|cc| cc == result.cc);
        (!is_plans_own).then(|| (base.to_owned(), Why::of(record, result, flow)))
    };
    let receivers = |cc: &str, why: Why, kind: NoteKind| {
        let of_cause = pairs(record).filter(|&(result, flow)| {
            let cause = match kind {
                NoteKind::FellBack => fell_back(result, flow),
                _ => lacks(record, result, flow).map(|why| (cc_of(flow), why)),
            };
            cause.is_some_and(|cause| cause == (cc.to_owned(), why))
        });
        names(of_cause.map(|(_, flow)| flow.dst.as_str()))
    };
    let all = record.flows.len();
    let mut notes = by_cause(
        NoteKind::FellBack,
        pairs(record).filter_map(|(result, flow)| fell_back(result, flow)),
        |count, (cc, why)| {
            let why = why.sentence(&receivers(cc, *why, NoteKind::FellBack));
            format!(
                "{count} of {} ran Reno instead of {cc}, since {why}; Reno reacts only to losses",
                flows(all)
            )
        },
    );
    let plain = pairs(record).filter(|(result, _)| !result.cc.ends_with(RENO_SUFFIX));
    notes.extend(by_cause(
        NoteKind::WithoutEcn,
        plain.filter_map(|(result, flow)| {
            Some((cc_of(flow), lacks(record, result, flow)?))
        }),
        |count, (cc, why)| {
            let why = why.sentence(&receivers(cc, *why, NoteKind::WithoutEcn));
            format!("{count} of {} ran {cc} without ECN, since {why}; queues drop their packets instead of marking them", flows(all))
        },
    ));
    notes
}

/// Reason for missing ECN on a flow whose sender requests it; None if it is not missing.
fn lacks(record: &Record, result: &FlowResult, flow: &Flow) -> Option<Why> {
    let asks = matches!(tcp_ecn(&record.plan, &flow.src), Some("1" | "3"));
    let is_without = matches!(result.ecn, Some(Ecn::None | Ecn::AccurateFailed));
    (asks && is_without && result.received_bytes > 0).then(|| Why::of(record, result, flow))
}

/// Factor that limits a flow for most of its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Limit {
    Window,
    Buffer,
    Application,
}

fn counter(result: &FlowResult, name: &str) -> Option<u64> {
    let at = COUNTERS.iter().position(|counter| counter.name == name)?;
    result.counters.get(at).copied()
}

/// The limit and its share of the flow's time. None for bursts, which pause by design.
fn limit(record: &Record, result: &FlowResult, flow: &Flow) -> Option<(Limit, f64)> {
    if flow.burst_bytes > 0 || !result.started || result.received_bytes == 0 {
        return None;
    }
    let end_us = result.end_us().unwrap_or_else(|| record.end_us());
    let life_us = end_us.saturating_sub(result.start_us() + result.late_ns / 1000);
    let busy_us = counter(result, "busy_us").filter(|&us| us > 0)?;
    let share = |part: u64, of: u64| part as f64 / of.max(1) as f64;
    let of_busy = |name| share(counter(result, name).unwrap_or(0), busy_us);
    // TCP's time does not count a buffer smaller than the window.
    let (writing, drained) = result.writing;
    let drained = match writing >= LEAST_SAMPLES {
        true => share(drained.into(), writing.into()),
        false => 0.0,
    };
    let buffer = of_busy("sndbuf_limited_us").max(drained);
    // A lost SYN delays the first byte.
    let idle = match result.timeouts {
        0 => 1.0 - share(busy_us, life_us),
        _ => 0.0,
    };
    let shares = [
        (Limit::Window, of_busy("rwnd_limited_us"), busy_us),
        (Limit::Buffer, buffer, busy_us),
        (Limit::Application, idle, life_us),
    ];
    let most = shares.into_iter().filter(|&(_, share, us)| share > MOST && us >= LEAST_US);
    let most = most.max_by(|a, b| a.1.total_cmp(&b.1))?;
    Some((most.0, most.1.min(1.0)))
}

/// Notes about flows limited by a window, a buffer or the application.
pub(super) fn limited(record: &Record) -> Vec<Note> {
    let limits = || pairs(record).filter_map(|(result, flow)| limit(record, result, flow));
    let all = record.flows.len();
    by_cause(NoteKind::Limited, limits().map(|(limit, _)| limit), |count, &limit| {
        let shares = limits().filter(|&(other, _)| other == limit);
        let most = shares.map(|(_, share)| share).fold(0.0, f64::max) * 100.0;
        let count = format!("{count} of {}", flows(all));
        match limit {
            Limit::Window => format!(
                "the receiver's window limited {count} for up to {most:.0} % of the time with data to send: \
                     the window sets their rate (set a larger 'rcvbuf')"
            ),
            Limit::Buffer => format!(
                "the send buffer limited {count} for up to {most:.0} % of the time with data to send: \
                     the buffer sets their rate (set a larger 'sndbuf')"
            ),
            Limit::Application => format!(
                "the sending application had nothing to send for up to {most:.0} % of the time of {count}: \
                     the application sets their rate"
            ),
        }
    })
}

/// Note about flows due after the end of the run.
pub(super) fn never_started(record: &Record) -> Option<Note> {
    let waiting = || record.flows.iter().filter(|flow| !flow.started);
    let first_us = waiting().map(FlowResult::start_us).min()?;
    let count = waiting().count();
    let stop_s = record.plan.stop_after_us.unwrap_or(record.virtual_us) as f64 / 1e6;
    Some(Note {
        kind: NoteKind::NeverStarted,
        text: format!(
            "{count} of {} never started: the first of them was planned for {} s, and the run stopped at {stop_s} s, \
             so no figure counts them (set a longer 'duration', or an earlier 'start')",
            flows(record.flows.len()),
            first_us as f64 / 1e6
        ),
        count,
    })
}

/// Notes about flows whose full packets carry less than the MSS.
pub(super) fn payload(record: &Record) -> Vec<Note> {
    let all = record.flows.len();
    let less = record.flows.iter().filter_map(|flow| {
        let payload = packet_payload_bytes(flow);
        (payload < flow.mss_bytes).then_some((payload, flow.mss_bytes))
    });
    by_cause(NoteKind::Payload, less, |count, &(payload, mss)| {
        format!(
            "a full packet of {count} of {} carries {} bytes of payload, not {} ({} bytes of TCP options: AccECN); \
             ideals and utilisation use this payload",
            flows(all),
            grouped(payload.into()),
            grouped(mss.into()),
            mss - payload
        )
    })
}
