// SPDX-License-Identifier: GPL-2.0
//! Defaults of sch_phantom for options that a plan leaves out.

/// Cap of the phantom queue, bytes.
pub const PHANTOM_BYTES: u64 = 22_400_000;
/// Share of the cap from which packets are marked, ppm.
pub const PMIN_PPM: u32 = 20_000;
/// Share of the cap from which every packet is marked, ppm.
pub const PMAX_PPM: u32 = 600_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_match_the_module() {
        let path =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../modules/net/sched/phantom_options.rs");
        let text = std::fs::read_to_string(path).unwrap();
        let default = |name: &str| -> u64 {
            let line = text.lines().find(|line| line.contains(&format!("\"{name}\"")));
            let digits = line.unwrap().rsplit(", ").next().unwrap();
            let digits: String = digits.chars().filter(char::is_ascii_digit).collect();
            digits.parse().unwrap()
        };
        assert_eq!(default("phantom"), PHANTOM_BYTES);
        assert_eq!(default("pmin"), u64::from(PMIN_PPM));
        assert_eq!(default("pmax"), u64::from(PMAX_PPM));
    }
}
