// SPDX-License-Identifier: GPL-2.0

use super::*;

#[test]
fn a_token_names_its_source() {
    for source in [
        Source::Timer,
        Source::Listener(0),
        Source::Sender(7),
        Source::Receiver(123),
        Source::Program(4),
    ] {
        assert_eq!(Source::of(source.token()), source);
    }
}

#[test]
fn a_stalled_run_is_aborted() {
    let mut sample = Sample {
        t_us: STALL_US,
        flows: Vec::new(),
        active_flows: 1,
        received_bytes: 5,
        queues: Vec::new(),
    };
    assert_eq!(check_progress(&sample, (4, 0)).unwrap(), (5, STALL_US));
    assert!(check_progress(&sample, (5, 0)).is_err());
    sample.active_flows = 0;
    assert!(check_progress(&sample, (5, 0)).is_ok());
}
