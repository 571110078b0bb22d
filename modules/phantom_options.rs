// SPDX-License-Identifier: GPL-2.0

//! The options of sch_phantom: their bounds, netlink form, and copy for readers
//! without the queue's lock. The attributes are those of uapi/pkt_phantom.h.

use kernel::prelude::*;

use super::{
    algo::color::{Color, DSCPS},
    kernel_api::{
        netlink::{Attr, Attrs, Extack, Message},
        once::Once,
        uapi::*,
    },
};

/// An option that is one number.
struct Setting {
    id: u32,
    width: Width,
    min: i64,
    max: i64,
    default: i64,
    /// What a user reads who gave something else.
    error: &'static CStr,
}

/// How a number is carried.
#[derive(Clone, Copy)]
enum Width {
    U8,
    U32,
    S32,
    U64,
}

/// Rates above this would be 8 Pbit/s: a mistake of units.
const MAX_BYTES_PER_S: i64 = 1_000_000_000_000_000;

/// The kernel counts a backlog in 32 bits.
const MAX_LIMIT_BYTES: i64 = u32::MAX as i64;

const MAX_PPM: i64 = 1_000_000;

const fn setting(
    id: u32,
    width: Width,
    (min, max): (i64, i64),
    default: i64,
    error: &'static CStr,
) -> Setting {
    Setting {
        id,
        width,
        min,
        max,
        default,
        error,
    }
}

#[rustfmt::skip]
static SETTINGS: [Setting; 22] = [
    setting(TCA_PHANTOM_LIMIT, Width::U64, (1, MAX_LIMIT_BYTES), 1_000_000,
        c"limit: give 1 to 4294967295 bytes"),
    setting(TCA_PHANTOM_RATE, Width::U64, (0, MAX_BYTES_PER_S), 0,
        c"rate: give at most 8 Pbit/s, or 0 for no shaping"),
    setting(TCA_PHANTOM_OVERHEAD, Width::S32, (-64, 256), 0,
        c"overhead: give -64 to 256 bytes"),
    setting(TCA_PHANTOM_MPU, Width::U32, (0, 256), 0,
        c"mpu: give 0 to 256 bytes"),
    setting(TCA_PHANTOM_LINE_RATE, Width::U64, (0, MAX_BYTES_PER_S), 0,
        c"line-rate: give at most 8 Pbit/s, or 0 for the port's own"),
    setting(TCA_PHANTOM_PHANTOM_LIMIT, Width::U64, (1, i64::MAX), 22_400_000,
        c"phantom: give at least 1 byte"),
    setting(TCA_PHANTOM_DRAIN, Width::U32, (1, MAX_PPM), 900_000,
        c"drain: give a fraction of the line rate above 0 and up to 1"),
    setting(TCA_PHANTOM_PMIN, Width::U32, (0, MAX_PPM), 20_000,
        c"pmin: give 0 % to 100 % of the phantom queue"),
    setting(TCA_PHANTOM_PMAX, Width::U32, (0, MAX_PPM), 600_000,
        c"pmax: give 0 % to 100 % of the phantom queue"),
    setting(TCA_PHANTOM_QMIN, Width::U32, (0, MAX_PPM), 250_000,
        c"min: give 0 % to 100 % of the limit"),
    setting(TCA_PHANTOM_QMAX, Width::U32, (0, MAX_PPM), 750_000,
        c"max: give 0 % to 100 % of the limit"),
    setting(TCA_PHANTOM_MARK, Width::U8, (0, TC_PHANTOM_MARK_BOTH as i64),
        TC_PHANTOM_MARK_PHANTOM as i64,
        c"mark: give none, phantom, physical, either or both"),
    setting(TCA_PHANTOM_MARK_AT, Width::U8, (0, TC_PHANTOM_MARK_AT_ENQUEUE as i64),
        TC_PHANTOM_MARK_AT_DEQUEUE as i64,
        c"mark: give at enqueue or at dequeue"),
    setting(TCA_PHANTOM_ECN_DROP, Width::U8, (0, 1), 0,
        c"ecn-drop: give on or off"),
    setting(TCA_PHANTOM_COUNT_ACKS, Width::U8, (0, 1), 1,
        c"count-acks: give on or off"),
    setting(TCA_PHANTOM_RED_LIMIT, Width::U64, (0, MAX_LIMIT_BYTES), 0,
        c"red-limit: give at most 4294967295 bytes, or 0 for none"),
    setting(TCA_PHANTOM_YELLOW_LIMIT, Width::U64, (0, MAX_LIMIT_BYTES), 0,
        c"yellow-limit: give at most 4294967295 bytes, or 0 for none"),
    setting(TCA_PHANTOM_COLOR_TOTAL, Width::U8, (0, 1), 0,
        c"color-total: give on or off"),
    setting(TCA_PHANTOM_COLOR_SOURCE, Width::U8, (0, TC_PHANTOM_COLOR_FILTER as i64),
        TC_PHANTOM_COLOR_NONE as i64,
        c"color-source: give none, dscp, priority or filter"),
    setting(TCA_PHANTOM_GSO, Width::U8, (0, TC_PHANTOM_GSO_WHOLE as i64),
        TC_PHANTOM_GSO_AUTO as i64,
        c"gso: give auto, split or whole"),
    setting(TCA_PHANTOM_POOL_LIMIT, Width::U64, (0, MAX_LIMIT_BYTES), 0,
        c"pool-limit: give at most 4294967295 bytes"),
    setting(TCA_PHANTOM_POOL_ALPHA, Width::U32, (1, u32::MAX as i64), 1_000_000,
        c"pool-alpha: give a factor above 0"),
];

