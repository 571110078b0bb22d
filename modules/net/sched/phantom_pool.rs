// SPDX-License-Identifier: GPL-2.0

//! Pools: buffers that several ports share.

use kernel::{
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc, Mutex,
    },
};

use super::{
    algo::color::DynamicThreshold,
    kernel_api::{netlink::Extack, relaxed::RelaxedCell, sysctl::Net, uapi::*},
    phantom_options::{Options, Request, POOL_WORDS},
};

/// A buffer that ports of one namespace share.
pub(crate) struct Pool {
    net: usize,
    name: [u64; POOL_WORDS],
    limit_bytes: RelaxedCell<u64>,
    /// Number of ports in the pool. Changed under the lock of [`Pools`].
    ports: RelaxedCell<u64>,
    used_bytes: Aligned,
}

/// A word in its own cache line: each packet of each port writes it, and reads the other fields.
#[repr(align(64))]
struct Aligned(Atomic<u64>);

/// The pools of all namespaces.
pub(crate) type Pools = Mutex<KVec<Arc<Pool>>>;

impl Pool {
    /// Opens the pool that `options` name in `net`, and creates it if necessary. Only a port in the
    /// pool (`is_in`) may change its size.
    pub(crate) fn open(
        pools: &Pools,
        net: &Net,
        options: &Options,
        is_in: bool,
        request: &Request<'_>,
        extack: &Extack<'_>,
    ) -> Result<Option<Arc<Self>>> {
        if !options.has_pool() {
            return Ok(None);
        }
        let limit = request.get(TCA_PHANTOM_POOL_LIMIT);
        let limit_bytes = options.unsigned(TCA_PHANTOM_POOL_LIMIT);
        let mut pools = pools.lock();
        let known = pools
            .iter()
            .find(|pool| pool.net == net.id() && pool.name == options.pool);
        let pool = match (known, &limit) {
            (Some(pool), Some(limit)) => {
                if is_in {
                    pool.limit_bytes.set(limit_bytes);
                } else if pool.limit_bytes.get() != limit_bytes {
                    return Err(extack.invalid_attr(limit, OTHER_SIZE));
                }
                pool.clone()
            }
            (Some(pool), None) => pool.clone(),
            (None, None) => return Err(extack.invalid(c"pool-limit must be given for a new pool")),
            (None, Some(_)) => {
                let pool = Arc::new(
                    Self {
                        net: net.id(),
                        name: options.pool,
                        limit_bytes: RelaxedCell::new(limit_bytes),
                        ports: RelaxedCell::new(0),
                        used_bytes: Aligned(Atomic::new(0)),
                    },
                    GFP_KERNEL_ACCOUNT,
                )?;
                pools.push(pool.clone(), GFP_KERNEL_ACCOUNT)?;
                pool
            }
        };
        pool.ports.add(1);
        Ok(Some(pool))
    }

    /// Leaves the pool; the last port removes it.
    pub(crate) fn close(&self, pools: &Pools) {
        let mut pools = pools.lock();
        self.ports.set(self.ports.get().saturating_sub(1));
        pools.retain(|pool| pool.ports.get() != 0);
    }

    /// Returns the size of the pool.
    pub(crate) fn limit_bytes(&self) -> u64 {
        self.limit_bytes.get()
    }

    /// Returns the bytes that all ports hold.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes.0.load(Relaxed)
    }

    /// Reserves room for a packet, if a port that holds `port_bytes` may have it.
    #[inline(never)]
    pub(crate) fn take(&self, alpha_ppm: u32, port_bytes: u64, len_bytes: u64) -> bool {
        // Reserves before the check, so that two ports cannot both get the last room.
        let threshold = DynamicThreshold {
            limit_bytes: self.limit_bytes.get(),
            used_bytes: self.used_bytes.0.fetch_add(len_bytes, Relaxed),
            alpha_ppm,
        };
        let admitted = threshold.admit(port_bytes, len_bytes);
        if !admitted {
            self.give_back(len_bytes);
        }
        admitted
    }

    /// Reserves room for packets that are already queued.
    pub(crate) fn take_over(&self, len_bytes: u64) {
        self.used_bytes.0.fetch_add(len_bytes, Relaxed);
    }

    pub(crate) fn give_back(&self, len_bytes: u64) {
        self.used_bytes.0.fetch_sub(len_bytes, Relaxed);
    }
}

const OTHER_SIZE: &CStr =
    c"pool-limit must equal the size of the pool; a port in the pool can change it";
