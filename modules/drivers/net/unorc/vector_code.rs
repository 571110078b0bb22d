// SPDX-License-Identifier: GPL-2.0

//! The code of algo/gf256.rs with the kernel's vector registers.

use super::{algo::gf256, kernel_api::vectors::Vectors};

impl gf256::Vectors for Vectors {
    fn step(&mut self, row: &mut [u8], doublings: usize, data: &[u8]) -> usize {
        self.step(row, doublings, data)
    }

    fn scale(&mut self, row: &mut [u8], doublings: usize) -> usize {
        self.scale(row, doublings)
    }

    fn pair(&mut self, p: &mut [u8], q: &mut [u8], data: &[u8]) {
        self.pair(p, q, data);
    }
}
