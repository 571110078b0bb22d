// SPDX-License-Identifier: GPL-2.0
//! Small, medium and large flows.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Size class of a flow, by its bytes.
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
    /// All classes, smallest first.
    pub const ALL: [Self; 3] = [Self::Small, Self::Medium, Self::Large];

    /// Name used in metrics.
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

/// Bounds of the size classes.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct SizeClasses {
    /// Flows below this size are small, bytes.
    pub small_below_bytes: u64,
    /// Flows above this size are large, bytes.
    pub large_above_bytes: u64,
}

impl SizeClasses {
    /// Class of a flow of `bytes`.
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
    fn flow_sizes_have_classes() {
        let classes = SizeClasses { small_below_bytes: 100_000, large_above_bytes: 1_000_000 };
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
