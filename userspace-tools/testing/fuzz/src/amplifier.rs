// SPDX-License-Identifier: GPL-2.0
//! Short scenarios that describe large networks, and tables that multiply with them.

use std::fmt::Write as _;

use arbitrary::Arbitrary;

/// Scenarios up to this size are planned or refused within bounds.
pub const MAX_BYTES: usize = 100_000;

#[derive(Arbitrary, Debug)]
pub struct Amplifier {
    network: Network,
    scale: u8,
    /// Equal-cost paths over all parallel links.
    ecmp: bool,
    ccs: [u8; 2],
    parts: Vec<(u16, Part)>,
}

#[derive(Arbitrary, Debug)]
enum Network {
    /// Hosts at one switch.
    Star(u16),
    /// One host at each switch; the switches form a line.
    Chain(u16),
    /// One host at each switch; the switches share another one.
    Tree(u16),
    Fabric {
        kind: u8,
        numbers: [u32; 4],
    },
}

/// Node names `h[FIRST-LAST]`, or `a[FIRST-LAST]` in a fabric.
#[derive(Arbitrary, Debug)]
struct Range(u16, u16);

/// Text of this length in bytes.
#[derive(Arbitrary, Debug)]
struct Text(u16);

#[derive(Arbitrary, Debug)]
enum Part {
    Flows {
        src: Range,
        dst: Range,
        count: u8,
        switches: u8,
    },
    Traffic {
        kind: u8,
        hosts: Range,
        to: Range,
        numbers: [u32; 3],
    },
    Event {
        links: Vec<Range>,
        times: u8,
        changes: u8,
    },
    Host {
        hosts: Range,
        setup: Vec<Text>,
        sysctl: Text,
        modules: u8,
        keys: u8,
    },
    Watch(Range),
    Run {
        on: Range,
        command: Text,
        output: bool,
    },
    Link {
        a: Range,
        queue: u8,
    },
    Queue {
        tc: Text,
        bdp: bool,
    },
    OfCc {
        tc: Text,
    },
    Tunnel(Text),
    Expect {
        group: Text,
    },
    Raw(String),
}

impl Amplifier {
    pub fn text(&self) -> String {
        let mut text = String::from("duration = \"20ms\"\n");
        let ccs = ["cubic", "unocc", "bbr-dctcp", "c0", "dctcp"];
        let ccs = self.ccs.map(|n| ccs[usize::from(n) % ccs.len()]);
        let _ = writeln!(text, "ccs = {ccs:?}\nscale = {}", self.scale % 10 + 1);
        self.network.write(self.ecmp, &mut text);
        for (times, part) in &self.parts {
            for n in 0..=times % 2048 {
                if text.len() > MAX_BYTES {
                    return text;
                }
                part.write(n, &mut text);
            }
        }
        text
    }
}

impl Network {
    fn write(&self, ecmp: bool, text: &mut String) {
        let _ = writeln!(text, "[topology]\necmp = {ecmp}");
        let links = match self {
            Self::Star(hosts) => {
                let _ = writeln!(text, "hosts = [\"h[0-{hosts}]\"]\nrouters = [\"s\"]");
                vec![(format!("h[0-{hosts}]"), "s".to_owned())]
            }
            Self::Chain(routers) => {
                let last = routers % 32_000;
                let _ = writeln!(
                    text,
                    "hosts = [\"h[0-{last}]\"]\nrouters = [\"s[0-{last}]\"]"
                );
                let before = last.saturating_sub(1);
                let row = (format!("s[0-{before}]"), format!("s[1-{last}]"));
                vec![(format!("h[0-{last}]"), format!("s[0-{last}]")), row]
            }
            Self::Tree(routers) => {
                let last = routers % 32_000;
                let _ = writeln!(
                    text,
                    "hosts = [\"h[0-{last}]\"]\nrouters = [\"s[0-{last}]\", \"r\"]"
                );
                let up = (format!("s[0-{last}]"), "r".to_owned());
                vec![(format!("h[0-{last}]"), format!("s[0-{last}]")), up]
            }
            Self::Fabric { kind, numbers } => {
                let [a, b, c, d] = numbers.map(|n| n % 100_000);
                let (two, links) = (a % 2 + 1, d % 64 + 1);
                let shape = match kind % 4 {
                    0 => format!("kind = \"fat-tree\"\nk = {}\ndatacenters = {two}", b % 64),
                    1 => format!("kind = \"leaf-spine\"\nleaves = {a}\nhosts = {b}\nspines = {c}"),
                    2 => format!("kind = \"dumbbell\"\nhosts = {a}"),
                    _ => format!(
                        "kind = \"rotor\"\nracks = {}\nhosts = {b}\n\
                         ocs = {{ rate = \"80gbit\", day = \"240us\", night = \"20us\" }}",
                        a % 200
                    ),
                };
                let wan = if two == 2 {
                    format!("wan = {{ links = {links} }}")
                } else {
                    String::new()
                };
                let _ = writeln!(text, "[topology.fabric]\n{shape}\nrate = \"1gbit\"\n{wan}");
                Vec::new()
            }
        };
        for (a, b) in links {
            let _ = writeln!(
                text,
                "[[topology.links]]\na = \"{a}\"\nb = \"{b}\"\nrate = \"1gbit\"\nqueue = \"q0\""
            );
        }
        let _ = writeln!(text, "[queues.q0]\nlimit = \"1MB\"");
    }
}

