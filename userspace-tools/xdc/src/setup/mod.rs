// SPDX-License-Identifier: GPL-2.0
//! What a host has and what it lacks: `xdc doctor`, `xdc kdir`.

pub mod doctor;
pub mod kconfig;
pub mod kdir;
