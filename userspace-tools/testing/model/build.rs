// SPDX-License-Identifier: GPL-2.0
//! Sets the kernel's configuration of the machine.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(CONFIG_64BIT)");
    println!("cargo::rustc-cfg=CONFIG_64BIT");
}
