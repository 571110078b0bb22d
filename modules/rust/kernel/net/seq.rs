// SPDX-License-Identifier: GPL-2.0

//! Files of /proc that a module generates.
//!
//! C header: `include/linux/seq_file.h`

use super::bindings;
use core::marker::PhantomData;
use kernel::prelude::*;

/// A file under construction, one word after another.
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
        // SAFETY: By the type invariants; C copies `len` bytes.
        unsafe { bindings::xdc_seq_text(self.seq, bytes.as_ptr(), len) }
    }

    /// Appends a word.
    pub(crate) fn text(&mut self, text: &str) {
        self.bytes(b" ");
        self.bytes(text.as_bytes());
    }

    /// Appends a number as a word.
    pub(crate) fn number(&mut self, number: impl Into<u64>) {
        // SAFETY: By the type invariants.
        unsafe { bindings::xdc_seq_number(self.seq, number.into()) }
    }

    /// Appends a name and its number.
    pub(crate) fn pair(&mut self, name: &str, number: impl Into<u64>) {
        self.text(name);
        self.number(number);
    }

    /// Begins another line with `word`.
    pub(crate) fn begin(&mut self, word: &str) {
        self.bytes(b"\n");
        self.bytes(word.as_bytes());
    }
}
