// SPDX-License-Identifier: GPL-2.0
//! Checks and prepares a host: `xdc doctor`, `xdc kdir`.

pub mod doctor;
pub mod kconfig;
pub mod kdir;
