// SPDX-License-Identifier: GPL-2.0

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::*;
use crate::live::observe::flows::tests::{GEMINI, UNOCC, flow};
use crate::live::observe::queues::tests::state;

fn app() -> App {
    App {
        place: "netns all".to_owned(),
        interval: Duration::from_secs(1),
        sample: Sample::default(),
        sort: Sort::Rate,
        paused: false,
        scroll: 0,
    }
}

fn flow_to(port: u16, cc: &str, algorithm: Option<u8>) -> Flow {
    let mut flow = flow(cc, algorithm);
    (flow.dport, flow.cookie) = (port, port.into());
    flow
}

/// Two samples a second apart: unocc acknowledged 1 MB, a quarter of it marked; gemini 2 MB;
/// cubic nothing.
fn sample() -> Sample {
    let mut sampler = Sampler::default();
    let first =
        [flow_to(1, "unocc", UNOCC), flow_to(2, "gemini", GEMINI), flow_to(3, "cubic", None)];
    let mut second = first.clone();
    let second_later = Duration::from_secs(1);
    let begun = sampler.rates_of(first.to_vec(), Duration::ZERO);
    assert!(begun.iter().all(|live| live.mbit_per_s.is_none()));
    for (flow, bytes, marked) in [(0, 1_000_000, 100), (1, 2_000_000, 0)] {
        let tcp = second[flow].tcp.as_mut().unwrap();
        tcp.bytes_acked += bytes;
        tcp.delivered_packets = tcp.delivered_packets.wrapping_add(400);
        tcp.delivered_ce_packets += marked;
    }
    second[2].tcp.as_mut().unwrap().cwnd_packets = 999;
    let queue = Queue::new(Some("r"), "eth1", &state(600), Some(&state(300)), second_later);
    Sample { flows: sampler.rates_of(second.to_vec(), second_later), queues: vec![queue] }
}

fn lines(app: &App, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| app.draw(frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let cells: Vec<_> = buffer.content().iter().map(|cell| cell.symbol()).collect();
    let rows = cells.chunks(width.into());
    rows.map(|row| row.concat().trim_end().to_owned()).collect()
}

fn press(app: &mut App, key: char) -> bool {
    app.key(KeyEvent::from(KeyCode::Char(key))).unwrap()
}

#[test]
fn flows_and_queues_are_on_the_screen() {
    let mut app = app();
    app.show(sample());
    let lines = lines(&app, 160, 24);
    assert_eq!(lines[0], "xdc top  netns all  3 flows  24.0 Mbit/s  every 1000 ms  by rate");
    assert!(lines[1].starts_with("CC          LOCAL"), "{}", lines[1]);
    assert!(lines[2].starts_with("gemini      10.9.0.1:40000"), "{}", lines[2]);
    assert!(
        lines[3].contains("    8.00     25.0 profile paper*  base RTT 1792 us  intra RTT 14 us"),
        "{}",
        lines[3]
    );
    let text = lines.join("\n");
    assert!(text.contains("r/eth1"), "{text}");
    assert!(text.contains("3.60       300       100         0      3000      7000"), "{text}");
    assert!(lines[23].starts_with("q quit"));
}

#[test]
fn keys_sort_pause_scroll_and_quit() {
    let mut app = app();
    app.show(sample());
    let first = |app: &App| app.sample.flows[0].flow.cc.clone().unwrap();
    for (key, cc) in
        [('r', "gemini"), ('m', "unocc"), ('w', "cubic"), ('a', "unocc"), ('c', "cubic")]
    {
        assert!(!press(&mut app, key));
        assert_eq!(first(&app), cc, "{key}");
    }
    press(&mut app, 'p');
    assert!(app.paused && lines(&app, 100, 10)[0].ends_with("PAUSED"));
    for _ in 0..9 {
        app.key(KeyEvent::from(KeyCode::Down)).unwrap();
    }
    assert_eq!(app.scroll, 2);
    assert!(lines(&app, 100, 10)[2].starts_with("unocc"));
    assert!(press(&mut app, 'q'));
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert!(app.key(control_c).unwrap_err().is_interrupted());
}

#[test]
fn phantom_queues_precede_the_busiest_queues() {
    let second = Duration::from_secs(1);
    let queue = |dev: &str, kind: &str, sent: u64| {
        let (mut now, mut before) = (state(sent), state(0));
        (now.kind, before.kind) = (kind.to_owned(), kind.to_owned());
        Queue::new(None, dev, &now, Some(&before), second)
    };
    let mut app = app();
    app.show(Sample {
        queues: vec![
            queue("a", "netem", 900),
            queue("b", "phantom", 300),
            queue("c", "netem", 9),
            queue("d", "phantom", 600),
        ],
        ..Sample::default()
    });
    let devices: Vec<_> = app.sample.queues.iter().map(|q| q.dev.as_str()).collect();
    assert_eq!(devices, ["d", "b", "a", "c"]);
    assert!(lines(&app, 100, 10)[0].contains("  0.00 Mbit/s"));
}

#[test]
fn the_smallest_screen_is_drawn() {
    let mut app = app();
    app.show(sample());
    for (width, height) in [(1, 1), (20, 2), (300, 5)] {
        lines(&app, width, height);
    }
}

/// The child of tests/terminal.rs: takes the terminal and panics.
#[test]
#[ignore = "run by tests/terminal.rs, under a pseudoterminal"]
fn panics_on_the_screen() {
    let mut screen = Screen::open().unwrap();
    screen.draw(|_| panic!("on purpose")).unwrap();
}
