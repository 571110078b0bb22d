// SPDX-License-Identifier: GPL-2.0

//! Netlink attributes: reads requests by a policy, and writes answers.
//!
//! C header: `include/net/netlink.h`

use super::bindings;
use core::{
    iter,
    marker::PhantomData,
    mem::{size_of, MaybeUninit},
    ptr::{self, addr_of_mut, NonNull},
    slice,
};
use kernel::{
    error::to_result,
    fmt::{Arguments, Write},
    prelude::*,
    str::NullTerminatedFormatter,
};

/// Length of an attribute's header.
const HEADER_BYTES: usize = size_of::<bindings::nlattr>();

/// Alignment of attributes.
const ALIGN: usize = bindings::NLA_ALIGNTO as usize;

/// Bits of an attribute's type that are flags: nested, and byte order.
const TYPE_FLAGS: u16 = 0xc000;

/// Explanation of a request's error.
///
/// # Invariants
///
/// `ptr` is valid for reads and writes for `'a`, and no other code uses it meanwhile. Its
/// `bad_attr` is null or an attribute of the request.
pub(crate) struct Extack<'a> {
    ptr: Option<NonNull<bindings::netlink_ext_ack>>,
    _request: PhantomData<&'a ()>,
}

impl Extack<'_> {
    /// # Safety
    ///
    /// `ptr` is null or as the type invariants say, for the lifetime that the caller chooses.
    pub(super) unsafe fn from_raw(ptr: *mut bindings::netlink_ext_ack) -> Self {
        // INVARIANT: By the safety requirements.
        Self {
            ptr: NonNull::new(ptr),
            _request: PhantomData,
        }
    }

    /// Returns EINVAL, explained by `message`: NL_SET_ERR_MSG().
    pub(crate) fn invalid(&self, message: &'static CStr) -> Error {
        let ptr = self.ptr.map_or(ptr::null_mut(), NonNull::as_ptr);
        // SAFETY: `ptr` is null or valid for writes by the type invariants,
        // and the message is static.
        unsafe { bindings::xdc_extack_set(ptr, message.as_char_ptr()) }
        EINVAL
    }

    /// [`Self::invalid`] that points to the attribute: NL_SET_ERR_MSG_ATTR().
    pub(crate) fn invalid_attr(&self, attr: &Attr<'_>, message: &'static CStr) -> Error {
        if let Some(ptr) = self.ptr {
            // SAFETY: `ptr` is valid for writes by the type invariants.
            unsafe { (*ptr.as_ptr()).bad_attr = attr.ptr.as_ptr() }
        }
        self.invalid(message)
    }

    /// Explains an error that points to an attribute by a formatted text, truncated to the buffer:
    /// NL_SET_ERR_MSG_FMT().
    pub(crate) fn explain(&self, text: Arguments<'_>) {
        let Some(ptr) = self.ptr else {
            return;
        };
        // SAFETY: `ptr` is valid for writes by the type invariants; no
        // other code has a reference to the buffer.
        let buffer = unsafe { &mut *addr_of_mut!((*ptr.as_ptr())._msg_buf) };
        if let Some(mut formatter) = NullTerminatedFormatter::new(buffer) {
            // An error means truncation.
            let _ = formatter.write_fmt(text);
        }
        // SAFETY: `ptr` is valid for writes by the type invariants. The buffer
        // is part of it, ends with NUL, and is not written to any more.
        unsafe { bindings::xdc_extack_set(ptr.as_ptr(), (*ptr.as_ptr())._msg_buf.as_ptr().cast()) }
    }

    /// Returns the id of the attribute that the error points to.
    pub(crate) fn bad_attr(&self) -> Option<u32> {
        // SAFETY: `ptr` is valid for reads by the type invariants.
        let attr = unsafe { (*self.ptr?.as_ptr()).bad_attr };
        // SAFETY: By the type invariants `bad_attr` is null or an attribute of
        // the request, which does not change meanwhile.
        let attr = unsafe { attr.as_ref() }?;
        Some(u32::from(attr.nla_type & !TYPE_FLAGS))
    }
}

