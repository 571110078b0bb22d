// SPDX-License-Identifier: GPL-2.0

//! What modules/list.rs becomes.

use crate::algo::{controller::Controller, entry::Entry, params::ParamInfo};
use core::ffi::CStr;

/// One module.
#[derive(Debug)]
pub struct Module {
    /// What it is.
    pub kind: Kind,
    /// Of the .ko.
    pub name: &'static str,
    /// Its source, from modules/: one file in Rust, or some in C.
    pub sources: &'static [&'static str],
    /// Of a congestion control, where its rules are in a file of their own.
    pub algorithm: Option<&'static Entry>,
}

/// What a module is. Names as in modules/list.rs.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// Congestion control.
    cc,
    /// Queueing discipline.
    qdisc,
    /// Anything else that a host loads.
    host,
    /// Network device.
    netdev,
    /// What only tests load.
    test,
}

impl Module {
    /// `make install` brings it; all others are our own guests' alone.
    pub fn is_installed(&self) -> bool {
        let is_ours_alone =
            |source: &&str| source.starts_with("selftest/") || source.starts_with("../");
        !self.sources.iter().any(is_ours_alone)
    }
}

impl Entry {
    /// Name for TCP_CONGESTION.
    pub fn name(&self) -> &'static str {
        text(self.name)
    }

    /// Names of the profiles.
    pub fn profiles(&self) -> impl DoubleEndedIterator<Item = &'static str> + Clone + use<> {
        self.profiles.iter().map(|name| text(name))
    }

    /// What `name`, a sysctl, is below net.NAME.
    pub fn key<'a>(&self, name: &'a str) -> Option<&'a str> {
        let below = name.strip_prefix("net.")?.strip_prefix(self.name())?;
        below.strip_prefix('.')
    }

    /// A namespace can be told to take a profile.
    pub fn has_profiles(&self) -> bool {
        self.profiles.len() > 1
    }
}

impl ParamInfo {
    /// Its name, which is also that of the sysctl.
    pub fn name(&self) -> &'static str {
        text(self.name)
    }
}

fn text(name: &'static CStr) -> &'static str {
    name.to_str().unwrap_or_default()
}

/// Something to be done with the flows of an algorithm, whose type only its file knows.
pub trait Visitor {
    /// Does it.
    fn visit<F: Controller>(self, entry: &'static Entry);
}

/// Defines the algorithms' modules, `MODULES`, `ALGORITHMS` and `visit`.
macro_rules! modules {
    ($($kind:ident $name:ident $($source:literal)+ $($algorithm:ident $file:literal)?;)+) => {
        $($(
            #[path = $file]
            pub mod $algorithm;
        )?)+

        /// Every module, in the order of modules/list.rs.
        pub const MODULES: &[Module] = &[
            $(Module {
                kind: Kind::$kind,
                name: stringify!($name),
                sources: &[$($source),+],
                algorithm: modules!(@entry $($algorithm)?),
            },)+
        ];

        /// Every algorithm that has a file of its own, in the order of modules/list.rs.
        pub const ALGORITHMS: &[&entry::Entry] = &[$($(&$algorithm::ENTRY,)?)+];

        /// Does that with the flows of the algorithm of that name; false if no algorithm has the name.
        pub fn visit(name: &str, visitor: impl Visitor) -> bool {
            $($(
                if name == stringify!($algorithm) {
                    visitor.visit::<$algorithm::Flow>(&$algorithm::ENTRY);
                    return true;
                }
            )?)+
            false
        }
    };
    (@entry) => { None };
    (@entry $algorithm:ident) => { Some(&$algorithm::ENTRY) };
}
pub(crate) use modules;
