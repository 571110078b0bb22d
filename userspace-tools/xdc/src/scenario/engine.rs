// SPDX-License-Identifier: GPL-2.0
//! The engines by the names that scenarios and command lines have for them.

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema, ValueEnum)]
#[schemars(rename = "Engine")]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A real x86_64 machine, emulated where KVM does not work.
    Qemu,
    /// User Mode Linux: virtual time, so the guest is a discrete-event simulator.
    Uml,
    /// The running kernel: network namespaces, real time, root only.
    Host,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Qemu => "qemu",
            Self::Uml => "uml",
            Self::Host => "host",
        }
    }
}
