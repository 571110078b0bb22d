// SPDX-License-Identifier: GPL-2.0
//! From the messages of a guest to the figures of its run.
//!
//! [`CODE`] names all code that a figure depends on, so this crate depends on as little as it can.

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

/// SHA-256 of this crate's sources and of those of the crates of this repository that it uses, in
/// hexadecimal.
pub const CODE: &str = env!("MEASURES");

#[cfg(test)]
mod tests {
    #[test]
    fn the_hash_is_of_this_crate_and_those_that_it_uses() {
        assert_eq!(env!("MEASURES_CRATES"), "measure proto tcpinfo");
        assert_eq!(super::CODE.len(), 64);
    }
}
