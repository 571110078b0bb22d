// SPDX-License-Identifier: GPL-2.0
//! Fuzz target for congestion controls: any parameters within the sysctl ranges, any sequence of TCP events,
//! and the invariants after each event.

pub mod amplifier;
pub mod meter;

use std::{
    cell::{Cell, RefCell},
    env,
    sync::LazyLock,
};

use arbitrary::Arbitrary;
use xdc_algo::{
    Ack, Visitor,
    controller::Controller,
    entry::Entry,
    params::{ParamInfo, ParamSource},
};

/// Largest window in bytes; algo/fixed.rs checks its products for it.
const MAX_CWND_BYTES: u64 = 1 << 40;

/// Fixed-point 1.0.
const FRACTION_ONE: u32 = 1 << 30;

/// Runs a flow of the algorithm that XDC_ALGORITHM names.
pub fn of_algorithm(life: Life) {
    static NAME: LazyLock<String> =
        LazyLock::new(|| env::var("XDC_ALGORITHM").expect("XDC_ALGORITHM names an algorithm"));
    struct Alive(Life);
    impl Visitor for Alive {
        fn visit<F: Controller>(self, entry: &'static Entry) {
            self.0.live::<F>(entry.params);
        }
    }
    assert!(
        xdc_algo::visit(&NAME, Alive(life)),
        "unknown algorithm {}",
        *NAME
    );
}

/// Parameters and events of one flow.
#[derive(Arbitrary, Debug)]
pub struct Life {
    params: [u32; 24],
    now_us: u64,
    cwnd_bytes: u64,
    rtt_us: Option<u32>,
    events: Vec<Event>,
}

#[derive(Arbitrary, Debug)]
enum Event {
    Ack {
        after_us: u32,
        rtt_us: Option<u32>,
        srtt_us: u32,
        acked_bytes: u32,
        marked: u8,
        delivered_bytes: u64,
        interval_us: u32,
        app_limited: bool,
        in_recovery: bool,
        in_flight_bytes: u64,
        mss_bytes: u16,
    },
    Loss {
        after_us: u32,
        mss_bytes: u16,
    },
    Timeout {
        after_us: u32,
        in_flight_bytes: u64,
        mss_bytes: u16,
    },
    Undo {
        prior_bytes: u64,
    },
    Idle {
        after_us: u64,
    },
    Params {
        row: u8,
        value: u32,
        after_reads: u8,
    },
}

/// Sysctl values, one of which changes between two reads.
struct Sysctls<'a> {
    table: &'a [ParamInfo],
    raw: RefCell<[u32; 24]>,
    /// Reads before the write, row, and value.
    write: Cell<Option<(u8, u8, u32)>>,
}

impl ParamSource for Sysctls<'_> {
    fn value(&self, row: usize) -> u32 {
        match self.write.get() {
            Some((0, written, value)) => {
                let written = usize::from(written) % self.table.len();
                if let Some(raw) = self.raw.borrow_mut().get_mut(written) {
                    *raw = value;
                }
                self.write.set(None);
            }
            Some((reads, written, value)) => self.write.set(Some((reads - 1, written, value))),
            None => {}
        }
        let raw = self.raw.borrow().get(row).copied().unwrap_or(0);
        self.table.get(row).map_or(0, |info| {
            let span = u64::from(info.max) - u64::from(info.min) + 1;
            (u64::from(info.min) + u64::from(raw) % span) as u32
        })
    }
}

impl Life {
    /// Runs the flow with parameters of `table`.
    pub fn live<F: Controller>(mut self, table: &[ParamInfo]) {
        let params = Sysctls {
            table,
            raw: RefCell::new(self.params),
            write: Cell::new(None),
        };
        let mut now_us = self.now_us;
        let mut flow = F::new(&params, now_us, self.cwnd_bytes, self.rtt_us);
        assert!(flow.cwnd_bytes() > 0, "a started flow has a window");

        for event in std::mem::take(&mut self.events) {
            let before_bytes = flow.cwnd_bytes();
            match event {
                Event::Ack {
                    after_us,
                    rtt_us,
                    srtt_us,
                    acked_bytes,
                    marked,
                    delivered_bytes,
                    interval_us,
                    app_limited,
                    in_recovery,
                    in_flight_bytes,
                    mss_bytes,
                } => {
                    now_us = now_us.saturating_add(after_us.into());
                    let acked_bytes = u64::from(acked_bytes);
                    let ack = Ack {
                        now_us,
                        rtt_us,
                        is_rtt_of_host: app_limited,
                        srtt_us,
                        acked_bytes,
                        marked_bytes: acked_bytes * u64::from(marked) / 255,
                        delivered_bytes,
                        interval_us,
                        app_limited,
                        cwnd_limited: !app_limited || in_flight_bytes >= before_bytes,
                        in_recovery,
                        prior_in_flight: in_flight_bytes as u32,
                        mss_bytes: mss_bytes.into(),
                    };
                    let output = flow.on_ack(&params, &ack).expect("the flow was started");
                    let floor_bytes = 2 * u64::from(mss_bytes.max(1));
                    assert!(output.cwnd_bytes > 0 && output.pacing_bytes_per_s > 0);
                    // A parameter that changes between the two calls also changes the window.
                    if params.write.get().is_none() {
                        let whole = flow.output(&params, srtt_us).cwnd_bytes;
                        assert!(whole >= floor_bytes, "the floor is two packets");
                        assert_eq!(output.cwnd_bytes, whole);
                    }
                }
                Event::Loss {
                    after_us,
                    mss_bytes,
                } => {
                    now_us = now_us.saturating_add(after_us.into());
                    let left_bytes = flow.loss_window_bytes(&params, mss_bytes.into());
                    assert!(
                        left_bytes <= before_bytes,
                        "a loss does not raise the window"
                    );
                    flow.on_loss(&params, now_us, mss_bytes.into());
                    let once_bytes = flow.cwnd_bytes();
                    assert!(once_bytes <= before_bytes);
                    flow.on_loss(&params, now_us, mss_bytes.into());
                    assert_eq!(
                        flow.cwnd_bytes(),
                        once_bytes,
                        "at most one reduction per round trip"
                    );
                }
                Event::Timeout {
                    after_us,
                    in_flight_bytes,
                    mss_bytes,
                } => {
                    now_us = now_us.saturating_add(after_us.into());
                    flow.on_loss(&params, now_us, mss_bytes.into());
                    flow.restart(in_flight_bytes, mss_bytes.into());
                    assert!(flow.cwnd_bytes() <= before_bytes);
                }
                Event::Undo { prior_bytes } => {
                    flow.undo(prior_bytes, prior_bytes);
                    assert!(
                        flow.cwnd_bytes() >= before_bytes,
                        "undo does not lower the window"
                    );
                }
                Event::Idle { after_us } => {
                    now_us = now_us.saturating_add(after_us);
                    flow.on_idle_restart(now_us);
                    assert_eq!(flow.cwnd_bytes(), before_bytes);
                }
                Event::Params {
                    row,
                    value,
                    after_reads,
                } => params.write.set(Some((after_reads, row, value))),
            }
            assert!((1..=MAX_CWND_BYTES).contains(&flow.cwnd_bytes()));
            let shown = flow.published();
            assert!(shown.marked_fraction <= FRACTION_ONE);
            assert!(shown.marked_bytes <= shown.acked_bytes);
        }
    }
}