/// Number of option ids, 0 included.
const IDS: usize = __TCA_PHANTOM_MAX as usize;

/// All options of one port. Nothing but words, so that it can be shown without
/// the queue's lock.
#[derive(Clone, Copy)]
pub(crate) struct Options {
    /// Those in [`SETTINGS`], by id.
    numbers: [i64; IDS],
    /// Two bits per DSCP.
    colors: [u64; COLOR_WORDS],
    /// Name of the shared buffer, filled up with NULs.
    pub(crate) pool: [u64; POOL_WORDS],
}

const COLORS_PER_WORD: usize = 32;
const COLOR_WORDS: usize = DSCPS / COLORS_PER_WORD;
pub(crate) const POOL_WORDS: usize = 2;
const POOL_NAME_BYTES: usize = POOL_WORDS * size_of::<u64>();

impl Options {
    /// A shared buffer is named.
    pub(crate) fn has_pool(&self) -> bool {
        self.pool != [0; POOL_WORDS]
    }

    pub(crate) fn new() -> Self {
        let mut options = Self {
            numbers: [0; IDS],
            colors: [0; COLOR_WORDS],
            pool: [0; POOL_WORDS],
        };
        for setting in &SETTINGS {
            options.set(setting.id, setting.default);
        }
        options
    }

    pub(crate) fn number(&self, id: u32) -> i64 {
        self.numbers.get(id as usize).copied().unwrap_or(0)
    }

    /// A number whose minimum is not negative.
    pub(crate) fn unsigned(&self, id: u32) -> u64 {
        self.number(id).max(0) as u64
    }

    fn set(&mut self, id: u32, value: i64) {
        if let Some(number) = self.numbers.get_mut(id as usize) {
            *number = value;
        }
    }

    pub(crate) fn color(&self, dscp: usize) -> u8 {
        let word = self
            .colors
            .get(dscp / COLORS_PER_WORD)
            .copied()
            .unwrap_or(0);
        (word >> (dscp % COLORS_PER_WORD * 2)) as u8 & 3
    }

    fn set_colors(&mut self, colors: &[u8]) {
        self.colors = [0; COLOR_WORDS];
        for (dscp, color) in colors.iter().enumerate() {
            if let Some(word) = self.colors.get_mut(dscp / COLORS_PER_WORD) {
                *word |= u64::from(*color) << (dscp % COLORS_PER_WORD * 2);
            }
        }
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
        // as_chunks() is younger than the oldest rustc that kernels of this series are built with.
        for (word, bytes) in self.pool.iter_mut().zip(bytes.chunks_exact(size_of::<u64>())) {
            *word = u64::from_ne_bytes(bytes.first_chunk().copied().unwrap_or_default());
        }
    }

    /// Takes over what a request names.
    pub(crate) fn read(&mut self, attrs: Attrs<'_>, extack: &Extack<'_>) -> Result {
        attrs.for_each(extack, |attr| self.read_one(attr, extack))?;

        let pairs = [
            (
                TCA_PHANTOM_PMIN,
                TCA_PHANTOM_PMAX,
                c"pmin: give at most pmax",
            ),
            (TCA_PHANTOM_QMIN, TCA_PHANTOM_QMAX, c"min: give at most max"),
        ];
        for (min, max, error) in pairs {
            if self.number(min) > self.number(max) {
                return Err(extack.invalid(error));
            }
        }
        if self.pool != [0; POOL_WORDS] && self.number(TCA_PHANTOM_POOL_LIMIT) == 0 {
            return Err(extack.invalid(c"pool: give the size of the shared buffer as pool-limit"));
        }
        Ok(())
    }

