// SPDX-License-Identifier: GPL-2.0
//! One program for each of our tracepoints, which hands on what the event holds, its time and its
//! processor.

#![no_std]
#![no_main]

#[path = "../trace_record.rs"]
mod trace_record;

use aya_ebpf::{
    EbpfContext,
    helpers::{bpf_get_smp_processor_id, bpf_ktime_get_ns, generated::bpf_probe_read_kernel},
    macros::{map, tracepoint},
    maps::{PerCpuArray, RingBuf},
    programs::TracePointContext,
};
use trace_record::{COMMON_BYTES, EVENT_BYTES, Record};

/// Room for 90,000 events between two looks.
#[map]
static RECORDS: RingBuf = RingBuf::with_byte_size(16 << 20, 0);

/// One entry: events that there was no room for.
#[map]
static MISSED: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);

#[tracepoint]
pub fn unocc_epoch(ctx: TracePointContext) -> u32 {
    hand_on(&ctx, 0)
}

#[tracepoint]
pub fn unocc_qa(ctx: TracePointContext) -> u32 {
    hand_on(&ctx, 1)
}

#[tracepoint]
pub fn gemini_round(ctx: TracePointContext) -> u32 {
    hand_on(&ctx, 2)
}

#[tracepoint]
pub fn phantom_mark(ctx: TracePointContext) -> u32 {
    hand_on(&ctx, 3)
}

#[tracepoint]
pub fn phantom_drop(ctx: TracePointContext) -> u32 {
    hand_on(&ctx, 4)
}

/// `event` is an index of [`trace_record::EVENTS`].
#[inline(always)]
fn hand_on(ctx: &TracePointContext, event: u32) -> u32 {
    let Some(mut entry) = RECORDS.reserve::<Record>(0) else {
        if let Some(missed) = MISSED.get_ptr_mut(0) {
            // SAFETY: One processor's own, and a tracepoint's program is not interrupted by
            // another's.
            unsafe { *missed += 1 }
        }
        return 0;
    };
    let record = entry.as_mut_ptr();
    // SAFETY: The entry is ours until it is submitted, and all of it is written. What is read is
    // the kernel's buffer of an event, 2 kB at least, whatever the event has filled of it.
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

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 4] = *b"GPL\0";
