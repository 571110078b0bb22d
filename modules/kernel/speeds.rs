// SPDX-License-Identifier: GPL-2.0

//! How fast the devices are by which sockets send.
//!
//! A device tells its speed under RTNL, which cannot be taken where a connection is established or an
//! ACK processed. So a worker asks whenever something has happened to a device, and the answer is
//! kept; what a device said last counts while its link is down. Devices that are made of others
//! (bond, team, VLAN, bridge) say what they say.

use super::{bindings, tcp::Sock};
use kernel::{error::to_result, prelude::*, types::Opaque};

/// By what a socket sends.
#[derive(Clone, Copy)]
pub(crate) enum Way {
    /// It has no route at this moment.
    Unknown,
    /// The peer is this host.
    Loopback,
    /// A device of so many Mbit/s, up to a million.
    Told(u32),
    /// A device that does not tell its speed.
    Silent,
}

/// The devices that can send, of every namespace. Neither made nor dropped under RTNL.
///
/// # Invariants
///
/// `c` is registered.
pub(crate) struct Speeds {
    c: Pin<KBox<Opaque<bindings::xdc_speeds>>>,
}

// SAFETY: C locks what is in it.
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

    /// By what `sk` sends.
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
    // Inlined, so that a module without one does not have it.
    #[inline]
    fn drop(&mut self) {
        // SAFETY: By the type invariants. C waits for events and the worker.
        unsafe { bindings::xdc_speeds_unregister(self.c.get()) }
    }
}
