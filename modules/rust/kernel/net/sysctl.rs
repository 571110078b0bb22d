// SPDX-License-Identifier: GPL-2.0

//! Parameters of a module as files in /proc/sys/net, one set per network namespace.
//!
//! Each is a u32 within bounds, which root reads and writes by proc_douintvec_minmax(), and any
//! owner of a [`Net`] reads without a lock. A module with several sets of defaults has a write-only
//! file `profile`, an action like net.ipv4.route.flush: a set's name sets all parameters. It holds
//! no value, so a dump of all values can be restored.
//!
//! C headers: `include/linux/sysctl.h`, `include/net/netns/generic.h`

use super::{bindings, relaxed::RelaxedCell};
use core::{
    ffi::c_void,
    marker::PhantomData,
    mem::{size_of, MaybeUninit},
    ptr::{addr_of, addr_of_mut},
};
use kernel::{error::to_result, prelude::*, types::Opaque};

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
        // SAFETY: `ptr` is a namespace that outlives `'a`, and `Net` has its layout.
        unsafe { &*ptr.cast() }
    }

    pub(super) fn as_ptr(&self) -> *mut bindings::net {
        self.0.get()
    }

    /// Returns an id that is unique among live namespaces.
    pub(crate) fn id(&self) -> usize {
        self.0.get() as usize
    }
}

/// One parameter with its bounds.
#[derive(Clone, Copy)]
pub(crate) struct Param {
    /// Name of the file.
    pub(crate) name: &'static CStr,
    pub(crate) min: u32,
    pub(crate) max: u32,
    /// Defaults by profile.
    pub(crate) defaults: &'static [u32],
}

/// The parameters of a module.
pub(crate) trait Params: Send + Sync + 'static {
    /// Directory below /proc/sys, `c"net/…"`.
    const DIR: &'static CStr;

    /// Parameters by index, at most [`MAX_PARAMS`].
    const PARAMS: &'static [Param];

    /// Names of the sets of defaults, each shorter than [`PROFILE_BYTES`]; a namespace begins with the
    /// first. One set needs no file.
    const PROFILES: &'static [&'static CStr];

    /// Read-only file of the first word of [`Values::kept`].
    const KEPT_FILE: Option<&'static CStr> = None;
}

/// Limit of a module's parameters.
pub(crate) const MAX_PARAMS: usize = 32;

/// Size of a profile's name with its NUL.
const PROFILE_BYTES: usize = 16;

/// Words of a module per namespace, beside its parameters.
pub(crate) const KEPT: usize = 3;

/// The values of one namespace.
#[repr(C)]
pub(crate) struct Values {
    params: [RelaxedCell<u32>; MAX_PARAMS],
    kept: [RelaxedCell<u32>; KEPT],
}

impl Values {
    /// Returns the value of parameter `index`; 0 if there is no such parameter.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> u32 {
        self.params.get(index).map_or(0, RelaxedCell::get)
    }

    /// Returns the module's own words, initially 0. The file [`Params::KEPT_FILE`] shows the first.
    #[inline]
    pub(crate) fn kept(&self) -> &[RelaxedCell<u32>; KEPT] {
        &self.kept
    }

    /// Sets all parameters to the profile's defaults.
    fn set_profile<T: Params>(&self, profile: usize) {
        for (value, param) in self.params.iter().zip(T::PARAMS) {
            if let Some(default) = param.defaults.get(profile) {
                value.set(*default);
            }
        }
    }
}

/// Per-namespace area, which the kernel allocates zeroed.
struct PerNet {
    header: *mut bindings::ctl_table_header,
    /// Parameters, profile, and the file of a kept word.
    files: [bindings::ctl_table; MAX_PARAMS + 2],
    values: Values,
}

/// Id of [`PerNet`] among all per-namespace areas. Each module has a copy of this file and thus its
/// own id.
static NET_ID: RelaxedCell<u32> = RelaxedCell::new(0);

/// The registered parameters of `T`, in every namespace; removed on drop.
///
/// # Invariants
///
/// `ops` is registered: each namespace has a filled [`PerNet`] under `NET_ID`.
pub(crate) struct Registration<T: Params> {
    ops: Pin<KBox<Opaque<bindings::pernet_operations>>>,
    _params: PhantomData<T>,
}

// SAFETY: `ops` is only handed to functions of C that take a lock of their own.
unsafe impl<T: Params> Send for Registration<T> {}
// SAFETY: A shared reference gives the values only, which are made for that.
unsafe impl<T: Params> Sync for Registration<T> {}

