// SPDX-License-Identifier: GPL-2.0
//! Links ISA-L from Debian's libisal-dev.

fn main() {
    println!("cargo:rustc-link-lib=isal");
    println!("cargo:rerun-if-changed=build.rs");
}
