// SPDX-License-Identifier: GPL-2.0

//! Parameter tables of algo/ as sysctls, for a module whose root has `algo` and `kernel_api`.

use crate::algo::params::{ParamInfo, ParamSource};
use crate::kernel_api::sysctl::{self, Param, MAX_PARAMS};

/// Present values of a parameter table's sysctls.
impl ParamSource for sysctl::Values {
    #[inline(always)]
    fn value(&self, row: usize) -> u32 {
        self.get(row)
    }
}

/// Returns the files of a parameter table, followed by empty files.
pub(crate) const fn files(rows: &'static [ParamInfo]) -> [Param; MAX_PARAMS] {
    const NONE: Param = Param {
        name: c"",
        min: 0,
        max: 0,
        defaults: &[],
    };
    let mut files = [NONE; MAX_PARAMS];
    let mut i = 0;
    while i < rows.len() {
        let row = &rows[i];
        files[i] = Param {
            name: row.name,
            min: row.min,
            max: row.max,
            defaults: row.defaults,
        };
        i += 1;
    }
    files
}
