// SPDX-License-Identifier: GPL-2.0

//! Tracepoints.

use crate::{
    algo::tlt::{Mark, Outgoing, Phase, Seen},
    kernel_api::{
        bindings::{
            xdc_tlt_clock, xdc_tlt_echo, xdc_tlt_phase, xdc_tlt_send, xdc_tlt_state,
            XDC_TLT_AWAITED, XDC_TLT_BAD, XDC_TLT_CLOCK, XDC_TLT_DATA, XDC_TLT_FIRST, XDC_TLT_LATE,
            XDC_TLT_NONE, XDC_TLT_PENDING,
        },
        conn::Conn,
        trace::{tracepoint, Tracepoint},
    },
};

tracepoint! {
    /// `xdc:tlt_send`.
    TltSend, tlt_send, xdc_tlt_send, conn
}
tracepoint! {
    /// `xdc:tlt_echo`.
    TltEcho, tlt_echo, xdc_tlt_echo, conn
}
tracepoint! {
    /// `xdc:tlt_clock`.
    TltClock, tlt_clock, xdc_tlt_clock, conn
}
tracepoint! {
    /// `xdc:tlt_state`.
    TltState, tlt_state, xdc_tlt_state, conn
}

/// Traces departing data.
#[inline(always)]
pub(crate) fn trace_send(conn: &Conn<'_>, packet: &Outgoing, segs: u32, mark: Mark) {
    if TltSend::is_on() {
        let info = xdc_tlt_send {
            end_seq: packet.end_seq,
            segs,
            important: mark != Mark::Unimportant,
            again: packet.is_again,
        };
        TltSend::emit(conn, &info);
    }
}

/// Traces an ACK; `sent_ago_us` = age of the important packet.
#[inline(always)]
pub(crate) fn trace_echo(
    conn: &Conn<'_>,
    mark: Option<Mark>,
    seen: Seen,
    ack: u32,
    sent_ago_us: Option<u64>,
) {
    if TltEcho::is_on() {
        let seen = match (mark, seen) {
            (Some(Mark::Echo | Mark::ClockEcho), Seen::Poll) => XDC_TLT_AWAITED,
            (_, Seen::Late) => XDC_TLT_LATE,
            (_, Seen::Bad) => XDC_TLT_BAD,
            _ => return,
        };
        let info = xdc_tlt_echo {
            ack,
            echo_us: match seen {
                XDC_TLT_AWAITED => {
                    sent_ago_us.map_or(0, |us| u32::try_from(us).unwrap_or(u32::MAX))
                }
                _ => 0,
            },
            clock: mark == Some(Mark::ClockEcho),
            seen,
        };
        TltEcho::emit(conn, &info);
    }
}

/// Traces a packet sent beyond TCP's window.
#[inline(always)]
pub(crate) fn trace_clock(conn: &Conn<'_>, segment: bool) {
    if TltClock::is_on() {
        let info = xdc_tlt_clock {
            una: conn.snd_una(),
            segment,
        };
        TltClock::emit(conn, &info);
    }
}

/// Traces a change of phase; `None` = the connection does not take part.
#[inline(always)]
pub(crate) fn trace_state(conn: &Conn<'_>, from: Option<Phase>, to: Option<Phase>) {
    if TltState::is_on() && from != to {
        let info = xdc_tlt_state {
            from: phase_number(from),
            to: phase_number(to),
        };
        TltState::emit(conn, &info);
    }
}

fn phase_number(phase: Option<Phase>) -> xdc_tlt_phase {
    match phase {
        None => XDC_TLT_NONE,
        Some(Phase::First) => XDC_TLT_FIRST,
        Some(Phase::Data) => XDC_TLT_DATA,
        Some(Phase::Clock) => XDC_TLT_CLOCK,
        Some(Phase::Pending) => XDC_TLT_PENDING,
    }
}
