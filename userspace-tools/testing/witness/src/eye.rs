// SPDX-License-Identifier: GPL-2.0
//! A witness: the classifier of xdc-witness-ebpf at one point of the path, and its records.

use std::{env, fs};

use anyhow::{Context, Result, ensure};
use aya::{
    Ebpf, Pod,
    maps::{MapData, PerCpuArray, PerCpuHashMap, PerCpuValues, RingBuf},
    programs::{SchedClassifier, TcAttachType},
    util::nr_cpus,
};

use crate::record::{Counts, Flow, Record};

// SAFETY: Words and bytes without padding, valid with any bits.
unsafe impl Pod for Counts {}
// SAFETY: Words and bytes without padding, valid with any bits.
unsafe impl Pod for Flow {}

/// A loaded and attached classifier, until dropped.
pub struct Eye {
    flows: PerCpuHashMap<MapData, Flow, Counts>,
    total: PerCpuArray<MapData, Counts>,
    missed: PerCpuArray<MapData, u64>,
    ring: RingBuf<MapData>,
    records: Vec<Record>,
    processors: usize,
    /// Keeps the program loaded.
    _program: Ebpf,
}

impl Eye {
    /// Attaches a witness to `device` of the current network namespace.
    pub fn open(device: &str, side: TcAttachType) -> Result<Self> {
        // The object is beside this program: `make tracing` puts both there.
        let object = env::current_exe()?.with_extension("o");
        let object = fs::read(&object)
            .with_context(|| format!("cannot read {}: make tracing", object.display()))?;
        let mut ebpf = Ebpf::load(&object).context("cannot load the witness")?;
        let program: &mut SchedClassifier = ebpf
            .program_mut("witness")
            .context("the object has no program 'witness'")?
            .try_into()?;
        program.load().context("the verifier refused the witness")?;
        program
            .attach(device, side)
            .with_context(|| format!("cannot attach the witness to {device}"))?;
        let mut map = |name: &str| ebpf.take_map(name).context("no such map in the object");
        Ok(Self {
            flows: map("FLOWS")?.try_into()?,
            total: map("TOTAL")?.try_into()?,
            missed: map("MISSED")?.try_into()?,
            ring: map("RECORDS")?.try_into()?,
            records: Vec::new(),
            processors: nr_cpus().map_err(|(what, error)| anyhow::anyhow!("{what}: {error}"))?,
            _program: ebpf,
        })
    }

    /// Clears all records. No packet may pass meanwhile.
    pub fn restart(&mut self) -> Result<()> {
        let flows: Vec<Flow> = self.flows.keys().collect::<Result<_, _>>()?;
        for flow in flows {
            self.flows.remove(&flow)?;
        }
        let zeroes = PerCpuValues::try_from(vec![Counts::default(); self.processors])?;
        self.total.set(0, zeroes, 0)?;
        let zeroes = PerCpuValues::try_from(vec![0; self.processors])?;
        self.missed.set(0, zeroes, 0)?;
        while self.ring.next().is_some() {}
        self.records.clear();
        Ok(())
    }

    /// Counts of all packets so far.
    pub fn total(&self) -> Result<Counts> {
        Ok(sum(&self.total.get(&0, 0)?))
    }

    /// Counts of each flow so far.
    pub fn flows(&self) -> Result<Vec<(Flow, Counts)>> {
        self.flows
            .iter()
            .map(|entry| entry.map(|(flow, counts)| (flow, sum(&counts))))
            .collect::<Result<_, _>>()
            .map_err(Into::into)
    }

    /// Records of all packets so far, in order.
    pub fn records(&mut self) -> Result<&[Record]> {
        while let Some(item) = self.ring.next() {
            self.records.push(read_record(&item)?);
        }
        Ok(&self.records)
    }

    /// Checks that totals, flows and records agree.
    pub fn check(&mut self, name: &str) -> Result<()> {
        let total = self.total()?;
        let mut flows = Counts::default();
        for (_, counts) in self.flows()? {
            add(&mut flows, &counts);
        }
        let missed: u64 = self.missed.get(&0, 0)?.iter().sum();
        ensure!(missed == 0, "{name}: the witness missed {missed} packets");
        ensure!(flows == total, "{name}: flows {flows:?} do not add up to {total:?}");
        let mut records = Counts::default();
        for record in self.records()? {
            records.bundles += 1;
            records.packets += u64::from(record.segments);
            records.bytes += u64::from(record.bytes);
            match record.is_ip {
                0 => records.no_ip += u64::from(record.segments),
                _ => records.ecn[usize::from(record.ecn())] += u64::from(record.segments),
            }
        }
        ensure!(records == total, "{name}: records {records:?} do not add up to {total:?}");
        Ok(())
    }
}

impl Record {
    /// Not-ECT, ECT(1), ECT(0), CE.
    pub fn ecn(&self) -> u8 {
        self.dsfield & 3
    }

    /// Returns whether the packet carries CE.
    pub fn is_ce(&self) -> bool {
        self.is_ip != 0 && self.ecn() == 3
    }

    /// DSCP of the packet.
    pub fn dscp(&self) -> u8 {
        self.dsfield >> 2
    }
}

fn sum(values: &PerCpuValues<Counts>) -> Counts {
    let mut total = Counts::default();
    values.iter().for_each(|counts| add(&mut total, counts));
    total
}

fn add(to: &mut Counts, more: &Counts) {
    to.bundles += more.bundles;
    to.packets += more.packets;
    to.bytes += more.bytes;
    to.no_ip += more.no_ip;
    for (to, more) in to.ecn.iter_mut().zip(more.ecn) {
        *to += more;
    }
}

/// Decodes a record from its in-memory layout.
fn read_record(bytes: &[u8]) -> Result<Record> {
    ensure!(bytes.len() == size_of::<Record>(), "record of {} bytes", bytes.len());
    // SAFETY: The length is right, any bits are valid, and the read is unaligned.
    Ok(unsafe { bytes.as_ptr().cast::<Record>().read_unaligned() })
}
