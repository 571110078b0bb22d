// SPDX-License-Identifier: GPL-2.0
//! Clocks of the schedule, with the names of `tc qdisc ... taprio clockid`.

use std::{fmt, str::FromStr};

use crate::{codec, words::Choice};

/// A clockid_t of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum ClockId {
    /// Time of day.
    Realtime = 0,
    /// Time of day without leap seconds.
    Tai = 11,
    /// Time since the boot.
    Boottime = 7,
    /// Time since the boot, without suspend.
    Monotonic = 1,
}

impl ClockId {
    /// Clocks that the qdisc accepts.
    pub const ALL: [Self; 4] = [Self::Realtime, Self::Tai, Self::Boottime, Self::Monotonic];

    fn name(self) -> &'static str {
        match self {
            Self::Realtime => "REALTIME",
            Self::Tai => "TAI",
            Self::Boottime => "BOOTTIME",
            Self::Monotonic => "MONOTONIC",
        }
    }
}

impl fmt::Display for ClockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Accepts any case and the prefix `CLOCK_`, as `tc` does.
impl FromStr for ClockId {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let upper = text.to_uppercase();
        let name = upper.strip_prefix("CLOCK_").unwrap_or(&upper);
        let clock = Self::ALL.into_iter().find(|clock| clock.name() == name);
        clock.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("`{text}` is not one of {names}")
        })
    }
}

impl Choice for ClockId {
    const FORM: &str = "REALTIME|TAI|BOOTTIME|MONOTONIC";
}

impl codec::Value for ClockId {
    #[cfg(test)]
    const YNL: &'static str = <i32 as codec::Value>::YNL;
    fn encode(&self) -> Vec<u8> {
        (*self as i32).encode()
    }
    fn decode(bytes: &[u8]) -> Option<Self> {
        let id = i32::decode(bytes)?;
        Self::ALL.into_iter().find(|clock| *clock as i32 == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Value as _;

    #[test]
    fn clocks_have_the_names_of_tc() {
        for clock in ClockId::ALL {
            let name = clock.to_string();
            for text in [name.to_lowercase(), format!("CLOCK_{name}"), name] {
                assert_eq!(text.parse(), Ok(clock));
            }
            assert_eq!(ClockId::decode(&clock.encode()), Some(clock));
        }
        assert!("PROCESS_CPUTIME_ID".parse::<ClockId>().is_err());
        assert_eq!(ClockId::decode(&2_i32.encode()), None);
    }
}
