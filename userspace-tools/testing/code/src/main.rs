// SPDX-License-Identifier: GPL-2.0
//! Cost of two parities of a block in other libraries, for `xdc bench`: one line "# code LIBRARY BYTES
//! INSTRUCTIONS" each.
//!
//! The time stamp counter counts instructions in QEMU with `-icount`, cycles elsewhere. ISA-L's parities must
//! equal ours byte by byte.

use std::ffi::{c_int, c_uchar};

use anyhow::{Context, Result, ensure};
use reed_solomon_simd::ReedSolomonEncoder;
use xdc_algo::gf256::{self, LENGTH_BYTES, NoVectors};

/// Block layout of modules/tools/testing/selftests/net/xdc_code.rs.
const PACKETS: usize = 8;
const PARITIES: usize = 2;
const PACKET_BYTES: usize = 1_400;
/// Repetitions; the minimum excludes runs with an interrupt.
const TIMES: u32 = 64;
/// Bytes of ISA-L's tables for each coefficient.
const TABLE_BYTES: usize = 32;

// Declarations of isa-l.h.
unsafe extern "C" {
    fn gf_gen_rs_matrix(matrix: *mut c_uchar, rows: c_int, columns: c_int);
    fn ec_init_tables(columns: c_int, rows: c_int, matrix: *mut c_uchar, tables: *mut c_uchar);
    fn ec_encode_data_update(
        len: c_int,
        columns: c_int,
        rows: c_int,
        column: c_int,
        tables: *mut c_uchar,
        data: *mut c_uchar,
        parities: *mut *mut c_uchar,
    );
}

fn cycles() -> u64 {
    // SAFETY: Every x86-64 CPU has RDTSC.
    unsafe { std::arch::x86_64::_rdtsc() }
}

fn least(mut what: impl FnMut()) -> u64 {
    let once = |_| {
        let before = cycles();
        what();
        cycles() - before
    };
    (0..TIMES).map(once).min().unwrap_or(0)
}

fn show(library: &str, instructions: u64) {
    println!("# code {library} {} {instructions}", PACKETS * PACKET_BYTES);
}

/// ISA-L's encoder of a block, fed one packet at a time, as in a sender.
struct Isal {
    tables: Vec<u8>,
    parities: [Vec<u8>; PARITIES],
}

impl Isal {
    fn new() -> Self {
        let rows = PACKETS + PARITIES;
        let mut matrix = vec![0; rows * PACKETS];
        let mut tables = vec![0; TABLE_BYTES * PARITIES * PACKETS];
        // SAFETY: `matrix` has a byte for each cell. Its first PACKETS rows are the data's; `tables` has 32
        // bytes for each cell of the PARITIES rows after them.
        unsafe {
            gf_gen_rs_matrix(matrix.as_mut_ptr(), rows as c_int, PACKETS as c_int);
            let of_parities = matrix[PACKETS * PACKETS..].as_mut_ptr();
            ec_init_tables(PACKETS as c_int, PARITIES as c_int, of_parities, tables.as_mut_ptr());
        }
        Self { tables, parities: std::array::from_fn(|_| vec![0; PACKET_BYTES]) }
    }

    fn add(&mut self, column: usize, packet: &mut [u8]) {
        assert!(packet.len() == PACKET_BYTES && column < PACKETS);
        let [p, q] = &mut self.parities;
        let mut rows = [p.as_mut_ptr(), q.as_mut_ptr()];
        // SAFETY: The tables have PACKETS columns and PARITIES rows. The packet and each row have
        // PACKET_BYTES bytes.
        unsafe {
            ec_encode_data_update(
                PACKET_BYTES as c_int,
                PACKETS as c_int,
                PARITIES as c_int,
                column as c_int,
                self.tables.as_mut_ptr(),
                packet.as_mut_ptr(),
                rows.as_mut_ptr(),
            );
        }
    }
}

/// P and Q as `unorc` computes them.
fn ours(packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let row = vec![0; PACKET_BYTES + LENGTH_BYTES];
    let mut rows: [_; PARITIES] = [row.clone(), row];
    let [p, q] = &mut rows;
    for packet in packets {
        gf256::absorb_pair(None::<&mut NoVectors>, p, q, PACKET_BYTES, packet);
    }
    rows.into_iter().map(|mut row| row.split_off(LENGTH_BYTES)).collect()
}

fn main() -> Result<()> {
    let byte = |packet: usize, at: usize| (packet * 31 + at * 7 + at / 251) as u8;
    let mut packets: Vec<Vec<u8>> =
        (0..PACKETS).map(|packet| (0..PACKET_BYTES).map(|at| byte(packet, at)).collect()).collect();

    let mut isal = Isal::new();
    // ISA-L weights packet i by 2^i, `unorc` by 2^(k - 1 - i).
    for (i, packet) in packets.iter_mut().enumerate() {
        isal.add(PACKETS - 1 - i, packet);
    }
    ensure!(isal.parities[..] == ours(&packets), "ISA-L's parities differ from ours");
    show(
        "isa-l",
        least(|| {
            for (i, packet) in packets.iter_mut().enumerate() {
                isal.add(i, packet);
            }
        }),
    );

    let mut encoder = ReedSolomonEncoder::new(PACKETS, PARITIES, PACKET_BYTES)?;
    let mut encode = || -> Result<usize> {
        for packet in &packets {
            encoder.add_original_shard(packet)?;
        }
        Ok(encoder.encode()?.recovery_iter().count())
    };
    ensure!(encode()? == PARITIES, "reed-solomon-simd returned no parities");
    let mut failed = None;
    let instructions = least(|| failed = encode().err().or(failed.take()));
    failed.map_or(Ok(()), Err).context("reed-solomon-simd")?;
    show("reed-solomon-simd", instructions);
    Ok(())
}
