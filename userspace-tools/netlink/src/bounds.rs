// SPDX-License-Identifier: GPL-2.0
//! Bounds of numeric options, as in the modules.

/// Reason to refuse a value, and the accepted values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Cause, for an error message.
    pub sentence: String,
    /// Accepted values, for an error message.
    pub range: String,
}

/// Word, minimum, maximum and default of an option.
pub(crate) type Bound = (&'static str, i64, i64, i64);

pub(crate) const PPM: i64 = 1_000_000;
pub(crate) const MOST_BYTES: i64 = u32::MAX as i64;

/// Returns the first option that is out of bounds; `print` formats a value.
pub(crate) fn check(
    bounds: &[Bound],
    number: impl Fn(&str) -> Option<i64>,
    print: impl Fn(&Bound, i64) -> String,
) -> Result<(), (&'static str, Refusal)> {
    for bound in bounds {
        let &(word, least, most, _) = bound;
        if let Some(number) = number(word).filter(|n| !(least..=most).contains(n)) {
            let refusal = Refusal {
                sentence: format!("'{word}' is {}", print(bound, number)),
                range: format!("{} to {}", print(bound, least), print(bound, most)),
            };
            return Err((word, refusal));
        }
    }
    Ok(())
}

/// Compares a table with a module's source: `setting(ID, "name", Kind::U32(ppm(1, MAX_PPM)),
/// 900_000)`.
#[cfg(test)]
pub(crate) fn compare(bounds: &[Bound], module: &str, constants: &[(&str, i64)]) {
    let value = |text: &str| match constants.iter().find(|(name, _)| *name == text.trim()) {
        Some((_, value)) => *value,
        None => text.trim().replace('_', "").parse().expect(text),
    };
    for &(word, least, most, default) in bounds {
        let start = module.find(&format!("\"{word}\", Kind::")).expect(word);
        let setting = module[start..].split("setting(").next().unwrap();
        let (_, rest) = setting.split_once("Kind::").unwrap();
        let (_, rest) = rest.split_once('(').unwrap();
        let (bounds, default_text) = rest.split_once("),").unwrap();
        let (low, high) = match bounds.split_once('(') {
            Some(("rate", low)) => (low.trim_end_matches(')'), "MOST_RATE"),
            Some((_, pair)) => pair.trim_end_matches(')').split_once(',').unwrap(),
            None => ("LEAST", bounds),
        };
        let (low, high) = match high {
            "LIMIT" => (value("LIMIT_LEAST"), value("LIMIT_MOST")),
            high => (value(low), value(high)),
        };
        assert_eq!((low, high), (least, most), "{word}");
        let default_text = default_text.split(')').next().unwrap();
        assert_eq!(value(default_text), default, "{word}");
    }
}
