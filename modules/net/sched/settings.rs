// SPDX-License-Identifier: GPL-2.0

//! Qdisc options that are one number each: bounds, netlink form and errors. A table of them is the
//! single source of a qdisc's bounds and defaults; policy and error texts follow from the table.

use kernel::prelude::*;

use super::{
    bounds::{count, Bounds},
    kernel_api::netlink::{Attr, Attrs, Extack, Message, Nest, Number, Policy, Range},
};

/// Declares the static `SETTINGS` by a qdisc's list of options.
macro_rules! options {
    ($($(#[doc = $doc:literal])+ $field:ident: $kind:ident $(($($arg:tt)*))? = $default:expr,
        $name:literal $text:ident, $id:ident $number:literal;)*) => {
        /// Single source of bounds and defaults; policy and error texts follow from it.
        static SETTINGS: [Setting; [$($number),*].len()] =
            [$(setting($id, $name, settings::kind!($kind $($($arg)*)?), $default as i64)),*];

        const _: () = {
            $(assert!($id == $number);)*
        };
    };
}
pub(crate) use options;

macro_rules! kind {
    (Enum $type:ident, $max:ident) => {
        Kind::Enum($max)
    };
    (Bits64 $type:ident) => {
        Kind::Bits64
    };
    (Other $($type:tt)*) => {
        Kind::Other
    };
    ($kind:ident) => {
        Kind::$kind
    };
    ($kind:ident $bounds:expr) => {
        Kind::$kind($bounds)
    };
}
pub(crate) use kind;

/// An option that is one number.
pub(crate) struct Setting {
    pub(crate) id: u32,
    /// Name in tc.
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) default: i64,
}

/// Type and bounds of a number.
// Each qdisc uses a part.
#[allow(dead_code)]
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// A value of an enum, from 0 to this.
    Enum(u32),
    /// 0 or 1.
    Bool,
    U32(Bounds),
    S32(Bounds),
    U64(Bounds),
    /// A clockid_t, which the qdisc checks.
    Clock,
    /// Any 64 bits, stored as an i64.
    Bits64,
    /// No number: the qdisc handles it.
    Other,
}

pub(crate) const fn setting(id: u32, name: &'static str, kind: Kind, default: i64) -> Setting {
    Setting {
        id,
        name,
        kind,
        default,
    }
}

impl Kind {
    /// Returns the bounds; None if any value is valid.
    const fn bounds(self) -> Option<Bounds> {
        match self {
            Self::Enum(max) => Some(count(0, max as i64)),
            Self::Bool => Some(count(0, 1)),
            Self::U32(bounds) | Self::S32(bounds) | Self::U64(bounds) => Some(bounds),
            Self::Clock | Self::Bits64 | Self::Other => None,
        }
    }

    /// Returns the value of an attribute that passed the policy.
    fn read(self, attr: &Attr<'_>) -> Option<i64> {
        Some(match self {
            Self::Enum(_) | Self::Bool => attr.u8()?.into(),
            Self::U32(_) => attr.u32()?.into(),
            Self::S32(_) | Self::Clock => attr.i32()?.into(),
            Self::U64(_) | Self::Bits64 => attr.u64()? as i64,
            Self::Other => 0,
        })
    }
}

impl Setting {
    fn write(&self, message: &mut Message<'_>, value: i64, pad: u32) -> Result {
        let id = self.id as u16;
        match self.kind {
            Kind::Enum(_) | Kind::Bool => message.put(id, &(value as u8).to_ne_bytes()),
            Kind::U32(_) => message.put_u32(self.id, value as u32),
            Kind::S32(_) | Kind::Clock => message.put(id, &(value as i32).to_ne_bytes()),
            Kind::U64(_) | Kind::Bits64 => message.put_u64(id, value as u64, pad as u16),
            Kind::Other => Ok(()),
        }
    }
}

