// SPDX-License-Identifier: GPL-2.0
//! The table that tc reads, and its functions.

use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    io::Write as _,
    panic::{self, UnwindSafe},
    ptr, slice,
    sync::{
        Once,
        atomic::{AtomicPtr, Ordering::Relaxed},
    },
};

use serde_json::Value;

use crate::{
    host::{self, Functions, JsonWriter},
    kind::{AccelTor, Kind, Phantom},
    layout, text,
};

const OK: c_int = 0;
const FAILED: c_int = -1;

const TCA_OPTIONS: c_int = 2;
const NLA_F_NESTED: c_int = 1 << 15;

/// Most bytes of a request with the plugin's options; tc's buffer is 4 times as large.
const REQUEST_BYTES: c_int = 16384;

/// Spare words for a tc with a longer struct.
const SPARE: usize = 8;

type Word = AtomicPtr<c_void>;

/// `struct qdisc_util` as plain words, so that it can have an unknown layout. tc writes `next` and
/// reads the rest.
#[repr(C)]
pub struct QdiscUtil {
    next: Word,
    id: Word,
    functions: [Word; layout::WORDS - 2 + SPARE],
}

impl QdiscUtil {
    /// Enters the functions of a kind.
    fn fill<K: Kind>(&self) {
        let ours = [
            parse_qopt::<K> as *mut c_void,
            print_qopt::<K> as *mut c_void,
            print_xstats::<K> as *mut c_void,
        ];
        for (i, word) in self.functions.iter().enumerate() {
            // NULL: no classes and no filter blocks.
            let function = ours.get(i).copied().unwrap_or(ptr::null_mut());
            word.store(function, Relaxed);
        }
    }
}

/// Defines the table of a kind, which refuses until `on_load` has found the known layout.
macro_rules! table {
    ($name:ident, $id:literal, $kind:ty) => {
        #[allow(non_upper_case_globals, reason = "the name that tc looks for")]
        #[unsafe(no_mangle)]
        pub static $name: QdiscUtil = QdiscUtil {
            next: Word::new(ptr::null_mut()),
            id: Word::new($id.as_ptr() as *mut c_void),
            functions: [const { Word::new(refuse::<$kind> as *mut c_void) };
                layout::WORDS - 2 + SPARE],
        };
    };
}
table!(phantom_qdisc_util, c"phantom", Phantom);
table!(acceltor_qdisc_util, c"acceltor", AccelTor);

/// Run by the dynamic linker before dlopen returns to tc.
#[used]
#[unsafe(link_section = ".init_array")]
static ON_LOAD: extern "C" fn() = on_load;

extern "C" fn on_load() {
    guarded(|| {
        if host::functions().is_err() {
            return FAILED;
        }
        phantom_qdisc_util.fill::<Phantom>();
        acceltor_qdisc_util.fill::<AccelTor>();
        OK
    });
}

/// Replaces every function of a table with an unknown layout, and ignores the arguments. In
/// Linux's C calling conventions the caller removes them.
extern "C" fn refuse<K: Kind>() -> c_int {
    static ONCE: Once = Once::new();
    guarded(|| {
        let why = match host::functions() {
            Err(why) => why,
            Ok(_) => "unknown reason",
        };
        ONCE.call_once(|| {
            say(&format!(
                "q_{}.so: unknown version of tc ({why}); \
                 use 'xdc qdisc', which has the same syntax\n",
                K::NAME
            ));
        });
        FAILED
    })
}

extern "C" fn parse_qopt<K: Kind>(
    _util: *mut QdiscUtil,
    argc: c_int,
    argv: *const *const c_char,
    request: *mut c_void,
    _device: *const c_char,
) -> c_int {
    guarded(|| {
        // SAFETY: tc passes the `argc` remaining arguments, each a C string.
        let words = unsafe { arguments(argc, argv) };
        // Only in place of an option's name, because a pool may be called help.
        if words.iter().step_by(2).any(|word| word == "help") {
            say(&text::help::<K>());
            return FAILED;
        }
        let options = match K::encode(&words) {
            Ok(options) => options,
            Err(mistake) => {
                say(&text::mistake::<K>(&mistake));
                return FAILED;
            }
        };
        let (Ok(tc), Ok(length)) = (host::functions(), c_int::try_from(options.len())) else {
            return FAILED;
        };
        if options.is_empty() {
            return OK;
        }
        // SAFETY: tc's own function on tc's own request, which has more space than REQUEST_BYTES;
        // the function copies the bytes.
        unsafe {
            (tc.addattr_l)(
                request,
                REQUEST_BYTES,
                TCA_OPTIONS | NLA_F_NESTED,
                options.as_ptr().cast(),
                length,
            )
        }
    })
}

