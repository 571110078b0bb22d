// SPDX-License-Identifier: GPL-2.0

//! Netlink attributes: reading those of a request, writing those of an answer.
//!
//! C header: `include/net/netlink.h`

use super::bindings;
use core::{marker::PhantomData, mem::size_of, ptr::NonNull, slice};
use kernel::{error::to_result, prelude::*};

/// Length of an attribute's header, and what attributes are aligned to.
const HEADER_BYTES: usize = size_of::<bindings::nlattr>();
const ALIGN: usize = 4;

/// Bits of an attribute's type that are flags: nested, and byte order.
const TYPE_FLAGS: u16 = 0xc000;

/// Where a request's error is explained.
pub(crate) struct Extack<'a> {
    ptr: Option<NonNull<bindings::netlink_ext_ack>>,
    _request: PhantomData<&'a ()>,
}

impl Extack<'_> {
    /// # Safety
    ///
    /// `ptr` is null or valid for writes for the lifetime that the caller chooses.
    pub(super) unsafe fn from_raw(ptr: *mut bindings::netlink_ext_ack) -> Self {
        Self {
            ptr: NonNull::new(ptr),
            _request: PhantomData,
        }
    }

    /// Returns EINVAL, explained by `message`.
    pub(crate) fn invalid(&self, message: &'static CStr) -> Error {
        if let Some(ptr) = self.ptr {
            // SAFETY: By the safety requirements of `from_raw`; the message is
            // static, and copied before the request ends.
            unsafe { (*ptr.as_ptr())._msg = message.as_char_ptr() }
        }
        EINVAL
    }

    /// As [`Self::invalid`], and points the user to the attribute.
    pub(crate) fn invalid_attr(&self, attr: &Attr<'_>, message: &'static CStr) -> Error {
        if let Some(ptr) = self.ptr {
            let header = attr.header.as_ptr().cast::<bindings::nlattr>();
            // SAFETY: By the safety requirements of `from_raw`; the attribute
            // is part of the request, as the acknowledgement's code expects.
            unsafe { (*ptr.as_ptr()).bad_attr = header }
        }
        self.invalid(message)
    }
}

/// One attribute of a request.
pub(crate) struct Attr<'a> {
    header: &'a [u8],
    payload: &'a [u8],
    /// Its type, without flags.
    pub(crate) id: u16,
}

impl<'a> Attr<'a> {
    /// What it carries.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.payload
    }

    /// A u8, if it carries as many bytes as that has.
    pub(crate) fn u8(&self) -> Option<u8> {
        self.payload.try_into().ok().map(u8::from_ne_bytes)
    }

    /// A u32, if it carries as many bytes as that has.
    pub(crate) fn u32(&self) -> Option<u32> {
        self.payload.try_into().ok().map(u32::from_ne_bytes)
    }

    /// An s32, if it carries as many bytes as that has.
    pub(crate) fn i32(&self) -> Option<i32> {
        self.payload.try_into().ok().map(i32::from_ne_bytes)
    }

    /// A u64, if it carries as many bytes as that has.
    pub(crate) fn u64(&self) -> Option<u64> {
        self.payload.try_into().ok().map(u64::from_ne_bytes)
    }

    /// A string, with or without a NUL at its end.
    pub(crate) fn str_bytes(&self) -> &'a [u8] {
        let end = self.payload.iter().position(|byte| *byte == 0);
        self.payload
            .get(..end.unwrap_or(self.payload.len()))
            .unwrap_or(&[])
    }
}

/// The attributes nested in one attribute of a request.
#[derive(Clone, Copy)]
pub(crate) struct Attrs<'a>(&'a [u8]);

impl<'a> Attrs<'a> {
    /// # Safety
    ///
    /// `nest` is null, for no attributes, or an attribute of a request that
    /// lives for `'a`.
    pub(super) unsafe fn from_raw(nest: *const bindings::nlattr) -> Self {
        if nest.is_null() {
            return Self(&[]);
        }
        // SAFETY: By the safety requirements; netlink has checked the length.
        let len = usize::from(unsafe { (*nest).nla_len }).saturating_sub(HEADER_BYTES);
        // SAFETY: The payload follows the header.
        Self(unsafe { slice::from_raw_parts(nest.add(1).cast(), len) })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Calls `f` for each attribute; bytes that are none are EINVAL.
    pub(crate) fn for_each(
        self,
        extack: &Extack<'_>,
        mut f: impl FnMut(&Attr<'a>) -> Result,
    ) -> Result {
        let mut rest = self.0;
        while !rest.is_empty() {
            let (attr, after) = Self::split(rest).ok_or_else(|| {
                extack.invalid(c"attributes are cut off: the request is malformed")
            })?;
            f(&attr)?;
            rest = after;
        }
        Ok(())
    }

    /// The first attribute of `bytes`, and what follows it.
    fn split(bytes: &'a [u8]) -> Option<(Attr<'a>, &'a [u8])> {
        let len = usize::from(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?));
        let id = u16::from_ne_bytes(bytes.get(2..HEADER_BYTES)?.try_into().ok()?);
        let attr = Attr {
            header: bytes,
            payload: bytes.get(HEADER_BYTES..len)?,
            id: id & !TYPE_FLAGS,
        };
        let next = len.next_multiple_of(ALIGN).min(bytes.len());
        Some((attr, bytes.get(next..)?))
    }
}

/// An answer to which attributes are appended.
pub(crate) struct Message<'a> {
    skb: NonNull<bindings::sk_buff>,
    _answer: PhantomData<&'a mut ()>,
}

impl Message<'_> {
    /// Appends attribute `id` with what `f` puts into it, or nothing at all.
    ///
    /// # Safety
    ///
    /// `skb` is a netlink message under construction that nobody else touches.
    pub(super) unsafe fn nest(
        skb: *mut bindings::sk_buff,
        id: u32,
        f: impl FnOnce(&mut Message<'_>) -> Result,
    ) -> Result {
        let mut message = Message {
            skb: NonNull::new(skb).ok_or(EINVAL)?,
            _answer: PhantomData,
        };
        // SAFETY: By the safety requirements.
        let start = unsafe { bindings::xdc_nla_nest_start(skb, id as c_int) };
        if start.is_null() {
            return Err(EMSGSIZE);
        }
        let ret = f(&mut message);
        // SAFETY: `start` is the nest that was begun in `skb`.
        unsafe {
            match ret {
                Ok(()) => bindings::xdc_nla_nest_end(skb, start),
                Err(_) => bindings::xdc_nla_nest_cancel(skb, start),
            }
        }
        ret
    }

    /// Appends an attribute of any bytes.
    pub(crate) fn put(&mut self, id: u16, bytes: &[u8]) -> Result {
        // SAFETY: The message is valid for as long as `self`, and C copies
        // `bytes` if there is room for them.
        to_result(unsafe {
            bindings::nla_put(
                self.skb.as_ptr(),
                c_int::from(id),
                bytes.len() as c_int,
                bytes.as_ptr().cast(),
            )
        })
    }

    /// Appends a string: `bytes` up to and with the first NUL.
    pub(crate) fn put_str(&mut self, id: u16, bytes: &[u8]) -> Result {
        let text = bytes.split_inclusive(|byte| *byte == 0).next();
        self.put(id, text.unwrap_or_default())
    }

    /// Appends a u64, aligned by an attribute `pad` where the machine needs it.
    pub(crate) fn put_u64(&mut self, id: u16, value: u64, pad: u16) -> Result {
        // SAFETY: As in `put`.
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
