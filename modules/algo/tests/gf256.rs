// SPDX-License-Identifier: GPL-2.0

use super::super::support::Rng;
use super::*;
use reed_solomon_erasure::galois_8;

#[test]
fn products_match_another_implementation() {
    for a in 0..=u8::MAX {
        let table = Multiples::of(a);
        for b in 0..=u8::MAX {
            assert_eq!(mul(a, b), galois_8::mul(a, b));
            assert_eq!(table.get(b), galois_8::mul(a, b));
        }
        if a != 0 {
            assert_eq!(inverse(a), galois_8::div(1, a));
        }
        assert_eq!(double(a), galois_8::mul(a, 2));
        let word = u64::from_ne_bytes([a; WORD]);
        assert_eq!(double_word(word).to_ne_bytes(), [double(a); WORD]);
    }
    for n in 0..600 {
        assert_eq!(power_of_two(n), galois_8::exp(2, n % 255));
    }
}

/// Returns the parity by its definition, with the other multiplication.
fn parity(packets: &[Vec<u8>], r: usize, bytes: usize) -> Vec<u8> {
    let mut sum = vec![0; bytes];
    for (i, packet) in packets.iter().enumerate() {
        let weight = galois_8::exp(2, r * (packets.len() - 1 - i) % 255);
        let length = (packet.len() as u16).to_be_bytes();
        for (cell, byte) in sum.iter_mut().zip(length.iter().chain(packet)) {
            *cell ^= galois_8::mul(weight, *byte);
        }
    }
    sum
}

fn packets(rng: &mut Rng, k: usize, longest: u64) -> Vec<Vec<u8>> {
    let mut packet = || {
        let bytes = rng.within(0, longest);
        (0..bytes).map(|_| rng.next() as u8).collect()
    };
    (0..k).map(|_| packet()).collect()
}

fn encoded(packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let longest = packets.iter().map(Vec::len).max().unwrap() + LENGTH_BYTES;
    let mut rows = vec![vec![0; longest + 5]; MAX_PARITY];
    for (r, row) in rows.iter_mut().enumerate() {
        let mut used = 0;
        for packet in packets {
            assert!(absorb(None::<&mut NoVectors>, row, r, used, packet));
            used = used.max(packet.len() + LENGTH_BYTES);
        }
        assert_eq!(row.split_off(longest), [0; 5]);
    }
    rows
}

fn decoded(packets: &[Vec<u8>], rows: &[Vec<u8>], solution: &Solution, lost: u32) -> Vec<Vec<u8>> {
    let vector = |j: usize| {
        let mut sum = vec![0; rows[0].len()];
        for r in solution.parities() {
            add_multiple(&mut sum, solution.of_parity(j, r), &rows[r]);
        }
        for (i, packet) in packets.iter().enumerate() {
            if lost >> i & 1 == 0 {
                add_packet(&mut sum, solution.of_data(j, i), packet);
            }
        }
        let length = usize::from(u16::from_be_bytes([sum[0], sum[1]]));
        assert!(sum[LENGTH_BYTES + length..].iter().all(|&byte| byte == 0));
        sum[LENGTH_BYTES..LENGTH_BYTES + length].to_vec()
    };
    (0..lost.count_ones() as usize).map(vector).collect()
}

/// Tries each pattern of lost packets and `y` parities. Returns the counts of decoded and undecodable ones.
fn every_pattern(k: usize, y: usize, most: u32, rng: &mut Rng, longest: u64) -> (u32, u32) {
    let packets = packets(rng, k, longest);
    let rows = encoded(&packets);
    for (r, row) in rows.iter().enumerate() {
        assert_eq!(*row, parity(&packets, r, row.len()));
    }
    let all = k + y;
    let (mut good, mut bad) = (0, 0);
    let mut pattern = |missing: u64| {
        let lost = (missing & ((1 << k) - 1)) as u32;
        let have = !(missing >> k) as u32 & ((1 << y) - 1);
        match Solution::new(k, lost, have) {
            Some(solution) => {
                let wanted: Vec<_> = (0..k)
                    .filter(|i| lost >> i & 1 != 0)
                    .map(|i| packets[i].clone())
                    .collect();
                assert_eq!(decoded(&packets, &rows, &solution, lost), wanted);
                good += 1;
            }
            None => {
                assert!(missing.count_ones() as usize > y);
                bad += 1;
            }
        }
    };
    for_each_subset(all as u32, most, &mut pattern);
    (good, bad)
}

/// Calls `f` for each set of at most `most` of `n`.
fn for_each_subset(n: u32, most: u32, f: &mut impl FnMut(u64)) {
    fn go(from: u32, n: u32, left: u32, set: u64, f: &mut impl FnMut(u64)) {
        f(set);
        for next in from..n {
            if left > 0 {
                go(next + 1, n, left - 1, set | 1 << next, f);
            }
        }
    }
    go(0, n, most, 0, f);
}