extern "C" fn print_qopt<K: Kind>(
    _util: *mut QdiscUtil,
    file: *mut libc::FILE,
    attribute: *const c_void,
) -> c_int {
    guarded_print(attribute, |tc, bytes| {
        let printed = match Json::of(tc) {
            Some(json) => K::json(bytes).map(|options| {
                let options = options.iter();
                options.for_each(|(key, value)| json.put(key, value));
            }),
            None => K::words(bytes).map(|words| {
                let words = words.iter();
                words.for_each(|(name, value)| print(file, &format!("{name} {value} ")));
            }),
        };
        match printed {
            Ok(()) => OK,
            Err(error) => {
                say(&format!("q_{}.so: {error}\n", K::NAME));
                FAILED
            }
        }
    })
}

extern "C" fn print_xstats<K: Kind>(
    _util: *mut QdiscUtil,
    file: *mut libc::FILE,
    attribute: *const c_void,
) -> c_int {
    guarded_print(attribute, |tc, bytes| {
        if let Some(json) = Json::of(tc) {
            for (name, value) in K::xstats(bytes) {
                json.put(name, &Value::from(value));
            }
            return OK;
        }
        for (i, line) in text::statistics::<K>(bytes).iter().enumerate() {
            if i > 0 {
                // SAFETY: no arguments. Ends a line as `tc -oneline` requires.
                unsafe { (tc.print_nl)() };
            }
            print(file, line);
        }
        OK
    })
}

/// Stops panics before they reach C; the panic hook has printed the message.
fn guarded(body: impl FnOnce() -> c_int + UnwindSafe) -> c_int {
    panic::catch_unwind(body).unwrap_or(FAILED)
}

/// As [`guarded`], for printing tc's attribute; prints nothing for NULL.
fn guarded_print(
    attribute: *const c_void,
    body: impl FnOnce(&Functions, &[u8]) -> c_int + UnwindSafe,
) -> c_int {
    guarded(move || {
        let Ok(tc) = host::functions() else {
            return FAILED;
        };
        // SAFETY: tc passes TCA_OPTIONS or TCA_STATS_APP of a message that it holds, or NULL.
        match unsafe { payload(attribute) } {
            Some(bytes) => body(tc, bytes),
            None => OK,
        }
    })
}

/// Writes to standard error; ignores a closed one.
fn say(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

fn print(file: *mut libc::FILE, text: &str) {
    let text = c_string(text);
    // SAFETY: the stream is tc's and open during the call. tc checks standard output when it ends.
    unsafe { libc::fputs(text.as_ptr(), file) };
}

/// Converts up to the first NUL; the kernel's strings have none inside.
fn c_string(text: &str) -> CString {
    let end = text.find('\0').unwrap_or(text.len());
    CString::new(&text[..end]).unwrap_or_default()
}

/// # Safety
///
/// `argv` has `argc` C strings, which do not change during the call.
unsafe fn arguments(argc: c_int, argv: *const *const c_char) -> Vec<String> {
    let count = usize::try_from(argc).unwrap_or(0);
    if count == 0 || argv.is_null() {
        return Vec::new();
    }
    // SAFETY: the caller's promise.
    let pointers = unsafe { slice::from_raw_parts(argv, count) };
    pointers
        .iter()
        .map(|word| {
            // SAFETY: the caller's promise.
            let word = unsafe { CStr::from_ptr(*word) };
            word.to_string_lossy().into_owned()
        })
        .collect()
}

/// Returns the payload of an attribute.
///
/// # Safety
///
/// `attribute` is NULL, or a `struct rtattr` whose length counts readable bytes that nothing
/// writes to while they are borrowed.
unsafe fn payload<'a>(attribute: *const c_void) -> Option<&'a [u8]> {
    /// `struct rtattr`: length including the header, type.
    const HEADER_BYTES: usize = 4;
    if attribute.is_null() {
        return None;
    }
    let start = attribute.cast::<u8>();
    // SAFETY: the caller's promise: there is a header.
    let length = unsafe { start.cast::<u16>().read_unaligned() };
    let length = usize::from(length).checked_sub(HEADER_BYTES)?;
    // SAFETY: the caller's promise: this many bytes follow the header.
    Some(unsafe { slice::from_raw_parts(start.add(HEADER_BYTES), length) })
}

/// tc's JSON writer, inside its current object.
struct Json<'a> {
    tc: &'a Functions,
    writer: *mut JsonWriter,
}

