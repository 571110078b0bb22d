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
pub(crate) enum EgressDev {
    /// No route at this moment.
    NoRoute,
    /// The peer is this host.
    Loopback,
    /// A device with a known speed in Mbit/s, up to a million.
    KnownSpeed(u32),
    /// A device that reports no speed.
    UnknownSpeed,
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
    pub(crate) fn egress_dev_of(&self, sk: &Sock<'_>) -> EgressDev {
        // SAFETY: By the type invariants; those of `Sock` give a valid socket.
        match unsafe { bindings::xdc_speeds_of(self.c.get(), sk.as_ptr()) } {
            0 => EgressDev::UnknownSpeed,
            bindings::XDC_SPEED_UNKNOWN => EgressDev::NoRoute,
            bindings::XDC_SPEED_LOOPBACK => EgressDev::Loopback,
            mbps => EgressDev::KnownSpeed(mbps),
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
