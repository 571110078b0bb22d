// SPDX-License-Identifier: GPL-2.0

//! Header of the packets of a tunnel, and a receiver's feedback.

use super::{
    gf256::{MAX_DATA, MAX_PARITY},
    paths::VALUES,
};

/// Length of [`Header`].
pub const HEADER_BYTES: usize = 16;
/// Index of the first parity of a block.
pub const FIRST_PARITY: u8 = MAX_DATA as u8;

const VERSION: u8 = 3;
const MAX_INDEX: u8 = FIRST_PARITY.wrapping_add(MAX_PARITY as u8);

/// Type of a packet between two ends.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(u8)]
pub enum Kind {
    /// Data packet of a block.
    #[default]
    Data,
    /// Parity of a block.
    Parity,
    /// Packet without order and code.
    Raw,
    /// Feedback of the receiver.
    Feedback,
    /// Session: the sender's tag, and the peer's tag as known.
    Hello,
}

impl Kind {
    const ALL: [Kind; 5] = {
        use Kind::*;
        [Data, Parity, Raw, Feedback, Hello]
    };
}

/// First byte of a HELLO.
pub const HELLO: u8 = VERSION << 4 | Kind::Hello as u8;

/// Header of a packet.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Header {
    /// Type.
    pub kind: Kind,
    /// Channel; packets are ordered within it.
    pub channel: u8,
    /// Number of the block.
    pub block: u32,
    /// Index in the block; parities start at [`FIRST_PARITY`].
    pub index: u8,
    /// Parity: data packets of its block. Data packet: data packets of the previous block, so that the
    /// receiver learns its length without parities. Feedback: 1 if block and index are valid.
    pub k: u8,
    /// Entropy: the UDP source port, so not part of the header.
    pub ev: u16,
}

impl Header {
    /// Encodes the header. The tag, its last eight bytes, is the caller's.
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let first = u32::from_be_bytes([
            VERSION << 4 | self.kind as u8,
            self.channel,
            self.index,
            self.k,
        ]);
        (u128::from(first) << 96 | u128::from(self.block) << 64).to_be_bytes()
    }

    /// Decodes the header of a packet with entropy `ev`; None if it is invalid. Rule W2.
    pub fn parse(bytes: &[u8], ev: u16) -> Option<Self> {
        let &[first, channel, index, k, a, b, c, d, ..] = bytes.first_chunk::<HEADER_BYTES>()?;
        let header = Header {
            kind: *Kind::ALL.get(usize::from(first & 15))?,
            channel,
            block: u32::from_be_bytes([a, b, c, d]),
            index,
            k,
            ev,
        };
        let is_sound = first >> 4 == VERSION
            && header.index < MAX_INDEX
            && usize::from(header.k) <= MAX_DATA
            && header.ev < VALUES;
        is_sound.then_some(header)
    }
}

/// Lost data packets of a block.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Report {
    /// Number of the block.
    pub block: u32,
    /// Whether they were decoded; otherwise the receiver passed them over.
    pub is_decoded: bool,
    /// Bit mask of the lost packets, by index.
    pub lost: u32,
}

/// Limit of reports in one [`Feedback`].
pub const MAX_REPORTS: usize = 8;
/// Limit of echoes in one [`Feedback`].
pub const MAX_ECHOES: usize = 16;
const FIXED_BYTES: usize = 6;
const REPORT_BYTES: usize = 8;
const ECHO_BYTES: usize = 2;
const DECODED: u32 = 1 << 31;
const ECHO_MARKED: u16 = 1 << 15;

/// Feedback, rule F1. Its header names the newest packet.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Feedback {
    /// Time since the newest packet arrived.
    pub age_us: u32,
    /// Reports on blocks.
    pub reports: [Option<Report>; MAX_REPORTS],
    /// Entropy of received packets, and whether they were CE-marked.
    pub echoes: [Option<(u16, bool)>; MAX_ECHOES],
}

impl Feedback {
    /// Returns the numbers of reports and echoes.
    pub fn counts(&self) -> (usize, usize) {
        let reports = self.reports.iter().flatten().count();
        (reports, self.echoes.iter().flatten().count())
    }

    /// Returns the encoded length.
    pub fn bytes(&self) -> usize {
        let (reports, echoes) = self.counts();
        let reports = REPORT_BYTES.saturating_mul(reports);
        FIXED_BYTES
            .saturating_add(reports)
            .saturating_add(ECHO_BYTES.saturating_mul(echoes))
    }

    /// Adds an echo, unless it is full.
    pub fn echo(&mut self, ev: u16, is_marked: bool) {
        if let Some(place) = self.echoes.iter_mut().find(|place| place.is_none()) {
            *place = Some((ev, is_marked));
        }
    }

    /// Returns whether it has all echoes that it can have.
    pub fn is_full(&self) -> bool {
        self.echoes.iter().all(Option::is_some)
    }

    /// Encodes the feedback into [`Feedback::bytes`] bytes.
    pub fn write(&self, out: &mut [u8]) {
        let mut out = out.iter_mut();
        let mut put = |bytes: &[u8]| {
            // This order matters: `zip` advances its first iterator once more than the second.
            for (byte, cell) in bytes.iter().zip(out.by_ref()) {
                *cell = *byte;
            }
        };
        put(&self.age_us.to_be_bytes());
        let (reports, echoes) = self.counts();
        put(&[reports as u8, echoes as u8]);
        for report in self.reports.iter().flatten() {
            let decoded = if report.is_decoded { DECODED } else { 0 };
            put(&report.block.to_be_bytes());
            put(&(report.lost | decoded).to_be_bytes());
        }
        for (ev, is_marked) in self.echoes.iter().flatten() {
            let mark = if *is_marked { ECHO_MARKED } else { 0 };
            put(&(ev | mark).to_be_bytes());
        }
    }

    /// Decodes feedback; None if it is invalid.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (&age_us, rest) = bytes.split_first_chunk()?;
        let (&[report_count, echo_count], rest) = rest.split_first_chunk()?;
        let counts = (usize::from(report_count), usize::from(echo_count));
        let (reports, echoes) = rest.split_at_checked(counts.0.saturating_mul(REPORT_BYTES))?;
        let mut feedback = Feedback {
            age_us: u32::from_be_bytes(age_us),
            ..Feedback::default()
        };
        let reports = reports.chunks_exact(REPORT_BYTES);
        for (report, bytes) in feedback.reports.iter_mut().zip(reports) {
            let (&block, lost) = bytes.split_first_chunk()?;
            let lost = u32::from_be_bytes(*lost.first_chunk()?);
            *report = Some(Report {
                block: u32::from_be_bytes(block),
                is_decoded: lost & DECODED != 0,
                lost: lost & !DECODED,
            });
        }
        let echoes = echoes.chunks_exact(ECHO_BYTES);
        for (echo, bytes) in feedback.echoes.iter_mut().zip(echoes) {
            let value = u16::from_be_bytes(*bytes.first_chunk()?);
            let ev = Some(value & !ECHO_MARKED).filter(|ev| *ev < VALUES)?;
            *echo = Some((ev, value & ECHO_MARKED != 0));
        }
        let is_sound = feedback.counts() == counts && feedback.bytes() == bytes.len();
        is_sound.then_some(feedback)
    }
}

#[cfg(test)]
#[path = "tests/unorc_wire.rs"]
mod tests;
