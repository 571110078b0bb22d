// SPDX-License-Identifier: GPL-2.0

//! Parameters of a module as files under /proc/sys/net, one set for each
//! network namespace.
//!
//! All values are u64: a number, or the index of a name. They are written by
//! root through the files and read by anybody who has a [`Net`], at any time
//! and without a lock.
//!
//! C headers: `include/linux/sysctl.h`, `include/net/netns/generic.h`

use super::{bindings, once::Once};
use core::{
    ffi::c_void,
    marker::PhantomData,
    mem::{size_of, MaybeUninit},
    ptr::{addr_of, addr_of_mut},
};
use kernel::{
    error::to_result, fmt::Write, prelude::*, str::NullTerminatedFormatter, types::Opaque,
};

/// A network namespace.
///
/// # Invariants
///
/// References live no longer than the namespace does.
#[repr(transparent)]
pub(crate) struct Net(Opaque<bindings::net>);

impl Net {
    /// # Safety
    ///
    /// `ptr` is a namespace that outlives `'a`.
    pub(super) unsafe fn from_raw<'a>(ptr: *mut bindings::net) -> &'a Self {
        // SAFETY: `Net` is transparent, and by the safety requirements.
        unsafe { &*ptr.cast() }
    }

    /// What tells namespaces apart that are alive at the same time.
    pub(crate) fn id(&self) -> usize {
        self.0.get() as usize
    }
}

/// One file.
#[derive(Clone, Copy)]
pub(crate) struct Param {
    pub(crate) name: &'static CStr,
    pub(crate) kind: Kind,
}

/// What a file takes; anything else is EINVAL.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// A number within bounds that are allowed themselves.
    Number { default: u64, min: u64, max: u64 },
    /// One of these names; the value is its index.
    Name {
        default: u64,
        names: &'static [&'static CStr],
    },
}

impl Kind {
    fn default(&self) -> u64 {
        match *self {
            Self::Number { default, .. } | Self::Name { default, .. } => default,
        }
    }

    /// Writes the text of `value`, terminated by NUL.
    fn format(&self, value: u64, text: &mut [u8; TEXT_BYTES]) -> Result {
        match self {
            Self::Number { .. } => NullTerminatedFormatter::new(text)
                .ok_or(EINVAL)?
                .write_fmt(fmt!("{value}"))
                .map_err(|_| EINVAL),
            Self::Name { names, .. } => {
                let name = usize::try_from(value).ok().and_then(|i| names.get(i));
                let name = name.ok_or(EINVAL)?.to_bytes_with_nul();
                text.get_mut(..name.len())
                    .ok_or(EINVAL)?
                    .copy_from_slice(name);
                Ok(())
            }
        }
    }

    fn parse(&self, text: &[u8; TEXT_BYTES]) -> Result<u64> {
        let text = CStr::from_bytes_until_nul(text).map_err(|_| EINVAL)?;
        let text = text.to_bytes().trim_ascii();
        match self {
            Self::Number { min, max, .. } => {
                let number = core::str::from_utf8(text).map_err(|_| EINVAL)?;
                let number = number.parse().map_err(|_| EINVAL)?;
                if (*min..=*max).contains(&number) {
                    Ok(number)
                } else {
                    Err(EINVAL)
                }
            }
            Self::Name { names, .. } => {
                let index = names.iter().position(|name| name.to_bytes() == text);
                Ok(index.ok_or(EINVAL)? as u64)
            }
        }
    }
}

/// Room for the longest text of a file: a u64, or a name.
const TEXT_BYTES: usize = 32;

/// The parameters of a module.
pub(crate) trait Params: Send + Sync + 'static {
    /// Directory below /proc/sys, `c"net/…"`.
    const DIR: &'static CStr;

    /// The files; a parameter is known by its index here. At most [`MAX_PARAMS`].
    const PARAMS: &'static [Param];

    /// Called after root has written parameter `index`, for those that set others.
    fn written(_values: &Values, _index: usize) {}
}

/// How many parameters a module can have.
pub(crate) const MAX_PARAMS: usize = 32;

/// The values of one namespace.
#[repr(transparent)]
pub(crate) struct Values([Once<u64>; MAX_PARAMS]);

impl Values {
    /// The value of parameter `index`; 0 where there is none.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> u64 {
        self.0.get(index).map_or(0, Once::get)
    }

    /// Sets parameter `index`, for [`Params::written`]. Bounds are not checked.
    pub(crate) fn set(&self, index: usize, value: u64) {
        if let Some(cell) = self.0.get(index) {
            cell.set(value);
        }
    }
}

/// What the kernel allocates for us in each namespace, zeroed.
struct PerNet {
    header: *mut bindings::ctl_table_header,
    files: [bindings::ctl_table; MAX_PARAMS],
    values: Values,
}

/// Id of [`PerNet`] among all modules' per-namespace areas. Each module has a
/// copy of this file and thus one id and one set of parameters.
static NET_ID: Once<u32> = Once::new(0);

/// The parameters of `T`, in every namespace; they go when this is dropped.
///
/// # Invariants
///
/// `ops` is registered: each namespace has a filled [`PerNet`] under `NET_ID`.
pub(crate) struct Registration<T: Params> {
    ops: Pin<KBox<Opaque<bindings::pernet_operations>>>,
    _params: PhantomData<T>,
}

// SAFETY: `ops` is only handed back to C, which locks its lists.
unsafe impl<T: Params> Send for Registration<T> {}
// SAFETY: As above.
unsafe impl<T: Params> Sync for Registration<T> {}

