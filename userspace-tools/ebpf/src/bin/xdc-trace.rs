// SPDX-License-Identifier: GPL-2.0
//! Programs for tracepoints: each passes on the events of its tracepoint, with time and processor.

#![no_std]
#![no_main]

#[path = "../program.rs"]
mod program;
#[path = "../trace_record.rs"]
mod trace_record;

use aya_ebpf::{
    EbpfContext,
    helpers::{bpf_get_smp_processor_id, bpf_ktime_get_ns, generated::bpf_probe_read_kernel},
    macros::{map, tracepoint},
    maps::{PerCpuArray, RingBuf},
    programs::TracePointContext,
};
use trace_record::{COMMON_BYTES, EVENT_BYTES, PROGRAMS, Record};

/// Space for 90,000 events between two reads.
#[map]
static RECORDS: RingBuf = RingBuf::with_byte_size(16 << 20, 0);

/// One entry: events lost for lack of space.
#[map]
static MISSED: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);

/// Defines programs that differ only in their number.
macro_rules! programs {
    ($($number:literal $name:ident)+) => {
        $(
            #[tracepoint]
            pub fn $name(ctx: TracePointContext) -> u32 {
                hand_on(&ctx, $number)
            }
        )+

        const _: () = assert!([$($number,)+].len() == PROGRAMS);
    };
}

programs! {
    0 event_0 1 event_1 2 event_2 3 event_3 4 event_4 5 event_5 6 event_6 7 event_7
    8 event_8 9 event_9 10 event_10 11 event_11 12 event_12 13 event_13 14 event_14 15 event_15
    16 event_16 17 event_17 18 event_18 19 event_19 20 event_20 21 event_21 22 event_22 23 event_23
    24 event_24 25 event_25 26 event_26 27 event_27 28 event_28 29 event_29 30 event_30 31 event_31
}

/// Records an event; `event` is the program's number.
#[inline(always)]
fn hand_on(ctx: &TracePointContext, event: u32) -> u32 {
    let Some(mut entry) = RECORDS.reserve::<Record>(0) else {
        if let Some(missed) = MISSED.get_ptr_mut(0) {
            // SAFETY: The value is per CPU, and no tracepoint program interrupts another.
            unsafe { *missed += 1 }
        }
        return 0;
    };
    let record = entry.as_mut_ptr();
    // SAFETY: The entry is ours until it is submitted, and all of it is written. The source is the
    // kernel's buffer of an event, at least 2 kB, however long the event is.
    unsafe {
        (*record).at_ns = bpf_ktime_get_ns();
        (*record).event = event;
        (*record).cpu = bpf_get_smp_processor_id();
        let fields = (&raw mut (*record).fields).cast::<u8>();
        fields.cast::<u64>().write(0);
        bpf_probe_read_kernel(
            fields.add(COMMON_BYTES).cast(),
            (EVENT_BYTES - COMMON_BYTES) as u32,
            ctx.as_ptr().add(COMMON_BYTES).cast(),
        );
    }
    entry.submit(0);
    0
}
