// SPDX-License-Identifier: GPL-2.0

//! Files of /proc that a module writes.
//!
//! C header: `include/linux/seq_file.h`

use super::bindings;
use core::marker::PhantomData;
use kernel::prelude::*;

/// A file that is being written, one word after the other.
///
/// # Invariants
///
/// `seq` is the file of a `show` that runs, for `'a`.
pub(crate) struct Line<'a> {
    seq: *mut bindings::seq_file,
    _life: PhantomData<&'a mut ()>,
}

impl Line<'_> {
    /// # Safety
    ///
    /// As the type invariants say, for the lifetime that the caller chooses.
    pub(super) unsafe fn from_raw(seq: *mut bindings::seq_file) -> Self {
        // INVARIANT: By the safety requirements.
        Self {
            seq,
            _life: PhantomData,
        }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        let len = c_uint::try_from(bytes.len()).unwrap_or(0);
        // SAFETY: By the type invariants; C copies so many bytes.
        unsafe { bindings::xdc_seq_text(self.seq, bytes.as_ptr(), len) }
    }

    /// The next word.
    pub(crate) fn text(&mut self, text: &str) {
        self.bytes(b" ");
        self.bytes(text.as_bytes());
    }

    /// As [`Self::text`].
    pub(crate) fn number(&mut self, number: impl Into<u64>) {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_seq_number(self.seq, number.into()) }
    }

    /// A name, and what has it.
    pub(crate) fn pair(&mut self, name: &str, number: impl Into<u64>) {
        self.text(name);
        self.number(number);
    }

    /// Another line begins, with that word.
    pub(crate) fn begin(&mut self, word: &str) {
        self.bytes(b"\n");
        self.bytes(word.as_bytes());
    }
}
