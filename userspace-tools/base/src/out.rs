// SPDX-License-Identifier: GPL-2.0
//! Standard output and standard error. A full disk or a closed terminal gives an error and exit
//! code 1, where the standard macros of these names panic.

use std::fmt;
use std::io::Write;

use crate::error::Error;
use crate::interrupt;

/// Prints to standard output.
pub fn print(text: fmt::Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    if let Err(err) = out.write_fmt(text).and_then(|()| out.flush()) {
        Error::io("cannot write to standard output", &err).report();
        interrupt::end(1);
    }
}

/// Prints to standard error; if it is closed, only the exit code reports the failure.
pub fn print_error(text: fmt::Arguments<'_>) {
    let _ = std::io::stderr().lock().write_fmt(text);
}

#[macro_export]
macro_rules! print {
    ($($arg:tt)*) => { $crate::out::print(format_args!($($arg)*)) };
}

#[macro_export]
macro_rules! println {
    ($($arg:tt)*) => { $crate::out::print(format_args!("{}\n", format_args!($($arg)*))) };
}

#[macro_export]
macro_rules! eprintln {
    ($($arg:tt)*) => { $crate::out::print_error(format_args!("{}\n", format_args!($($arg)*))) };
}
