// SPDX-License-Identifier: GPL-2.0
//! `xdc top`: flows and queues on a full screen.

use std::cmp::{Ordering, Reverse};
use std::collections::HashMap;
use std::time::{Duration, Instant};

use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Row, Table};
use signal_hook::consts::SIGINT;
use xdc_base::error::{Error, Result};
use xdc_base::interrupt;
use xdc_netlink::qdisc::QdiscState;

use super::flows::{self, Filter, Flow};
use super::queues::Queue;
use super::screen::Screen;
use super::{Place, View, interval, rate, short};

pub const EXAMPLES: &str = "\
Keys: q quit, p pause, up and down scroll; sort by r rate, w window, t RTT, m marks, c congestion
control, a address.

Examples:
  xdc top
  xdc top --netns all              every host of a scenario in `xdc shell SCENARIO`
  xdc top --cc unocc,gemini --interval 200ms";

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    filter: Filter,
    #[command(flatten)]
    place: Place,
    /// Interval between samples, 1ms or more.
    #[arg(long, value_name = "TIME", value_parser = interval, default_value = "1s")]
    interval: Duration,
}

pub fn command(args: &Args) -> Result<bool> {
    // Report errors before taking the screen.
    let mut views = args.place.views()?;
    let mut sampler = Sampler::default();
    let mut app = App::new(args);
    app.show(sampler.take(&mut views, &args.filter)?);
    let mut screen = Screen::open()?;
    let mut next = Instant::now() + args.interval;
    loop {
        screen.draw(|frame| app.draw(frame))?;
        /// Maximum delay of a reaction to a signal.
        const PATIENCE: Duration = Duration::from_millis(100);
        let left = next.saturating_duration_since(Instant::now());
        let failed = |err| Error::io("the terminal", &err);
        if !Screen::has_input(left.min(PATIENCE))? {
            interrupt::check()?;
        } else {
            while event::poll(Duration::ZERO).map_err(failed)? {
                if let Event::Key(key) = event::read().map_err(failed)?
                    && key.kind != KeyEventKind::Release
                    && app.key(key)?
                {
                    return Ok(true);
                }
                screen.draw(|frame| app.draw(frame))?;
                interrupt::check()?;
            }
        }
        if Instant::now() >= next {
            next = Instant::now() + args.interval;
            if !app.paused {
                app.show(sampler.take(&mut views, &args.filter)?);
            }
        }
    }
}

/// A flow with its rates since the previous sample.
#[derive(Debug, Clone)]
struct LiveFlow {
    flow: Flow,
    /// Acknowledged rate, Mbit/s; None in the first sample.
    mbit_per_s: Option<f64>,
    /// Marked share of packets delivered between samples, %.
    marked_percent: Option<f64>,
}

#[derive(Debug, Default)]
struct Sample {
    flows: Vec<LiveFlow>,
    queues: Vec<Queue>,
}

/// Namespace and socket cookie.
type FlowKey = (Option<String>, u64);
/// Index of the namespace, device, handle.
type QueueKey = (usize, u32, u16);

/// Converts counters to rates.
#[derive(Default)]
struct Sampler {
    flows: HashMap<FlowKey, Flow>,
    queues: HashMap<QueueKey, QdiscState>,
    at: Option<Instant>,
}

impl Sampler {
    fn take(&mut self, views: &mut [View], filter: &Filter) -> Result<Sample> {
        let now = Instant::now();
        let elapsed = now.duration_since(self.at.replace(now).unwrap_or(now));
        let mut flows = Vec::new();
        let mut queues = Vec::new();
        let mut states = HashMap::new();
        for (place, view) in views.iter_mut().enumerate() {
            flows.extend(flows::sample(view, filter)?);
            for state in view.qdiscs(0)? {
                // noqueue has no state to show.
                if state.kind == "noqueue" {
                    continue;
                }
                let Some(dev) = view.device_name(state.index) else {
                    continue;
                };
                let key = (place, state.index, state.handle.major);
                let before = self.queues.get(&key);
                queues.push(Queue::new(view.name.as_deref(), &dev, &state, before, elapsed));
                states.insert(key, state);
            }
        }
        self.queues = states;
        Ok(Sample { flows: self.rates_of(flows, elapsed), queues })
    }

    fn rates_of(&mut self, flows: Vec<Flow>, elapsed: Duration) -> Vec<LiveFlow> {
        let key = |flow: &Flow| (flow.netns.clone(), flow.cookie);
        let live = flows
            .iter()
            .map(|flow| live(flow.clone(), self.flows.get(&key(flow)), elapsed))
            .collect();
        self.flows = flows.into_iter().map(|flow| (key(&flow), flow)).collect();
        live
    }
}