impl<'a> Json<'a> {
    /// Returns None if tc prints text.
    fn of(tc: &'a Functions) -> Option<Self> {
        // SAFETY: no arguments.
        if !unsafe { (tc.is_json_context)() } {
            return None;
        }
        // SAFETY: no arguments. In a JSON context there is a writer.
        let writer = unsafe { (tc.get_json_writer)() };
        Some(Self { tc, writer })
    }

    fn put(&self, key: &str, value: &Value) {
        let (tc, writer) = (self.tc, self.writer);
        let name = c_string(key);
        let key = name.as_ptr();
        // For the calls below: the writer is tc's and open while tc prints; strings end with NUL
        // and are copied to the stream before the call returns.
        match value {
            // SAFETY: see above.
            Value::Bool(value) => unsafe { (tc.jsonw_bool_field)(writer, key, *value) },
            Value::Object(fields) => {
                // SAFETY: see above.
                unsafe {
                    (tc.jsonw_name)(writer, key);
                    (tc.jsonw_start_object)(writer);
                }
                fields.iter().for_each(|(key, value)| self.put(key, value));
                // SAFETY: see above; ends the object begun above.
                unsafe { (tc.jsonw_end_object)(writer) };
            }
            value => match (value.as_u64(), value.as_i64(), value.as_str()) {
                // SAFETY: see above.
                (Some(value), ..) => unsafe { (tc.jsonw_u64_field)(writer, key, value) },
                // SAFETY: see above.
                (_, Some(value), _) => unsafe { (tc.jsonw_s64_field)(writer, key, value) },
                (.., text) => {
                    let text = text.map_or_else(|| value.to_string(), str::to_owned);
                    let text = c_string(&text);
                    // SAFETY: see above.
                    unsafe { (tc.jsonw_string_field)(writer, key, text.as_ptr()) };
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_failure() {
        assert_eq!(guarded(|| OK), OK);
        assert_eq!(guarded(|| panic!("as if by mistake")), FAILED);
    }

    #[test]
    fn an_attribute_has_the_length_of_its_header() {
        let attribute = |length: u16| {
            let mut bytes = length.to_ne_bytes().to_vec();
            bytes.extend([2, 0, 1, 2, 3, 4]);
            bytes
        };
        let read = |bytes: &[u8]| {
            // SAFETY: no length above exceeds the bytes.
            unsafe { payload(bytes.as_ptr().cast()) }.map(<[u8]>::to_vec)
        };
        assert_eq!(read(&attribute(8)), Some(vec![1, 2, 3, 4]));
        assert_eq!(read(&attribute(4)), Some(Vec::new()));
        assert_eq!(read(&attribute(3)), None);
        // SAFETY: NULL is allowed.
        assert_eq!(unsafe { payload(ptr::null()) }, None);
    }

    #[test]
    fn every_function_refuses_outside_tc() {
        let tables = [
            (&phantom_qdisc_util, refuse::<Phantom> as *mut c_void),
            (&acceltor_qdisc_util, refuse::<AccelTor> as *mut c_void),
        ];
        for (table, refuse) in tables {
            let mut words = table.functions.iter();
            assert!(words.all(|word| word.load(Relaxed) == refuse));
        }
        assert_eq!(refuse::<Phantom>(), FAILED);
    }
}
