// SPDX-License-Identifier: GPL-2.0

//! The inet_diag block that shows a socket's figures to `xdc ss`: `struct xdc_diag_info` of
//! modules/include/uapi/linux/xdc_diag.h.

use super::algo::{
    controller::{published, Published},
    fixed::FRACTION_BITS,
};
use super::kernel_api::{
    tcp::{DiagBlock, Info, OwnInfo, Sock},
    uapi::{
        xdc_diag_info, XDC_DIAG_ATTR, XDC_DIAG_F_CE, XDC_DIAG_F_REDUCED, XDC_DIAG_F_WAN,
        XDC_DIAG_REQUEST, XDC_DIAG_VERSION,
    },
};
use core::marker::PhantomData;

/// Number of an algorithm in `struct xdc_diag_info`.
pub(crate) trait Numbered {
    /// A constant such as `XDC_DIAG_UNOCC`.
    const NUMBER: u8;
}

/// The block of algorithm `A`.
pub(crate) struct XdcBlock<A>(PhantomData<A>);

impl<A: Numbered> DiagBlock for XdcBlock<A> {
    const REQUEST: u32 = XDC_DIAG_REQUEST;
    const ATTRIBUTE: u32 = XDC_DIAG_ATTR;
    type Block = xdc_diag_info;

    fn block(info: &Info, ce_state: bool) -> xdc_diag_info {
        let [base_rtt_us, periods] = info.own.words;
        let ce = if ce_state { XDC_DIAG_F_CE } else { 0 };
        xdc_diag_info {
            version: XDC_DIAG_VERSION as u8,
            algorithm: A::NUMBER,
            flags: u16::from(info.own.flags) | ce as u16,
            fraction: info.fraction,
            periods,
            base_rtt: base_rtt_us,
            quick_adapts: info.own.count,
            period_marked: period_marked(info),
        }
    }
}

/// Returns the marked part of the present period, 2^-15.
fn period_marked(info: &Info) -> u16 {
    let marked = u64::from(info.marked_bytes) << 15;
    marked
        .checked_div(u64::from(info.acked_bytes))
        .map_or(0, |part| part.min(1 << 15)) as u16
}

// The block and the algorithms use the same numbers.
const _: () = {
    assert!(Info::FRACTION_BITS == FRACTION_BITS);
    assert!(XDC_DIAG_F_REDUCED == published::REDUCED as u32);
    assert!(XDC_DIAG_F_WAN == published::WAN as u32);
};

/// Publishes the byte counts after an ACK. Returns whether a period ended or a flag changed.
#[inline(always)]
pub(crate) fn publish_changes(sk: &mut Sock<'_>, new: &Published) -> bool {
    sk.publish_bytes(new.marked_bytes, new.acked_bytes);
    let published = sk.published();
    let [_, periods] = published.words;
    periods as u8 != new.periods || published.flags != new.flags
}

/// Publishes all figures and widens 8-bit counters, so it must be called before they wrap.
// Inlined into its one caller, so that `new` stays in registers: epochs can be as short as an ACK.
#[inline(always)]
pub(crate) fn publish(sk: &mut Sock<'_>, new: &Published) {
    let OwnInfo {
        words: [_, periods],
        count,
        ..
    } = sk.published();
    let quick_adapts = widen(u32::from(count), new.quick_adapts);
    sk.publish(Info {
        fraction: new.marked_fraction,
        marked_bytes: new.marked_bytes,
        acked_bytes: new.acked_bytes,
        own: OwnInfo {
            words: [new.base_rtt_us, widen(periods, new.periods)],
            count: quick_adapts as u16,
            flags: new.flags,
        },
    });
}

/// Returns `wide`, advanced to the present value of `narrow`.
fn widen(wide: u32, narrow: u8) -> u32 {
    wide.wrapping_add(u32::from(narrow.wrapping_sub(wide as u8)))
}