fn live(flow: Flow, before: Option<&Flow>, elapsed: Duration) -> LiveFlow {
    let pair = flow.tcp.as_ref().zip(before.and_then(|flow| flow.tcp.as_ref()));
    let bytes = pair.and_then(|(now, before)| rate(now.bytes_acked, before.bytes_acked, elapsed));
    let marked_percent = pair.and_then(|(now, before)| {
        // 32-bit counters wrap.
        let grew = |now: u32, before: u32| f64::from(now.wrapping_sub(before));
        let all = grew(now.delivered_packets, before.delivered_packets);
        let marked = grew(now.delivered_ce_packets, before.delivered_ce_packets);
        (all > 0.0).then(|| 100.0 * marked / all)
    });
    LiveFlow { mbit_per_s: bytes.map(|bytes| bytes * 8e-6), marked_percent, flow }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    Rate,
    Window,
    Rtt,
    Marks,
    Cc,
    Address,
}

impl Sort {
    fn of_key(key: char) -> Option<Self> {
        Some(match key {
            'r' => Self::Rate,
            'w' => Self::Window,
            't' => Self::Rtt,
            'm' => Self::Marks,
            'c' => Self::Cc,
            'a' => Self::Address,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Window => "window",
            Self::Rtt => "RTT",
            Self::Marks => "marks",
            Self::Cc => "congestion control",
            Self::Address => "address",
        }
    }

    /// Sorts numbers in descending and names in ascending order; ties by address, to keep rows in
    /// place.
    fn compare(self, a: &LiveFlow, b: &LiveFlow) -> Ordering {
        let address = |live: &LiveFlow| {
            let flow = &live.flow;
            (flow.netns.clone(), flow.dst, flow.dport, flow.src, flow.sport)
        };
        let packets = |live: &LiveFlow| live.flow.tcp.as_ref().map(|tcp| tcp.cwnd_packets);
        let srtt = |live: &LiveFlow| live.flow.tcp.as_ref().map(|tcp| tcp.srtt_us);
        let largest =
            |a: Option<f64>, b: Option<f64>| b.unwrap_or(-1.0).total_cmp(&a.unwrap_or(-1.0));
        let first = match self {
            Self::Rate => largest(a.mbit_per_s, b.mbit_per_s),
            Self::Marks => largest(a.marked_percent, b.marked_percent),
            Self::Window => Reverse(packets(a)).cmp(&Reverse(packets(b))),
            Self::Rtt => Reverse(srtt(a)).cmp(&Reverse(srtt(b))),
            Self::Cc => a.flow.cc.cmp(&b.flow.cc),
            Self::Address => Ordering::Equal,
        };
        first.then_with(|| address(a).cmp(&address(b)))
    }
}

/// State of the screen.
struct App {
    place: String,
    interval: Duration,
    sample: Sample,
    sort: Sort,
    paused: bool,
    /// Number of flows scrolled off the top.
    scroll: usize,
}

impl App {
    fn new(args: &Args) -> Self {
        let place = match &args.place.netns[..] {
            [] => "this network namespace".to_owned(),
            names => format!("netns {}", names.join(", ")),
        };
        Self {
            place,
            interval: args.interval,
            sample: Sample::default(),
            sort: Sort::Rate,
            paused: false,
            scroll: 0,
        }
    }

    fn show(&mut self, sample: Sample) {
        self.sample = sample;
        // Phantom queues first; within a kind, the busiest first.
        self.sample.queues.sort_by(|a, b| {
            let is_other = |queue: &Queue| queue.phantom_bytes.is_none();
            let rate = |queue: &Queue| queue.bits_per_s.unwrap_or(-1.0);
            is_other(a).cmp(&is_other(b)).then_with(|| rate(b).total_cmp(&rate(a)))
        });
        self.arrange();
    }

    fn arrange(&mut self) {
        let sort = self.sort;
        self.sample.flows.sort_by(|a, b| sort.compare(a, b));
        self.scroll = self.scroll.min(self.sample.flows.len().saturating_sub(1));
    }