    fn read_one(&mut self, attr: &Attr<'_>, extack: &Extack<'_>) -> Result {
        match u32::from(attr.id) {
            TCA_PHANTOM_PAD => Ok(()),
            TCA_PHANTOM_DSCP_COLOR => {
                let colors = attr.bytes();
                if colors.len() != DSCPS || colors.iter().any(|c| Color::from_u8(*c).is_none()) {
                    let error =
                        c"dscp-color: give one of green, yellow and red for each of 64 DSCPs";
                    return Err(extack.invalid_attr(attr, error));
                }
                self.set_colors(colors);
                Ok(())
            }
            TCA_PHANTOM_POOL => {
                let name = attr.str_bytes();
                if name.len() >= POOL_NAME_BYTES {
                    return Err(extack.invalid_attr(attr, c"pool: give a name of at most 15 bytes"));
                }
                self.set_pool_name(name);
                Ok(())
            }
            id => {
                let Some(setting) = SETTINGS.iter().find(|setting| setting.id == id) else {
                    let error = c"an option that this version of sch_phantom does not have";
                    return Err(extack.invalid_attr(attr, error));
                };
                let value = setting
                    .read(attr)
                    .ok_or_else(|| extack.invalid_attr(attr, setting.error))?;
                self.set(id, value);
                Ok(())
            }
        }
    }

    pub(crate) fn write(&self, message: &mut Message<'_>) -> Result {
        for setting in &SETTINGS {
            setting.write(message, self.number(setting.id))?;
        }
        let mut colors = [0; DSCPS];
        for (dscp, color) in colors.iter_mut().enumerate() {
            *color = self.color(dscp);
        }
        message.put(TCA_PHANTOM_DSCP_COLOR as u16, &colors)?;
        message.put_str(TCA_PHANTOM_POOL as u16, &self.pool_name())
    }
}

impl Setting {
    /// The value of an attribute, if it is a valid one.
    fn read(&self, attr: &Attr<'_>) -> Option<i64> {
        let value = match self.width {
            Width::U8 => attr.u8()?.into(),
            Width::U32 => attr.u32()?.into(),
            Width::S32 => attr.i32()?.into(),
            Width::U64 => attr.u64()?.try_into().ok()?,
        };
        (self.min..=self.max).contains(&value).then_some(value)
    }

    fn write(&self, message: &mut Message<'_>, value: i64) -> Result {
        let id = self.id as u16;
        match self.width {
            Width::U8 => message.put(id, &(value as u8).to_ne_bytes()),
            Width::U32 => message.put(id, &(value as u32).to_ne_bytes()),
            Width::S32 => message.put(id, &(value as i32).to_ne_bytes()),
            Width::U64 => message.put_u64(id, value as u64, TCA_PHANTOM_PAD as u16),
        }
    }
}

/// [`Options`] as others see them.
pub(crate) struct Shown {
    numbers: [Once<u64>; IDS],
    colors: [Once<u64>; COLOR_WORDS],
    pool: [Once<u64>; POOL_WORDS],
}

impl Shown {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            numbers: options.numbers.map(|number| Once::new(number as u64)),
            colors: options.colors.map(Once::new),
            pool: options.pool.map(Once::new),
        }
    }

    pub(crate) fn set(&self, options: &Options) {
        for (shown, number) in self.numbers.iter().zip(options.numbers) {
            shown.set(number as u64);
        }
        let words = Iterator::chain(options.colors.iter(), &options.pool);
        for (shown, word) in Iterator::chain(self.colors.iter(), &self.pool).zip(words) {
            shown.set(*word);
        }
    }

    pub(crate) fn get(&self) -> Options {
        let mut options = Options::new();
        for (number, shown) in options.numbers.iter_mut().zip(&self.numbers) {
            *number = shown.get() as i64;
        }
        for (word, shown) in options.colors.iter_mut().zip(&self.colors) {
            *word = shown.get();
        }
        for (word, shown) in options.pool.iter_mut().zip(&self.pool) {
            *word = shown.get();
        }
        options
    }
}