impl<T: Params> Registration<T> {
    /// Makes the files in every namespace, with their defaults.
    pub(crate) fn new() -> Result<Self> {
        const { assert!(T::PARAMS.len() <= MAX_PARAMS) };

        // SAFETY: All zeroes are a valid `struct pernet_operations`.
        let mut ops: bindings::pernet_operations = unsafe { MaybeUninit::zeroed().assume_init() };
        ops.init = Some(init_net::<T>);
        ops.exit = Some(exit_net);
        ops.id = addr_of!(NET_ID).cast_mut().cast();
        ops.size = size_of::<PerNet>();
        let ops = KBox::pin(Opaque::new(ops), GFP_KERNEL)?;
        // SAFETY: `ops` stays where it is until `drop` has unregistered it.
        to_result(unsafe { bindings::register_pernet_subsys(ops.get()) })?;
        // INVARIANT: Just registered, and `init_net` fills.
        Ok(Self {
            ops,
            _params: PhantomData,
        })
    }

    /// The values in namespace `net`.
    #[inline]
    pub(crate) fn of<'a>(&'a self, net: &'a Net) -> &'a Values {
        // SAFETY: By the invariants of `Net` and of this type, the area is
        // there and filled, and lives as long as both references do.
        unsafe { &(*per_net(net.0.get())).values }
    }
}

impl<T: Params> Drop for Registration<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants.
        unsafe { bindings::unregister_pernet_subsys(self.ops.get()) }
    }
}

/// # Safety
///
/// `net` is alive and our pernet operations are registered.
unsafe fn per_net(net: *mut bindings::net) -> *mut PerNet {
    // SAFETY: By the safety requirements.
    unsafe { bindings::xdc_net_generic(net, NET_ID.get()) }.cast()
}

/// # Safety
///
/// Called by the pernet code only, once per namespace.
unsafe extern "C" fn init_net<T: Params>(net: *mut bindings::net) -> c_int {
    // SAFETY: By the safety requirements the area is allocated and zeroed,
    // which is valid for all its fields, and nobody else knows of it yet.
    let (values, files, header) = unsafe {
        let area = per_net(net);
        (
            &*addr_of!((*area).values),
            &mut *addr_of_mut!((*area).files),
            addr_of_mut!((*area).header),
        )
    };
    for ((param, file), value) in T::PARAMS.iter().zip(files.iter_mut()).zip(&values.0) {
        value.set(param.kind.default());
        file.procname = param.name.as_char_ptr();
        file.mode = 0o644;
        file.proc_handler = Some(access::<T>);
        file.data = addr_of!(*value).cast_mut().cast();
        file.extra1 = addr_of!(*values).cast_mut().cast();
        file.extra2 = addr_of!(*param).cast_mut().cast();
    }
    // SAFETY: The names are static; the files live in the area, which outlives
    // their registration.
    let registered = unsafe {
        bindings::register_net_sysctl_sz(net, T::DIR.as_char_ptr(), files.as_ptr(), T::PARAMS.len())
    };
    if registered.is_null() {
        return ENOMEM.to_errno();
    }
    // SAFETY: As above; only `exit_net` reads it.
    unsafe { header.write(registered) };
    0
}

/// # Safety
///
/// Called by the pernet code only, for a namespace that [`init_net`] has seen.
unsafe extern "C" fn exit_net(net: *mut bindings::net) {
    // SAFETY: By the safety requirements; waits for readers and writers.
    unsafe { bindings::unregister_net_sysctl_table((*per_net(net)).header) }
}

/// Reads or writes one file.
///
/// # Safety
///
/// Called by proc only, for a file that [`init_net`] made.
unsafe extern "C" fn access<T: Params>(
    file: *const bindings::ctl_table,
    write: c_int,
    buffer: *mut c_void,
    len: *mut usize,
    pos: *mut bindings::loff_t,
) -> c_int {
    // SAFETY: `init_net` set these, and they outlive the file.
    let (value, values, param) = unsafe {
        (
            &*(*file).data.cast::<Once<u64>>(),
            &*(*file).extra1.cast::<Values>(),
            &*(*file).extra2.cast::<Param>(),
        )
    };
    let mut text = [0; TEXT_BYTES];
    if let Err(e) = param.kind.format(value.get(), &mut text) {
        return e.to_errno();
    }
    if write != 0 {
        // SAFETY: By the safety requirements.
        let (len, pos) = unsafe { (*len, *pos) };
        if len == 0 {
            return 0;
        }
        // proc_dostring() would pass over what lies behind the text that is
        // there, and cut off what it has no room for.
        let shown = text.iter().position(|byte| *byte == 0).unwrap_or(0);
        let pos = usize::try_from(pos).unwrap_or(usize::MAX);
        if pos > shown || len >= TEXT_BYTES.saturating_sub(pos) {
            return EINVAL.to_errno();
        }
    }
    // SAFETY: By the safety requirements; proc_dostring() works on `text` and
    // uses no other field than these two.
    let ret = unsafe {
        let mut string: bindings::ctl_table = *file;
        string.data = text.as_mut_ptr().cast();
        string.maxlen = TEXT_BYTES as c_int;
        bindings::proc_dostring(&string, write, buffer, len, pos)
    };
    if ret != 0 || write == 0 {
        return ret;
    }
    match param.kind.parse(&text) {
        Ok(new) => {
            value.set(new);
            let index = T::PARAMS.iter().position(|p| core::ptr::eq(p, param));
            T::written(values, index.unwrap_or(0));
            0
        }
        Err(e) => e.to_errno(),
    }
}
