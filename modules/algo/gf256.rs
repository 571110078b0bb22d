// SPDX-License-Identifier: GPL-2.0

//! The erasure code of a block: up to three parities P, Q, R of up to 28 packets over GF(256), polynomial
//! 0x11d, generator 2.
//!
//! Packet i of k is the vector v_i: its length in two bytes, big endian, its bytes, and zeros. Parity r is
//! the sum of g^(r (k - 1 - i)) v_i. By Horner's rule that needs no k while packets pass: P becomes P + v,
//! Q becomes 2Q + v, R becomes 4R + v. With three parities every square of coefficients can be inverted,
//! so any k of the k + y packets give the block back; with a fourth, 8, that would not hold.

/// The most data packets in a block.
pub const MAX_DATA: usize = 28;
/// The most parities.
pub const MAX_PARITY: usize = 3;
/// What a vector has before the packet: its length.
pub const LENGTH_BYTES: usize = 2;

/// Twice `a`.
pub const fn double(a: u8) -> u8 {
    let carry = if a & 0x80 != 0 { 0x1d } else { 0 };
    (a << 1) ^ carry
}

/// The product.
pub const fn mul(a: u8, b: u8) -> u8 {
    let mut product = 0;
    let (mut a, mut b) = (a, b);
    while b != 0 {
        if b & 1 != 0 {
            product ^= a;
        }
        a = double(a);
        b >>= 1;
    }
    product
}

/// 1 / `a`, which is a^254; 0 of 0.
pub const fn inverse(a: u8) -> u8 {
    let mut result = 1;
    let mut square = a;
    let mut bits = 254u8;
    while bits != 0 {
        if bits & 1 != 0 {
            result = mul(result, square);
        }
        square = mul(square, square);
        bits >>= 1;
    }
    result
}

/// 2^n.
const fn power_of_two(n: usize) -> u8 {
    let mut result = 1;
    let mut left = n % 255;
    while left != 0 {
        result = double(result);
        left = left.wrapping_sub(1);
    }
    result
}

/// [`double`] of eight bytes at once.
#[inline(always)]
const fn double_word(word: u64) -> u64 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    const ONES: u64 = 0x0101_0101_0101_0101;
    ((word & LOW) << 1) ^ ((word >> 7) & ONES).wrapping_mul(0x1d)
}

const WORD: usize = size_of::<u64>();

/// Registers of more than a word, of a caller who has such.
pub trait Vectors {
    /// `row` x 2^`doublings` + `data`, over as many of the first bytes of both as it returns.
    fn step(&mut self, row: &mut [u8], doublings: usize, data: &[u8]) -> usize;
    /// `row` x 2^`doublings`, over as many of its first bytes as it returns.
    fn scale(&mut self, row: &mut [u8], doublings: usize) -> usize;
    /// `p` + `data` and 2 `q` + `data`, over all of their bytes but the last [`rest_bytes`].
    fn pair(&mut self, p: &mut [u8], q: &mut [u8], data: &[u8]);
}

/// How many bytes are behind the whole words of so many.
pub fn rest_bytes(bytes: usize) -> usize {
    bytes & (WORD - 1)
}

/// Those of a caller who has none.
pub enum NoVectors {}

impl Vectors for NoVectors {
    fn step(&mut self, _row: &mut [u8], _doublings: usize, _data: &[u8]) -> usize {
        match *self {}
    }

    fn scale(&mut self, _row: &mut [u8], _doublings: usize) -> usize {
        match *self {}
    }

    fn pair(&mut self, _p: &mut [u8], _q: &mut [u8], _data: &[u8]) {
        match *self {}
    }
}

