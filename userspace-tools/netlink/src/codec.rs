// SPDX-License-Identifier: GPL-2.0
//! Codecs of qdiscs: attribute values, and macros that declare options, enums and statistics. Headers
//! define the ids; tests of the codecs compare.

use crate::{
    attributes::Attributes,
    connection::{Error, Result},
};

/// A value of an attribute.
pub(crate) trait Value: Sized {
    /// Type in a YNL specification.
    #[cfg(test)]
    const YNL: &'static str;
    /// Flags of the attribute's type.
    const FLAGS: u16 = 0;
    fn encode(&self) -> Vec<u8>;
    fn decode(bytes: &[u8]) -> Option<Self>;
    /// Returns the value as a number, at most i64::MAX; None if it is no number.
    fn number(&self) -> Option<i64> {
        None
    }
    /// Returns the value with this number.
    fn of_number(_: i64) -> Option<Self> {
        None
    }
}

macro_rules! integer_values {
    ($($type:ty),*) => { $(
        impl Value for $type {
            #[cfg(test)]
            const YNL: &'static str = match stringify!($type).as_bytes() {
                b"i32" => "s32",
                b"i64" => "s64",
                _ => stringify!($type),
            };
            fn encode(&self) -> Vec<u8> {
                self.to_ne_bytes().to_vec()
            }
            fn decode(bytes: &[u8]) -> Option<Self> {
                Some(Self::from_ne_bytes(bytes.try_into().ok()?))
            }
            fn number(&self) -> Option<i64> {
                Some(i64::try_from(*self).unwrap_or(i64::MAX))
            }
            fn of_number(number: i64) -> Option<Self> {
                number.try_into().ok()
            }
        }
    )* };
}
integer_values!(u8, u32, i32, u64, i64);

impl Value for bool {
    #[cfg(test)]
    const YNL: &'static str = u8::YNL;
    fn encode(&self) -> Vec<u8> {
        vec![u8::from(*self)]
    }
    fn decode(bytes: &[u8]) -> Option<Self> {
        u8::decode(bytes).map(|value| value != 0)
    }
}

impl Value for String {
    #[cfg(test)]
    const YNL: &'static str = "string";
    fn encode(&self) -> Vec<u8> {
        [self.as_bytes(), &[0]].concat()
    }
    fn decode(bytes: &[u8]) -> Option<Self> {
        let text = bytes.split(|byte| *byte == 0).next()?;
        // The kernel accepts names with any bytes except NUL, so a dump may have invalid UTF-8.
        Some(String::from_utf8_lossy(text).into_owned())
    }
}