/// Type of a numeric attribute.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(crate) enum Number {
    U8 = bindings::NLA_U8,
    U32 = bindings::NLA_U32,
    U64 = bindings::NLA_U64,
    S32 = bindings::NLA_S32,
    /// Its length has the bounds.
    Binary = bindings::NLA_BINARY,
}

/// Bounds of an unsigned number.
pub(crate) use bindings::netlink_range_validation as Range;

/// Attributes of a nest, up to id `N - 1`: an array of `struct nla_policy`.
///
/// # Invariants
///
/// All pointers are to statics, so that any code may use and read it at any time.
#[repr(transparent)]
pub(crate) struct Policy<const N: usize>([bindings::nla_policy; N]);

// SAFETY: It is not written to after it was made, and by the type invariants
// neither are the statics that it refers to.
unsafe impl<const N: usize> Sync for Policy<N> {}

impl<const N: usize> Policy<N> {
    /// Creates a policy that refuses every attribute.
    pub(crate) const fn new() -> Self {
        // SAFETY: All zeroes are NLA_UNSPEC without validation, which strict
        // parsing refuses.
        // INVARIANT: Without pointers.
        Self(unsafe { MaybeUninit::zeroed().assume_init() })
    }

    /// Accepts any number.
    pub(crate) const fn any(mut self, id: u32, number: Number) -> Self {
        self.0[id as usize].type_ = number as u8;
        self
    }

    /// Accepts an unsigned number within bounds: NLA_POLICY_FULL_RANGE().
    pub(crate) const fn range(mut self, id: u32, number: Number, range: &'static Range) -> Self {
        self = self.any(id, number);
        let policy = &mut self.0[id as usize];
        policy.validation_type = bindings::NLA_VALIDATE_RANGE_PTR as u8;
        // INVARIANT: `range` is static.
        policy.__bindgen_anon_1.range = range;
        self
    }

    /// Accepts a number within small bounds, signed or not: NLA_POLICY_RANGE().
    pub(crate) const fn small_range(mut self, id: u32, number: Number, min: i16, max: i16) -> Self {
        self = self.any(id, number);
        let policy = &mut self.0[id as usize];
        policy.validation_type = bindings::NLA_VALIDATE_RANGE as u8;
        policy.__bindgen_anon_1.__bindgen_anon_1 =
            bindings::nla_policy__bindgen_ty_1__bindgen_ty_1 { min, max };
        self
    }

    /// Accepts exactly so many bytes: NLA_POLICY_EXACT_LEN().
    pub(crate) const fn exact(self, id: u32, bytes: i16) -> Self {
        self.small_range(id, Number::Binary, bytes, bytes)
    }

    /// Accepts a nest, whose content has its own policy.
    pub(crate) const fn nested(mut self, id: u32) -> Self {
        self.0[id as usize].type_ = bindings::NLA_NESTED as u8;
        self
    }

    /// Accepts a string of at most `max_bytes` and a NUL.
    pub(crate) const fn string(mut self, id: u32, max_bytes: u16) -> Self {
        self.0[id as usize].type_ = bindings::NLA_NUL_STRING as u8;
        self.0[id as usize].len = max_bytes;
        self
    }
}

/// One attribute of a request.
///
/// # Invariants
///
/// `ptr` is an attribute that netlink has checked for its length, and that
/// does not change for `'a`.
#[derive(Clone, Copy)]
pub(crate) struct Attr<'a> {
    ptr: NonNull<bindings::nlattr>,
    _request: PhantomData<&'a [u8]>,
}