/// `row` x 2^`doublings` + `data`, over the length of both, by words.
#[inline(always)]
fn step(row: &mut [u8], doublings: usize, data: &[u8]) {
    // Equal lengths, which the compiler then knows.
    let bytes = row.len().min(data.len());
    let (Some(row), Some(data)) = (row.get_mut(..bytes), data.get(..bytes)) else {
        return;
    };
    let mut words = row.chunks_exact_mut(WORD);
    let mut sources = data.chunks_exact(WORD);
    for (word, source) in (&mut words).zip(&mut sources) {
        let mut value = word.try_into().map_or(0, u64::from_ne_bytes);
        for _ in 0..doublings {
            value = double_word(value);
        }
        value ^= source.try_into().map_or(0, u64::from_ne_bytes);
        word.copy_from_slice(&value.to_ne_bytes());
    }
    for (byte, source) in words.into_remainder().iter_mut().zip(sources.remainder()) {
        for _ in 0..doublings {
            *byte = double(*byte);
        }
        *byte ^= source;
    }
}

/// `row` x 2^`doublings`, by words.
fn scale(row: &mut [u8], doublings: usize) {
    let mut words = row.chunks_exact_mut(WORD);
    for word in &mut words {
        let mut value = (&*word).try_into().map_or(0, u64::from_ne_bytes);
        for _ in 0..doublings {
            value = double_word(value);
        }
        word.copy_from_slice(&value.to_ne_bytes());
    }
    for byte in words.into_remainder() {
        for _ in 0..doublings {
            *byte = double(*byte);
        }
    }
}

/// What a packet of some length enters in a parity.
struct Parts<'a> {
    length: &'a mut [u8; LENGTH_BYTES],
    body: &'a mut [u8],
    /// Behind the packet.
    rest: &'a mut [u8],
}

impl<'a> Parts<'a> {
    /// Of `row`. None if the packet does not fit.
    #[inline(always)]
    fn of(row: &'a mut [u8], packet_bytes: usize) -> Option<Self> {
        let (length, rest) = row.split_first_chunk_mut()?;
        let (body, rest) = rest.split_at_mut_checked(packet_bytes)?;
        Some(Self { length, body, rest })
    }

    #[inline(always)]
    fn add_length(&mut self, r: usize, length: u16) {
        let mut value = u64::from(u16::from_ne_bytes(*self.length));
        for _ in 0..r {
            value = double_word(value);
        }
        // Bytes do not carry into each other.
        *self.length = (value as u16 ^ length.to_be()).to_ne_bytes();
    }
}

/// The next packet of a block enters parity `r`, of which all but the first `used` bytes are zero; by
/// `vectors` as far as these go, and by words.
/// Returns false, and does nothing, if the packet does not fit.
pub fn absorb(
    mut vectors: Option<&mut impl Vectors>,
    row: &mut [u8],
    r: usize,
    used: usize,
    packet: &[u8],
) -> bool {
    let Ok(length) = u16::try_from(packet.len()) else {
        return false;
    };
    let Some(mut parts) = Parts::of(row, packet.len()) else {
        return false;
    };
    parts.add_length(r, length);
    let tail_bytes = tail_bytes(used, packet);
    let done = vectors
        .as_mut()
        .map_or(0, |vectors| vectors.step(parts.body, r, packet));
    let body = rest_of_mut(parts.body, done);
    let packet = rest_of(packet, done);
    match r {
        0 => step(body, 0, packet),
        1 => step(body, 1, packet),
        _ => step(body, 2, packet),
    }
    if r != 0 && tail_bytes != 0 {
        scale_tail(vectors, parts.rest, tail_bytes, r);
    }
    true
}

/// [`absorb`] for parities 0 and 1 at once.
pub fn absorb_pair(
    vectors: Option<&mut impl Vectors>,
    p: &mut [u8],
    q: &mut [u8],
    used: usize,
    packet: &[u8],
) -> bool {
    let Ok(length) = u16::try_from(packet.len()) else {
        return false;
    };
    let parts = |row| Parts::of(row, packet.len());
    let (Some(mut p), Some(mut q)) = (parts(p), parts(q)) else {
        return false;
    };
    p.add_length(0, length);
    q.add_length(1, length);
    let tail_bytes = tail_bytes(used, packet);
    match vectors {
        Some(vectors) if tail_bytes == 0 && rest_bytes(packet.len()) == 0 => {
            vectors.pair(p.body, q.body, packet);
        }
        vectors => pair(vectors, p.body, q.body, packet, q.rest, tail_bytes),
    }
    true
}

