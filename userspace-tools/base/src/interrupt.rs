// SPDX-License-Identifier: GPL-2.0
//! Handles Ctrl-C, SIGTERM and SIGHUP. Waiting code polls [`check`], so that destructors stop
//! guests and remove files. After [`GRACE`] or a second signal, a separate thread runs the actions
//! of [`on_end`] and ends the process.

use std::collections::BTreeMap;
use std::fs;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGPIPE, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use crate::error::{Error, Result};

/// Time for a phase to notice a signal and to clean up.
const GRACE: Duration = Duration::from_millis(800);
/// Time to write results that are finished.
const SAVING_GRACE: Duration = Duration::from_secs(60);

/// Set once finished work is worth writing.
static WORTH_SAVING: AtomicBool = AtomicBool::new(false);
/// Set while results are written: [`check`] then ignores signals.
static SAVING: AtomicBool = AtomicBool::new(false);

/// First signal caught; 0 before.
static CAUGHT: AtomicUsize = AtomicUsize::new(0);

/// Locked by the thread that ends the process; others wait for it.
static ENDING: Mutex<()> = Mutex::new(());

type Action = Box<dyn FnOnce() + Send>;

/// Pending cleanup actions in order of registration.
static AT_END: Mutex<BTreeMap<u64, Action>> = Mutex::new(BTreeMap::new());

pub fn install() -> Result<()> {
    let ignored = ignored();
    // nohup and a shell's background jobs ignore some signals; respect that.
    let wanted =
        [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0);
    let failed = |err: std::io::Error| Error::io("cannot catch signals", &err);
    let mut signals = Signals::new(wanted).map_err(failed)?;
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            for signal in &mut signals {
                let code = 128 + signal;
                if CAUGHT.swap(signal as usize, Ordering::Relaxed) != 0 {
                    end(code);
                }
                thread::spawn(move || {
                    thread::sleep(GRACE);
                    if WORTH_SAVING.load(Ordering::Relaxed) {
                        thread::sleep(SAVING_GRACE);
                    }
                    end(code);
                });
            }
        })
        .map_err(failed)?;
    Ok(())
}

/// Signals that our parent set to ignored, a bit each.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Runs `action` only if the process is ended before the returned value is dropped.
pub fn on_end(action: impl FnOnce() + Send + 'static) -> OnEnd {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed) as u64;
    at_end().insert(number, Box::new(action));
    OnEnd(number)
}

#[must_use]
pub struct OnEnd(u64);

impl Drop for OnEnd {
    fn drop(&mut self) {
        at_end().remove(&self.0);
    }
}

fn at_end() -> std::sync::MutexGuard<'static, BTreeMap<u64, Action>> {
    AT_END.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Runs the cleanup actions in reverse order, so guests end before their files go, and exits.
pub fn end(code: i32) -> ! {
    let _ending = ENDING.lock();
    let actions = std::mem::take(&mut *at_end());
    for (_, action) in actions.into_iter().rev() {
        action();
    }
    signal_hook::low_level::exit(code)
}

/// Waits while another thread is in [`end`], which then exits.
pub fn wait_for_end() {
    drop(ENDING.lock());
}

/// Restores SIGPIPE's default action, which Rust ignores, so that `xdc list | head -1` ends
/// quietly. Call it once there is nothing to clean up.
pub fn end_on_closed_pipe() -> Result<()> {
    let always = Arc::new(AtomicBool::new(true));
    flag::register_conditional_default(SIGPIPE, always)
        .map(drop)
        .map_err(|err| Error::io("cannot catch signals", &err))
}

/// Gives [`save`] time after a first signal.
pub fn is_worth_saving() {
    WORTH_SAVING.store(true, Ordering::Relaxed);
}

/// Runs `work` despite a pending signal. A second signal ends the process.
pub fn save<R>(work: impl FnOnce() -> R) -> R {
    SAVING.store(true, Ordering::Relaxed);
    let result = work();
    SAVING.store(false, Ordering::Relaxed);
    result
}

/// Returns whether a signal was caught.
pub fn is_caught() -> bool {
    CAUGHT.load(Ordering::Relaxed) != 0
}

/// Fails once a signal was caught.
pub fn check() -> Result<()> {
    match CAUGHT.load(Ordering::Relaxed) {
        0 => Ok(()),
        _ if SAVING.load(Ordering::Relaxed) => Ok(()),
        signal => Err(Error::interrupted(signal as u8)),
    }
}

/// Sleeps; fails on an interruption.
pub fn sleep(time: Duration) -> Result<()> {
    const LOOK: Duration = Duration::from_millis(100);
    let until = Instant::now() + time;
    loop {
        check()?;
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        thread::sleep(left.min(LOOK));
    }
}

/// Exit code of a command that succeeded, failed, or ended with an error, which it prints.
pub fn exit(outcome: Result<bool>) -> ExitCode {
    wait_for_end();
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(err) => {
            err.report();
            err.exit_code()
        }
    }
}
