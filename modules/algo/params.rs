// SPDX-License-Identifier: GPL-2.0

//! Parameter tables: the one home of each parameter's name, unit, bounds and defaults.

use core::ffi::CStr;

/// One parameter, with a default for each profile.
#[derive(Clone, Copy, Debug)]
pub struct ParamInfo {
    /// Its name, which is also that of the sysctl.
    pub name: &'static CStr,
    /// What its number counts.
    pub unit: &'static str,
    /// What it does.
    pub help: &'static str,
    /// Lowest valid value.
    pub min: u32,
    /// Highest valid value.
    pub max: u32,
    /// The value that each profile gives it.
    pub defaults: &'static [u32],
}

/// Values of the parameters of a table, which may change at any time. Each is read where it is
/// needed: few of them bear on one ACK.
pub trait Values {
    /// The value of row `row`.
    fn value(&self, row: usize) -> u32;
}

impl<V: Values + ?Sized> Values for &V {
    #[inline(always)]
    fn value(&self, row: usize) -> u32 {
        V::value(self, row)
    }
}

/// `concat!(name, "\0")` as a C string.
pub const fn c_str(bytes: &'static [u8]) -> &'static CStr {
    match CStr::from_bytes_with_nul(bytes) {
        Ok(name) => name,
        Err(_) => c"",
    }
}

/// Defines `Profile`, `Params`, `Rows` and the table `PARAMS` from one list of rows.
// A kernel module without an algorithm has none.
#[allow(unused_macros)]
macro_rules! params {
    (
        $(#[doc = $profile_help:literal])+
        profiles { $($(#[doc = $one_help:literal])+ $profile:ident = $profile_name:literal,)+ }
        $(
            $(#[doc = $help:literal])+
            $name:ident: $unit:literal, $min:expr, $max:expr, $defaults:expr;
        )+
    ) => {
        $(#[doc = $profile_help])+
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub enum Profile {
            $($(#[doc = $one_help])+ $profile,)+
        }

        impl Profile {
            /// Every profile, in the order of the defaults in [`PARAMS`].
            pub const ALL: [Profile; Self::COUNT] = [$(Profile::$profile,)+];

            /// Their names.
            pub const NAMES: [&'static core::ffi::CStr; Self::COUNT] = [$($profile_name,)+];

            /// How many there are.
            pub const COUNT: usize = [$($profile_name,)+].len();
        }

        /// One value of every parameter.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub struct Params {
            $($(#[doc = $help])+ pub $name: u32,)+
        }

        impl Params {
            /// The values that a profile gives.
            pub fn of(profile: Profile) -> Self {
                let default = |values: &[u32; Profile::COUNT]| {
                    values.get(profile as usize).copied().unwrap_or_default()
                };
                Params { $($name: default(&$defaults),)+ }
            }

            /// The values that `read` returns for each index into [`PARAMS`].
            pub fn read(mut read: impl FnMut(usize) -> u32) -> Self {
                let mut indices = 0usize..;
                let mut next = || read(indices.next().unwrap_or_default());
                Params { $($name: next(),)+ }
            }
        }

        impl $crate::algo::params::Values for Params {
            fn value(&self, row: usize) -> u32 {
                [$(self.$name,)+].get(row).copied().unwrap_or_default()
            }
        }

        #[allow(non_camel_case_types)]
        enum Row {
            $($name,)+
        }

        /// The values by name.
        pub trait Rows: $crate::algo::params::Values {
            $(
                $(#[doc = $help])+
                #[inline(always)]
                fn $name(&self) -> u32 {
                    self.value(Row::$name as usize)
                }
            )+
        }

        impl<V: $crate::algo::params::Values> Rows for V {}

        /// Every parameter, in the order of the fields of [`Params`].
        pub const PARAMS: &[$crate::algo::params::ParamInfo] = &[
            $($crate::algo::params::ParamInfo {
                name: $crate::algo::params::c_str(concat!(stringify!($name), "\0").as_bytes()),
                unit: $unit,
                help: concat!($($help),+),
                min: $min,
                max: $max,
                defaults: {
                    const DEFAULTS: &[u32; Profile::COUNT] = &$defaults;
                    DEFAULTS
                },
            },)+
        ];
    };
}
#[allow(unused_imports)]
pub(crate) use params;