/// `p` + `data` and 2 `q` + `data`, and twice the first `tail_bytes` of `rest`.
// Where vectors take all, its registers would be saved for nothing.
#[inline(never)]
fn pair(
    mut vectors: Option<&mut impl Vectors>,
    p: &mut [u8],
    q: &mut [u8],
    data: &[u8],
    rest: &mut [u8],
    tail_bytes: usize,
) {
    let mut done = 0;
    if let Some(vectors) = &mut vectors {
        vectors.pair(p, q, data);
        done = data.len().saturating_sub(rest_bytes(data.len()));
    }
    let data = rest_of(data, done);
    step(rest_of_mut(p, done), 0, data);
    step(rest_of_mut(q, done), 1, data);
    if tail_bytes != 0 {
        scale_tail(vectors, rest, tail_bytes, 1);
    }
}

/// How much of a row that is not zero is behind a packet.
#[inline(always)]
fn tail_bytes(used: usize, packet: &[u8]) -> usize {
    used.saturating_sub(packet.len().saturating_add(LENGTH_BYTES))
}

/// The first `tail_bytes` of `rest` x 2^`doublings`.
#[inline(never)]
fn scale_tail(
    vectors: Option<&mut impl Vectors>,
    rest: &mut [u8],
    tail_bytes: usize,
    doublings: usize,
) {
    let tail_bytes = tail_bytes.min(rest.len());
    let tail = rest.get_mut(..tail_bytes).unwrap_or(&mut []);
    let done = vectors.map_or(0, |vectors| vectors.scale(tail, doublings));
    scale(rest_of_mut(tail, done), doublings);
}

fn rest_of(bytes: &[u8], done: usize) -> &[u8] {
    bytes.get(done..).unwrap_or(&[])
}

fn rest_of_mut(bytes: &mut [u8], done: usize) -> &mut [u8] {
    bytes.get_mut(done..).unwrap_or(&mut [])
}

/// How each lost packet is a sum of those that came.
#[derive(Clone, Copy, Debug)]
pub struct Solution {
    k: usize,
    /// How many are lost.
    lost: usize,
    /// Row j: what parity number r of those used counts in lost packet j.
    inverse: [[u8; MAX_PARITY]; MAX_PARITY],
    /// The parities used.
    rows: [usize; MAX_PARITY],
}

impl Solution {
    /// For a block of `k` of which the packets in `lost` are missing and the parities in `have` are there.
    /// None if they do not suffice.
    pub fn new(k: usize, lost: u32, have: u32) -> Option<Self> {
        let count = lost.count_ones() as usize;
        if k == 0 || k > MAX_DATA || count > MAX_PARITY || lost.checked_shr(k as u32)? != 0 {
            return None;
        }
        let mut solution = Solution {
            k,
            lost: count,
            inverse: [[0; MAX_PARITY]; MAX_PARITY],
            rows: [0; MAX_PARITY],
        };
        let mut parities = (0..MAX_PARITY).filter(|r| have >> r & 1 != 0);
        for row in solution.rows.iter_mut().take(count) {
            *row = parities.next()?;
        }
        let mut matrix = [[0; MAX_PARITY]; MAX_PARITY];
        for (row, &r) in matrix.iter_mut().zip(&solution.rows) {
            let indices = (0..k).filter(|i| lost >> i & 1 != 0);
            for (cell, index) in row.iter_mut().zip(indices) {
                *cell = weight(k, r, index);
            }
        }
        solution.inverse = invert(matrix, count)?;
        Some(solution)
    }

