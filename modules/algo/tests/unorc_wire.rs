// SPDX-License-Identifier: GPL-2.0

use super::super::support::Rng;
use super::*;

#[test]
fn headers_round_trip_and_invalid_headers_are_refused() {
    let mut rng = Rng::new(1);
    for _ in 0..10_000 {
        let header = Header {
            kind: rng.pick(&Kind::ALL),
            channel: rng.next() as u8,
            block: rng.next() as u32,
            index: rng.within(0, 30) as u8,
            k: rng.within(0, 28) as u8,
            ev: rng.within(0, VALUES as u64 - 1) as u16,
        };
        let bytes = header.to_bytes();
        assert_eq!(Header::parse(&bytes, header.ev), Some(header));
        assert_eq!(Header::parse(&bytes[..15], 0), None);
        let mut noise = bytes;
        noise[rng.within(0, 7) as usize] = rng.next() as u8;
        if let Some(other) = Header::parse(&noise, header.ev) {
            assert_eq!(other.to_bytes(), noise);
        }
    }
    let good = Header::default().to_bytes();
    for (at, byte) in [(0, 0x20), (0, 0x35), (2, 31), (3, 29)] {
        let mut bad = good;
        bad[at] = byte;
        assert_eq!(Header::parse(&bad, 0), None, "{at}");
    }
    assert_eq!(Header::parse(&good, VALUES), None);
}

#[test]
fn feedback_round_trips_and_noise_causes_no_panic() {
    let mut rng = Rng::new(2);
    for _ in 0..10_000 {
        let mut feedback = Feedback {
            age_us: rng.any() as u32,
            ..Feedback::default()
        };
        let (reports, echoes) = (rng.within(0, 8) as usize, rng.within(0, 16) as usize);
        for report in &mut feedback.reports[..reports] {
            *report = Some(Report {
                block: rng.next() as u32,
                is_decoded: rng.percent(50),
                lost: rng.next() as u32 >> 4,
            });
        }
        for _ in 0..echoes {
            feedback.echo(rng.next() as u16 & (VALUES - 1), rng.percent(50));
        }
        assert_eq!(feedback.is_full(), echoes == MAX_ECHOES);
        let mut bytes = vec![0; feedback.bytes()];
        assert_eq!(bytes.len(), 6 + reports * 8 + echoes * 2);
        feedback.write(&mut bytes);
        assert_eq!(Feedback::parse(&bytes), Some(feedback));
        let at = rng.within(0, bytes.len() as u64 - 1) as usize;
        bytes[at] ^= 1 << rng.within(0, 7);
        let _ = Feedback::parse(&bytes);
        assert_eq!(Feedback::parse(&bytes[..at]), None);
    }
}
