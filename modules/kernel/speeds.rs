// SPDX-License-Identifier: GPL-2.0

//! Speeds of the devices by which sockets send.
//!
//! A device reports its speed under RTNL, which connection setup and ACK processing cannot take. So
//! a worker queries each device after its events and stores the answer, which remains valid while
//! the link is down. Stacked devices (bond, team, VLAN, bridge) report their own speed.

use super::{bindings, tcp::Sock};
use kernel::{error::to_result, prelude::*, types::Opaque};

/// Egress device of a socket's route.
#[derive(Clone, Copy)]
pub(crate) enum Way {
    /// No route at this moment.
    Unknown,
    /// The peer is this host.
    Loopback,
    /// A device with a known speed in Mbit/s, up to a million.
    Told(u32),
    /// A device that reports no speed.
    Silent,
}

/// The sending devices of every namespace. Must not be created or dropped under RTNL.
///
/// # Invariants
///
/// `c` is registered.
pub(crate) struct Speeds {
    c: Pin<KBox<Opaque<bindings::xdc_speeds>>>,
}

// SAFETY: C locks its content.
unsafe impl Send for Speeds {}
// SAFETY: As above; readers are under RCU.
unsafe impl Sync for Speeds {}

impl Speeds {
    pub(crate) fn new() -> Result<Self> {
        let c = KBox::pin(Opaque::zeroed(), GFP_KERNEL)?;
        // SAFETY: `c` stays where it is until `drop` has unregistered it.
        to_result(unsafe { bindings::xdc_speeds_register(c.get()) })?;
        // INVARIANT: Just registered.
        Ok(Self { c })
    }

    /// Returns the egress device of `sk`.
    pub(crate) fn way_of(&self, sk: &Sock<'_>) -> Way {
        // SAFETY: By the type invariants; those of `Sock` give a valid socket.
        match unsafe { bindings::xdc_speeds_of(self.c.get(), sk.as_ptr()) } {
            0 => Way::Silent,
            bindings::XDC_SPEED_UNKNOWN => Way::Unknown,
            bindings::XDC_SPEED_LOOPBACK => Way::Loopback,
            mbps => Way::Told(mbps),
        }
    }
}

impl Drop for Speeds {
    // Inlined, so that a module without `Speeds` does not contain it.
    #[inline]
    fn drop(&mut self) {
        // SAFETY: By the type invariants. C waits for events and the worker.
        unsafe { bindings::xdc_speeds_unregister(self.c.get()) }
    }
}
