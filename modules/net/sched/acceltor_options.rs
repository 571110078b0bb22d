// SPDX-License-Identifier: GPL-2.0

//! Options of sch_acceltor: bounds, netlink form, and constraints between them.
//! uapi/linux/pkt_acceltor.h has the attributes. Only RTNL callbacks use options.

use kernel::prelude::*;

use super::{
    acceltor_lists::{self as lists, Prefix},
    algo::acceltor::{days_of_racks, Policy as Elephants, Schedule, MAX_QUEUES},
    bounds::{bytes, count, ns, rate, Bounds, MAX_BYTES, NS_PER_S, NS_PER_US},
    kernel_api::{
        netlink::{Attr, Attrs, Extack, Message, Nest, Policy, Range},
        qdisc::Clock,
        uapi::*,
    },
    settings::{self, options, policy, ranges, setting, Kind, Numbers, Setting},
};

/// Limit of elephants: 20 MB of state.
const MAX_ELEPHANTS: u64 = 1 << 18;
include!("acceltor_table.rs");

static RANGES: [Range; SETTINGS.len()] = ranges(&SETTINGS);

/// Number of attribute ids, 0 included.
const IDS: usize = __TCA_ACCELTOR_MAX as usize;

static POLICY: Policy<IDS> = policy(
    Policy::new()
        .nested(TCA_ACCELTOR_PREFIXES)
        .nested(TCA_ACCELTOR_PEERS),
    &SETTINGS,
    &RANGES,
);

/// Attributes of a request.
pub(crate) struct Request<'a>(Attrs<'a, IDS>);

impl<'a> Request<'a> {
    pub(crate) fn parse(options: Nest<'a>, extack: &Extack<'_>) -> Result<Self> {
        let attrs = settings::parse(options, &POLICY, &SETTINGS, extack)?;
        attrs.refuse_twice(extack)?;
        Ok(Self(attrs))
    }

    /// Returns an attribute, if present.
    pub(crate) fn get(&self, id: u32) -> Option<Attr<'a>> {
        self.0.get(id)
    }
}

/// Options of one port.
pub(crate) struct Options {
    /// Values of [`SETTINGS`], by id.
    numbers: Numbers<IDS>,
    /// Sorted by address, without overlaps.
    pub(crate) prefixes: KVVec<Prefix>,
    /// The rack of each day; empty = (rack + 1 + day) mod N.
    peers: KVVec<u16>,
}

impl Options {
    /// Creates the defaults.
    pub(crate) fn new() -> Self {
        Self {
            numbers: Numbers::new(&SETTINGS),
            prefixes: KVVec::new(),
            peers: KVVec::new(),
        }
    }

    /// Copies the options, if memory allows.
    pub(crate) fn copy(&self) -> Result<Self> {
        Ok(Self {
            numbers: self.numbers,
            prefixes: copy(&self.prefixes)?,
            peers: copy(&self.peers)?,
        })
    }

    /// Returns whether packets may belong to other days than with `others`.
    pub(crate) fn moves_days(&self, others: &Self) -> bool {
        const MOVE: [u32; 7] = [
            TCA_ACCELTOR_RACKS,
            TCA_ACCELTOR_RACK,
            TCA_ACCELTOR_DAY,
            TCA_ACCELTOR_NIGHT,
            TCA_ACCELTOR_BASE_TIME,
            TCA_ACCELTOR_QUEUES,
            TCA_ACCELTOR_POLICY,
        ];
        let moves = |id: &u32| self.number(*id) != others.number(*id);
        MOVE.iter().any(moves) || *self.peers != *others.peers || *self.prefixes != *others.prefixes
    }

    pub(crate) fn number(&self, id: u32) -> i64 {
        self.numbers.get(id)
    }

    /// Returns a number that is not negative.
    pub(crate) fn unsigned(&self, id: u32) -> u64 {
        self.number(id).max(0) as u64
    }

    /// Returns an enum or bool.
    pub(crate) fn choice(&self, id: u32) -> u32 {
        self.number(id) as u32
    }

    pub(crate) fn racks(&self) -> u16 {
        self.number(TCA_ACCELTOR_RACKS) as u16
    }

    pub(crate) fn clock(&self) -> Clock {
        Clock::of(self.number(TCA_ACCELTOR_CLOCKID)).unwrap_or(Clock::Tai)
    }

