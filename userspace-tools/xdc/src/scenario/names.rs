// SPDX-License-Identifier: GPL-2.0
//! Patterns that stand for names.

use crate::error::{Error, Result};
use crate::scenario::limits::MAX_NAMES;
use crate::text::nearest;

/// An error about a name that is no node's, with the one that was probably meant.
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

/// `a[1-3]` to a1, a2, a3; a name without brackets to itself.
pub fn expand(pattern: &str) -> Result<Vec<String>> {
    let Some((prefix, rest)) = pattern.split_once('[') else {
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
    if (last - first) as usize >= MAX_NAMES {
        return Err(Error::usage(format!(
            "'{pattern}' stands for more than {MAX_NAMES} names"
        )));
    }
    Ok((first..=last)
        .map(|n| format!("{prefix}{n}{suffix}"))
        .collect())
}

/// The names of all patterns, no more than one of them may stand for.
pub fn expand_all(patterns: &[String]) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for pattern in patterns {
        names.append(&mut expand(pattern)?);
        if names.len() > MAX_NAMES {
            return Err(Error::usage(format!(
                "patterns that stand for more than {MAX_NAMES} names"
            ))
            .hint("each name once"));
        }
    }
    Ok(names)
}

/// Partner the names of two patterns; a single name partners all of the other side.
pub fn pairs(a: &str, b: &str) -> Result<Vec<(String, String)>> {
    let (left, right) = (expand(a)?, expand(b)?);
    if left.len() != right.len() && left.len() != 1 && right.len() != 1 {
        return Err(Error::usage(format!(
            "'{a}' has {} names and '{b}' has {}",
            left.len(),
            right.len()
        ))
        .hint("as many on both sides, or one"));
    }
    let count = left.len().max(right.len());
    Ok(left
        .into_iter()
        .cycle()
        .zip(right.into_iter().cycle())
        .take(count)
        .collect())
}
