// SPDX-License-Identifier: GPL-2.0
//! Commands, a file or a folder each.

pub mod acceltor;
pub mod bench;
pub mod cc;
pub mod compare;
pub mod export;
pub mod foreign;
pub mod hunt;
pub mod manual;
pub mod new;
pub mod paper;
pub mod run;
pub mod score;
pub mod selftest;
pub mod shell;
pub mod show;
pub mod sweep;
pub mod table;
pub mod tune;
pub mod twin;
pub mod unorc;