/// Declares enums of one byte, with the names that `tc` and `xdc qdisc` print and read.
macro_rules! named_values {
    ($($(#[$meta:meta])* $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $text:literal,)* })*) => { $(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, ::serde::Deserialize)]
        #[cfg_attr(feature = "schema", derive(::schemars::JsonSchema))]
        #[serde(rename_all = "snake_case")]
        #[repr(u8)]
        pub enum $name {
            $($(#[$variant_meta])* $variant,)*
        }

        impl $name {
            /// Values in numeric order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];
            /// Names in the same order.
            pub const NAMES: &'static [&'static str] = &[$($text),*];
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(Self::NAMES[*self as usize])
            }
        }

        impl ::std::str::FromStr for $name {
            type Err = String;
            fn from_str(text: &str) -> ::std::result::Result<Self, String> {
                let index = Self::NAMES.iter().position(|name| *name == text);
                index.map(|index| Self::ALL[index]).ok_or_else(|| {
                    format!("`{text}` is not one of {}", Self::NAMES.join(", "))
                })
            }
        }

        impl $crate::words::Choice for $name {
            const FORM: &str = concat!($($text, "|"),*);
        }

        impl $crate::codec::Value for $name {
            #[cfg(test)]
            const YNL: &'static str = <u8 as $crate::codec::Value>::YNL;
            fn encode(&self) -> Vec<u8> {
                vec![*self as u8]
            }
            fn decode(bytes: &[u8]) -> Option<Self> {
                let number = <u8 as $crate::codec::Value>::decode(bytes)?;
                Self::ALL.get(usize::from(number)).copied()
            }
        }
    )* };
}
pub(crate) use named_values;

/// Declares [`Options`] and its words by a module's list of options.
macro_rules! options {
    ($($(#[doc = $doc:literal])+ $field:ident: $kind:ident $(($($arg:tt)*))? = $default:expr,
        $name:literal $text:ident, $attribute:ident $id:literal;)*) => {
        /// TCA_OPTIONS. None = the kernel's default, or unchanged.
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        pub struct Options {
            $($(#[doc = $doc])+ pub $field: Option<$crate::codec::value!($kind $($($arg)*)?)>,)*
        }

        impl Options {
            /// Encodes the attributes that are set.
            pub fn encode(&self) -> Vec<u8> {
                let mut attributes = $crate::attributes::Attributes::default();
                $($crate::codec::encode($id, self.$field.as_ref(), &mut attributes);)*
                attributes.into_bytes()
            }

            /// Decodes a dump; skips attributes of a newer kernel.
            pub fn decode(bytes: &[u8]) -> $crate::Result<Self> {
                let mut options = Self::default();
                for attribute in $crate::attributes::parse(bytes) {
                    let (id, value) = attribute?;
                    match id {
                        $($id => options.$field =
                            Some($crate::codec::decode(stringify!($attribute), &value)?),)*
                        _ => {}
                    }
                }
                Ok(options)
            }

            /// Returns help, a line per option.
            pub fn help() -> String {
                $crate::words::help(WORDS)
            }

            /// Returns the options that are set as words, in tc's order.
            pub fn to_words(&self) -> impl Iterator<Item = (&'static str, String)> {
                $crate::words::to_words(WORDS, self)
            }

            /// Returns the same as one list: NAME VALUE NAME VALUE...
            pub fn word_list(&self) -> Vec<String> {
                self.to_words().flat_map(|(name, value)| [name.to_owned(), value]).collect()
            }

            /// Returns the options that are set as JSON; keys contain the units.
            pub fn to_json(&self) -> impl Iterator<Item = (&'static str, ::serde_json::Value)> {
                $crate::words::to_json(WORDS, self)
            }
        }

        /// Name in the header and id of every attribute, in tc's order.
        pub const IDS: &[(&str, u16)] = &[$((stringify!($attribute), $id)),*];

        /// Options in tc's syntax, in tc's order.
        pub const WORDS: &[$crate::words::Word<Options>] = &[$($crate::words::word!(
            Options, $name, $field: $crate::codec::value!($kind $($($arg)*)?), $text,
            concat!($($doc),+), $crate::codec::bounds!($default, $kind $($($arg)*)?)
        )),*];

        #[cfg(test)]
        pub(crate) const YNL_TYPES: &[&str] =
            &[$(<$crate::codec::value!($kind $($($arg)*)?) as $crate::codec::Value>::YNL),*];
    };
}
pub(crate) use options;

/// The type of an option.
macro_rules! value {
    (U32 $($bounds:tt)*) => { u32 };
    (S32 $($bounds:tt)*) => { i32 };
    (U64 $($bounds:tt)*) => { u64 };
    (Bool) => { bool };
    (Clock) => { ClockId };
    (Bits64 $type:ident) => { $type };
    (Enum $type:ident, $max:ident) => { $type };
    (Other $($type:tt)*) => { $($type)* };
}
pub(crate) use value;

/// The bounds and the default of an option that has bounds.
macro_rules! bounds {
    ($default:expr, U32 $bounds:expr) => {
        Some(($bounds, $default))
    };
    ($default:expr, S32 $bounds:expr) => {
        Some(($bounds, $default))
    };
    ($default:expr, U64 $bounds:expr) => {
        Some(($bounds, $default))
    };
    ($($other:tt)*) => {
        None
    };
}
pub(crate) use bounds;

pub(crate) fn encode<T: Value>(id: u16, value: Option<&T>, attributes: &mut Attributes) {
    if let Some(value) = value {
        attributes.push(id | T::FLAGS, &value.encode());
    }
}

pub(crate) fn decode<T: Value>(attribute: &str, bytes: &[u8]) -> Result<T> {
    T::decode(bytes).ok_or_else(|| malformed(attribute))
}

/// Declares [`Xstats`]: the u64 fields of a qdisc's statistics, in order.
macro_rules! xstats {
    ($($(#[doc = $doc:literal])+ $field:ident,)*) => {
        /// TCA_STATS_APP. Counters start when the qdisc is created.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Xstats {
            $($(#[doc = $doc])+ pub $field: u64,)*
        }

        impl Xstats {
            /// Names of the fields, in order.
            pub const FIELDS: &'static [&'static str] = &[$(stringify!($field)),*];
            #[cfg(test)]
            pub(crate) const HELP: &'static [&'static str] = &[$(concat!($($doc),+)),*];

            /// Decodes the struct, which only grows: fields that an older kernel lacks are 0, and a newer
            /// kernel's extra fields are skipped.
            pub fn decode(bytes: &[u8]) -> Self {
                let mut words = bytes.chunks_exact(8).map(|word| <u64 as $crate::codec::Value>::decode(word).unwrap_or(0));
                Self { $($field: words.next().unwrap_or(0),)* }
            }

            /// Returns the values in the order of [`Self::FIELDS`].
            pub fn values(&self) -> impl Iterator<Item = u64> {
                [$(self.$field),*].into_iter()
            }
        }
    };
}
pub(crate) use xstats;

/// Returns the error for an attribute with an invalid length or value.
pub(crate) fn malformed(attribute: &str) -> Error {
    Error::Malformed(format!("{attribute} has an unexpected length or value"))
}
