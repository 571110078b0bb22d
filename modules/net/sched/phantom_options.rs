// SPDX-License-Identifier: GPL-2.0

//! Options of sch_phantom: bounds, netlink form, and a copy for readers without the queue's lock.
//! The attributes are in uapi/linux/pkt_phantom.h.

use kernel::prelude::*;

use super::{
    algo::color::DscpTable,
    bounds::{bytes, ppm, rate, MAX_BYTES, MAX_PPM},
    kernel_api::{
        netlink::{Attr, Attrs, Extack, Message, Nest, Policy, Range},
        random::random_u64,
        relaxed::RelaxedCell,
        uapi::*,
    },
    settings::{self, options, policy, ranges, setting, Kind, Numbers, Setting},
};

include!("phantom_table.rs");

static RANGES: [Range; SETTINGS.len()] = ranges(&SETTINGS);

static POLICY: Policy<IDS> = policy(
    Policy::new().string(TCA_PHANTOM_POOL, MAX_NAME_BYTES as u16),
    &SETTINGS,
    &RANGES,
);

/// Number of attribute ids, 0 included.
const IDS: usize = __TCA_PHANTOM_MAX as usize;

/// A user's request.
pub(crate) struct Request<'a>(Attrs<'a, IDS>);

impl<'a> Request<'a> {
    pub(crate) fn parse(options: Nest<'a>, extack: &Extack<'_>) -> Result<Self> {
        let attrs = settings::parse(options, &POLICY, &SETTINGS, extack).inspect_err(|_| {
            if extack.bad_attr() == Some(TCA_PHANTOM_POOL) {
                extack.explain(fmt!(
                    "pool must be a name of at most {MAX_NAME_BYTES} bytes"
                ));
            }
        })?;
        attrs.refuse_twice(extack)?;
        Ok(Self(attrs))
    }

    /// Returns the attribute, if present.
    pub(crate) fn get(&self, id: u32) -> Option<Attr<'a>> {
        self.0.get(id)
    }
}

/// Options of one port, in plain words, so that they can be copied without the queue's lock.
#[derive(Clone, Copy)]
pub(crate) struct Options {
    /// Values of the options in [`SETTINGS`], by id.
    numbers: Numbers<IDS>,
    /// Name of the pool, padded with NULs.
    pub(crate) pool: [u64; POOL_WORDS],
}

pub(crate) const POOL_WORDS: usize = 2;
const POOL_NAME_BYTES: usize = POOL_WORDS * size_of::<u64>();
/// Length of a pool's name without its NUL.
const MAX_NAME_BYTES: usize = POOL_NAME_BYTES - 1;

impl Options {
    /// Returns the defaults.
    pub(crate) fn new() -> Self {
        let mut options = Self {
            numbers: Numbers::new(&SETTINGS),
            pool: [0; POOL_WORDS],
        };
        options.numbers.set(TCA_PHANTOM_SEED, random_u64() as i64);
        options
    }

    /// Returns whether a pool is named.
    pub(crate) fn has_pool(&self) -> bool {
        self.pool != [0; POOL_WORDS]
    }

    pub(crate) fn number(&self, id: u32) -> i64 {
        self.numbers.get(id)
    }

    /// Returns a number whose minimum is not negative.
    pub(crate) fn unsigned(&self, id: u32) -> u64 {
        self.number(id).max(0) as u64
    }

    /// Returns the seed of the random numbers.
    pub(crate) fn seed(&self) -> u64 {
        self.number(TCA_PHANTOM_SEED) as u64
    }

    pub(crate) fn dscp_table(&self) -> DscpTable {
        DscpTable::new(
            self.number(TCA_PHANTOM_COLOR_DSCP_YELLOW) as u64,
            self.number(TCA_PHANTOM_COLOR_DSCP_RED) as u64,
        )
    }

    /// Sets the size of the pool, which other ports share.
    pub(crate) fn set_pool_limit(&mut self, limit_bytes: u64) {
        self.numbers.set(TCA_PHANTOM_POOL_LIMIT, limit_bytes as i64);
    }

