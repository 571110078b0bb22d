// SPDX-License-Identifier: GPL-2.0
//! `xdc acceltor plan`: AccelToR's parameters for a network, with the reasons and the limits that
//! the network exceeds.

use serde_json::{Value, json};
use xdc_algo::acceltor::MAX_QUEUES;
use xdc_algo::acceltor_plan::{HostPlan, Impossible, MAX_RTO_US, Network, Plan, Timers};
use xdc_base::error::{Error, Result};
use xdc_base::units::{Fraction, Rate, Size, Time};

#[derive(clap::Args)]
pub struct Request {
    /// T: duration of a circuit.
    #[arg(long, value_name = "TIME", default_value = "240us")]
    day: Time,
    /// G: reconfiguration time of the circuit switch.
    #[arg(long, value_name = "TIME", default_value = "20us")]
    night: Time,
    /// N: racks.
    #[arg(long, value_name = "N", default_value = "50")]
    racks: u64,
    /// Rp: round trip by the packet network.
    #[arg(long, value_name = "TIME", default_value = "60us")]
    packet_rtt: Time,
    /// Rc: round trip by the circuit.
    #[arg(long, value_name = "TIME", default_value = "55us")]
    circuit_rtt: Time,
    /// Rate of a rack's port to the packet network.
    #[arg(long, value_name = "RATE", default_value = "50gbit")]
    packet_rate: Rate,
    /// C: rate of a circuit.
    #[arg(long, value_name = "RATE", default_value = "80gbit")]
    circuit_rate: Rate,
    /// Share of packet-network capacity used by mice.
    #[arg(long, value_name = "FRACTION", default_value = "50%")]
    load: Fraction,
    /// Size of a full segment in bytes, as a queue counts it.
    #[arg(long, value_name = "BYTES", default_value = "1500")]
    mss: u64,
    /// B: size of one calendar queue.
    #[arg(long, value_name = "SIZE", default_value = "500kB")]
    queue: Size,
    /// Size of each of the two queues to the packet network.
    #[arg(long, value_name = "SIZE", default_value = "300kB")]
    priority: Size,
    /// F: elephants per pair of racks.
    #[arg(long, value_name = "N", default_value = "80")]
    elephants: u64,
    /// CONFIG_HZ of the senders.
    #[arg(long, value_name = "HZ", default_value = "1000")]
    hz: u64,
    /// Slowdown factor of the network [default: the best up to 100].
    #[arg(long, value_name = "N")]
    scale: Option<u64>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub fn command(request: &Request) -> Result<bool> {
    let network = request.network();
    let plan = Plan::new(&network).map_err(|why| refusal(why, &network))?;
    if !(1..=1_000).contains(&request.scale.unwrap_or(1)) {
        return Err(Error::usage("--scale must be from 1 to 1000"));
    }
    if !(24..=10_000).contains(&request.hz) {
        return Err(Error::usage("--hz must be from 24 to 10000"));
    }
    let timers = Timers { hz: request.hz, scale: request.scale.unwrap_or(1) };
    let as_it_is = HostPlan::new(&network, &plan, timers);
    let best = match request.scale {
        Some(_) => None,
        None => HostPlan::best_scale(&network, &plan, request.hz).filter(|(scale, _)| *scale > 1),
    };
    let mut hosts = vec![(timers.scale, as_it_is)];
    hosts.extend(best.map(|(scale, host)| (scale, Some(host))));
    let problems = problems(&network, &plan, &hosts);
    if request.json {
        println!("{:#}", to_json(&network, &plan, &hosts, &problems));
    } else {
        print!("{}", table(request, &network, &plan, &hosts, &problems));
    }
    Ok(true)
}

impl Request {
    fn network(&self) -> Network {
        Network {
            day_ns: self.day.0,
            night_ns: self.night.0,
            racks: self.racks,
            packet_rtt_ns: self.packet_rtt.0,
            circuit_rtt_ns: self.circuit_rtt.0,
            packet_bytes_per_s: self.packet_rate.0 / 8,
            circuit_bytes_per_s: self.circuit_rate.0 / 8,
            load_ppm: self.load.0.into(),
            mss_bytes: self.mss,
            queue_bytes: self.queue.0,
            priority_bytes: self.priority.0,
            elephants: self.elephants,
        }
    }
}

/// Explains why there is no plan, with the option to change.
fn refusal(why: Impossible, network: &Network) -> Error {
    match why {
        Impossible::Bounds(name) => {
            Error::usage(format!("--{name} is out of range")).hint("xdc acceltor plan --help")
        }
        Impossible::ShortDay => Error::failure(format!(
            "a day of {} has fewer than two round trips of {}, so no flow can grow in it",
            us(network.day_ns),
            us(network.circuit_rtt_ns)
        ))
        .hint("a longer day, or a shorter circuit round trip"),
        Impossible::ShortWeek => Error::failure(format!(
            "a week of {} is too short: the minimum RTO (6) is not above 0",
            us(network.week_ns())
        ))
        .hint("more racks, or a shorter round trip by the packet network"),
    }
}

/// Conditions of the plan that this network violates, a sentence each.
fn problems(network: &Network, plan: &Plan, hosts: &[(u64, Option<HostPlan>)]) -> Vec<String> {
    let mut found = Vec::new();
    let week_slots = network.racks - 1;
    if plan.queues >= week_slots {
        found.push(format!(
            "K is {} and a week has {week_slots} days: no elephant is ever dropped, since each is \
             always on the packet network or in a queue",
            plan.queues
        ));
    }
    if plan.queues > MAX_QUEUES {
        found.push(too_many_queues("", plan.queues));
    }
    if network.night_ns >= network.packet_rtt_ns {
        found.push(
            "the night is not shorter than Rp: elephants of the next day are accelerated at night"
                .into(),
        );
    }
    if plan.spare_bytes_per_s < plan.needed_bytes_per_s {
        found.push(format!(
            "mice leave {} of the packet network, and to fill a day the elephants need {} of it: \
             they do not reach 2^m segments",
            rate(plan.spare_bytes_per_s),
            rate(plan.needed_bytes_per_s)
        ));
    } else if plan.spare_bytes_per_s < plan.accelerated_bytes_per_s {
        found.push(format!(
            "mice leave {} of the packet network, and {} elephants take {} of it: the low-priority \
             queue drops",
            rate(plan.spare_bytes_per_s),
            network.elephants,
            rate(plan.accelerated_bytes_per_s)
        ));
    }
    if network.elephants > plan.most_elephants {
        found.push(format!(
            "{} elephants of 2^m segments overflow a queue of {}: it has room for {}",
            network.elephants,
            Size(network.queue_bytes),
            plan.most_elephants
        ));
    }
    if plan.offered_bytes < network.day_bytes().into() {
        found.push(format!(
            "{} elephants offer {} to a day that carries {}",
            network.elephants,
            size(plan.offered_bytes),
            size(network.day_bytes())
        ));
    }
    if network.queue_bytes > network.circuit_bdp_bytes() {
        found.push(format!(
            "a queue of {} is more than a circuit has in flight, {}: packets wait longer than Rc",
            size(network.queue_bytes),
            size(network.circuit_bdp_bytes())
        ));
    }
    for (scale, host) in hosts {
        let Some(host) = host else {
            found.push(format!(
                "at scale {scale} a jiffy is too long: no Linux timer expires before the next day"
            ));
            continue;
        };
        if host.queues > MAX_QUEUES {
            found.push(too_many_queues(&format!("at scale {scale} "), host.queues));
        }
        if host.rto_min_us > MAX_RTO_US {
            found.push(format!(
                "at scale {scale} tcp_rto_min_us is {}: Linux's longest RTO is {MAX_RTO_US}",
                host.rto_min_us
            ));
        }
        if host.most_elephants < network.elephants {
            found.push(format!(
                "at scale {scale} timers expire up to {} early, so flows grow longer and a \
                 queue has room for {} elephants",
                us((plan.rto_min_ns - network.circuit_rtt_ns)
                    .saturating_sub(host.rto_jiffies * host.jiffy_ns)),
                host.most_elephants
            ));
        }
    }
    found
}

fn too_many_queues(at: &str, queues: u64) -> String {
    format!("{at}K is {queues}, and the qdisc has at most {MAX_QUEUES} queues")
}

fn us(ns: u64) -> String {
    match ns {
        1_000_000.. => format!("{} ms", trimmed(ns as f64 / 1e6)),
        _ => format!("{} us", trimmed(ns as f64 / 1e3)),
    }
}

fn rate(bytes_per_s: u64) -> String {
    format!("{} Gbit/s", trimmed(bytes_per_s as f64 * 8.0 / 1e9))
}

fn size(bytes: impl Into<u128>) -> String {
    format!("{} kB", trimmed(bytes.into() as f64 / 1e3))
}

/// Formats with at most two decimals.
fn trimmed(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn table(
    request: &Request,
    network: &Network,
    plan: &Plan,
    hosts: &[(u64, Option<HostPlan>)],
    problems: &[String],
) -> String {
    let m = plan.accelerated_round_trips;
    let mut rows = vec![
        (
            "n",
            plan.round_trips_per_day.to_string(),
            format!("round trips in a day: floor({} / {})", request.day, request.circuit_rtt),
        ),
        ("m", m.to_string(), "accelerated round trips: 2^(m-1) < n <= 2^m (4)".into()),
        (
            "K",
            plan.queues.to_string(),
            "queues: ceil((m + 1) Rp / S) (1), today's and a safe margin (III-E)".into(),
        ),
        (
            "RTO_min",
            us(plan.rto_min_ns),
            format!("W - T - (m + 1) Rp (6), with a week of {}", us(network.week_ns())),
        ),
        ("Blocking", us(plan.rto_min_blocking_ns), "RTO_min of Blocking: W - T (7)".into()),
        (
            "window",
            format!("{} to {}", plan.window_at_start, plan.window_at_end),
            "segments, from a day's start to its end".into(),
        ),
        (
            "day",
            format!("{} segments", plan.day_segments),
            match plan.day_segments_unaccelerated {
                Some(without) => format!("of a flow; {without} without acceleration (5)"),
                None => "of a flow; (5) has no solution without acceleration".into(),
            },
        ),
        (
            "offered",
            size(plan.offered_bytes),
            format!(
                "by {} elephants, to a day of {}",
                network.elephants,
                size(network.day_bytes())
            ),
        ),
        (
            "elephants",
            plan.most_elephants.to_string(),
            "maximum per pair of racks: F 2^m MSS <= B (III-F)".into(),
        ),
        ("buffer", size(plan.buffer_bytes), "K queues, and two to the packet network".into()),
        (
            "packet",
            rate(plan.accelerated_bytes_per_s),
            format!(
                "for the elephants; {} fill a day, mice leave {}",
                rate(plan.needed_bytes_per_s),
                rate(plan.spare_bytes_per_s)
            ),
        ),
    ];
    for (scale, host) in hosts {
        let (value, why) = match host {
            None => ("none".to_owned(), "a jiffy is too long".to_owned()),
            Some(host) => (
                format!("{} us", host.rto_min_us),
                format!(
                    "tcp_rto_min_us of Linux at HZ {}: {} jiffies of {}, with K {}, {} elephants",
                    request.hz,
                    host.rto_jiffies,
                    us(host.jiffy_ns),
                    host.queues,
                    host.most_elephants
                ),
            ),
        };
        rows.push((if *scale == 1 { "scale 1" } else { "scaled" }, value, why));
        if let (Some(row), true) = (rows.last_mut(), *scale != 1) {
            row.2 = format!("{}; scale {scale}", row.2);
        }
    }
    let width = rows.iter().map(|row| row.1.len()).max().unwrap_or(0);
    let mut text: String = rows
        .iter()
        .map(|(name, value, why)| format!("{name:9}  {value:>width$}  {why}\n"))
        .collect();
    if !problems.is_empty() {
        text += "\nProblems:\n";
        text.extend(problems.iter().map(|it| format!("- {it}\n")));
    }
    text
}

/// Converts to a JSON number, rounded beyond 64 bits.
fn number(value: u128) -> Value {
    u64::try_from(value).map_or_else(|_| json!(value as f64), |value| json!(value))
}

fn to_json(
    network: &Network,
    plan: &Plan,
    hosts: &[(u64, Option<HostPlan>)],
    problems: &[String],
) -> Value {
    let hosts: Vec<_> = hosts
        .iter()
        .map(|(scale, host)| match host {
            None => json!({ "scale": scale }),
            Some(host) => json!({
                "scale": scale,
                "jiffy_ns": host.jiffy_ns,
                "rto_jiffies": host.rto_jiffies,
                "granularity_jiffies": host.granularity_jiffies,
                "rto_min_us": host.rto_min_us,
                "k": host.queues,
                "most_elephants": host.most_elephants,
            }),
        })
        .collect();
    json!({
        "n": plan.round_trips_per_day,
        "m": plan.accelerated_round_trips,
        "k": plan.queues,
        "week_ns": network.week_ns(),
        "rto_min_ns": plan.rto_min_ns,
        "rto_min_blocking_ns": plan.rto_min_blocking_ns,
        "window_at_start": plan.window_at_start,
        "window_at_end": plan.window_at_end,
        "day_segments": plan.day_segments,
        "day_segments_unaccelerated": plan.day_segments_unaccelerated,
        "day_bytes": network.day_bytes(),
        "offered_bytes": number(plan.offered_bytes),
        "most_elephants": plan.most_elephants,
        "buffer_bytes": plan.buffer_bytes,
        "accelerated_bytes_per_s": plan.accelerated_bytes_per_s,
        "needed_bytes_per_s": plan.needed_bytes_per_s,
        "spare_bytes_per_s": plan.spare_bytes_per_s,
        "linux": hosts,
        "problems": problems,
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        request: Request,
    }

    fn request(words: &str) -> Request {
        Line::parse_from(["plan"].into_iter().chain(words.split_whitespace())).request
    }

    fn planned(words: &str) -> (String, Value) {
        let request = request(words);
        let network = request.network();
        let plan = Plan::new(&network).unwrap();
        let timers = Timers { hz: 1_000, scale: 5 };
        let hosts = vec![(5, HostPlan::new(&network, &plan, timers))];
        let problems = problems(&network, &plan, &hosts);
        (
            table(&request, &network, &plan, &hosts, &problems),
            to_json(&network, &plan, &hosts, &problems),
        )
    }

    #[test]
    fn the_default_network_is_the_papers() {
        let network = request("").network();
        assert_eq!(format!("{network:?}"), format!("{:?}", Network::PAPER));
        let (text, json) = planned("");
        assert_eq!((&json["m"], &json["k"]), (&json!(2), &json!(3)));
        assert_eq!(json["rto_min_ns"], 12_320_000);
        assert_eq!(json["linux"][0]["rto_min_us"], 59_000);
        assert!(text.contains("12.32 ms"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 120), "{text}");
    }

    #[test]
    fn problems_of_a_network_are_listed() {
        let says = |words: &str, what: &str| {
            let (text, json) = planned(words);
            assert!(text.contains(what), "{words}:\n{text}");
            assert!(json["problems"].to_string().contains(what));
        };
        assert!(
            planned("--elephants 37 --packet-rate 50gbit").1["problems"]
                .to_string()
                .contains("offer")
        );
        says("--packet-rate 10gbit", "do not reach 2^m segments");
        says("--packet-rate 21gbit", "low-priority queue drops");
        says("--racks 4", "no elephant is ever dropped");
        says("--queue 300kB", "overflow a queue of 300kB");
        says("--queue 600kB", "packets wait longer than Rc");
        says("--night 60us", "night is not shorter than Rp");
        says("--elephants 60", "offer 1980 kB to a day that carries 2400 kB");
        says("", "has room for 37 elephants");
        // (2 + 1) x 2 ms are 91 slots of 66 us.
        let slow = "--packet-rtt 2ms --night 10us --day 56us --circuit-rtt 14us --racks 1024";
        says(slow, "K is 93, and the qdisc has at most 64 queues");
        says(slow, "at scale 5 K is ");
        says("--racks 1024 --day 1s", "at scale 5 tcp_rto_min_us is ");
        let largest = "--racks 3 --day 1s --night 0us --packet-rtt 1us --circuit-rtt 1us \
                       --elephants 4096 --mss 65535";
        let (text, json) = planned(largest);
        assert!(text.contains("415686227527680000 kB"), "{text}");
        assert_eq!(json["offered_bytes"], 415_686_227_527_680_000_000.0);
    }

    #[test]
    fn a_network_without_a_plan_is_refused() {
        let refused = |words: &str| {
            let network = request(words).network();
            refusal(Plan::new(&network).unwrap_err(), &network).lines().join(" ")
        };
        assert!(refused("--day 100us").contains("fewer than two round trips"));
        assert!(refused("--racks 2").contains("a week of 260 us"));
        assert!(refused("--racks 1").contains("--racks is out of range"));
    }
}