/// Returns the bounds of a table for [`policy`].
pub(crate) const fn ranges<const N: usize>(settings: &[Setting; N]) -> [Range; N] {
    let mut ranges = [Range { min: 0, max: 0 }; N];
    let mut i = 0;
    while i < N {
        if let Some(bounds) = settings[i].kind.bounds() {
            // The range of an s32 is unused.
            ranges[i] = Range {
                min: bounds.min as u64,
                max: bounds.max as u64,
            };
        }
        i += 1;
    }
    ranges
}

/// Adds the options of a table to a policy.
pub(crate) const fn policy<const IDS: usize, const N: usize>(
    mut policy: Policy<IDS>,
    settings: &[Setting; N],
    ranges: &'static [Range; N],
) -> Policy<IDS> {
    let mut i = 0;
    while i < N {
        let id = settings[i].id;
        policy = match settings[i].kind {
            Kind::Enum(_) | Kind::Bool => policy.range(id, Number::U8, &ranges[i]),
            Kind::U32(_) => policy.range(id, Number::U32, &ranges[i]),
            Kind::U64(_) => policy.range(id, Number::U64, &ranges[i]),
            Kind::S32(bounds) => {
                assert!(bounds.min >= i16::MIN as i64 && bounds.max <= i16::MAX as i64);
                policy.small_range(id, Number::S32, bounds.min as i16, bounds.max as i16)
            }
            Kind::Clock => policy.any(id, Number::S32),
            Kind::Bits64 => policy.any(id, Number::U64),
            Kind::Other => policy,
        };
        i += 1;
    }
    policy
}

/// Values of a table's options, by id.
#[derive(Clone, Copy)]
pub(crate) struct Numbers<const IDS: usize>(pub(crate) [i64; IDS]);

impl<const IDS: usize> Numbers<IDS> {
    /// Returns the defaults.
    pub(crate) fn new(settings: &[Setting]) -> Self {
        let mut numbers = Self([0; IDS]);
        for setting in settings {
            numbers.set(setting.id, setting.default);
        }
        numbers
    }

    pub(crate) fn get(&self, id: u32) -> i64 {
        self.0.get(id as usize).copied().unwrap_or(0)
    }

    pub(crate) fn set(&mut self, id: u32, value: i64) {
        if let Some(number) = self.0.get_mut(id as usize) {
            *number = value;
        }
    }

    /// Applies a request.
    pub(crate) fn read(&mut self, settings: &[Setting], request: &Attrs<'_, IDS>) -> Result {
        for setting in settings {
            if let Some(attr) = request.get(setting.id) {
                self.set(setting.id, setting.kind.read(&attr).ok_or(EINVAL)?);
            }
        }
        Ok(())
    }

    /// Appends all options. `pad` is the attribute that aligns others.
    pub(crate) fn write(
        &self,
        settings: &[Setting],
        message: &mut Message<'_>,
        pad: u32,
    ) -> Result {
        for setting in settings {
            setting.write(message, self.get(setting.id), pad)?;
        }
        Ok(())
    }
}

/// Parses a nest, and explains a number out of range by the option's name and range.
pub(crate) fn parse<'a, const IDS: usize>(
    nest: Nest<'a>,
    policy: &'static Policy<IDS>,
    settings: &[Setting],
    extack: &Extack<'_>,
) -> Result<Attrs<'a, IDS>> {
    nest.parse(policy, extack)
        .inspect_err(|error| explain(settings, *error, extack))
}

/// Explains an "integer out of range" of the policy, with the option's name and range.
fn explain(settings: &[Setting], error: Error, extack: &Extack<'_>) {
    let Some(id) = extack.bad_attr() else {
        return;
    };
    let setting = settings.iter().find(|setting| setting.id == id);
    if let (true, Some(setting)) = (error == ERANGE, setting) {
        if let Some(Bounds { min, max, unit }) = setting.kind.bounds() {
            let space = if unit.is_empty() { "" } else { " " };
            let name = setting.name;
            extack.explain(fmt!("{name} must be between {min} and {max}{space}{unit}"));
        }
    }
}
