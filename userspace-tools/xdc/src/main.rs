// SPDX-License-Identifier: GPL-2.0
//! The xdc program. The library holds its code, for fuzz targets too.

use std::process::ExitCode;

fn main() -> ExitCode {
    xdc::main()
}