impl<'a> Attr<'a> {
    /// Returns the payload: nla_data(), nla_len().
    pub(crate) fn bytes(&self) -> &'a [u8] {
        // SAFETY: The header is valid for reads by the type invariants.
        let len = usize::from(unsafe { (*self.ptr.as_ptr()).nla_len });
        // SAFETY: By the type invariants `nla_len` bytes are there, from the
        // header on, and do not change for `'a`.
        unsafe {
            slice::from_raw_parts(
                self.ptr.as_ptr().add(1).cast(),
                len.saturating_sub(HEADER_BYTES),
            )
        }
    }

    /// Returns the value of an NLA_U8; None for other lengths.
    pub(crate) fn u8(&self) -> Option<u8> {
        self.bytes().try_into().ok().map(u8::from_ne_bytes)
    }

    /// Returns the value of an NLA_U32.
    pub(crate) fn u32(&self) -> Option<u32> {
        self.bytes().try_into().ok().map(u32::from_ne_bytes)
    }

    /// Returns the value of an NLA_S32.
    pub(crate) fn i32(&self) -> Option<i32> {
        self.bytes().try_into().ok().map(i32::from_ne_bytes)
    }

    /// Returns the value of an NLA_U64.
    pub(crate) fn u64(&self) -> Option<u64> {
        self.bytes().try_into().ok().map(u64::from_ne_bytes)
    }

    /// Returns the content of an NLA_NESTED.
    pub(crate) fn nest(self) -> Nest<'a> {
        Nest(Some(self))
    }

    /// Returns the string; None if bytes follow its NUL.
    pub(crate) fn c_str(&self) -> Option<&'a CStr> {
        CStr::from_bytes_with_nul(self.bytes()).ok()
    }
}

/// The options attribute of a request, if present.
///
/// # Invariants
///
/// As for [`Attr`].
#[derive(Clone, Copy)]
pub(crate) struct Nest<'a>(Option<Attr<'a>>);

impl<'a> Nest<'a> {
    /// # Safety
    ///
    /// `nest` is null, or an attribute as the invariants of [`Attr`] say.
    pub(super) unsafe fn from_raw(nest: *const bindings::nlattr) -> Self {
        // INVARIANT: By the safety requirements.
        Self(NonNull::new(nest.cast_mut()).map(|ptr| Attr {
            ptr,
            _request: PhantomData,
        }))
    }

    /// Returns whether the attribute is absent.
    pub(crate) fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the nested attributes by id: nla_parse_nested(), which is strict.
    pub(crate) fn parse<const N: usize>(
        self,
        policy: &'static Policy<N>,
        extack: &Extack<'_>,
    ) -> Result<Attrs<'a, N>> {
        const { assert!(N > 0) };

        let mut table = [ptr::null_mut(); N];
        if let Some(nest) = self.0 {
            let extack_ptr = extack.ptr.map_or(ptr::null_mut(), NonNull::as_ptr);
            // SAFETY: The table and the policy have `N` elements, `nest` is an
            // attribute and `extack_ptr` null or valid by their types' invariants.
            to_result(unsafe {
                bindings::xdc_nla_parse_nested(
                    table.as_mut_ptr(),
                    N as c_int - 1,
                    nest.ptr.as_ptr(),
                    policy.0.as_ptr(),
                    extack_ptr,
                )
            })?;
        }
        Ok(Attrs {
            nest: self,
            table,
            _request: PhantomData,
        })
    }
}

/// The attributes of a request by id.
///
/// # Invariants
///
/// Pointers in the table are null or attributes as [`Attr`] says. The nest has been parsed into it.
pub(crate) struct Attrs<'a, const N: usize> {
    nest: Nest<'a>,
    table: [*mut bindings::nlattr; N],
    _request: PhantomData<&'a [u8]>,
}

impl<'a, const N: usize> Attrs<'a, N> {
    /// Refuses a duplicate attribute, which the parser accepts.
    pub(crate) fn refuse_twice(&self, extack: &Extack<'_>) -> Result {
        let Some(nest) = self.nest.0 else {
            return Ok(());
        };
        // SAFETY: By the type invariants each attribute in the nest has a type below `N`.
        let twice = unsafe { bindings::xdc_nla_find_twice(nest.ptr.as_ptr(), self.table.as_ptr()) };
        let Some(ptr) = NonNull::new(twice.cast_mut()) else {
            return Ok(());
        };
        // INVARIANT: Part of the nest, which has been validated.
        let attr = Attr {
            ptr,
            _request: PhantomData,
        };
        Err(extack.invalid_attr(&attr, c"attribute is given twice"))
    }

