// SPDX-License-Identifier: GPL-2.0
//! What the kernel's configuration says of the machine.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(CONFIG_64BIT)");
    println!("cargo::rustc-cfg=CONFIG_64BIT");
}
