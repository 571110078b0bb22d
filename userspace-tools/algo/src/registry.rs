// SPDX-License-Identifier: GPL-2.0

//! Expands modules/oot/list.rs.

use crate::algo::{controller::Controller, entry::Entry, params::ParamInfo};
use core::ffi::CStr;

/// One module.
#[derive(Debug)]
pub struct Module {
    /// Kind of the module.
    pub kind: Kind,
    /// Name of the .ko.
    pub name: &'static str,
    /// Source files, relative to modules/oot/: one in Rust, or several in C.
    pub sources: &'static [&'static str],
    /// Algorithm of a congestion control that has its own file.
    pub algorithm: Option<&'static Entry>,
}

/// Kind of a module. Names as in modules/oot/list.rs.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// Congestion control.
    cc,
    /// Queueing discipline.
    qdisc,
    /// Other module for hosts.
    host,
    /// Network device.
    netdev,
    /// Module for tests only.
    test,
}

impl Module {
    /// Returns whether `make install` installs the module; the others are only for xdc's guests.
    pub fn is_installed(&self) -> bool {
        let is_ours_alone =
            |source: &&str| source.starts_with("../tools/") || source.starts_with("../../");
        !self.sources.iter().any(is_ours_alone)
    }
}

impl Entry {
    /// Returns the name for TCP_CONGESTION.
    pub fn name(&self) -> &'static str {
        text(self.name)
    }

    /// Returns the names of the profiles.
    pub fn profiles(&self) -> impl DoubleEndedIterator<Item = &'static str> + Clone + use<> {
        self.profiles.iter().map(|name| text(name))
    }

    /// Returns the part of sysctl `name` below net.NAME.
    pub fn key<'a>(&self, name: &'a str) -> Option<&'a str> {
        let below = name.strip_prefix("net.")?.strip_prefix(self.name())?;
        below.strip_prefix('.')
    }

    /// Returns whether a namespace can select a profile.
    pub fn has_profiles(&self) -> bool {
        self.profiles.len() > 1
    }
}

impl ParamInfo {
    /// Returns the name, which is also the sysctl's.
    pub fn name(&self) -> &'static str {
        text(self.name)
    }
}

fn text(name: &'static CStr) -> &'static str {
    name.to_str().unwrap_or_default()
}

/// An operation on an algorithm's flows, generic over their type.
pub trait Visitor {
    /// Performs the operation.
    fn visit<F: Controller>(self, entry: &'static Entry);
}

/// Defines the algorithms' modules, `MODULES`, `ALGORITHMS` and `visit`.
macro_rules! modules {
    ($($kind:ident $name:ident $($source:literal)+ $($algorithm:ident $file:literal)?;)+) => {
        $($(
            #[path = $file]
            pub mod $algorithm;
        )?)+

        /// All modules, in the order of modules/oot/list.rs.
        pub const MODULES: &[Module] = &[
            $(Module {
                kind: Kind::$kind,
                name: stringify!($name),
                sources: &[$($source),+],
                algorithm: modules!(@entry $($algorithm)?),
            },)+
        ];

        /// Algorithms with their own file, in the order of modules/oot/list.rs.
        pub const ALGORITHMS: &[&entry::Entry] = &[$($(&$algorithm::ENTRY,)?)+];

        /// Calls the visitor with the flow type of algorithm `name`; returns false if there is none.
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
