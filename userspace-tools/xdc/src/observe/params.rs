// SPDX-License-Identifier: GPL-2.0
//! The modules' parameters as their sysctls have them, for what the algorithms derive from them.

use std::ffi::CStr;
use std::fs;

use xdc_algo::params::ParamInfo;
use xdc_algo::{gemini, unocc};

/// Of one network namespace. None where a module is not loaded.
#[derive(Clone, Copy, Default)]
pub struct Params {
    pub unocc: Option<Unocc>,
    pub gemini: Option<gemini::Params>,
}

#[derive(Clone, Copy)]
pub struct Unocc {
    pub values: unocc::Params,
    pub profile: unocc::Profile,
}

impl Unocc {
    pub fn profile_name(&self) -> &'static str {
        let place = unocc::Profile::ALL
            .iter()
            .position(|one| *one == self.profile);
        let name = place.and_then(|i| unocc::Profile::NAMES.get(i));
        name.and_then(|name| name.to_str().ok()).unwrap_or_default()
    }

    /// Some parameter is not what the profile says.
    pub fn is_modified(&self) -> bool {
        self.values != unocc::Params::of(self.profile)
    }
}

impl Params {
    /// Of the thread's namespace.
    pub fn read() -> Self {
        Self {
            unocc: read_unocc(|name| read_sysctl("unocc", name)),
            gemini: read_all(gemini::PARAMS, |name| read_sysctl("gemini", name))
                .map(|values| gemini::Params::read(|i| values[i])),
        }
    }
}

fn read_unocc(read: impl Fn(&str) -> Option<String>) -> Option<Unocc> {
    let name = read("profile")?;
    let profile = unocc::Profile::NAMES
        .iter()
        .zip(unocc::Profile::ALL)
        .find(|(known, _)| known.to_bytes() == name.as_bytes());
    let values = read_all(unocc::PARAMS, read)?;
    Some(Unocc {
        values: unocc::Params::read(|i| values[i]),
        profile: profile?.1,
    })
}

/// The values of a table, in its order.
fn read_all<const N: usize>(
    table: &[ParamInfo<N>],
    read: impl Fn(&str) -> Option<String>,
) -> Option<Vec<u32>> {
    let name = |name: &'static CStr| name.to_str().ok();
    table
        .iter()
        .map(|row| read(name(row.name)?)?.parse().ok())
        .collect()
}

fn read_sysctl(module: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/sys/net/{module}/{name}")).ok()?;
    Some(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sysctls of a profile.
    fn sysctl(profile: unocc::Profile) -> impl Fn(&str) -> Option<String> {
        move |name| {
            if name == "profile" {
                let name = unocc::Profile::NAMES[profile as usize];
                return Some(name.to_str().unwrap().to_owned());
            }
            let row = unocc::PARAMS
                .iter()
                .find(|row| row.name.to_bytes() == name.as_bytes());
            Some(row?.defaults[profile as usize].to_string())
        }
    }

    #[test]
    fn every_profile_is_recognised() {
        for (profile, name) in unocc::Profile::ALL.into_iter().zip(unocc::Profile::NAMES) {
            let read = read_unocc(sysctl(profile)).unwrap();
            assert_eq!(read.profile_name(), name.to_str().unwrap());
            assert!(!read.is_modified());
        }
    }

    #[test]
    fn a_parameter_of_ones_own_is_noticed() {
        let linux = sysctl(unocc::Profile::Linux);
        let read = read_unocc(|name| match name {
            "line_rate_mbps" => Some("1000".to_owned()),
            name => linux(name),
        });
        let read = read.unwrap();
        assert!(read.is_modified());
        assert_eq!(read.values.line_rate_mbps, 1000);
    }

    #[test]
    fn a_module_that_is_not_loaded_has_none() {
        assert!(read_unocc(|_| None).is_none());
        assert!(read_unocc(|_| Some("nonsense".to_owned())).is_none());
    }
}
