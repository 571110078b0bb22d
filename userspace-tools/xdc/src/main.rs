// SPDX-License-Identifier: GPL-2.0
//! The program; all of it is in the library, where fuzz targets reach it too.

use std::process::ExitCode;

fn main() -> ExitCode {
    xdc::main()
}
