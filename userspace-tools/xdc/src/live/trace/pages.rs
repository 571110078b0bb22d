// SPDX-License-Identifier: GPL-2.0
//! Parses pages of the kernel's trace ring buffer from `trace_pipe_raw`: kernel/trace/ring_buffer.c
//! (struct buffer_data_page) and include/linux/ring_buffer.h (struct ring_buffer_event), 64-bit.

/// Page header: first timestamp, and bytes in use.
const TIME_BYTES: usize = 8;
const COMMIT_BYTES: usize = 8;
/// Higher bits of the commit field are flags.
const USED_MASK: u64 = 0xf_ffff;

/// Event header word: type or length, and time since the previous event.
const WORD_BYTES: usize = 4;
const TYPE_BITS: u32 = 5;
const DELTA_BITS: u32 = 32 - TYPE_BITS;
/// Types. Smaller numbers are lengths in words; 0 means a separate length word.
const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;

/// Times in ns and events of a page, from the kernel's common fields; None if invalid.
pub fn events(page: &[u8]) -> Option<Vec<(u64, &[u8])>> {
    let (time, rest) = page.split_at_checked(TIME_BYTES)?;
    let (commit, rest) = rest.split_at_checked(COMMIT_BYTES)?;
    let mut at_ns = u64::from_ne_bytes(time.try_into().ok()?);
    let used = u64::from_ne_bytes(commit.try_into().ok()?) & USED_MASK;
    let mut rest = rest.get(..usize::try_from(used).ok()?)?;
    let mut events = Vec::new();
    while !rest.is_empty() {
        let head = word(rest, 0)?;
        let (kind, delta) = (head & ((1 << TYPE_BITS) - 1), u64::from(head >> TYPE_BITS));
        let body = &rest[WORD_BYTES..];
        let taken = match kind {
            // Unused end of a page, too short for the next event.
            PADDING if delta == 0 => break,
            PADDING => {
                at_ns = at_ns.wrapping_add(delta);
                word(body, 0)? as usize
            }
            TIME_EXTEND => {
                at_ns = at_ns.wrapping_add((u64::from(word(body, 0)?) << DELTA_BITS) + delta);
                WORD_BYTES
            }
            TIME_STAMP => {
                // The highest bits come from the previous time.
                const ABSOLUTE_BITS: u32 = DELTA_BITS + 32;
                let low = (u64::from(word(body, 0)?) << DELTA_BITS) + delta;
                at_ns = at_ns >> ABSOLUTE_BITS << ABSOLUTE_BITS | low;
                WORD_BYTES
            }
            0 => {
                at_ns = at_ns.wrapping_add(delta);
                let bytes = word(body, 0)? as usize;
                events.push((at_ns, body.get(WORD_BYTES..bytes)?));
                bytes
            }
            words => {
                at_ns = at_ns.wrapping_add(delta);
                let bytes = words as usize * WORD_BYTES;
                events.push((at_ns, body.get(..bytes)?));
                bytes
            }
        };
        // The last event's padding may exceed the page.
        rest = body.get(taken.next_multiple_of(WORD_BYTES)..).unwrap_or_default();
    }
    Some(events)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at + WORD_BYTES)?;
    Some(u32::from_ne_bytes(word.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(begin_ns: u64, data: &[u32]) -> Vec<u8> {
        let used = (data.len() * WORD_BYTES) as u64;
        // Flag: events were lost before the page.
        let commit = used | 1 << 31;
        let mut page = [begin_ns.to_ne_bytes(), commit.to_ne_bytes()].concat();
        page.extend(data.iter().flat_map(|word| word.to_ne_bytes()));
        page.resize(256, 0);
        page
    }

    fn head(kind: u32, delta: u32) -> u32 {
        delta << TYPE_BITS | kind
    }

    #[test]
    fn every_kind_of_ring_entry_is_decoded() {
        let page = page(
            1000,
            &[
                head(2, 0),
                7,
                8,
                head(TIME_EXTEND, 5),
                1,
                head(0, 1),
                12,
                9,
                10,
                head(PADDING, 3),
                8,
                0,
                head(1, 2),
                11,
                head(TIME_STAMP, 4),
                2,
                head(1, 0),
                12,
                head(PADDING, 0),
                99,
                99,
            ],
        );
        let seen = events(&page).unwrap();
        let extended = 1000 + (1 << DELTA_BITS) + 5;
        let times: Vec<_> = seen.iter().map(|(at, _)| *at).collect();
        let absolute = (2 << DELTA_BITS) + 4;
        assert_eq!(times, [1000, extended + 1, extended + 6, absolute]);
        let lengths: Vec<_> = seen.iter().map(|(_, event)| event.len()).collect();
        assert_eq!(lengths, [8, 8, 4, 4]);
        assert_eq!(word(seen[1].1, 4), Some(10));
    }

    #[test]
    fn malformed_pages_are_refused() {
        let good = page(0, &[head(2, 0), 7, 8]);
        assert!(events(&good).is_some());
        assert!(events(&good[..12]).is_none());
        // Longer than the page, and longer than its used part.
        assert!(events(&page(0, &[head(0, 0), 400])).is_none());
        assert!(events(&page(0, &[head(28, 0), 7])).is_none());
        assert!(events(&good[..20]).is_none());
    }
}
