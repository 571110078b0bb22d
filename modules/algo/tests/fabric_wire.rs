// SPDX-License-Identifier: GPL-2.0

use super::*;

/// `prandom_u32_state()` after `prandom_seed_state(1)`, from the kernel's code compiled alone.
#[test]
fn random_numbers_are_the_kernels() {
    let mut random = Prandom::new(1);
    assert_eq!(random.0, [0x401, 0x401, 0x401, 0x401]);
    let first: Vec<u32> = (0..3).map(|_| random.next_u32()).collect();
    assert_eq!(first, KERNELS);
    assert_eq!(Prandom::new(0).0, [2, 8, 16, 128]);
}

const KERNELS: [u32; 3] = [276_959_246, 18_909_696, 2_298_495_022];

#[test]
fn jitter_keeps_the_order_and_its_bounds() {
    let mut wire = Wire::default();
    wire.configure(Settings {
        delay_ns: 1_000,
        jitter_ns: 500,
        seed: 7,
        ..Settings::default()
    });
    let mut last_ns = 0;
    for n in 0..1_000u64 {
        let now_ns = n * 10;
        let due_ns = wire.arrival_ns(now_ns, 1_500, n == 0);
        assert!(
            due_ns >= last_ns && due_ns < now_ns + 1_500,
            "{n}: {due_ns}"
        );
        last_ns = due_ns;
    }
}

#[test]
fn losses_have_their_share() {
    let mut wire = Wire::default();
    for (loss, wanted) in [(0, 0), (u32::MAX, 10_000), (u32::MAX / 4, 2_500)] {
        wire.configure(Settings {
            loss,
            seed: 3,
            ..Settings::default()
        });
        let lost = (0..10_000).filter(|_| wire.loses()).count();
        assert!(lost.abs_diff(wanted) < 150, "{lost} of {wanted}");
    }
}

#[test]
fn a_block_loses_as_many_packets_as_drawn() {
    let mut burst = BurstLoss::new([300_000, 200_000, 100_000], 5);
    let mut blocks = [0u32; 4];
    let mut places = [0u32; 10];
    for _ in 0..10_000 {
        let lost: Vec<usize> = (0..10).filter(|_| burst.loses()).collect();
        blocks[lost.len()] += 1;
        lost.iter().for_each(|place| places[*place] += 1);
    }
    for (count, wanted) in blocks.into_iter().zip([4_000, 3_000, 2_000, 1_000]) {
        assert!(count.abs_diff(wanted) < 200, "{blocks:?}");
    }
    assert!(places.iter().all(|n| n.abs_diff(1_000) < 150), "{places:?}");
    assert!(!BurstLoss::default().loses());
}
