// SPDX-License-Identifier: GPL-2.0
//! Computes the figures of a run from a guest's messages.
//!
//! [`CODE`] covers all code on which a figure depends, so this crate has few dependencies.

mod bottleneck;
mod circuits;
pub mod explain;
pub mod fairness;
mod fct;
pub mod figures;
pub mod flows;
pub mod outcome;
pub mod record;
pub mod run;
pub mod size;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod throughput;
mod ways;

/// SHA-256, in hexadecimal, of the sources of this crate and of its dependencies in this
/// repository.
pub const CODE: &str = env!("MEASURES");

#[cfg(test)]
mod tests {
    #[test]
    fn the_code_hash_covers_this_crate_and_its_dependencies() {
        assert_eq!(env!("MEASURES_CRATES"), "measure netlink proto tcpinfo algo");
        assert_eq!(super::CODE.len(), 64);
    }
}
