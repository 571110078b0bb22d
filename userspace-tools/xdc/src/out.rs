// SPDX-License-Identifier: GPL-2.0
//! What goes to standard output and standard error. A full disk or a closed terminal is a sentence
//! and exit code 1, where the standard macros of these names would panic.

use std::fmt;
use std::io::Write;

use crate::error::Error;
use crate::interrupt;

/// To standard output.
pub fn print(text: fmt::Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    if let Err(err) = out.write_fmt(text).and_then(|()| out.flush()) {
        Error::io("writing to standard output", &err).report();
        interrupt::end(1);
    }
}

/// To standard error; where nobody listens, the exit code has to do.
pub fn print_error(text: fmt::Arguments<'_>) {
    let _ = std::io::stderr().lock().write_fmt(text);
}

macro_rules! print {
    ($($arg:tt)*) => { $crate::out::print(format_args!($($arg)*)) };
}

macro_rules! println {
    ($($arg:tt)*) => { $crate::out::print(format_args!("{}\n", format_args!($($arg)*))) };
}

macro_rules! eprintln {
    ($($arg:tt)*) => { $crate::out::print_error(format_args!("{}\n", format_args!($($arg)*))) };
}
