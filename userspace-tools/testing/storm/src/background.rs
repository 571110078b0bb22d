// SPDX-License-Identifier: GPL-2.0
//! Traffic in a separate thread, during changes to its hosts.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Result, anyhow, ensure};

use crate::{
    flow::{Family, Spec, Tally, Traffic},
    net::{Netns, Pair},
};

/// Longest wait for undisturbed flows to end, on the slowest guest.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Pause in a busy loop: in virtual time, a thread that never sleeps stops all others.
pub fn breathe() {
    thread::sleep(Duration::from_micros(1));
}

/// Calls `look` repeatedly in a host until `f` ends. Each call returns a count; the sum must not be zero.
pub fn beside<T>(
    host: &Netns,
    look: impl Fn() -> Result<usize> + Sync,
    f: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let (stop, seen) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let looker = scope.spawn(|| {
            host.run(|| {
                while !stop.load(Ordering::Relaxed) {
                    seen.fetch_add(look()? as u64, Ordering::Relaxed);
                    thread::sleep(Duration::from_micros(100));
                }
                Ok(())
            })
        });
        let outcome = f();
        stop.store(true, Ordering::Relaxed);
        let looked = looker.join().map_err(|_| anyhow!("the observer panicked"))?;
        let outcome = outcome?;
        looked?;
        ensure!(seen.load(Ordering::Relaxed) > 0, "no observation");
        Ok(outcome)
    })
}

/// Pause between dumps of all sockets while another attack runs.
pub const DIAG_PAUSE: Duration = Duration::from_millis(20);

/// Pause between two opened flows. Without a port's rate limit, flows in immediate succession take all
/// processor time.
const OPENING_PAUSE: Duration = Duration::from_millis(5);

/// Flows to open one after another.
#[derive(Debug, Clone)]
pub struct Mix {
    /// Congestion controls of the senders.
    pub ccs: Vec<String>,
    /// Congestion control of the receivers.
    pub receiver_cc: String,
    /// Open flows at a time.
    pub flows: usize,
    /// Largest payload of a flow.
    pub max_bytes: u64,
    /// Seed of order and sizes.
    pub seed: u64,
}

/// Completed work, and its verdict.
type Outcome = Result<(Tally, Result<()>)>;

/// Handle of the traffic thread.
pub struct Background {
    thread: Option<JoinHandle<Outcome>>,
    stop: Arc<AtomicBool>,
    completed: Arc<AtomicU64>,
}

impl Background {
    /// Starts the thread.
    pub fn start(pair: &Arc<Pair>, mix: Mix) -> Self {
        let (pair, stop) = (pair.clone(), Arc::new(AtomicBool::new(false)));
        let completed = Arc::new(AtomicU64::new(0));
        let (stopped, counter) = (stop.clone(), completed.clone());
        let thread = thread::spawn(move || {
            let mut rng = fastrand::Rng::with_seed(mix.seed);
            let mut traffic = Traffic::new(&pair, &mix.receiver_cc)?;
            while !stopped.load(Ordering::Relaxed) {
                while traffic.open_flows() < mix.flows {
                    traffic.open(any_spec(&mut rng, &mix))?;
                    thread::sleep(OPENING_PAUSE);
                }
                traffic.step(Duration::from_millis(100))?;
                counter.store(traffic.tally.completed, Ordering::Relaxed);
            }
            let drained = traffic.drain(PATIENCE).and_then(|()| traffic.verdict());
            Ok((traffic.tally, drained))
        });
        Self { thread: Some(thread), stop, completed }
    }

    /// Flows that have arrived completely.
    pub fn completed(&self) -> u64 {
        self.completed.load(Ordering::Relaxed)
    }

    /// Stops opening flows and waits until the open ones have arrived.
    pub fn stop(mut self) -> Result<Tally> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().ok_or_else(|| anyhow!("stopped twice"))?;
        let (tally, drained) = thread.join().map_err(|_| anyhow!("the traffic panicked"))??;
        drained.map(|()| tally)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn any_spec(rng: &mut fastrand::Rng, mix: &Mix) -> Spec {
    let cc = rng.choice(&mix.ccs).map_or("cubic", String::as_str);
    let family = *rng.choice(&Family::ALL).unwrap_or(&Family::V4);
    Spec::new(cc, rng.u64(1..=mix.max_bytes), family)
}
