// SPDX-License-Identifier: GPL-2.0

//! Options of sch_acceltor: bounds, netlink form, and constraints between them.
//! uapi/linux/pkt_acceltor.h has the attributes. Only RTNL callbacks use options.

use kernel::prelude::*;

use super::{
    acceltor_lists::{self as lists, Prefix},
    algo::acceltor::{days_of_racks, Policy as Elephants, Schedule, MAX_QUEUES},
    kernel_api::{
        netlink::{Attr, Attrs, Extack, Message, Nest, Policy, Range},
        qdisc::Clock,
        uapi::*,
    },
    settings::{self, bytes, policy, ranges, rate, setting, Bounds, Kind, Setting},
};

pub(crate) const fn count(min: i64, max: i64) -> Bounds {
    Bounds { min, max, unit: "" }
}

const fn ns(min: i64, max: i64) -> Bounds {
    Bounds {
        min,
        max,
        unit: "ns",
    }
}

const NS_PER_US: i64 = 1_000;
const NS_PER_S: i64 = 1_000_000_000;

/// Racks of the longest week.
pub(crate) const MAX_RACKS: i64 = 1_024;
/// Limit of elephants: 20 MB of state.
const MAX_ELEPHANTS: u64 = 1 << 18;
/// Lower bound: one packet. Upper bound: the kernel counts a backlog in 32 bits.
const LIMIT: Bounds = bytes(2_000, 1_000_000_000);

/// Single source of bounds and defaults for the policy and the error texts.
#[rustfmt::skip]
static SETTINGS: [Setting; 24] = [
    setting(TCA_ACCELTOR_RACKS, "racks", Kind::U32(count(2, MAX_RACKS)), 2),
    setting(TCA_ACCELTOR_RACK, "rack", Kind::U32(count(0, MAX_RACKS - 1)), 0),
    setting(TCA_ACCELTOR_DAY, "day", Kind::U64(ns(NS_PER_US, NS_PER_S)), 240_000),
    setting(TCA_ACCELTOR_NIGHT, "night", Kind::U64(ns(0, NS_PER_S)), 20_000),
    setting(TCA_ACCELTOR_BASE_TIME, "base-time", Kind::Bits64, 0),
    setting(TCA_ACCELTOR_CLOCKID, "clockid", Kind::Clock, CLOCK_TAI as i64),
    setting(TCA_ACCELTOR_CIRCUIT_RATE64, "ocs-rate", Kind::U64(rate(1)), 10_000_000_000),
    setting(TCA_ACCELTOR_PACKET_RATE64, "eps-rate", Kind::U64(rate(0)), 0),
    setting(TCA_ACCELTOR_RTT, "rtt", Kind::U64(ns(NS_PER_US, NS_PER_S)), 60_000),
    setting(TCA_ACCELTOR_QUEUES, "k", Kind::U32(count(1, MAX_QUEUES as i64)), 3),
    setting(TCA_ACCELTOR_HIGH_LIMIT, "hp", Kind::U32(LIMIT), 150_000),
    setting(TCA_ACCELTOR_LOW_LIMIT, "lp", Kind::U32(LIMIT), 150_000),
    setting(TCA_ACCELTOR_LIMIT, "limit", Kind::U32(LIMIT), 500_000),
    setting(TCA_ACCELTOR_ELEPHANTS, "elephants", Kind::U32(count(0, 4_096)), 80),
    setting(TCA_ACCELTOR_IDLE, "idle", Kind::U64(ns(0, 3_600 * NS_PER_S)), 0),
    setting(TCA_ACCELTOR_SKETCH_BYTES, "sketch-bytes", Kind::U32(bytes(1, u32::MAX as i64)), 225_000),
    setting(TCA_ACCELTOR_OVERFLOW, "overflow", Kind::Enum(TC_ACCELTOR_OVERFLOW_LP),
        TC_ACCELTOR_OVERFLOW_DROP as i64),
    setting(TCA_ACCELTOR_RESCUE, "rescue", Kind::Bool, 0),
    setting(TCA_ACCELTOR_GUARD, "guard", Kind::U64(ns(0, NS_PER_S)), 0),
    setting(TCA_ACCELTOR_LEAD, "lead", Kind::U64(ns(0, NS_PER_S)), 0),
    setting(TCA_ACCELTOR_ECN, "ecn", Kind::U32(bytes(0, u32::MAX as i64)), 0),
    setting(TCA_ACCELTOR_POLICY, "policy", Kind::Enum(TC_ACCELTOR_POLICY_PACKET),
        TC_ACCELTOR_POLICY_ACCELTOR as i64),
    setting(TCA_ACCELTOR_DETECT, "detect", Kind::Enum(TC_ACCELTOR_DETECT_FILTER),
        TC_ACCELTOR_DETECT_SKETCH as i64),
    setting(TCA_ACCELTOR_DSCP, "dscp", Kind::Bits64, 0),
];

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

/// Parses a nest, and explains a number out of range by the option's name and range.
pub(crate) fn parse<'a, const IDS: usize>(
    nest: Nest<'a>,
    policy: &'static Policy<IDS>,
    settings: &[Setting],
    extack: &Extack<'_>,
) -> Result<Attrs<'a, IDS>> {
    nest.parse(policy, extack)
        .inspect_err(|error| settings::explain(settings, *error, extack))
}

/// Attributes of a request.
pub(crate) struct Request<'a>(Attrs<'a, IDS>);

impl<'a> Request<'a> {
    pub(crate) fn parse(options: Nest<'a>, extack: &Extack<'_>) -> Result<Self> {
        let attrs = parse(options, &POLICY, &SETTINGS, extack)?;
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
    numbers: [i64; IDS],
    /// Sorted by address, without overlaps.
    pub(crate) prefixes: KVVec<Prefix>,
    /// The rack of each day; empty = (rack + 1 + day) mod N.
    peers: KVVec<u16>,
}

impl Options {
    /// Creates the defaults.
    pub(crate) fn new() -> Self {
        let mut options = Self {
            numbers: [0; IDS],
            prefixes: KVVec::new(),
            peers: KVVec::new(),
        };
        for setting in &SETTINGS {
            options.set(setting.id, setting.default);
        }
        options
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
        self.numbers.get(id as usize).copied().unwrap_or(0)
    }

    /// Returns a number that is not negative.
    pub(crate) fn unsigned(&self, id: u32) -> u64 {
        self.number(id).max(0) as u64
    }

    /// Returns an enum or bool.
    pub(crate) fn choice(&self, id: u32) -> u32 {
        self.number(id) as u32
    }

    fn set(&mut self, id: u32, value: i64) {
        if let Some(number) = self.numbers.get_mut(id as usize) {
            *number = value;
        }
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
        for setting in &SETTINGS {
            if let Some(attr) = request.get(setting.id) {
                self.set(setting.id, setting.kind.read(&attr).ok_or(EINVAL)?);
            }
        }
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
        for setting in &SETTINGS {
            setting.write(message, self.number(setting.id), TCA_ACCELTOR_PAD)?;
        }
        lists::write(&self.prefixes, &self.peers, message)
    }
}

/// Copies a vector; older kernels have no function for it.
fn copy<T: Copy>(from: &KVVec<T>) -> Result<KVVec<T>> {
    let mut to = KVVec::with_capacity(from.len(), GFP_KERNEL_ACCOUNT)?;
    to.extend_from_slice(from, GFP_KERNEL_ACCOUNT)?;
    Ok(to)
}