impl Range {
    /// `more` shifts the first number, so that several ranges differ.
    fn of(&self, prefix: &str, more: u16) -> String {
        let first = self.0.saturating_add(more);
        match self.1 {
            0 => format!("{prefix}{first}"),
            last => format!("{prefix}[{first}-{last}]"),
        }
    }

    fn names(&self, more: u16) -> String {
        let prefix = if self.0 % 8 == 7 { "a" } else { "h" };
        self.of(prefix, more)
    }
}

impl Text {
    fn of(&self, word: &str) -> String {
        word.repeat(usize::from(self.0) / word.len())
    }
}

impl Part {
    fn write(&self, n: u16, text: &mut String) {
        let _ = match self {
            Self::Flows {
                src,
                dst,
                count,
                switches,
            } => {
                let switches =
                    "{ at = \"1ms\", cc = \"cubic\" },".repeat(usize::from(switches % 64));
                writeln!(
                    text,
                    "[[flows]]\nsrc = \"{}\"\ndst = \"{}\"\ncount = {count}\nswitch = [{switches}]",
                    src.names(n),
                    dst.names(0)
                )
            }
            Self::Traffic {
                kind,
                hosts,
                to,
                numbers: [a, b, c],
            } => {
                let (flows, per_host, ns) = (a % 100_000, b % 1_000, c % 100_000);
                let (hosts, to) = (hosts.names(0), to.names(0));
                let kind = match kind % 5 {
                    0 => {
                        format!("\"incast\"\nto = \"{to}\"\nflows = {flows}\nper_host = {per_host}")
                    }
                    1 => format!(
                        "\"bursts\"\nto = \"{to}\"\nflows = {}\nperiod = \"{ns}ns\"\n\
                         duration = \"1ms\"",
                        flows % 8
                    ),
                    2 => format!("\"permutation\"\nacross = \"{}%\"", flows % 100),
                    3 => format!(
                        "\"poisson\"\nload = \"{}%\"\nflows = {flows}",
                        per_host % 100
                    ),
                    _ => format!("\"rpc\"\nto = \"{to}\"\nperiod = \"{ns}ns\"\nflows = {flows}"),
                };
                writeln!(
                    text,
                    "[[traffic]]\nhosts = [\"{hosts}\"]\nsizes = \"1kB\"\nkind = {kind}"
                )
            }
            Self::Event {
                links,
                times,
                changes,
            } => {
                let links: Vec<_> = links
                    .iter()
                    .flat_map(|link| vec![link.of("h", 0) + "-s"; usize::from(*times)])
                    .collect();
                let mut change = "down = true\n".to_owned();
                for (bit, key) in ["rate = \"1mbit\"\n", "delay = \"1us\"\n", "loss = 0.1\n"]
                    .iter()
                    .enumerate()
                {
                    change += if changes >> bit & 1 == 1 { key } else { "" };
                }
                writeln!(
                    text,
                    "[[event]]\nat = \"{n}us\"\nlink = {links:?}\n{change}"
                )
            }
            Self::Host {
                hosts,
                setup,
                sysctl,
                modules,
                keys,
            } => {
                let setup: Vec<_> = setup.iter().map(|text| text.of("x")).collect();
                let modules: Vec<_> = (0..*modules).map(|m| format!("m{n}x{m}")).collect();
                let keys: String = (0..*keys)
                    .map(|key| format!("\"net.x.k{key}\" = \"{}\"\n", sysctl.of("1")))
                    .collect();
                writeln!(
                    text,
                    "[host.\"{name}\"]\nsetup = {setup:?}\nmodules = {modules:?}\ninitcwnd = 10\n\
                     [host.\"{name}\".sysctl]\n{keys}",
                    name = hosts.names(n)
                )
            }
            Self::Watch(to) => writeln!(
                text,
                "[[watch]]\nname = \"w{n}\"\nfrom = \"s\"\nto = \"{}\"",
                to.of("h", n)
            ),
            Self::Run {
                on,
                command,
                output,
            } => {
                let output = if *output {
                    format!("output = \"o{n}\"\n")
                } else {
                    String::new()
                };
                let (on, command) = (on.names(n), command.of("x"));
                writeln!(
                    text,
                    "[[run]]\non = \"{on}\"\ncommand = \"{command}\"\n{output}"
                )
            }
            Self::Link { a, queue } => writeln!(
                text,
                "[[topology.links]]\na = \"{}\"\nb = \"s\"\nrate = \"1gbit\"\nqueue = \"q{queue}\"",
                a.of("h", 0)
            ),
            Self::Queue { tc, bdp: false } => writeln!(
                text,
                "[queues.q{}]\ntc = \"pfifo limit 100 {}\"",
                n + 1,
                tc.of("x ")
            ),
            Self::Queue { tc: _, bdp: true } => {
                writeln!(text, "[queues.q{}]\nlimit = \"1bdp\"", n + 1)
            }
            Self::OfCc { tc } => writeln!(
                text,
                "[cc.c{n}]\nkernel = \"cubic\"\n[cc.c{n}.queues.q0]\ntc = \"pfifo limit 100 {}\"",
                tc.of("x ")
            ),
            Self::Tunnel(fec) => writeln!(text, "[tunnel]\nfec = \"{}8+2\"", fec.of("0")),
            Self::Expect { group } => writeln!(
                text,
                "[[expect]]\nmetric = \"groups.{}.goodput_mbps\"\ncc = \"cubic\"\nmin = 1\n\
                 source = \"\"",
                group.of("g")
            ),
            Self::Raw(raw) => writeln!(text, "{raw}"),
        };
    }
}