    /// Returns all attributes in order, those of equal types too: nla_for_each_nested().
    pub(crate) fn each(&self) -> impl Iterator<Item = Attr<'a>> {
        let mut rest = self.nest.0.map_or(&[][..], |nest| nest.bytes());
        iter::from_fn(move || {
            let len = usize::from(u16::from_ne_bytes(*rest.first_chunk()?));
            let attr = rest.get(..len).filter(|_| len >= HEADER_BYTES)?;
            rest = rest.get(len.next_multiple_of(ALIGN)..).unwrap_or_default();
            // INVARIANT: Part of the nest, which has been validated.
            Some(Attr {
                ptr: NonNull::from(attr).cast(),
                _request: PhantomData,
            })
        })
    }

    /// Returns attribute `id`, if present.
    pub(crate) fn get(&self, id: u32) -> Option<Attr<'a>> {
        let ptr = NonNull::new(*self.table.get(id as usize)?)?;
        // INVARIANT: By the type invariants.
        Some(Attr {
            ptr,
            _request: PhantomData,
        })
    }
}

/// An answer under construction.
///
/// # Invariants
///
/// `skb` is a netlink message under construction, which no other code touches for `'a`.
pub(crate) struct Message<'a> {
    skb: NonNull<bindings::sk_buff>,
    _answer: PhantomData<&'a mut ()>,
}

impl Message<'_> {
    /// Appends attribute `id` with the content that `f` writes, or nothing on error.
    ///
    /// # Safety
    ///
    /// `skb` is null, or a netlink message under construction that no other code touches.
    pub(super) unsafe fn nest(
        skb: *mut bindings::sk_buff,
        id: u32,
        f: impl FnOnce(&mut Message<'_>) -> Result,
    ) -> Result {
        // INVARIANT: By the safety requirements, for as long as this function runs.
        let mut message = Message {
            skb: NonNull::new(skb).ok_or(EINVAL)?,
            _answer: PhantomData,
        };
        // SAFETY: `skb` is not null and a message under construction by the safety requirements.
        let start = unsafe { bindings::xdc_nla_nest_start(skb, id as c_int) };
        if start.is_null() {
            return Err(EMSGSIZE);
        }
        let ret = f(&mut message);
        match ret {
            // SAFETY: `start` is the nest that was begun in `skb` and has not ended.
            Ok(()) => unsafe { bindings::xdc_nla_nest_end(skb, start) },
            // SAFETY: As above.
            Err(_) => unsafe { bindings::xdc_nla_nest_cancel(skb, start) },
        }
        ret
    }

    /// Appends attribute `id` with the content that `f` writes: nla_nest_start().
    pub(crate) fn put_nest(
        &mut self,
        id: u32,
        f: impl FnOnce(&mut Message<'_>) -> Result,
    ) -> Result {
        // SAFETY: `skb` is a message under construction by the type invariants.
        unsafe { Message::nest(self.skb.as_ptr(), id | bindings::NLA_F_NESTED, f) }
    }

    /// Appends a u32.
    pub(crate) fn put_u32(&mut self, id: u32, value: u32) -> Result {
        self.put(id as u16, &value.to_ne_bytes())
    }

    /// Appends an attribute with any bytes.
    pub(crate) fn put(&mut self, id: u16, bytes: &[u8]) -> Result {
        // SAFETY: `skb` is a message under construction by the type invariants,
        // and C copies `bytes.len()` bytes if there is room for them.
        to_result(unsafe {
            bindings::nla_put(
                self.skb.as_ptr(),
                c_int::from(id),
                bytes.len() as c_int,
                bytes.as_ptr().cast(),
            )
        })
    }

    /// Appends a string: `bytes` including the first NUL.
    pub(crate) fn put_str(&mut self, id: u16, bytes: &[u8]) -> Result {
        let text = bytes.split_inclusive(|byte| *byte == 0).next();
        self.put(id, text.unwrap_or_default())
    }

    /// Appends a u64, aligned by an attribute `pad` if the machine requires it.
    pub(crate) fn put_u64(&mut self, id: u16, value: u64, pad: u16) -> Result {
        // SAFETY: `skb` is a message under construction by the type invariants,
        // and `value` has the stated length; C copies it if there is room.
        to_result(unsafe {
            bindings::nla_put_64bit(
                self.skb.as_ptr(),
                c_int::from(id),
                size_of::<u64>() as c_int,
                (&raw const value).cast(),
                c_int::from(pad),
            )
        })
    }
}
