// SPDX-License-Identifier: GPL-2.0

//! Parameter tables of algo/ as sysctls. Whoever includes this is a module, whose root has `algo` and
//! `kernel_api`.

use crate::algo::params::{ParamInfo, Values};
use crate::kernel_api::sysctl::{self, Param};

/// The rows of a parameter table as the sysctls have them now.
pub(crate) struct Live<'a>(pub(crate) &'a sysctl::Values);

impl Values for Live<'_> {
    #[inline(always)]
    fn value(&self, row: usize) -> u32 {
        self.0.get(row)
    }
}

/// The file of one row.
pub(crate) const fn file(row: &'static ParamInfo) -> Param {
    Param {
        name: row.name,
        min: row.min,
        max: row.max,
        defaults: row.defaults,
    }
}
