// SPDX-License-Identifier: GPL-2.0

//! The phantom queue of a device whose transmit queues each have a port (mq, mqprio): one counter
//! for all ports, because they share the line. Lock-free, because each port has its own lock.

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
    kernel_api::relaxed::RelaxedCell,
};

/// The phantom queues of all devices.
pub(crate) type SharedPhantoms = Mutex<KVec<Arc<SharedPhantom>>>;

/// Identity of a shared phantom queue.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) device: usize,
    /// Major number of the parent's handle: two exist while a tree replaces another.
    pub(crate) parent: u32,
}

/// A word in its own cache line: all processors write it.
#[repr(align(64))]
struct Aligned(Atomic<u64>);

pub(crate) struct SharedPhantom {
    key: Key,
    drain_bytes_per_s: RelaxedCell<u64>,
    limit_bytes: RelaxedCell<u64>,
    /// Port of the user's last configuration; 0 = none, or removed. Changed under RTNL.
    configured_by: RelaxedCell<u64>,
    /// Number of ports of this queue. Changed under the lock of [`SharedPhantoms`].
    ports: RelaxedCell<u64>,
    /// Value of an [`EmptyAt`].
    empty_at: Aligned,
}

/// cmpxchg attempts before falling back to fetch_add.
const TRIES: u32 = 8;

impl SharedPhantom {
    /// Opens the queue of `key`, and creates it if necessary.
    pub(crate) fn open(all: &SharedPhantoms, key: Key) -> Result<Arc<Self>> {
        let mut all = all.lock();
        if let Some(known) = all.iter().find(|shared| shared.key == key) {
            known.ports.add(1);
            return Ok(known.clone());
        }
        let shared = Arc::new(
            Self {
                key,
                drain_bytes_per_s: RelaxedCell::new(0),
                limit_bytes: RelaxedCell::new(0),
                configured_by: RelaxedCell::new(0),
                ports: RelaxedCell::new(1),
                empty_at: Aligned(Atomic::new(0)),
            },
            GFP_KERNEL_ACCOUNT,
        )?;
        all.push(shared.clone(), GFP_KERNEL_ACCOUNT)?;
        Ok(shared)
    }

    /// Leaves the queue; the last port removes it.
    pub(crate) fn close(&self, all: &SharedPhantoms, port: u64) {
        if self.is_configured_by(port) {
            self.configured_by.set(0);
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

    fn is_configured_by(&self, port: u64) -> bool {
        self.configured_by.get() == port
    }

    /// Applies a user's size or drain of `port` to all ports, if the drain is known. Under RTNL.
    pub(crate) fn configure_by_user(&self, port: u64, config: &phantom::Config, now_ns: u64) {
        self.configured_by.set(port);
        if config.drain_bytes_per_s != 0 {
            self.configure(config, now_ns);
        }
    }

    /// Applies a configuration of `port` from another source, such as the device's speed, unless a
    /// user configured another port later. Under RTNL.
    pub(crate) fn configure_by_device(&self, port: u64, config: &phantom::Config, now_ns: u64) {
        let is_allowed = self.configured_by.get() == 0 || self.is_configured_by(port);
        if is_allowed && config.drain_bytes_per_s != 0 {
            self.configure(config, now_ns);
        }
    }

    /// Changes size and drain. Concurrent additions may get lost.
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

    /// Returns the occupancy.
    pub(crate) fn bytes(&self, now_ns: u64) -> u64 {
        EmptyAt(self.empty_at.0.load(Relaxed)).bytes(&self.config(), now_ns)
    }

    /// Adds a packet; returns the occupancy.
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
        // A contended queue is not empty, and the next packet may enforce the limit.
        let step = ticks(&config, len_bytes);
        let before = self.empty_at.0.fetch_add(step, Relaxed);
        EmptyAt(before.saturating_add(step)).bytes(&config, now_ns)
    }
}