    fn pool_name(&self) -> [u8; POOL_NAME_BYTES] {
        let mut name = [0; POOL_NAME_BYTES];
        for (bytes, word) in name.chunks_exact_mut(size_of::<u64>()).zip(&self.pool) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        name
    }

    fn set_pool_name(&mut self, name: &[u8]) {
        let mut bytes = [0; POOL_NAME_BYTES];
        for (to, from) in bytes.iter_mut().zip(name) {
            *to = *from;
        }
        // as_chunks() needs a newer rustc than the oldest that builds kernels of this series.
        for (word, bytes) in self
            .pool
            .iter_mut()
            .zip(bytes.chunks_exact(size_of::<u64>()))
        {
            *word = u64::from_ne_bytes(bytes.first_chunk().copied().unwrap_or_default());
        }
    }

    /// Applies the options of a request.
    pub(crate) fn read(&mut self, request: &Request<'_>, extack: &Extack<'_>) -> Result {
        self.numbers.read(&SETTINGS, &request.0)?;
        if let Some(attr) = request.get(TCA_PHANTOM_POOL) {
            let name = attr.c_str().ok_or_else(|| {
                extack.invalid_attr(&attr, c"pool must have no byte after its NUL")
            })?;
            self.set_pool_name(name.to_bytes());
        }

        let ranges = [
            (
                TCA_PHANTOM_PQ_MIN_PPM,
                TCA_PHANTOM_PQ_MAX_PPM,
                c"pmin must not exceed pmax",
            ),
            (
                TCA_PHANTOM_BACKLOG_MIN_PPM,
                TCA_PHANTOM_BACKLOG_MAX_PPM,
                c"min must not exceed max",
            ),
        ];
        for (min, max, error) in ranges {
            if self.number(min) > self.number(max) {
                return Err(extack.invalid(error));
            }
        }
        let (red, yellow) = (TCA_PHANTOM_COLOR_DSCP_RED, TCA_PHANTOM_COLOR_DSCP_YELLOW);
        if self.number(red) & self.number(yellow) != 0 {
            return Err(extack.invalid(c"red-dscp and yellow-dscp must have no DSCP in common"));
        }
        self.check_pool_limit(request, extack)
    }

    fn check_pool_limit(&mut self, request: &Request<'_>, extack: &Extack<'_>) -> Result {
        if !self.has_pool() && request.get(TCA_PHANTOM_POOL_LIMIT).is_none() {
            // The port left its pool.
            self.set_pool_limit(0);
        }
        let limit_bytes = self.number(TCA_PHANTOM_POOL_LIMIT);
        let Some(attr) = request.get(TCA_PHANTOM_POOL_LIMIT) else {
            return Ok(());
        };
        match (self.has_pool(), limit_bytes) {
            (true, 0) => Err(extack.invalid_attr(&attr, c"pool-limit must not be 0")),
            (false, 1..) => Err(extack.invalid_attr(&attr, c"pool-limit must be 0 without pool")),
            _ => Ok(()),
        }
    }

    pub(crate) fn write(&self, message: &mut Message<'_>) -> Result {
        self.numbers.write(&SETTINGS, message, TCA_PHANTOM_PAD)?;
        message.put_str(TCA_PHANTOM_POOL as u16, &self.pool_name())
    }
}

/// Copy of [`Options`] for readers without the lock.
pub(crate) struct Shown {
    numbers: [RelaxedCell<u64>; IDS],
    pool: [RelaxedCell<u64>; POOL_WORDS],
}

impl Shown {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            numbers: options
                .numbers
                .0
                .map(|number| RelaxedCell::new(number as u64)),
            pool: options.pool.map(RelaxedCell::new),
        }
    }

    pub(crate) fn set(&self, options: &Options) {
        for (shown, number) in self.numbers.iter().zip(options.numbers.0) {
            shown.set(number as u64);
        }
        for (shown, word) in self.pool.iter().zip(options.pool) {
            shown.set(word);
        }
    }

    pub(crate) fn get(&self) -> Options {
        Options {
            numbers: Numbers(self.numbers.each_ref().map(|number| number.get() as i64)),
            pool: self.pool.each_ref().map(RelaxedCell::get),
        }
    }
}
