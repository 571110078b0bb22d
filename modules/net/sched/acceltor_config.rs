// SPDX-License-Identifier: GPL-2.0

//! Options and tables in the form that the packet path uses.

use crate::{
    acceltor_lists::Prefix,
    acceltor_options::Options,
    algo::{
        acceltor::{Elephant, Elephants, Policy, Schedule, Sketch, MAX_QUEUES, NO_DAY},
        fixed::{mul_div, NS_PER_S},
    },
    kernel_api::{
        qdisc::{Clock, PacketList},
        uapi::*,
    },
};
use core::num::NonZeroU64;
use kernel::prelude::*;

/// Weeks in which the sketch halves.
pub(crate) const FORGET_WEEKS: u64 = 8;
/// Idle weeks after which an elephant becomes a mouse, unless `idle` is set.
pub(crate) const IDLE_WEEKS: u64 = 2;

/// [`Options`] in the form that the packet path uses.
#[derive(Clone, Copy)]
pub(crate) struct Config {
    pub(crate) schedule: Schedule,
    pub(crate) clock: Clock,
    pub(crate) policy: Policy,
    /// K; with blocking, one queue per rack.
    pub(crate) queues: NonZeroU64,
    pub(crate) days_per_week: NonZeroU64,
    pub(crate) rtt_ns: u64,
    pub(crate) guard_ns: u64,
    pub(crate) circuit_bytes_per_s: u64,
    /// 0 = not shaped.
    pub(crate) packet_bytes_per_s: u64,
    pub(crate) high_limit_bytes: u64,
    pub(crate) low_limit_bytes: u64,
    pub(crate) limit_bytes: u64,
    pub(crate) ecn_bytes: u64,
    pub(crate) accelerate_overflow: bool,
    pub(crate) rescue: bool,
    pub(crate) detect: u32,
    pub(crate) dscp: u64,
    pub(crate) most_of_rack: u16,
    pub(crate) sketch_bytes: u32,
    pub(crate) idle_ns: u64,
    /// Days in which the sketch halves.
    pub(crate) forget_days: NonZeroU64,
}

impl Config {
    pub(crate) fn new(options: &Options) -> Self {
        let number = |id| options.unsigned(id);
        let schedule = options.schedule();
        let days_per_week = schedule.days_per_week();
        let policy = options.policy();
        let queues = match policy {
            Policy::Blocking => days_per_week.get(),
            _ => number(TCA_ACCELTOR_QUEUES),
        };
        let ecn_bytes = match number(TCA_ACCELTOR_ECN) {
            0 => u64::MAX,
            bytes => bytes,
        };
        let idle_ns = match number(TCA_ACCELTOR_IDLE) {
            0 => schedule.week_ns().saturating_mul(IDLE_WEEKS),
            ns => ns,
        };
        Self {
            schedule,
            clock: options.clock(),
            policy,
            queues: NonZeroU64::new(queues).unwrap_or(NonZeroU64::MIN),
            days_per_week,
            rtt_ns: number(TCA_ACCELTOR_RTT),
            guard_ns: number(TCA_ACCELTOR_GUARD),
            circuit_bytes_per_s: number(TCA_ACCELTOR_CIRCUIT_RATE64),
            packet_bytes_per_s: number(TCA_ACCELTOR_PACKET_RATE64),
            high_limit_bytes: number(TCA_ACCELTOR_HIGH_LIMIT),
            low_limit_bytes: number(TCA_ACCELTOR_LOW_LIMIT),
            limit_bytes: number(TCA_ACCELTOR_LIMIT),
            ecn_bytes,
            accelerate_overflow: options.choice(TCA_ACCELTOR_OVERFLOW) == TC_ACCELTOR_OVERFLOW_LP,
            rescue: options.choice(TCA_ACCELTOR_RESCUE) != 0,
            detect: options.choice(TCA_ACCELTOR_DETECT),
            dscp: options.number(TCA_ACCELTOR_DSCP) as u64,
            most_of_rack: number(TCA_ACCELTOR_ELEPHANTS) as u16,
            sketch_bytes: number(TCA_ACCELTOR_SKETCH_BYTES) as u32,
            idle_ns,
            forget_days: days_per_week
                .saturating_mul(NonZeroU64::new(FORGET_WEEKS).unwrap_or(NonZeroU64::MIN)),
        }
    }

    /// Returns the transmission time on a circuit, rounded up.
    pub(crate) fn circuit_ns(&self, len_bytes: u32) -> u64 {
        mul_div(len_bytes.into(), NS_PER_S, self.circuit_bytes_per_s).saturating_add(1)
    }
}

/// Allocations whose size depends on options, made before the queue is locked.
pub(crate) struct Tables {
    pub(crate) day_of_rack: KVVec<u16>,
    pub(crate) prefixes: KVVec<Prefix>,
    pub(crate) flows: KVVec<Elephant>,
    pub(crate) flows_of_rack: KVVec<u16>,
    pub(crate) sketch: KVVec<u32>,
}

impl Tables {
    pub(crate) fn new(options: &Options) -> Result<Self> {
        let flows = Elephants::slots_for(options.most_elephants());
        Ok(Self {
            day_of_rack: options.day_of_rack()?,
            prefixes: options.copy()?.prefixes,
            flows: KVVec::from_elem(Elephant::default(), flows, GFP_KERNEL_ACCOUNT)?,
            flows_of_rack: KVVec::from_elem(0, usize::from(options.racks()), GFP_KERNEL_ACCOUNT)?,
            sketch: KVVec::from_elem(0, Sketch::CELLS, GFP_KERNEL_ACCOUNT)?,
        })
    }

    pub(crate) fn elephants(&mut self) -> Elephants<'_> {
        Elephants {
            slots: &mut self.flows,
            counts: &mut self.flows_of_rack,
        }
    }

    /// Returns the rack of an address and its day of the week; None for the own rack.
    pub(crate) fn rack_of(&self, addr: u128) -> Option<(u16, u16)> {
        let after = self.prefixes.partition_point(|it| it.first <= addr);
        let prefix = self.prefixes.get(after.checked_sub(1)?)?;
        let day = *self.day_of_rack.get(usize::from(prefix.rack))?;
        (addr <= prefix.last && day != NO_DAY).then_some((prefix.rack, day))
    }
}

/// A queue of the calendar.
#[derive(Default)]
pub(crate) struct Later {
    pub(crate) list: PacketList,
    /// Label of its day.
    pub(crate) label: u64,
    /// A packet was sent in its day.
    pub(crate) served: bool,
}

/// Allocates the queues; at least as many as the largest K.
pub(crate) fn calendar(queues: u64) -> Result<KVVec<Later>> {
    let queues = queues.max(MAX_QUEUES) as usize;
    let mut calendar = KVVec::with_capacity(queues, GFP_KERNEL_ACCOUNT)?;
    for _ in 0..queues {
        calendar.push(Later::default(), GFP_KERNEL_ACCOUNT)?;
    }
    Ok(calendar)
}
