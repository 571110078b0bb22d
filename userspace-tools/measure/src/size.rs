// SPDX-License-Identifier: GPL-2.0
//! Small, medium and large flows.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Of flows, by how much they send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SizeClass {
    /// Below the lower bound.
    Small,
    /// Between the bounds.
    Medium,
    /// Above the upper bound.
    Large,
}

impl SizeClass {
    /// In the order of size.
    pub const ALL: [Self; 3] = [Self::Small, Self::Medium, Self::Large];

    /// As metrics have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Medium => "medium",
            Self::Large => "large",
        }
    }
}

impl FromStr for SizeClass {
    type Err = ();
    fn from_str(name: &str) -> Result<Self, ()> {
        let mut all = Self::ALL.into_iter();
        all.find(|class| class.name() == name).ok_or(())
    }
}

/// Where small flows end and large ones begin.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct SizeClasses {
    /// Below this a flow is small.
    pub small_below_bytes: u64,
    /// Above this it is large.
    pub large_above_bytes: u64,
}

impl SizeClasses {
    /// Of a flow that sends so much.
    pub fn class(self, bytes: u64) -> SizeClass {
        if bytes < self.small_below_bytes {
            SizeClass::Small
        } else if bytes <= self.large_above_bytes {
            SizeClass::Medium
        } else {
            SizeClass::Large
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_classes() {
        let classes = SizeClasses {
            small_below_bytes: 100_000,
            large_above_bytes: 1_000_000,
        };
        for (bytes, class) in [
            (1, SizeClass::Small),
            (99_999, SizeClass::Small),
            (100_000, SizeClass::Medium),
            (1_000_000, SizeClass::Medium),
            (1_000_001, SizeClass::Large),
        ] {
            assert_eq!(classes.class(bytes), class, "{bytes}");
        }
    }
}