impl<T: Params> Registration<T> {
    /// Creates the files in every namespace, with their defaults.
    pub(crate) fn new() -> Result<Self> {
        const {
            assert!(T::PARAMS.len() <= MAX_PARAMS);
            let mut i = 0;
            while i < T::PARAMS.len() {
                assert!(T::PARAMS[i].defaults.len() == T::PROFILES.len());
                i += 1;
            }
            assert!(!T::PROFILES.is_empty());
        }

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

    /// Returns the values of namespace `net`.
    #[inline]
    pub(crate) fn of<'a>(&'a self, net: &'a Net) -> &'a Values {
        // SAFETY: By the invariants of `Net` and of this type, the area is
        // there and filled, and lives as long as both references do. No code
        // has a mutable reference to `values`.
        unsafe { &(*per_net(net.0.get())).values }
    }
}

impl<T: Params> Drop for Registration<T> {
    fn drop(&mut self) {
        // SAFETY: `ops` is registered by the type invariants, and has not moved.
        unsafe { bindings::unregister_pernet_subsys(self.ops.get()) }
    }
}

/// # Safety
///
/// `net` is alive and our pernet operations are registered.
unsafe fn per_net(net: *mut bindings::net) -> *mut PerNet {
    // SAFETY: `net` is alive, and registration has set `NET_ID`.
    unsafe { bindings::xdc_net_generic(net, NET_ID.get()) }.cast()
}

/// # Safety
///
/// Called by the pernet code only, once per namespace.
unsafe extern "C" fn init_net<T: Params>(net: *mut bindings::net) -> c_int {
    // SAFETY: `net` is alive and our operations are registered, as they call this.
    let area = unsafe { per_net(net) };
    // SAFETY: The area is allocated and zeroed, which is valid for `Values`,
    // and there is no mutable reference to them.
    let values = unsafe { &*addr_of!((*area).values) };
    // SAFETY: As above, and no other code knows of the area yet.
    let files = unsafe { &mut *addr_of_mut!((*area).files) };

    values.set_profile::<T>(0);
    for ((param, file), value) in T::PARAMS.iter().zip(files.iter_mut()).zip(&values.params) {
        file.procname = param.name.as_char_ptr();
        file.mode = 0o644;
        file.proc_handler = Some(bindings::proc_douintvec_minmax);
        file.data = addr_of!(*value).cast_mut().cast();
        file.maxlen = size_of::<u32>() as c_int;
        file.extra1 = addr_of!(param.min).cast_mut().cast();
        file.extra2 = addr_of!(param.max).cast_mut().cast();
    }
    let mut count = T::PARAMS.len();
    if let (true, Some(file)) = (T::PROFILES.len() > 1, files.get_mut(count)) {
        file.procname = c"profile".as_char_ptr();
        file.mode = 0o200;
        file.proc_handler = Some(set_profile::<T>);
        file.data = addr_of!(*values).cast_mut().cast();
        count = count.wrapping_add(1);
    }
    if let (Some(name), Some(file), [shown, ..]) =
        (T::KEPT_FILE, files.get_mut(count), &values.kept)
    {
        file.procname = name.as_char_ptr();
        file.mode = 0o444;
        file.proc_handler = Some(bindings::proc_douintvec_minmax);
        file.data = addr_of!(*shown).cast_mut().cast();
        file.maxlen = size_of::<u32>() as c_int;
        count = count.wrapping_add(1);
    }
    // SAFETY: `net` is alive. The first `count` files are complete, lie in the
    // area, which outlives their registration, and refer to it and to statics.
    // The files are writable, as kernels before 7.3 require.
    let header = unsafe {
        bindings::register_net_sysctl_sz(net, T::DIR.as_char_ptr(), files.as_mut_ptr(), count)
    };
    if header.is_null() {
        return ENOMEM.to_errno();
    }
    // SAFETY: The area is allocated, and only `exit_net` reads this of it.
    unsafe { addr_of_mut!((*area).header).write(header) };
    0
}

/// # Safety
///
/// Called by the pernet code only, for a namespace that [`init_net`] has seen.
unsafe extern "C" fn exit_net(net: *mut bindings::net) {
    // SAFETY: `net` is alive and our operations are registered, as they call this.
    let area = unsafe { per_net(net) };
    // SAFETY: `init_net` has succeeded, so the header is that of a registered
    // table. This waits for readers and writers of its files.
    unsafe { bindings::unregister_net_sysctl_table((*area).header) }
}

/// Sets all parameters to a profile; parses the name like proc_tcp_congestion_control().
///
/// # Safety
///
/// Called by proc only, for a file that [`init_net`] made and that cannot be read.
unsafe extern "C" fn set_profile<T: Params>(
    file: *const bindings::ctl_table,
    write: c_int,
    buffer: *mut c_void,
    len: *mut usize,
    pos: *mut bindings::loff_t,
) -> c_int {
    let mut name = [0u8; PROFILE_BYTES];
    let string = bindings::ctl_table {
        data: name.as_mut_ptr().cast(),
        maxlen: PROFILE_BYTES as c_int,
        ..Default::default()
    };
    // SAFETY: `buffer`, `len` and `pos` are proc's. `string` refers to `name`,
    // which is a string that ends with NUL and has room for `maxlen` bytes.
    let ret = unsafe { bindings::proc_dostring(&string, write, buffer, len, pos) };
    if ret != 0 {
        return ret;
    }
    let name = CStr::from_bytes_until_nul(&name).ok();
    let Some(profile) = T::PROFILES.iter().position(|known| Some(*known) == name) else {
        return EINVAL.to_errno();
    };
    // SAFETY: `init_net` has set `data` to the values, which outlive the file.
    let values = unsafe { &*(*file).data.cast::<Values>() };
    values.set_profile::<T>(profile);
    0
}