    pub(crate) fn policy(&self) -> Elephants {
        match self.choice(TCA_ACCELTOR_POLICY) {
            TC_ACCELTOR_POLICY_BLOCKING => Elephants::Blocking,
            TC_ACCELTOR_POLICY_UNBLOCKING => Elephants::Unblocking,
            TC_ACCELTOR_POLICY_PACKET => Elephants::Packet,
            _ => Elephants::AccelTor,
        }
    }

    pub(crate) fn schedule(&self) -> Schedule {
        Schedule {
            base_ns: self.number(TCA_ACCELTOR_BASE_TIME),
            day_ns: self.unsigned(TCA_ACCELTOR_DAY),
            night_ns: self.unsigned(TCA_ACCELTOR_NIGHT),
            lead_ns: self.unsigned(TCA_ACCELTOR_LEAD),
            racks: self.racks(),
        }
    }

    /// Returns the day of the week of each rack.
    pub(crate) fn day_of_rack(&self) -> Result<KVVec<u16>> {
        let mut days = KVVec::from_elem(0, usize::from(self.racks()), GFP_KERNEL_ACCOUNT)?;
        let rack = self.number(TCA_ACCELTOR_RACK) as u16;
        match days_of_racks(rack, &self.peers, &mut days) {
            true => Ok(days),
            false => Err(EINVAL),
        }
    }

    /// Returns the limit of concurrent elephants.
    pub(crate) fn most_elephants(&self) -> usize {
        let days = u64::from(self.racks()).saturating_sub(1);
        let most = self.unsigned(TCA_ACCELTOR_ELEPHANTS).saturating_mul(days);
        most.min(MAX_ELEPHANTS) as usize
    }

    /// Applies the options of a request.
    pub(crate) fn read(&mut self, request: &Request<'_>, extack: &Extack<'_>) -> Result {
        self.numbers.read(&SETTINGS, &request.0)?;
        if let Some(attr) = request.get(TCA_ACCELTOR_PREFIXES) {
            self.prefixes = lists::read_prefixes(attr, extack)?;
        }
        if let Some(attr) = request.get(TCA_ACCELTOR_PEERS) {
            self.peers = lists::read_peers(attr, extack)?;
        }
        self.check(extack)
    }

    /// Checks constraints between options.
    fn check(&self, extack: &Extack<'_>) -> Result {
        let number = |id| self.number(id);
        if Clock::of(number(TCA_ACCELTOR_CLOCKID)).is_none() {
            return Err(extack.invalid(
                c"clockid must be CLOCK_REALTIME, CLOCK_TAI, CLOCK_BOOTTIME or CLOCK_MONOTONIC",
            ));
        }
        let racks = number(TCA_ACCELTOR_RACKS);
        if number(TCA_ACCELTOR_RACK) >= racks {
            return Err(extack.invalid(c"rack must be less than racks"));
        }
        let half_day = number(TCA_ACCELTOR_DAY) / 2;
        if number(TCA_ACCELTOR_GUARD) > half_day {
            return Err(extack.invalid(c"guard must be at most half of a day"));
        }
        if number(TCA_ACCELTOR_LEAD) > half_day {
            return Err(extack.invalid(c"lead must be at most half of a day"));
        }
        let days = (racks as u64).saturating_sub(1);
        let elephants = self.unsigned(TCA_ACCELTOR_ELEPHANTS);
        if elephants.saturating_mul(days) > MAX_ELEPHANTS {
            return Err(extack.invalid(c"elephants of all racks must be at most 262144"));
        }
        if self.prefixes.iter().any(|it| i64::from(it.rack) >= racks) {
            return Err(extack.invalid(c"rack of a prefix must be less than racks"));
        }
        lists::refuse_long(&self.prefixes, &self.peers, extack)?;
        self.day_of_rack()
            .map(drop)
            .map_err(|error| match error == EINVAL {
                true => extack.invalid(c"peers must name each other rack once, or none"),
                false => error,
            })
    }

    pub(crate) fn write(&self, message: &mut Message<'_>) -> Result {
        self.numbers.write(&SETTINGS, message, TCA_ACCELTOR_PAD)?;
        lists::write(&self.prefixes, &self.peers, message)
    }
}

/// Copies a vector; older kernels have no function for it.
fn copy<T: Copy>(from: &KVVec<T>) -> Result<KVVec<T>> {
    let mut to = KVVec::with_capacity(from.len(), GFP_KERNEL_ACCOUNT)?;
    to.extend_from_slice(from, GFP_KERNEL_ACCOUNT)?;
    Ok(to)
}
