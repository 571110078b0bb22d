// SPDX-License-Identifier: GPL-2.0
//! Text from outside (a scenario, a guest, a stored result) for terminals, tables and pages.

use std::borrow::Cow;

/// Escapes control characters, which a terminal would obey: `\u{1b}` for an escape. Tabs stay.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_control) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_control(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown.into()
}

/// Applies [`printable`] to each line.
pub fn printable_lines(text: &str) -> String {
    let lines = text.lines();
    lines.map(|line| format!("{}\n", printable(line))).collect()
}

/// Text of an untrusted result for a Markdown page, without markup, columns and links.
pub fn plain(text: &str) -> String {
    let mut shown = String::new();
    for c in printable(text).chars() {
        match c {
            '<' => shown.push_str("&lt;"),
            '`' => shown.push('\''),
            '\\' | '|' | '[' | ']' => shown.extend(['\\', c]),
            c => shown.push(c),
        }
    }
    shown
}

/// C0, C1 and DEL, and marks that change the direction of text.
pub fn is_control(c: char) -> bool {
    let turns = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    (c.is_control() && c != '\t') || turns
}

/// Quotes a word for a shell.
pub fn shell_word(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// The first 40 characters, so that an error shows little of a file.
pub fn short(text: &str) -> Cow<'_, str> {
    const MOST: usize = 40;
    match text.char_indices().nth(MOST) {
        None => text.into(),
        Some((end, _)) => format!("{}...", &text[..end]).into(),
    }
}

/// The known name nearest to a mistyped `name`. A distance takes time by the product of both
/// lengths, so long names are skipped, as are known names beyond 16 kB.
pub fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    const MOST_CHARS: usize = 64;
    const MOST_BYTES: usize = 16 << 10;
    let chars = name.chars().take(MOST_CHARS + 1).count();
    if chars > MOST_CHARS {
        return None;
    }
    let limit = 1.max(chars / 3);
    // A character has up to four bytes.
    let is_alike = |candidate: &&&str| {
        let (least, most) = (chars - limit.min(chars), 4 * (chars + limit));
        (least..=most).contains(&candidate.len())
            && candidate.chars().count().abs_diff(chars) <= limit
    };
    let distance = |candidate: &'a str| (strsim::damerau_levenshtein(name, candidate), candidate);
    let mut left = MOST_BYTES;
    let fits = |candidate: &&&str| {
        left = left.saturating_sub(candidate.len());
        left > 0
    };
    let alike = known.iter().filter(is_alike).take_while(fits);
    let (near, candidate) = alike.copied().map(distance).min_by_key(|(near, _)| *near)?;
    (near <= limit).then_some(candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(printable("plain, ä\t1"), "plain, ä\t1");
        assert_eq!(printable("\u{1b}]0;x\u{7}\u{9b}2J\r"), "\\u{1b}]0;x\\u{7}\\u{9b}2J\\r");
        assert_eq!(printable("a\u{202e}b"), "a\\u{202e}b");
        assert_eq!(printable_lines("a\n\u{1b}c\n"), "a\n\\u{1b}c\n");
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(shell_word("a b"), "'a b'");
        assert_eq!(shell_word("it's; rm"), "'it'\\''s; rm'");
    }

    #[test]
    fn a_typo_finds_the_nearest_name() {
        let known = ["limit", "phantom", "drain"];
        assert_eq!(nearest("limt", &known), Some("limit"));
        assert_eq!(nearest("panthom", &known), Some("phantom"));
        assert_eq!(nearest("rate", &known), None);
        assert_eq!(nearest("", &known), None);
    }

    /// A distance takes the product of both lengths, in memory too.
    #[test]
    fn a_long_name_has_no_nearest_name() {
        let long = "x".repeat(1 << 20);
        let known = [long.as_str(), "limit"];
        assert_eq!(nearest(&long, &known), None);
        assert_eq!(nearest("limt", &known), Some("limit"));
    }

    #[test]
    fn a_long_text_is_shortened() {
        assert_eq!(short("root:*"), "root:*");
        assert_eq!(short(&"ä".repeat(41)), format!("{}...", "ä".repeat(40)));
    }
}
