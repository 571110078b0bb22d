// SPDX-License-Identifier: GPL-2.0

//! Tracepoints.
//!
//! C defines them, in trace_*.h, because the macros that do are C's. Off, one is a nop where
//! [`Tracepoint::is_on`] asks, so whoever is often there asks first and computes what to tell
//! only then. Where the kernel has no tracepoints none is ever on, and nothing is left of this.
//!
//! Model: `rust/kernel/tracepoint.rs`, whose macro finds only what the kernel itself defines.

// Each module uses its part.
#![allow(unused_imports)]

use super::{
    qdisc::{Packet, Queue},
    tcp::Sock,
};

pub(crate) use super::bindings::{
    xdc_drop_reason as DropReason, xdc_epoch_action as EpochAction,
    xdc_gemini_round as GeminiRoundInfo, xdc_mark_cause as MarkCause,
    xdc_phantom_packet as PacketInfo, xdc_unocc_epoch as EpochInfo, xdc_unocc_qa as QuickAdaptInfo,
    XDC_DROP_COLOR, XDC_DROP_ECN, XDC_DROP_FILTER, XDC_DROP_LIMIT, XDC_DROP_POOL, XDC_DROP_SPLIT,
    XDC_EPOCH_DECREASED, XDC_EPOCH_ENDED_SLOW_START, XDC_EPOCH_INCREASED, XDC_EPOCH_NONE,
    XDC_EPOCH_RESTED, XDC_EPOCH_WITHHELD, XDC_MARK_BOTH, XDC_MARK_PHANTOM, XDC_MARK_PHYSICAL,
};

/// A tracepoint `xdc:*`.
pub(crate) trait Tracepoint {
    /// What it is about.
    type Subject<'a>;

    /// What it says of that.
    type Info;

    /// Somebody listens.
    fn is_on() -> bool;

    /// Tells who listens, if anybody does.
    fn tell(subject: Self::Subject<'_>, info: &Self::Info);
}

/// Defines a [`Tracepoint`]: its type, its name in trace_*.h, what it is about, and how the
/// pointers for C come from that.
macro_rules! tracepoint {
    (
        $(#[$attr:meta])* $type:ident, $key:ident, $do_trace:ident,
        $subject:ty, $info:ty, |$about:pat_param| ($($pointer:expr),+)
    ) => {
        $(#[$attr])*
        pub(crate) struct $type;

        impl Tracepoint for $type {
            type Subject<'a> = $subject;
            type Info = $info;

            #[inline(always)]
            fn is_on() -> bool {
                #[cfg(CONFIG_TRACEPOINTS)]
                {
                    // C's is the same; some of its types are empty in this configuration.
                    #[allow(improper_ctypes)]
                    extern "C" {
                        static $key: kernel::bindings::tracepoint;
                    }
                    // SAFETY: A key that C defines, of the type that it has there.
                    unsafe {
                        kernel::jump_label::static_branch_unlikely!(
                            $key,
                            kernel::bindings::tracepoint,
                            key
                        )
                    }
                }
                #[cfg(not(CONFIG_TRACEPOINTS))]
                false
            }

            // Inline, so that a module has only what it calls: C's half is in one of them.
            #[cold]
            #[inline]
            fn tell<'a>($about: $subject, info: &$info) {
                #[cfg(CONFIG_TRACEPOINTS)]
                // SAFETY: By the types' invariants C can look at what these point to.
                unsafe {
                    super::bindings::$do_trace($($pointer,)+ info)
                }
                #[cfg(not(CONFIG_TRACEPOINTS))]
                let _ = ($($pointer,)+ info);
            }
        }
    };
}

tracepoint! {
    /// `xdc:unocc_epoch`.
    UnoccEpoch, __tracepoint_unocc_epoch, rust_do_trace_unocc_epoch,
    &'a Sock<'a>, EpochInfo, |sk| (sk.as_ptr())
}
tracepoint! {
    /// `xdc:unocc_qa`.
    UnoccQuickAdapt, __tracepoint_unocc_qa, rust_do_trace_unocc_qa,
    &'a Sock<'a>, QuickAdaptInfo, |sk| (sk.as_ptr())
}
tracepoint! {
    /// `xdc:gemini_round`.
    GeminiRound, __tracepoint_gemini_round, rust_do_trace_gemini_round,
    &'a Sock<'a>, GeminiRoundInfo, |sk| (sk.as_ptr())
}
tracepoint! {
    /// `xdc:phantom_mark`.
    PhantomMark, __tracepoint_phantom_mark, rust_do_trace_phantom_mark,
    (&'a Queue<'a>, &'a Packet), PacketInfo, |(queue, packet)| (queue.as_ptr(), packet.as_ptr())
}
tracepoint! {
    /// `xdc:phantom_drop`.
    PhantomDrop, __tracepoint_phantom_drop, rust_do_trace_phantom_drop,
    (&'a Queue<'a>, &'a Packet), PacketInfo, |(queue, packet)| (queue.as_ptr(), packet.as_ptr())
}
