// SPDX-License-Identifier: GPL-2.0

//! Tracepoints.
//!
//! C defines them in include/trace/events/, because the macros are C's; [`tracepoint!`] names a module's
//! tracepoints. While a tracepoint is off, [`Tracepoint::is_on`] is a nop, so a hot path checks it
//! before computing an event. A kernel without tracepoints compiles none of this.
//!
//! Model: `rust/kernel/tracepoint.rs`, whose macro finds only the kernel's own tracepoints.

// Each module uses a part.
#![allow(unused_imports, unused_macros)]

use super::{
    bindings,
    conn::Conn,
    qdisc::{Packet, Queue},
    tcp::Sock,
    udp_tunnel::Decisions,
};

pub(crate) use super::bindings::{
    xdc_drop_reason as DropReason, xdc_mark_cause as MarkCause, xdc_phantom_packet as PacketInfo,
    XDC_DROP_COLOR, XDC_DROP_ECN, XDC_DROP_FILTER, XDC_DROP_LIMIT, XDC_DROP_POOL, XDC_DROP_SPLIT,
    XDC_MARK_BOTH, XDC_MARK_PHANTOM, XDC_MARK_PHYSICAL,
};

/// A tracepoint `xdc:*`.
pub(crate) trait Tracepoint {
    /// Object of the event.
    type Subject<'a>: Subject;

    /// Data of the event.
    type Info;

    /// Returns whether a listener is attached.
    fn is_on() -> bool;

    /// Emits an event, if a listener is attached.
    fn emit(subject: Self::Subject<'_>, info: &Self::Info);
}

/// Object of a tracepoint's events.
pub(crate) trait Subject {
    /// Pointers for C, valid for the call.
    type Pointers;

    fn pointers(self) -> Self::Pointers;

    /// Calls `emit`, with softirqs disabled if the caller may have enabled them.
    #[inline(always)]
    fn undisturbed(emit: impl FnOnce()) {
        emit();
    }
}

/// Calls `emit` with softirqs disabled: TCP sends, and handles a process's backlog, with softirqs
/// enabled. The kernel runs no eBPF program of a tracepoint inside another on the same processor
/// (`bpf_prog_active`), so an interrupting softirq would lose its events.
#[inline]
fn without_softirqs(emit: impl FnOnce()) {
    // SAFETY: TCP's callees run with interrupts enabled, as `local_bh_enable` requires of the end of this
    // section, and kernel code does not unwind, so that the end is reached. The sections may be nested.
    unsafe { bindings::xdc_local_bh_disable() };
    emit();
    // SAFETY: Disabled above.
    unsafe { bindings::xdc_local_bh_enable() };
}

impl Subject for &Sock<'_> {
    type Pointers = (*const bindings::sock,);

    #[inline(always)]
    fn undisturbed(emit: impl FnOnce()) {
        without_softirqs(emit);
    }

    #[inline(always)]
    fn pointers(self) -> Self::Pointers {
        (self.as_ptr(),)
    }
}

impl Subject for &Conn<'_> {
    type Pointers = (*const bindings::sock,);

    #[inline(always)]
    fn undisturbed(emit: impl FnOnce()) {
        without_softirqs(emit);
    }

    #[inline(always)]
    fn pointers(self) -> Self::Pointers {
        (self.as_ptr(),)
    }
}

impl Subject for &Decisions<'_> {
    type Pointers = (*const bindings::net_device,);

    #[inline(always)]
    fn pointers(self) -> Self::Pointers {
        (self.device(),)
    }
}

impl Subject for (&Queue<'_>, &Packet<'_>) {
    type Pointers = (*const bindings::Qdisc, *const bindings::sk_buff);

    #[inline(always)]
    fn pointers(self) -> Self::Pointers {
        (self.0.as_ptr(), self.1.as_ptr())
    }
}

impl Subject for &Queue<'_> {
    type Pointers = (*const bindings::Qdisc,);

    #[inline(always)]
    fn pointers(self) -> Self::Pointers {
        (self.as_ptr(),)
    }
}

