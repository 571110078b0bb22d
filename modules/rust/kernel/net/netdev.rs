// SPDX-License-Identifier: GPL-2.0

//! Events of network devices.
//!
//! A module that handles events implements [`Notifier`] and keeps a [`Registration`].
//!
//! C header: `include/linux/netdevice.h`

use super::bindings;
use core::{ffi::c_void, marker::PhantomData, mem::MaybeUninit, ptr::NonNull};
use kernel::{error::to_result, prelude::*, types::Opaque};

/// A device in a callback that runs under RTNL and may sleep.
///
/// # Invariants
///
/// `dev` is alive and RTNL is held for `'a`.
pub(crate) struct Device<'a> {
    dev: NonNull<bindings::net_device>,
    _rtnl: PhantomData<&'a ()>,
}

impl Device<'_> {
    /// # Safety
    ///
    /// `dev` is not null and as the type invariants say.
    pub(super) unsafe fn from_raw(dev: *mut bindings::net_device) -> Self {
        // INVARIANT: By the safety requirements.
        Self {
            // SAFETY: By the safety requirements.
            dev: unsafe { NonNull::new_unchecked(dev) },
            _rtnl: PhantomData,
        }
    }

    pub(super) fn as_ptr(&self) -> *mut bindings::net_device {
        self.dev.as_ptr()
    }

    /// Returns a number that is unique among living devices.
    pub(crate) fn id(&self) -> usize {
        self.dev.as_ptr() as usize
    }

    /// Returns the reported speed; most devices report none while the link is down.
    pub(crate) fn link_bytes_per_s(&self) -> Option<u64> {
        // SAFETY: By the type invariants, under RTNL.
        let speed = unsafe { bindings::xdc_netdev_link_bytes_per_s(self.dev.as_ptr()) };
        (speed != 0).then_some(speed)
    }
}

/// An event of a device.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// The device can send. Devices that are up at the registration come first.
    Up,
    /// The link went up or down, or changed its speed.
    Change,
    /// The device can no longer send.
    Down,
    /// The device is being removed.
    Unregister,
}

/// Receiver of the events of all devices in all namespaces.
pub(crate) trait Notifier: Send + Sync + 'static {
    /// Handles an event. Runs under RTNL; may sleep.
    fn event(&self, device: &Device<'_>, event: Event);
}

/// C's block and its owner.
#[repr(C)]
struct Block<T> {
    block: Opaque<bindings::notifier_block>,
    notifier: T,
}

/// A registered [`Notifier`]; unregistered on drop. Must not be created or dropped under RTNL.
///
/// # Invariants
///
/// `block` is registered.
pub(crate) struct Registration<T: Notifier> {
    block: Pin<KBox<Block<T>>>,
}

// SAFETY: `T` is `Send` and `Sync`, and the rest is C's, which locks it.
unsafe impl<T: Notifier> Send for Registration<T> {}
// SAFETY: As above.
unsafe impl<T: Notifier> Sync for Registration<T> {}

impl<T: Notifier> Registration<T> {
    pub(crate) fn new(notifier: T) -> Result<Self> {
        // SAFETY: All zeroes is a notifier without a callback.
        let mut block: bindings::notifier_block = unsafe { MaybeUninit::zeroed().assume_init() };
        block.notifier_call = Some(Self::call);
        // Pinned on the heap, because C links it into a list.
        let block = KBox::pin(
            Block {
                block: Opaque::new(block),
                notifier,
            },
            GFP_KERNEL,
        )?;
        // SAFETY: `block` is complete, writable, and stays where it is until
        // `drop` has unregistered it.
        to_result(unsafe { bindings::register_netdevice_notifier(block.block.get()) })?;
        // INVARIANT: Just registered.
        Ok(Self { block })
    }

    /// # Safety
    ///
    /// Called by C only, under RTNL, with the `block` of a registration of `T`.
    unsafe extern "C" fn call(
        block: *mut bindings::notifier_block,
        event: usize,
        info: *mut c_void,
    ) -> c_int {
        let event = match u32::try_from(event) {
            Ok(bindings::NETDEV_UP) => Event::Up,
            Ok(bindings::NETDEV_CHANGE) => Event::Change,
            Ok(bindings::NETDEV_DOWN) => Event::Down,
            Ok(bindings::NETDEV_UNREGISTER) => Event::Unregister,
            _ => return NOTIFY_DONE,
        };
        // SAFETY: By the safety requirements `block` is the first field of a `Block<T>`.
        let notifier = unsafe { &(*block.cast::<Block<T>>()).notifier };
        // SAFETY: `info` is what C hands to such callbacks, and names a device.
        let dev = unsafe { bindings::xdc_netdev_of_event(info) };
        // SAFETY: The device is alive during the event, and RTNL is held.
        let device = unsafe { Device::from_raw(dev) };
        notifier.event(&device, event);
        NOTIFY_DONE
    }
}

const NOTIFY_DONE: c_int = bindings::NOTIFY_DONE as c_int;

impl<T: Notifier> Drop for Registration<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants. C waits for callbacks that run.
        unsafe { bindings::unregister_netdevice_notifier(self.block.block.get()) };
    }
}
