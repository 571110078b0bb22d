// SPDX-License-Identifier: GPL-2.0
//! Symbols of the running tc, looked up by name: a missing one gives an error message instead of
//! the dynamic linker's abort.

use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    mem, ptr,
    sync::OnceLock,
};

use crate::layout::{self, Program, Table};

/// tc's JSON writer; opaque.
#[repr(C)]
pub struct JsonWriter {
    _opaque: [u8; 0],
}

macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?,)*) => {
        /// The functions of tc that the plugin calls: iproute2's libnetlink.h, json_print.h,
        /// json_writer.h.
        pub struct Functions {
            $(pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Functions {
            fn find() -> Result<Self, String> {
                Ok(Self {
                    $($name: {
                        let name = stringify!($name);
                        let found = symbol(name).ok_or(format!("tc has no {name}()"))?;
                        // SAFETY: this is tc's function of that name, with this C declaration
                        // since iproute2 5.9; pointers to functions and to data have the same
                        // size.
                        unsafe {
                            mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>(found)
                        }
                    },)*
                })
            }
        }
    };
}

functions! {
    addattr_l: fn(*mut c_void, c_int, c_int, *const c_void, c_int) -> c_int,
    is_json_context: fn() -> bool,
    get_json_writer: fn() -> *mut JsonWriter,
    jsonw_name: fn(*mut JsonWriter, *const c_char),
    jsonw_start_object: fn(*mut JsonWriter),
    jsonw_end_object: fn(*mut JsonWriter),
    jsonw_string_field: fn(*mut JsonWriter, *const c_char, *const c_char),
    jsonw_bool_field: fn(*mut JsonWriter, *const c_char, bool),
    jsonw_u64_field: fn(*mut JsonWriter, *const c_char, u64),
    jsonw_s64_field: fn(*mut JsonWriter, *const c_char, i64),
    print_nl: fn(),
}

/// Returns the functions if tc has the known layout; otherwise the difference.
pub fn functions() -> &'static Result<Functions, String> {
    static FOUND: OnceLock<Result<Functions, String>> = OnceLock::new();
    FOUND.get_or_init(|| {
        layout::check(&Running)?;
        Functions::find()
    })
}

/// Finds a symbol; the program itself is first in search order.
fn symbol(name: &str) -> Option<*mut c_void> {
    let name = CString::new(name).ok()?;
    // SAFETY: the string ends with NUL, and the handle is always valid.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

struct Running;

impl Program for Running {
    fn table(&self, kind: &str) -> Result<Table, String> {
        let name = format!("{kind}_qdisc_util");
        let at = symbol(&name).ok_or(format!("tc has no {name}"))?;
        let bytes = size_of_object(at).ok_or(format!("{name} is not a data object"))?;
        // The object must contain the name's pointer before it is read.
        if !bytes.is_multiple_of(size_of::<usize>()) || bytes < 2 * size_of::<usize>() {
            return Err(format!("{name} has {bytes} bytes"));
        }
        // SAFETY: by the program's symbol table, an object of this size begins there; nothing
        // writes to it while the plugin is loaded.
        let words: Vec<usize> = (0..bytes / size_of::<usize>())
            .map(|i| unsafe { at.cast::<usize>().add(i).read_unaligned() })
            .collect();
        let id = readable_name(words[1]).unwrap_or_default();
        Ok(Table { id, words })
    }

    fn function(&self, name: &str) -> Option<usize> {
        symbol(name).map(|at| at as usize)
    }
}

/// ELF64_Sym.
#[repr(C)]
struct ElfSymbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    size: u64,
}

unsafe extern "C" {
    fn dladdr1(
        at: *const c_void,
        info: *mut libc::Dl_info,
        extra: *mut *mut c_void,
        flags: c_int,
    ) -> c_int;
}

/// Returns the size of the symbol that starts at `at`.
fn size_of_object(at: *const c_void) -> Option<usize> {
    const RTLD_DL_SYMENT: c_int = 1;
    let mut extra: *mut c_void = ptr::null_mut();
    let info = dl_info(|info| {
        // SAFETY: both places are ours, and with this flag `extra` is one pointer.
        unsafe { dladdr1(at, info, &mut extra, RTLD_DL_SYMENT) }
    })?;
    if info.dli_saddr.cast_const() != at || extra.is_null() {
        return None;
    }
    // SAFETY: with RTLD_DL_SYMENT it points into the object's symbol table, which stays mapped.
    let size = unsafe { (*extra.cast::<ElfSymbol>()).size };
    usize::try_from(size).ok()
}

/// Returns the string at `at` if that is inside a loaded object; other values may not be
/// addresses.
fn readable_name(at: usize) -> Option<String> {
    let at = at as *const c_char;
    // SAFETY: dladdr does not read at the address, only looks it up.
    dl_info(|info| unsafe { libc::dladdr(at.cast(), info) })?;
    // SAFETY: the address is in a loaded object, where a string constant ends with NUL. If it is
    // not a string, this reads bytes of that object up to the next zero.
    let name = unsafe { CStr::from_ptr(at) };
    name.to_str().ok().map(str::to_owned)
}

fn dl_info(ask: impl FnOnce(*mut libc::Dl_info) -> c_int) -> Option<libc::Dl_info> {
    let mut info = libc::Dl_info {
        dli_fname: ptr::null(),
        dli_fbase: ptr::null_mut(),
        dli_sname: ptr::null(),
        dli_saddr: ptr::null_mut(),
    };
    (ask(&mut info) != 0).then_some(info)
}
