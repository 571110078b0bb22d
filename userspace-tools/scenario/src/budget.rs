// SPDX-License-Identifier: GPL-2.0
//! Limits the memory and time of a scenario before it runs.

use std::cell::Cell;
use std::fmt::Display;

use xdc_base::error::{Error, Result};

/// Budget of one pass over a scenario, in bytes. The largest network with the most flows takes
/// three quarters; the message to a guest and a copy for `xdc show` come on top.
const MAX_BYTES: u64 = 128 << 20;

/// Memory of a short text.
const TEXT_BYTES: usize = 48;

/// Bytes left for a scenario. Products of its numbers may be huge, so each is charged before it is
/// allocated. Temporary data is charged too, as it takes time.
pub struct Budget {
    /// None after the budget was exceeded.
    left: Cell<Option<u64>>,
}

impl Default for Budget {
    fn default() -> Self {
        Self { left: Cell::new(Some(MAX_BYTES)) }
    }
}

impl Budget {
    /// Charges for `count` objects of `bytes` each, which `what` names in the error.
    pub fn charge(&self, what: impl Display, count: usize, bytes: usize) -> Result<()> {
        let cost = (count as u64).saturating_mul(bytes as u64);
        let left = self.left.get().and_then(|left| left.checked_sub(cost));
        self.left.set(left);
        left.map(drop).ok_or_else(|| {
            Error::usage(format!(
                "{what}: {count} times {bytes} bytes exceed the rest of the scenario's {} MB",
                MAX_BYTES >> 20
            ))
            .hint("fewer hosts, links, flows or events, or shorter texts")
        })
    }

    /// Bytes charged; the whole budget after it was exceeded.
    pub fn used_bytes(&self) -> usize {
        (MAX_BYTES - self.left.get().unwrap_or(0)) as usize
    }

    /// Returns whether the budget was exceeded.
    pub fn is_spent(&self) -> bool {
        self.left.get().is_none()
    }
}

/// Memory of texts, in bytes.
pub fn text_bytes<'a>(texts: impl IntoIterator<Item = &'a str>) -> usize {
    texts
        .into_iter()
        .map(|text| TEXT_BYTES.saturating_add(text.len()))
        .fold(0, usize::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_above_the_rest_are_refused() {
        let budget = Budget::default();
        assert!(budget.charge("links", 1 << 11, 64 << 10).is_ok());
        assert!(budget.charge("links", 1 << 10, 0).is_ok() && !budget.is_spent());
        assert_eq!(budget.used_bytes(), 128 << 20);
        let said = budget.charge("links", 3, 32 << 20).unwrap_err();
        let said = said.lines().join(" ");
        assert!(said.contains("links: 3 times 33554432 bytes"), "{said}");
        assert!(said.contains("128 MB") && said.contains("try: fewer hosts"));
        assert!(budget.is_spent());
        assert!(budget.charge("links", 1, 1).is_err());
        let any = usize::MAX;
        assert!(Budget::default().charge("links", any, any).is_err());
    }
}
