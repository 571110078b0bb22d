// SPDX-License-Identifier: GPL-2.0

//! The phantom queue of a device whose transmit queues have a port each (mq, mqprio): one counter
//! for all of them, since the line that it stands for is one. No lock, because the ports have one
//! each.

use kernel::{
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc, Mutex,
    },
};

use super::{
    algo::{
        phantom,
        shared_phantom::{ticks, EmptyAt},
    },
    kernel_api::once::Once,
};

/// All of them.
pub(crate) type SharedPhantoms = Mutex<KVec<Arc<SharedPhantom>>>;

/// Whose it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) device: usize,
    /// Major number of the parent's handle: while a tree replaces another there are two.
    pub(crate) parent: u32,
}

/// A word in a cache line of its own: all processors write to it.
#[repr(align(64))]
struct Aligned(Atomic<u64>);

pub(crate) struct SharedPhantom {
    key: Key,
    drain_bytes_per_s: Once<u64>,
    limit_bytes: Once<u64>,
    /// The port that was told something last; 0 = it is gone. Changed under RTNL.
    told_by: Once<u64>,
    /// How many have it open. Changed under the lock of [`SharedPhantoms`].
    ports: Once<u64>,
    /// An [`EmptyAt`].
    empty_at: Aligned,
}

/// More than so many processors that were quicker, each time, do not come together.
const TRIES: u32 = 8;

impl SharedPhantom {
    /// That of `key`, which is made if need be.
    pub(crate) fn open(all: &SharedPhantoms, key: Key) -> Result<Arc<Self>> {
        let mut all = all.lock();
        if let Some(known) = all.iter().find(|shared| shared.key == key) {
            known.ports.add(1);
            return Ok(known.clone());
        }
        let shared = Arc::new(
            Self {
                key,
                drain_bytes_per_s: Once::new(0),
                limit_bytes: Once::new(0),
                told_by: Once::new(0),
                ports: Once::new(1),
                empty_at: Aligned(Atomic::new(0)),
            },
            GFP_KERNEL_ACCOUNT,
        )?;
        all.push(shared.clone(), GFP_KERNEL_ACCOUNT)?;
        Ok(shared)
    }

    /// The last one to close it takes it away.
    pub(crate) fn close(&self, all: &SharedPhantoms, port: u64) {
        if self.is_told_by(port) {
            self.told_by.set(0);
        }
        let mut all = all.lock();
        self.ports.set(self.ports.get().saturating_sub(1));
        all.retain(|shared| shared.ports.get() != 0);
    }

    pub(crate) fn config(&self) -> phantom::Config {
        phantom::Config {
            drain_bytes_per_s: self.drain_bytes_per_s.get(),
            limit_bytes: self.limit_bytes.get(),
        }
    }

    fn is_told_by(&self, port: u64) -> bool {
        self.told_by.get() == port
    }

    /// A user has given `port` a size or a drain, which holds for all ports, unless it has no drain.
    /// Under RTNL.
    pub(crate) fn tell(&self, port: u64, config: &phantom::Config, now_ns: u64) {
        self.told_by.set(port);
        if config.drain_bytes_per_s != 0 {
            self.configure(config, now_ns);
        }
    }

    /// `port` got this from elsewhere, such as the speed of the device. It holds if the last word was
    /// the port's, or nobody's. Under RTNL.
    pub(crate) fn follow(&self, port: u64, config: &phantom::Config, now_ns: u64) {
        let is_its_word = self.told_by.get() == 0 || self.is_told_by(port);
        if is_its_word && config.drain_bytes_per_s != 0 {
            self.configure(config, now_ns);
        }
    }

    /// From now on it drains like this. What packets add meanwhile may get lost.
    fn configure(&self, new: &phantom::Config, now_ns: u64) {
        let old = self.config();
        if old == *new {
            return;
        }
        let empty_at = EmptyAt(self.empty_at.0.load(Relaxed));
        self.drain_bytes_per_s.set(new.drain_bytes_per_s);
        self.limit_bytes.set(new.limit_bytes);
        let empty_at = empty_at.change(&old, new, now_ns);
        self.empty_at.0.store(empty_at.0, Relaxed);
    }

    /// Occupancy.
    pub(crate) fn bytes(&self, now_ns: u64) -> u64 {
        EmptyAt(self.empty_at.0.load(Relaxed)).bytes(&self.config(), now_ns)
    }

    /// Counts a packet; returns the occupancy.
    pub(crate) fn add(&self, now_ns: u64, len_bytes: u64) -> u64 {
        let config = self.config();
        let mut seen = self.empty_at.0.load(Relaxed);
        for _ in 0..TRIES {
            let next = EmptyAt(seen).add(&config, now_ns, len_bytes);
            match self.empty_at.0.cmpxchg(seen, next.0, Relaxed) {
                Ok(_) => return next.bytes(&config, now_ns),
                Err(now) => seen = now,
            }
        }
        // It is busy, so not empty, and the next packet may look after its limit.
        let step = ticks(&config, len_bytes);
        let before = self.empty_at.0.fetch_add(step, Relaxed);
        EmptyAt(before.saturating_add(step)).bytes(&config, now_ns)
    }
}
