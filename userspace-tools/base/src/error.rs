// SPDX-License-Identifier: GPL-2.0
//! Errors of commands: the cause in one sentence, and a hint.

use std::fmt;
use std::io::Write;
use std::process::ExitCode;

use xdc_measure::record::Refused;
use xdc_proto::privileged::BadName;

use crate::text::printable;

/// Reason why a command ends early.
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    what: String,
    hint: Option<String>,
    /// Lines shown before the sentence, such as the guest's output.
    details: Box<[String]>,
    /// Key of the scenario that the error is about.
    key: Option<Key>,
    /// Further mistakes in the same input.
    more: Vec<Error>,
}

/// Path of a value in a scenario: names, and indices of array elements.
pub type Key = Vec<String>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Mistake of the caller.
    Usage,
    Failure,
    /// A guest sent nothing until the timeout.
    Hang,
    /// Interrupted by this signal.
    Interrupted(u8),
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    fn new(kind: Kind, what: impl Into<String>) -> Self {
        Self {
            kind,
            what: what.into(),
            hint: None,
            details: Box::default(),
            key: None,
            more: Vec::new(),
        }
    }

    /// Combines errors into one; None without any.
    pub fn all(errors: Vec<Self>) -> Option<Self> {
        let mut errors = errors.into_iter();
        let mut first = errors.next()?;
        first.more.extend(errors);
        Some(first)
    }

    /// Sets the key, unless one is set.
    pub fn at(mut self, key: Key) -> Self {
        self.key.get_or_insert(key);
        self
    }

    /// Prefixes the key with a table's.
    pub fn below(mut self, table: &Key) -> Self {
        let key = self.key.take().unwrap_or_default();
        self.key = Some([table.clone(), key].concat());
        self
    }

    pub fn key(&self) -> Option<&Key> {
        self.key.as_ref()
    }

    pub fn usage(what: impl Into<String>) -> Self {
        Self::new(Kind::Usage, what)
    }

    pub fn failure(what: impl Into<String>) -> Self {
        Self::new(Kind::Failure, what)
    }

    pub fn interrupted(signal: u8) -> Self {
        Self::new(Kind::Interrupted(signal), "interrupted")
    }

    /// Error for a missing product of the Makefile.
    pub fn unbuilt(what: impl Into<String>) -> Self {
        Self::failure(what).hint("make")
    }

    pub fn io(doing: impl fmt::Display, err: &std::io::Error) -> Self {
        let error = Self::failure(format!("{doing}: {err}"));
        match err.kind() {
            std::io::ErrorKind::StorageFull => error.hint("free some disk space"),
            std::io::ErrorKind::AlreadyExists => error.hint("another file, or remove this one"),
            std::io::ErrorKind::PermissionDenied => error.hint("check owner and mode of the file"),
            _ => error,
        }
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Sets the hint of errors that have none.
    pub fn or_hint(mut self, hint: &str) -> Self {
        if self.more.is_empty() {
            self.hint.get_or_insert_with(|| hint.to_owned());
        }
        self
    }

    pub fn details(mut self, lines: Vec<String>) -> Self {
        self.details = lines.into();
        self
    }

    /// Error for a guest that stopped sending.
    pub fn hang(what: impl Into<String>) -> Self {
        Self::new(Kind::Hang, what)
    }

    pub fn is_hang(&self) -> bool {
        self.kind == Kind::Hang
    }

    pub fn is_interrupted(&self) -> bool {
        matches!(self.kind, Kind::Interrupted(_))
    }

    /// Prefixes the sentence with its subject.
    pub fn about(mut self, subject: impl fmt::Display) -> Self {
        for err in
            std::iter::once(&mut self.what).chain(self.more.iter_mut().map(|it| &mut it.what))
        {
            *err = format!("{subject}: {err}");
        }
        self
    }

    /// All lines of the message.
    pub fn lines(&self) -> Vec<String> {
        let hint = self.hint.iter().map(|hint| format!("try: {hint}"));
        let mut lines = self.details.to_vec();
        lines.push(self.what.clone());
        lines.extend(hint);
        lines.extend(self.more.iter().flat_map(Self::lines));
        lines
    }

    pub fn report(&self) {
        let mut text = String::new();
        for line in &self.details {
            text += &format!("{}\n", printable(line));
        }
        text += &format!("xdc: error: {}\n", printable(&self.what));
        if let Some(hint) = &self.hint {
            text += &format!("try: {}\n", printable(hint));
        }
        // If stderr is closed, only the exit code reports the error.
        let _ = std::io::stderr().write_all(text.as_bytes());
        self.more.iter().for_each(Self::report);
    }

    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self.kind {
            Kind::Failure | Kind::Hang => 1,
            Kind::Usage => 2,
            // As in a shell.
            Kind::Interrupted(signal) => 128 + signal,
        })
    }
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Self {
        Self { hint: refused.hint.map(str::to_owned), ..Self::failure(refused.what) }
    }
}

impl From<BadName> for Error {
    fn from(bad: BadName) -> Self {
        Self::usage(bad.sentence).hint(bad.range)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}
