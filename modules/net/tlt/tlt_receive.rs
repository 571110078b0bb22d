// SPDX-License-Identifier: GPL-2.0

//! Received packets: offers, echoes and data.

use crate::{
    algo::tlt::{self, Incoming, Mark, Phase, Rows, Seen},
    kernel_api::{
        conn::Found,
        flows::Held,
        netfilter::{Packet, Segment},
        qdisc::now_ns,
        sysctl::Net,
        trace::Tracepoint,
    },
    tlt_trace::{trace_echo, trace_state, TltEcho},
    Count, Tlt,
};
use kernel::prelude::*;

impl Tlt {
    /// Handles a received packet. Returns whether TCP is to see it.
    pub(crate) fn receive(&self, net: &Net, packet: &Packet<'_>) -> bool {
        let Some(segment) = packet.segment() else {
            return true;
        };
        let params = self.params(net);
        let mark = Mark::of(segment.dscp(), &params);
        // A SYN with RST is neither offer nor answer.
        if segment.is_rst() {
            return true;
        }
        if segment.is_syn() {
            self.receive_syn(net, packet, &segment, mark);
            return true;
        }
        // Declared before the flow's lock: it may hold the socket's last reference.
        let found;
        let Some(mut flow) = self.flows.find(net, &segment) else {
            if mark.is_some() || params.negotiate() == 0 {
                self.receive_first(net, packet, &segment, mark);
            }
            return true;
        };
        if let Some(mark) = mark {
            self.shared().count_rx(net, mark, segment.segs());
        }
        if !flow.is_listening(mark) {
            return true;
        }
        found = Found::new(net, &segment);
        let Some(found) = &found else {
            return true;
        };
        let Some(conn) = found.conn() else {
            // TIME_WAIT would answer the byte, and the closed sender would reply with a RST, which ends
            // TIME_WAIT (RFC 1337).
            if mark == Some(Mark::ClockData)
                && segment.len() == 1
                && !segment.is_fin()
                && found.is_time_wait()
            {
                return false;
            }
            receive_data(&mut flow, &segment, mark);
            return true;
        };
        let is_meant = conn.is_near(&segment) && conn.is_in_window(&segment);
        if !packet.is_intact(&segment) || !is_meant {
            self.count(net, Count::BadMark);
            return true;
        }
        if segment.len() != 0 {
            receive_data(&mut flow, &segment, mark);
        }
        // Data packets acknowledge but never echo.
        let echo = mark.filter(|_| segment.len() == 0);
        let incoming = Incoming {
            ack: segment.ack(),
            una: conn.snd_una(),
            nxt: conn.snd_nxt(),
            max_window: conn.max_window(),
            reports: flow
                .awaited()
                .is_some_and(|end| packet.reports(&segment, end)),
        };
        let from = flow.phase();
        let sent_ago_us = TltEcho::is_on().then(|| flow.age_us(now_ns() / 1_000));
        let seen = flow.on_ack_in(echo, &incoming);
        if seen == Seen::Poll {
            flow.poll_later();
        }
        let to = flow.phase();
        drop(flow);
        trace_echo(&conn, echo, seen, segment.ack(), sent_ago_us.flatten());
        trace_state(&conn, Some(from), Some(to));
        match seen {
            Seen::Bad => self.count(net, Count::BadMark),
            Seen::Late => self.count(net, Count::LateEcho),
            Seen::Poll | Seen::Nothing => {}
        }
        true
    }

    /// Handles an answer to our offer, or an offer, which ends the state of an earlier connection.
    fn receive_syn(&self, net: &Net, packet: &Packet<'_>, segment: &Segment, mark: Option<Mark>) {
        let params = self.params(net);
        if !segment.is_ack() {
            // Declared before the flow's lock: it may hold the socket's last reference.
            let found;
            if let Some(flow) = self.flows.find(net, segment) {
                // In TIME_WAIT, another connection may reuse the addresses.
                found = Found::new(net, segment);
                if found.as_ref().and_then(Found::conn).is_none() {
                    flow.remove();
                }
            }
            return;
        }
        let Some(found) = Found::new(net, segment) else {
            return;
        };
        let Some(conn) = found.conn() else {
            return;
        };
        if conn.is_open() || (params.fwmark() != 0 && conn.mark() != params.fwmark()) {
            return;
        }
        // Ignore an answer that TCP will not accept. It may come before connect() has moved snd_nxt.
        let is_answer = tlt::is_after(segment.ack(), conn.snd_una())
            && !tlt::is_after(segment.ack(), conn.write_seq());
        if !is_answer || !conn.is_near(segment) || !packet.is_intact(segment) {
            return self.count(net, Count::BadMark);
        }
        if conn.is_excluded() {
            return self.count(net, Count::Excluded);
        }
        if params.negotiate() != 0 && mark != Some(Mark::Echo) {
            return self.count(net, Count::PeerPlain);
        }
        if self.take_part(net, segment, &found, false).is_some() {
            trace_state(&conn, None, Some(Phase::First));
        }
    }

    /// Handles the end of a handshake in which this host agreed to TLT.
    fn receive_first(&self, net: &Net, packet: &Packet<'_>, segment: &Segment, mark: Option<Mark>) {
        let params = self.params(net);
        let Some(found) = Found::new(net, segment) else {
            return;
        };
        let Some(request) = found.request(segment) else {
            return;
        };
        let agrees = params.negotiate() == 0 || u32::from(request.dscp()) == params.dscp_data();
        let is_ours = params.fwmark() == 0 || request.mark() == params.fwmark();
        if agrees && is_ours && !request.is_excluded() && packet.is_intact(segment) {
            // The SYN-ACK has promised TLT, unless every connection takes part.
            if let Some(mut flow) = self.take_part(net, segment, &found, params.negotiate() != 0) {
                receive_data(&mut flow, segment, mark);
            }
        }
    }

    /// Creates the flow if the connection takes part. A promise to a peer is kept even beyond `max_flows`.
    fn take_part(
        &self,
        net: &Net,
        segment: &Segment,
        found: &Found,
        is_promised: bool,
    ) -> Option<Held<'_, tlt::Flow>> {
        let flows = &self.shared().counters;
        let max_flows = i64::from(self.params(net).max_flows());
        if i64::from(flows.add_to_gauge(net, 1)) > max_flows && !is_promised {
            flows.add_to_gauge(net, -1);
            self.count(net, Count::TooMany);
            return None;
        }
        let added = self.flows.add(net, segment, found, tlt::Flow::default());
        if let Err(error) = &added {
            flows.add_to_gauge(net, -1);
            if *error == ENOMEM {
                self.count(net, Count::NoMem);
            }
        }
        added.ok()
    }
}

/// Handles received data of a flow.
fn receive_data(flow: &mut Held<'_, tlt::Flow>, segment: &Segment, mark: Option<Mark>) {
    let end_seq = segment.seq().wrapping_add(segment.len());
    if segment.len() != 0
        && mark.is_some_and(|mark| flow.on_data_in(mark, segment.seq(), end_seq) == Seen::Poll)
    {
        flow.poll_later();
    }
}
