// SPDX-License-Identifier: GPL-2.0
//! Codecs of qdiscs: attribute values, and macros that declare options, enums and statistics. Headers
//! define the ids; tests of the codecs compare.

use crate::connection::Error;

/// A value of an attribute.
pub(crate) trait Value: Sized {
    /// Type in a YNL specification.
    #[cfg(test)]
    const YNL: &'static str;
    /// Flags of the attribute's type.
    const FLAGS: u16 = 0;
    fn encode(&self) -> Vec<u8>;
    fn decode(bytes: &[u8]) -> Option<Self>;
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
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

/// Declares [`Options`]: per attribute a field, its id and its name in the header.
macro_rules! options {
    ($($(#[$meta:meta])* $field:ident: $type:ty = $id:literal $name:literal,)*) => {
        /// TCA_OPTIONS. None = the kernel's default, or unchanged.
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        pub struct Options {
            $($(#[$meta])* pub $field: Option<$type>,)*
        }

        impl Options {
            /// Encodes the attributes that are set.
            pub fn encode(&self) -> Vec<u8> {
                let mut attributes = $crate::attributes::Attributes::default();
                $(if let Some(value) = &self.$field {
                    attributes.push($id | <$type as $crate::codec::Value>::FLAGS, &$crate::codec::Value::encode(value));
                })*
                attributes.into_bytes()
            }

            /// Decodes a dump; skips attributes of a newer kernel.
            pub fn decode(bytes: &[u8]) -> $crate::Result<Self> {
                let mut options = Self::default();
                for attribute in $crate::attributes::parse(bytes) {
                    let (id, value) = attribute?;
                    match id {
                        $($id => options.$field = Some(
                            <$type as $crate::codec::Value>::decode(&value)
                                .ok_or_else(|| $crate::codec::malformed($name))?
                        ),)*
                        _ => {}
                    }
                }
                Ok(options)
            }
        }

        /// Name in the header and id of every attribute.
        pub const IDS: &[(&str, u16)] = &[$(($name, $id)),*];

        #[cfg(test)]
        const YNL_TYPES: &[&str] = &[$(<$type as $crate::codec::Value>::YNL),*];
    };
}
pub(crate) use options;

/// Declares [`Xstats`]: the u64 fields of a qdisc's statistics, in order.
macro_rules! xstats {
    ($($(#[$meta:meta])* $field:ident,)*) => {
        /// TCA_STATS_APP. Counters start when the qdisc is created.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Xstats {
            $($(#[$meta])* pub $field: u64,)*
        }

        impl Xstats {
            /// Names of the fields, in order.
            pub const FIELDS: &'static [&'static str] = &[$(stringify!($field)),*];

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

#[cfg(test)]
pub(crate) mod tests {
    use saphyr::Yaml;

    /// Returns the members of the enum or struct that `declaration` opens.
    pub(crate) fn members_of<'a>(header: &'a str, declaration: &str) -> Vec<&'a str> {
        let body = header.split_once(declaration).expect("in the header").1;
        let body = body.split_once("};").expect("closed").0;
        body.lines()
            .map(|line| line.trim().trim_start_matches("__u64 "))
            .filter_map(|line| line.split([',', ';']).next())
            .filter(|word| !word.is_empty() && !word.contains([' ', '*', '/']))
            .collect()
    }

    /// Returns the list `key` of the member called `name` of `list`.
    pub(crate) fn of<'a>(list: &'a Yaml<'a>, name: &str, key: &str) -> Vec<&'a Yaml<'a>> {
        let mut members = list.as_sequence().expect("a list").iter();
        let member = members.find(|member| text(member, "name") == Some(name));
        let found = &member.unwrap_or_else(|| panic!("no {name}"))[key];
        found.as_sequence().expect("a list").iter().collect()
    }

    pub(crate) fn text<'a>(member: &'a Yaml<'a>, key: &str) -> Option<&'a str> {
        member.as_mapping_get(key)?.as_str()
    }
}
