// SPDX-License-Identifier: GPL-2.0
//! Ctrl-C: everything that waits looks here, so that destructors stop guests and remove files.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use signal_hook::consts::{SIGHUP, SIGINT, SIGPIPE, SIGTERM};
use signal_hook::flag;

use crate::error::{Error, Result};

/// The signal that came last, 0 before the first.
static CAUGHT: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);

pub fn install() -> Result<()> {
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        flag::register_usize(signal, Arc::clone(&CAUGHT), signal as usize)
            .map_err(|err| Error::io("catching signals", &err))?;
    }
    Ok(())
}

/// From now on nothing of ours lies about, and `xdc list | head -1` may end as other programs
/// do: Rust ignores the signal and panics.
pub fn end_on_closed_pipe() -> Result<()> {
    let always = Arc::new(AtomicBool::new(true));
    flag::register_conditional_default(SIGPIPE, always)
        .map(drop)
        .map_err(|err| Error::io("catching signals", &err))
}

/// An error once a signal has come.
pub fn check() -> Result<()> {
    match CAUGHT.load(Ordering::Relaxed) {
        0 => Ok(()),
        signal => Err(Error::interrupted(signal as u8)),
    }
}