/// Defines a [`Tracepoint`]: its type, its name in the header that Kbuild finds, and its struct
/// there. The subject is a congestion control's socket, or `conn`, `packet` in a queue, `queue` or
/// `tunnel`.
macro_rules! tracepoint {
    ($(#[$attr:meta])* $type:ident, $name:ident, $info:ident) => {
        $crate::kernel_api::trace::tracepoint! {
            @define $(#[$attr])* $type, $name, $info,
            &'a $crate::kernel_api::tcp::Sock<'a>, (sk)
        }
    };
    ($(#[$attr:meta])* $type:ident, $name:ident, $info:ident, conn) => {
        $crate::kernel_api::trace::tracepoint! {
            @define $(#[$attr])* $type, $name, $info,
            &'a $crate::kernel_api::conn::Conn<'a>, (sk)
        }
    };
    ($(#[$attr:meta])* $type:ident, $name:ident, $info:ident, packet) => {
        $crate::kernel_api::trace::tracepoint! {
            @define $(#[$attr])* $type, $name, $info,
            (&'a $crate::kernel_api::qdisc::Queue<'a>, &'a $crate::kernel_api::qdisc::Packet<'a>),
            (queue, packet)
        }
    };
    ($(#[$attr:meta])* $type:ident, $name:ident, $info:ident, queue) => {
        $crate::kernel_api::trace::tracepoint! {
            @define $(#[$attr])* $type, $name, $info,
            &'a $crate::kernel_api::qdisc::Queue<'a>, (queue)
        }
    };
    ($(#[$attr:meta])* $type:ident, $name:ident, $info:ident, tunnel) => {
        $crate::kernel_api::trace::tracepoint! {
            @define $(#[$attr])* $type, $name, $info,
            &'a $crate::kernel_api::udp_tunnel::Decisions<'a>, (device)
        }
    };
    (
        @define $(#[$attr:meta])* $type:ident, $name:ident, $info:ident,
        $subject:ty, ($($pointer:ident),+)
    ) => { ::kernel::macros::paste! {
        $(#[$attr])*
        pub(crate) struct $type;

        impl $crate::kernel_api::trace::Tracepoint for $type {
            type Subject<'a> = $subject;
            type Info = $crate::kernel_api::bindings::$info;

            #[inline(always)]
            fn is_on() -> bool {
                #[cfg(CONFIG_TRACEPOINTS)]
                {
                    // C's type is the same; some of its types are empty in this configuration.
                    #[allow(improper_ctypes)]
                    extern "C" {
                        static [<__tracepoint_ $name>]: ::kernel::bindings::tracepoint;
                    }
                    // SAFETY: A key that C defines, of the type that it has there.
                    unsafe {
                        ::kernel::jump_label::static_branch_unlikely!(
                            [<__tracepoint_ $name>],
                            ::kernel::bindings::tracepoint,
                            key
                        )
                    }
                }
                #[cfg(not(CONFIG_TRACEPOINTS))]
                false
            }

            // Inline, so that a module contains only its own events: C's half is in one module.
            #[cold]
            #[inline]
            fn emit<'a>(subject: $subject, info: &Self::Info) {
                let ($($pointer,)+) = $crate::kernel_api::trace::Subject::pointers(subject);
                #[cfg(CONFIG_TRACEPOINTS)]
                <$subject as $crate::kernel_api::trace::Subject>::undisturbed(|| {
                    // SAFETY: By the types' invariants these pointers are valid for reads by C.
                    unsafe {
                        $crate::kernel_api::bindings::[<rust_do_trace_ $name>]($($pointer,)+ info)
                    }
                });
                #[cfg(not(CONFIG_TRACEPOINTS))]
                let _ = ($($pointer,)+ info);
            }
        }
    } };
}
pub(crate) use tracepoint;

tracepoint! {
    /// `xdc:phantom_mark`.
    PhantomMark, phantom_mark, xdc_phantom_packet, packet
}
tracepoint! {
    /// `xdc:phantom_drop`.
    PhantomDrop, phantom_drop, xdc_phantom_packet, packet
}