    /// The parities that it uses, lowest first.
    pub fn parities(&self) -> impl Iterator<Item = usize> + '_ {
        self.rows.iter().copied().take(self.lost)
    }

    /// What parity `r` counts in lost packet `j` (the lowest is 0).
    pub fn of_parity(&self, j: usize, r: usize) -> u8 {
        let row = self.inverse.get(j);
        let at = self.parities().position(|used| used == r);
        at.and_then(|at| row?.get(at)).copied().unwrap_or(0)
    }

    /// What packet `index` counts in lost packet `j`.
    pub fn of_data(&self, j: usize, index: usize) -> u8 {
        let add = |sum, r| sum ^ mul(self.of_parity(j, r), weight(self.k, r, index));
        self.parities().fold(0, add)
    }
}

/// What packet `index` of `k` counts in parity `r`.
fn weight(k: usize, r: usize, index: usize) -> u8 {
    let behind = k.saturating_sub(1).saturating_sub(index);
    power_of_two(r.saturating_mul(behind))
}

type Square = [[u8; MAX_PARITY]; MAX_PARITY];

/// The inverse of the upper left `n` x `n`, by Gauss and Jordan.
fn invert(mut a: Square, n: usize) -> Option<Square> {
    let mut b: Square = [[1, 0, 0], [0, 1, 0], [0, 0, 1]];
    for column in 0..n {
        let is_pivot = |row: &[u8; MAX_PARITY]| row.get(column).is_some_and(|&cell| cell != 0);
        let found = (column..n).find(|&row| a.get(row).is_some_and(is_pivot))?;
        a.swap(column, found);
        b.swap(column, found);
        let pivot = inverse(*a.get(column)?.get(column)?);
        let scaled = |row: &[u8; MAX_PARITY]| row.map(|cell| mul(cell, pivot));
        let (left, right) = (scaled(a.get(column)?), scaled(b.get(column)?));
        *a.get_mut(column)? = left;
        *b.get_mut(column)? = right;
        for row in (0..n).filter(|&row| row != column) {
            let factor = *a.get(row)?.get(column)?;
            for (cell, source) in a.get_mut(row)?.iter_mut().zip(left) {
                *cell ^= mul(source, factor);
            }
            for (cell, source) in b.get_mut(row)?.iter_mut().zip(right) {
                *cell ^= mul(source, factor);
            }
        }
    }
    Some(b)
}

/// Multiples of one number.
struct Multiples([u8; 256]);

impl Multiples {
    fn of(factor: u8) -> Self {
        let mut table = [0; 256];
        for n in 1..=u8::MAX {
            let half = table.get(usize::from(n >> 1)).copied().unwrap_or(0);
            let odd = if n & 1 != 0 { factor } else { 0 };
            if let Some(cell) = table.get_mut(usize::from(n)) {
                *cell = double(half) ^ odd;
            }
        }
        Multiples(table)
    }

    #[inline(always)]
    fn get(&self, n: u8) -> u8 {
        self.0.get(usize::from(n)).copied().unwrap_or(0)
    }
}

/// `sum` + `factor` x `bytes`, as far as both go.
pub fn add_multiple(sum: &mut [u8], factor: u8, bytes: &[u8]) {
    if factor == 0 {
        return;
    }
    let table = Multiples::of(factor);
    for (cell, &byte) in sum.iter_mut().zip(bytes) {
        *cell ^= table.get(byte);
    }
}

/// `sum` + `factor` x the vector of `packet`.
pub fn add_packet(sum: &mut [u8], factor: u8, packet: &[u8]) {
    let length = u16::try_from(packet.len()).unwrap_or(0).to_be_bytes();
    if let Some((first, rest)) = sum.split_at_mut_checked(LENGTH_BYTES) {
        add_multiple(first, factor, &length);
        add_multiple(rest, factor, packet);
    }
}

#[cfg(test)]
#[path = "tests/gf256.rs"]
mod tests;
