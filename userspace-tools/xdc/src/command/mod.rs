// SPDX-License-Identifier: GPL-2.0
//! Commands, a file or a folder each.

pub mod acceltor;
pub mod cc;
pub mod export;
pub mod manual;
pub mod new;
pub mod run;
pub mod shell;
pub mod show;
pub mod unorc;