#[test]
fn eight_and_two_decode_every_loss_of_two_and_none_of_three_that_hits_data_thrice() {
    let mut rng = Rng::new(1);
    // 1 empty set, 10 single, and 45 pairs.
    assert_eq!(every_pattern(8, 2, 2, &mut rng, 100), (56, 0));
    let packets = packets(&mut rng, 8, 30);
    let mut of_three = 0;
    for_each_subset(10, 3, &mut |missing| {
        if missing.count_ones() == 3 && missing & 0xff != 0 {
            let have = !(missing >> 8) as u32 & 3;
            assert!(Solution::new(8, (missing & 0xff) as u32, have).is_none());
            of_three += 1;
        }
    });
    // Each pattern loses at least one packet, because there are two parities.
    assert_eq!((of_three, packets.len()), (120, 8));
}

#[test]
fn twenty_eight_and_three_decode_every_loss_of_three() {
    let mut rng = Rng::new(2);
    // 1 + 31 + 465 + 4495.
    assert_eq!(every_pattern(28, 3, 3, &mut rng, 20), (4_992, 0));
}

#[test]
fn blocks_of_every_size_and_mixed_lengths_decode() {
    let mut rng = Rng::new(3);
    for k in 1..=MAX_DATA {
        for y in 0..=MAX_PARITY {
            let longest = rng.within(0, 70);
            let (good, _) = every_pattern(k, y, y as u32, &mut rng, longest);
            assert!(good >= 1);
        }
    }
}

/// Whole vectors of 32 bytes, as in the kernel.
struct Wide;

impl Vectors for Wide {
    fn step(&mut self, row: &mut [u8], doublings: usize, data: &[u8]) -> usize {
        let bytes = row.len().min(data.len()) / 32 * 32;
        step(&mut row[..bytes], doublings, &data[..bytes]);
        bytes
    }

    fn scale(&mut self, row: &mut [u8], doublings: usize) -> usize {
        let bytes = row.len() / 32 * 32;
        scale(&mut row[..bytes], doublings);
        bytes
    }

    fn pair(&mut self, p: &mut [u8], q: &mut [u8], data: &[u8]) {
        let bytes = data.len() / 8 * 8;
        step(&mut p[..bytes], 0, &data[..bytes]);
        step(&mut q[..bytes], 1, &data[..bytes]);
    }
}

#[test]
fn vectors_and_words_compute_the_same_parities() {
    let mut rng = Rng::new(4);
    for _ in 0..2_000 {
        let r = rng.within(0, MAX_PARITY as u64 - 1) as usize;
        let mut bytes = |most| -> Vec<u8> {
            let n = rng.within(0, most);
            (0..n).map(|_| rng.next() as u8).collect()
        };
        let (mut row, packet) = (bytes(300), bytes(300));
        let used = row.len();
        row.resize(400, 0);
        let mut by_words = row.clone();
        assert!(absorb(Some(&mut Wide), &mut row, r, used, &packet));
        let none = None::<&mut NoVectors>;
        assert!(absorb(none, &mut by_words, r, used, &packet));
        assert_eq!(row, by_words);
    }
}

#[test]
fn a_pair_of_parities_equals_both_single_parities() {
    let mut rng = Rng::new(5);
    for round in 0..2_000 {
        let mut bytes = |most| -> Vec<u8> {
            let n = rng.within(0, most);
            (0..n).map(|_| rng.next() as u8).collect()
        };
        let (mut p, packet) = (bytes(300), bytes(300));
        // Lengths up to beyond both rows.
        let used = p.len() + round / 2 % 2 * 200;
        let mut q: Vec<u8> = p.iter().map(|byte| byte.rotate_left(3)).collect();
        p.resize(400, 0);
        q.resize(350, 0);
        let (mut alone_p, mut alone_q) = (p.clone(), q.clone());
        let none = None::<&mut NoVectors>;
        assert!(absorb(none, &mut alone_p, 0, used, &packet));
        let none = None::<&mut NoVectors>;
        assert!(absorb(none, &mut alone_q, 1, used, &packet));
        let fits = if round % 2 == 0 {
            absorb_pair(Some(&mut Wide), &mut p, &mut q, used, &packet)
        } else {
            absorb_pair(None::<&mut NoVectors>, &mut p, &mut q, used, &packet)
        };
        assert!(fits);
        assert_eq!((p, q), (alone_p, alone_q));
    }
}

#[test]
fn invalid_sizes_are_refused() {
    let none = None::<&mut NoVectors>;
    let mut row = [7; 10];
    assert!(!absorb(none, &mut row, 1, 10, &[1; 9]));
    assert_eq!(row, [7; 10]);
    let none = None::<&mut NoVectors>;
    assert!(!absorb(none, &mut row[..1], 0, 0, &[]));
    let none = None::<&mut NoVectors>;
    assert!(!absorb(none, &mut vec![0; 70_002], 0, 0, &[0; 70_000]));
    let (mut p, mut q) = ([7; 12], [7; 10]);
    let none = None::<&mut NoVectors>;
    assert!(!absorb_pair(none, &mut p, &mut q, 10, &[1; 9]));
    let none = None::<&mut NoVectors>;
    assert!(!absorb_pair(none, &mut q, &mut p, 10, &[1; 9]));
    assert_eq!((p, q), ([7; 12], [7; 10]));
    assert!(Solution::new(0, 0, 0).is_none());
    assert!(Solution::new(29, 1, 1).is_none());
    assert!(Solution::new(8, 1 << 8, 1).is_none());
    assert!(Solution::new(8, 0b1111, 0b111).is_none());
    assert!(Solution::new(8, 0b11, 0b100).is_none());
}
