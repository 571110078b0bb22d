// SPDX-License-Identifier: GPL-2.0
//! Ctrl-C: everything that waits looks here, so that destructors stop guests and remove files.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::error::{Error, Result};

static CAUGHT: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

pub fn install() -> Result<()> {
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&CAUGHT))
            .map_err(|err| Error::io("catching signals", &err))?;
    }
    Ok(())
}

/// An error once a signal has come.
pub fn check() -> Result<()> {
    if CAUGHT.load(Ordering::Relaxed) {
        Err(Error::interrupted())
    } else {
        Ok(())
    }
}