    /// Handles a key; returns whether to quit.
    fn key(&mut self, key: KeyEvent) -> Result<bool> {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            // In raw mode Ctrl-C raises no signal.
            KeyCode::Char('c') if control => return Err(Error::interrupted(SIGINT as u8)),
            KeyCode::Char('q') | KeyCode::Esc => return Ok(true),
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Up | KeyCode::Char('k') => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.scroll += 1,
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(10),
            KeyCode::PageDown => self.scroll += 10,
            KeyCode::Home => self.scroll = 0,
            KeyCode::Char(letter) => self.sort = Sort::of_key(letter).unwrap_or(self.sort),
            _ => {}
        }
        self.arrange();
        Ok(false)
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        let queues = self.sample.queues.len() as u16;
        let height = frame.area().height;
        // Height of the queue list: as needed, up to a third.
        let for_queues = (queues + 1).min(height / 3);
        let [title, flows, queues, keys] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Min(1),
            Constraint::Length(for_queues),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        frame.render_widget(self.title(), title);
        frame.render_widget(self.flow_table(), flows);
        frame.render_widget(self.queue_table(), queues);
        let help = "q quit  p pause  sort: r rate w window t RTT m marks c cc a address  up down";
        frame.render_widget(Line::from(help), keys);
    }

    fn title(&self) -> Line<'_> {
        let sum = self
            .sample
            .flows
            .iter()
            .filter_map(|live| live.mbit_per_s)
            // The sum of an empty list is -0.0.
            .fold(0.0, |sum, rate| sum + rate);
        let paused = if self.paused { "  PAUSED" } else { "" };
        Line::from(format!(
            "xdc top  {}  {} flows  {} Mbit/s  every {} ms  by {}{paused}",
            self.place,
            self.sample.flows.len(),
            short(sum),
            self.interval.as_millis(),
            self.sort.name(),
        ))
        .style(Style::new().add_modifier(Modifier::BOLD))
    }

    fn flow_table(&self) -> Table<'_> {
        let rows = self.sample.flows.iter().skip(self.scroll).map(|live| {
            let flow = &live.flow;
            let tcp = flow.tcp.as_ref();
            let number = |value: Option<u32>| value.map_or("-".to_owned(), |n| n.to_string());
            Row::new([
                flow.cc.clone().unwrap_or_else(|| "-".to_owned()),
                flow.local(),
                flow.peer(),
                right(number(tcp.map(|tcp| tcp.cwnd_packets)), 8),
                right(number(tcp.map(|tcp| tcp.srtt_us)), 8),
                right(optional(live.mbit_per_s), 8),
                right(optional(live.marked_percent), 8),
                flow.words().join("  "),
            ])
        });
        let widths = [
            Constraint::Length(11),
            Constraint::Max(21),
            Constraint::Max(21),
            Constraint::Length(8),
            Constraint::Length(8),
            Constraint::Length(8),
            Constraint::Length(8),
            Constraint::Fill(1),
        ];
        Table::new(rows, widths).header(head([
            "CC".to_owned(),
            "LOCAL".to_owned(),
            "PEER".to_owned(),
            right("CWND_PKT", 8),
            right("SRTT_US", 8),
            right("MBIT/S", 8),
            right("MARKED_%", 8),
            "STATE".to_owned(),
        ]))
    }

    fn queue_table(&self) -> Table<'_> {
        let rows = self.sample.queues.iter().map(|queue| {
            let count = |value: Option<f64>| value.map_or("-".to_owned(), |n| format!("{n:.0}"));
            let phantom = queue.phantom_bytes;
            Row::new([
                match &queue.netns {
                    Some(netns) => format!("{netns}/{}", queue.dev),
                    None => queue.dev.clone(),
                },
                format!("{} {}", queue.kind, queue.handle),
                right(optional(queue.bits_per_s.map(|bits| bits * 1e-6)), 9),
                right(count(queue.packets_per_s), 9),
                right(count(queue.marks_per_s), 9),
                right(count(queue.drops_per_s), 9),
                right(queue.backlog_bytes.to_string(), 9),
                right(phantom.map_or("-".to_owned(), |bytes| bytes.to_string()), 9),
            ])
        });
        let widths = [
            Constraint::Max(20),
            Constraint::Length(14),
            Constraint::Length(9),
            Constraint::Length(9),
            Constraint::Length(9),
            Constraint::Length(9),
            Constraint::Length(9),
            Constraint::Length(9),
        ];
        Table::new(rows, widths).header(head([
            "DEV".to_owned(),
            "QDISC".to_owned(),
            right("MBIT/S", 9),
            right("PACKET/S", 9),
            right("MARK/S", 9),
            right("DROP/S", 9),
            right("BACKLOG_B", 9),
            right("PHANTOM_B", 9),
        ]))
    }
}

fn head<const N: usize>(names: [String; N]) -> Row<'static> {
    Row::new(names).style(Style::new().add_modifier(Modifier::BOLD))
}

fn right(text: impl AsRef<str>, width: usize) -> String {
    format!("{:>width$}", text.as_ref())
}

fn optional(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), short)
}

#[cfg(test)]
mod tests;
