// SPDX-License-Identifier: GPL-2.0
//! Patterns of names.

use xdc_base::error::{Error, Result};
use xdc_base::text::{nearest, short};

use crate::budget::{Budget, text_bytes};

/// Error for an unknown node, which suggests the nearest name.
pub fn no_node<'a>(
    sentence: String,
    name: &str,
    nodes: impl IntoIterator<Item = &'a str>,
) -> Error {
    let mut nodes: Vec<_> = nodes.into_iter().collect();
    nodes.sort_unstable();
    let err = Error::usage(format!("{sentence}'{name}', which is not a node"));
    match nearest(name, &nodes) {
        Some(near) => err.hint(format!("'{near}', or add it to 'hosts' or 'routers'")),
        None => err.hint("add it to 'hosts' or 'routers'"),
    }
}

/// Expands `a[1-3]` to a1, a2, a3; a name without brackets to itself.
pub fn expand(budget: &Budget, pattern: &str) -> Result<Vec<String>> {
    let charge = |count| {
        let what = format_args!("names of '{}'", short(pattern));
        budget.charge(what, count, text_bytes([pattern]))
    };
    let Some((prefix, rest)) = pattern.split_once('[') else {
        charge(1)?;
        return Ok(vec![pattern.to_owned()]);
    };
    let bad =
        || Error::usage(format!("'{pattern}' is not a range of names")).hint("for example a[1-4]");
    let (range, suffix) = rest.split_once(']').ok_or_else(bad)?;
    let (first, last) = range.split_once('-').ok_or_else(bad)?;
    let first: u32 = first.parse().map_err(|_| bad())?;
    let last: u32 = last.parse().map_err(|_| bad())?;
    if first > last {
        return Err(bad());
    }
    charge((last - first) as usize + 1)?;
    Ok((first..=last).map(|n| format!("{prefix}{n}{suffix}")).collect())
}

/// Expands all patterns.
pub fn expand_all(budget: &Budget, patterns: &[String]) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for pattern in patterns {
        names.append(&mut expand(budget, pattern)?);
    }
    Ok(names)
}

/// Pairs the names of two patterns; a single name is paired with all of the other side.
pub fn pairs(budget: &Budget, a: &str, b: &str) -> Result<Vec<(String, String)>> {
    let (left, right) = (expand(budget, a)?, expand(budget, b)?);
    if left.len() != right.len() && left.len() != 1 && right.len() != 1 {
        return Err(Error::usage(format!(
            "'{a}' has {} names and '{b}' has {}",
            left.len(),
            right.len()
        ))
        .hint("equal numbers on both sides, or one name"));
    }
    let count = left.len().max(right.len());
    budget.charge("pairs of names", count, text_bytes([a, b]))?;
    Ok(left.into_iter().cycle().zip(right.into_iter().cycle()).take(count).collect())
}
