// SPDX-License-Identifier: GPL-2.0
//! The table that ip reads, and its functions.

use libc::{FILE, c_char, c_int, c_uint, c_void, nlmsghdr};
use std::{
    ffi::{CStr, CString},
    ptr, slice,
};
use xdc_netlink::unorc::{MAX_ATTRIBUTE, Options, USAGE, counters};

/// iproute2's `struct rtattr`.
#[repr(C)]
pub struct Attribute {
    len: u16,
    number: u16,
}

const HEADER: usize = size_of::<Attribute>();
/// Most bytes of a request, header included: `struct iplink_req` has 1024 for the attributes alone.
const REQUEST: usize = 1024;

/// iproute2's `struct link_util`.
#[repr(C)]
pub struct LinkUtil {
    next: *mut LinkUtil,
    id: *const c_char,
    max_attribute: c_int,
    parse: unsafe extern "C" fn(*mut LinkUtil, c_int, *const *const c_char, *mut nlmsghdr) -> c_int,
    print: unsafe extern "C" fn(*mut LinkUtil, *mut FILE, *const *const Attribute),
    print_xstats: unsafe extern "C" fn(*mut LinkUtil, *mut FILE, *const Attribute),
    help: unsafe extern "C" fn(*mut LinkUtil, c_int, *const *const c_char, *mut FILE),
    parse_xstats: *const c_void,
    print_ifla_xstats: *const c_void,
}

// SAFETY: ip has one thread.
unsafe impl Sync for LinkUtil {}

/// The table that ip looks up.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static mut unorc_link_util: LinkUtil = LinkUtil {
    next: ptr::null_mut(),
    id: c"unorc".as_ptr(),
    max_attribute: MAX_ATTRIBUTE,
    parse,
    print,
    print_xstats,
    help,
    parse_xstats: ptr::null(),
    print_ifla_xstats: ptr::null(),
};

/// # Safety
///
/// Called by ip with `count` words, and a request of at least [`REQUEST`] bytes.
unsafe extern "C" fn parse(
    _util: *mut LinkUtil,
    count: c_int,
    words: *const *const c_char,
    request: *mut nlmsghdr,
) -> c_int {
    let count = usize::try_from(count).unwrap_or(0);
    let words: Vec<String> = (0..count)
        .map(|at| {
            // SAFETY: By the safety requirements.
            let word = unsafe { CStr::from_ptr(*words.add(at)) };
            word.to_string_lossy().into_owned()
        })
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if words == ["help"] {
        eprint!("{USAGE}");
        return -1;
    }
    let options = match Options::parse(&words) {
        Ok(options) => options,
        Err(why) => {
            eprintln!("unorc: {why}\n{USAGE}");
            return -1;
        }
    };
    for (number, bytes) in options.attributes() {
        // SAFETY: By the safety requirements.
        if !unsafe { append(request, number, &bytes) } {
            eprintln!("unorc: the options do not fit into one request");
            return -1;
        }
    }
    0
}

/// # Safety
///
/// `request` has [`REQUEST`] bytes, of which `nlmsg_len` are in use.
unsafe fn append(request: *mut nlmsghdr, number: u16, bytes: &[u8]) -> bool {
    // SAFETY: By the safety requirements.
    let used = unsafe { (*request).nlmsg_len } as usize;
    let start = used.next_multiple_of(4);
    let len = HEADER + bytes.len();
    let end = start + len.next_multiple_of(4);
    if end > REQUEST {
        return false;
    }
    let header = Attribute { len: len as u16, number };
    // SAFETY: The space was checked above; `start` and the request's address are multiples of four.
    unsafe {
        let at = request.cast::<u8>().add(start);
        at.cast::<Attribute>().write(header);
        ptr::copy_nonoverlapping(bytes.as_ptr(), at.add(HEADER), bytes.len());
        (*request).nlmsg_len = end as u32;
    }
    true
}

/// ip's function for strings, which writes text or JSON.
type PrintString =
    unsafe extern "C" fn(c_uint, c_uint, *const c_char, *const c_char, *const c_char) -> c_int;

/// ip's function for numbers.
type PrintNumber = unsafe extern "C" fn(c_uint, c_uint, *const c_char, *const c_char, u64) -> c_int;

/// `PRINT_ANY` and `COLOR_NONE` of iproute2.
const ANY: c_uint = 4;
const NO_COLOR: c_uint = 6;

/// # Safety
///
/// Called by ip with a table of [`MAX_ATTRIBUTE`] + 1 attributes, or NULL.
unsafe extern "C" fn print(_util: *mut LinkUtil, _file: *mut FILE, table: *const *const Attribute) {
    if table.is_null() {
        return;
    }
    // SAFETY: The name is a string. ip exports the function for its plugins.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"print_color_string".as_ptr()) };
    if found.is_null() {
        return;
    }
    // SAFETY: This is iproute2's declaration.
    let print_string = unsafe { std::mem::transmute::<*mut c_void, PrintString>(found) };
    let options = Options::read(|number| {
        // SAFETY: By the safety requirements; each is NULL or an attribute of its stated length.
        unsafe {
            let attribute = *table.add(number);
            if attribute.is_null() {
                return None;
            }
            value(attribute)
        }
    });
    for (name, word) in options.words() {
        let format = CString::new(format!("{name} %s ")).unwrap_or_default();
        let name = CString::new(name).unwrap_or_default();
        let word = CString::new(word).unwrap_or_default();
        // SAFETY: All are strings, and the format has one %s.
        unsafe { print_string(ANY, NO_COLOR, name.as_ptr(), format.as_ptr(), word.as_ptr()) };
    }
}

/// # Safety
///
/// `attribute` has its stated length and does not move.
unsafe fn value<'a>(attribute: *const Attribute) -> Option<&'a [u8]> {
    // SAFETY: By the safety requirements.
    unsafe {
        let len = usize::from((*attribute).len).checked_sub(HEADER)?;
        let bytes = attribute.cast::<u8>().add(HEADER);
        Some(slice::from_raw_parts(bytes, len))
    }
}

/// # Safety
///
/// Called by ip for `ip -s -d link` with the attribute of the counters, or NULL.
unsafe extern "C" fn print_xstats(
    _util: *mut LinkUtil,
    _file: *mut FILE,
    attribute: *const Attribute,
) {
    // SAFETY: The name is a string. ip exports the function for its plugins.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"print_color_u64".as_ptr()) };
    if found.is_null() || attribute.is_null() {
        return;
    }
    // SAFETY: This is iproute2's declaration.
    let print_number = unsafe { std::mem::transmute::<*mut c_void, PrintNumber>(found) };
    // SAFETY: By the safety requirements.
    let bytes = unsafe { value(attribute) }.unwrap_or_default();
    for (name, n) in counters(bytes) {
        let format = CString::new(format!("{name} %llu ")).unwrap_or_default();
        let name = CString::new(name).unwrap_or_default();
        // SAFETY: All are strings, and the format has one number.
        unsafe { print_number(ANY, NO_COLOR, name.as_ptr(), format.as_ptr(), n) };
    }
}

/// # Safety
///
/// Called by ip.
unsafe extern "C" fn help(
    _util: *mut LinkUtil,
    _count: c_int,
    _words: *const *const c_char,
    _file: *mut FILE,
) {
    eprint!("{USAGE}");
}
