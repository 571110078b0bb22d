// SPDX-License-Identifier: GPL-2.0
//! The command line: its words, its help, its examples.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::engine::Kind;
use crate::home::Flavour;
use crate::trace::{self, EVENTS};
use crate::{observe, qdisc, sweep, tether};

/// Compare TCP congestion controls across emulated datacenters.
#[derive(Parser)]
#[command(
    version,
    arg_required_else_help = true,
    max_term_width = 100,
    after_help = "\
Examples:
  xdc list
  xdc run two-dc-1g
  xdc run uno-incast-mixed --cc unocc,cubic
  xdc check results/two-dc-1g/1
  xdc doctor

Exit codes: 0 fine, 1 failure or an expectation that does not hold, 2 usage, 130 Ctrl-C,
143 SIGTERM."
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Run a scenario, once per congestion control.
    #[command(after_help = "\
Examples:
  xdc run two-dc-1g
  xdc run two-dc-1g --engine uml --cc unocc,gemini --seed 7
  xdc run uno-incast-mixed --set queues.port.limit=500kb
  xdc run uno-incast-mixed --set 'cc.unocc.sysctl.\"net.unocc.profile\"=paper'
  xdc run two-dc-1g --set net.ipv4.tcp_sack=0 --set scale=10
  xdc run two-dc-1g --engine qemu --cc unocc --trace
  sudo xdc run two-dc-1g --engine host --cc cubic,dctcp")]
    Run {
        /// A name that `xdc list` shows, or a TOML file.
        scenario: String,
        /// qemu, or uml: virtual time [default: the scenario's].
        #[arg(long, value_name = "ENGINE", hide_possible_values = true)]
        engine: Option<Kind>,
        /// Congestion controls [default: the scenario's].
        #[arg(long, value_delimiter = ',', value_name = "CC,...")]
        cc: Vec<String>,
        /// Change the scenario: a dotted key, numbers for places in arrays.
        #[arg(long, value_name = "KEY=VALUE")]
        set: Vec<String>,
        /// Seed of everything random in the guest [default: the scenario's].
        #[arg(long)]
        seed: Option<u64>,
        /// QEMU: emulate with a clock that counts instructions, so that this machine's load does
        /// not get into the figures; `off`: KVM or emulation by this machine's clock, which is
        /// sooner done [default: off where KVM works, else on].
        #[arg(
            long,
            value_name = "on|off",
            num_args = 0..=1,
            require_equals = true,
            default_missing_value = "on",
            hide_possible_values = true,
            value_parser = clap::builder::BoolishValueParser::new()
        )]
        icount: Option<bool>,
        /// Record tracepoints of the modules, for the report and trace-CC.jsonl [default: all].
        #[arg(
            long,
            value_name = "EVENT,...",
            num_args = 0..=1,
            require_equals = true,
            value_delimiter = ',',
            default_missing_values = EVENTS,
            hide_possible_values = true,
            value_parser = clap::builder::PossibleValuesParser::new(EVENTS)
        )]
        trace: Vec<String>,
        /// Print summary.json instead of the table.
        #[arg(long)]
        json: bool,
        /// Where results go: DIR/SCENARIO/N.
        #[arg(long, value_name = "DIR", default_value = "results")]
        results: PathBuf,
        /// Guests at a time [default: one per CPU].
        #[arg(long, value_name = "N")]
        jobs: Option<usize>,
        /// Give up on a guest that is silent for so long.
        #[arg(long, value_name = "SECONDS", default_value_t = 120)]
        timeout: u64,
    },
    /// Run a grid: a scenario over parameters, congestion controls and seeds.
    #[command(after_help = "\
Examples:
  xdc sweep uno-incast-mixed --seeds 1-5
  xdc sweep uno-incast-mixed --cc gemini --axis queues.port.min=10%,25%,50%
  xdc sweep grid.toml --plot fct_ms.p99,drops
  xdc sweep grid.toml --backend slurm --jobs 64 --sbatch=--partition=batch

What is finished stays: the same command goes on where it was interrupted, and computes again
what a change of a module, the kernel or the scenario has touched.")]
    Sweep {
        /// A grid's TOML file, or a scenario as for `run`.
        grid: String,
        /// One more dimension: a dotted key as for `run --set`, and its values.
        #[arg(long, value_name = "KEY=V1,V2,...")]
        axis: Vec<String>,
        /// Congestion controls [default: the grid's, else the scenario's].
        #[arg(long, value_delimiter = ',', value_name = "CC,...")]
        cc: Vec<String>,
        /// Seeds [default: the grid's, else the scenario's].
        #[arg(long, value_name = "1-5,9")]
        seeds: Option<String>,
        /// Change the scenario in all cells, as for `run`.
        #[arg(long, value_name = "KEY=VALUE")]
        set: Vec<String>,
        /// qemu, or uml: virtual time [default: the scenario's].
        #[arg(long, value_name = "ENGINE", hide_possible_values = true)]
        engine: Option<Kind>,
        /// Figures of summary.json to tabulate and plot.
        #[arg(long, value_delimiter = ',', value_name = "METRIC,...")]
        plot: Vec<String>,
        /// Where cells, table and plots go [default: results/sweeps/NAME].
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
        /// local, or slurm: a job array; the checkout and --out are on a shared file system.
        #[arg(long, default_value = "local", hide_possible_values = true)]
        backend: sweep::Backend,
        /// A word for sbatch.
        #[arg(long, value_name = "WORD", allow_hyphen_values = true)]
        sbatch: Vec<String>,
        /// Compute one cell only.
        #[arg(long, hide = true)]
        cell: Option<usize>,
        /// Print every cell as JSON instead of the table.
        #[arg(long)]
        json: bool,
        /// Guests at a time [default: one per CPU].
        #[arg(long, value_name = "N")]
        jobs: Option<usize>,
        /// Give up on a guest that is silent for so long.
        #[arg(long, value_name = "SECONDS", default_value_t = 120)]
        timeout: u64,
    },
    /// Run the figures of a paper again; one page with our numbers beside its own.
    #[command(after_help = "\
Examples:
  xdc paper uno --quick
  xdc paper gemini --figure 8,9
  xdc paper uno --figure 8 --seeds 1-5

A claim that does not hold here is a finding, not a failure: it does not change the exit code.
As with sweep, what is finished stays.")]
    Paper {
        /// uno or gemini.
        paper: String,
        /// Which [default: all].
        #[arg(long, value_delimiter = ',', value_name = "ID,...")]
        figure: Vec<String>,
        /// Minutes instead of hours: shorter runs and fewer points.
        #[arg(long)]
        quick: bool,
        /// Seeds [default: each figure's own].
        #[arg(long, value_name = "1-5,9")]
        seeds: Option<String>,
        /// Congestion controls [default: each figure's own].
        #[arg(long, value_delimiter = ',', value_name = "CC,...")]
        cc: Vec<String>,
        /// Where cells and the page go [default: results/papers/PAPER].
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
        /// Print claims and verdicts as JSON.
        #[arg(long)]
        json: bool,
        /// Guests at a time [default: one per CPU].
        #[arg(long, value_name = "N")]
        jobs: Option<usize>,
        /// Give up on a guest that is silent for so long.
        #[arg(long, value_name = "SECONDS", default_value_t = 300)]
        timeout: u64,
    },
    /// Show the scenarios.
    #[command(after_help = "Example:\n  xdc list --json | jq -r '.[].name'")]
    List {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Hold a result against what its scenario expects.
    #[command(after_help = "\
Examples:
  xdc check results/two-dc-1g/1
  xdc check two-dc-1g           the newest one")]
    Check {
        /// A directory that `xdc run` made, or a scenario's name.
        result: PathBuf,
        /// Where the results of a scenario that is only named are.
        #[arg(long, value_name = "DIR", default_value = "results")]
        results: PathBuf,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Lay two results of a scenario side by side, within what it says they may differ.
    #[command(after_help = "\
Examples:
  xdc compare results/two-dc-1g/1 results/two-dc-1g/2
  xdc compare qemu/two-dc-1g uml/two-dc-1g      the newest of each")]
    Compare {
        /// A directory that `xdc run` made.
        a: PathBuf,
        /// Another one.
        b: PathBuf,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// A shell in a guest, with a scenario's network up.
    #[command(after_help = "\
Examples:
  xdc shell
  xdc shell two-dc-1g        then: ip netns exec a1 ss -ti")]
    Shell {
        /// Whose network to build.
        scenario: Option<String>,
        /// qemu, or uml: virtual time.
        #[arg(
            long,
            value_name = "ENGINE",
            default_value = "qemu",
            hide_possible_values = true
        )]
        engine: Kind,
    },
    /// Run the tests in selftests/ in a guest.
    #[command(after_help = "\
Examples:
  xdc selftest
  xdc selftest 40-qdisc --kernel debug
  xdc selftest --engine uml")]
    Selftest {
        /// Which [default: all that are meant for the kernel].
        names: Vec<String>,
        /// qemu, or uml: virtual time.
        #[arg(
            long,
            value_name = "ENGINE",
            default_value = "qemu",
            hide_possible_values = true
        )]
        engine: Kind,
        /// Which kernel [default: the engine's plain one].
        #[arg(long)]
        kernel: Option<Flavour>,
        /// Their long form, hours of it.
        #[arg(long)]
        long: bool,
        /// Give up on a guest that is silent for so long.
        #[arg(long, value_name = "SECONDS", default_value_t = 330)]
        timeout: u64,
    },
    /// Count instructions per ACK and per packet, side by side in one emulated boot.
    #[command(after_help = "\
Examples:
  xdc bench
  xdc bench --boots 2            does it repeat?
  xdc bench --update-docs        writes the tables of docs/performance.md")]
    Bench {
        /// Print the counts instead of the tables.
        #[arg(long)]
        json: bool,
        /// Write the tables of docs/performance.md.
        #[arg(long)]
        update_docs: bool,
        /// Boots to compare; the figures are the first one's.
        #[arg(long, value_name = "N", default_value_t = 1)]
        boots: u32,
        /// Give up on a guest that is silent for so long.
        #[arg(long, value_name = "SECONDS", default_value_t = 120)]
        timeout: u64,
    },
    /// Hold a congestion control against its twin in Rust, packet by packet.
    #[command(after_help = "\
Examples:
  xdc twin
  xdc twin incast loss --seed 7
  xdc twin one-flow --pcap captures")]
    Twin {
        /// Names in scenarios/twin/, or TOML files [default: all of scenarios/twin/].
        scenarios: Vec<String>,
        /// Change the scenarios, as for `run`.
        #[arg(long, value_name = "KEY=VALUE")]
        set: Vec<String>,
        /// Seed of everything random in the guests [default: the scenario's].
        #[arg(long)]
        seed: Option<u64>,
        /// Keep the captures here, for wireshark.
        #[arg(long, value_name = "DIR")]
        pcap: Option<PathBuf>,
        /// As JSON.
        #[arg(long)]
        json: bool,
        /// Guests at a time [default: one per CPU].
        #[arg(long, value_name = "N")]
        jobs: Option<usize>,
        /// Give up on a guest that is silent for so long.
        #[arg(long, value_name = "SECONDS", default_value_t = 120)]
        timeout: u64,
    },
    /// Record the tracepoints of our modules, or plot what was recorded.
    #[command(args_conflicts_with_subcommands = true, after_help = trace::HELP)]
    Trace {
        #[command(subcommand)]
        command: Option<TraceCommand>,
        #[command(flatten)]
        request: trace::Request,
    },
    /// The phantom qdisc on a device: add, change, replace, show, del.
    #[command(
        subcommand,
        after_help = "Example:\n  xdc qdisc add dev eth1 root phantom limit 1mb rate 10gbit mark phantom"
    )]
    Qdisc(QdiscCommand),
    /// A build tree for a kernel whose header packages lack Rust's metadata.
    #[command(after_help = "\
Examples:
  xdc kdir                                 for the running kernel
  xdc kdir --headers /usr/src/linux-headers-7.3.4+deb13-amd64 --source linux-source-7.3
  xdc kdir --root trixie                   with the tools of a distribution in a folder

Builds the kernel's Rust crates from the distribution's source and configuration by the very
tools that built the kernel, compares the outcome with the packages, and says what differs.")]
    Kdir {
        /// The unpacked header package [default: /lib/modules/RELEASE/build].
        #[arg(long, value_name = "DIR")]
        headers: Option<PathBuf>,
        /// The distribution's source of that kernel [default: the cache's of that version].
        #[arg(long, value_name = "DIR")]
        source: Option<PathBuf>,
        /// A folder with the distribution's compilers [default: this machine's].
        #[arg(long, value_name = "DIR")]
        root: Option<PathBuf>,
        /// The kernel's own modules, which say what it demands of one [default:
        /// /lib/modules/RELEASE].
        #[arg(long, value_name = "DIR")]
        modules: Option<PathBuf>,
        /// Where to build [default: the cache].
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
        /// As JSON.
        #[arg(long)]
        json: bool,
        /// Jobs of make at a time [default: one per CPU].
        #[arg(long, value_name = "N")]
        jobs: Option<usize>,
    },
    /// TCP sockets with the whole state of unocc and gemini, live.
    #[command(after_help = observe::ss::EXAMPLES)]
    Ss(observe::ss::Args),
    /// One phantom queue, live: rates, marks, drops, backlog.
    #[command(override_usage = "xdc watch dev DEV [handle N:] ...", after_help = observe::watch::EXAMPLES)]
    Watch(observe::watch::Args),
    /// Flows and queues on a screen.
    #[command(after_help = observe::top::EXAMPLES)]
    Top(observe::top::Args),
    /// What this host lacks, and the command that mends it.
    #[command(after_help = "\
Examples:
  xdc doctor
  xdc doctor --kdir /lib/modules/7.3.4/build     can modules be built for it and loaded?")]
    Doctor {
        /// A kernel's build tree that modules are wanted for: what it lacks is a failure then.
        #[arg(long, value_name = "DIR")]
        kdir: Option<PathBuf>,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Print what makes a shell complete xdc's words.
    #[command(after_help = "\
Examples:
  xdc completions bash > /etc/bash_completion.d/xdc
  xdc completions zsh > /usr/local/share/zsh/site-functions/_xdc")]
    Completions { shell: clap_complete::Shell },
    /// Write the man pages, xdc.1 and one for each command.
    #[command(after_help = "Example:\n  xdc man /usr/local/share/man/man1")]
    Man {
        /// Where to.
        dir: PathBuf,
    },
    /// How we start guests: [`tether`].
    #[command(name = tether::SUBCOMMAND, hide = true)]
    Tethered {
        parent: i32,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
}

#[derive(Subcommand)]
pub enum TraceCommand {
    /// Draw what was recorded: windows, marks, RTTs, queues.
    #[command(after_help = "Example:\n  xdc trace plot trace.jsonl -o trace.svg")]
    Plot {
        /// What `xdc trace -o` has written.
        file: PathBuf,
        /// The picture.
        #[arg(short, long, value_name = "FILE.svg")]
        output: PathBuf,
    },
}

#[derive(Subcommand)]
pub enum QdiscCommand {
    /// Attach one where there is none.
    #[command(override_usage = "xdc qdisc add dev DEV root phantom ...", after_help = qdisc::HELP.as_str())]
    Add(Words),
    /// Alter some options of one that is there; no packet is lost.
    #[command(override_usage = "xdc qdisc change dev DEV root phantom ...", after_help = qdisc::HELP.as_str())]
    Change(Words),
    /// Attach one, whatever is there.
    #[command(override_usage = "xdc qdisc replace dev DEV root phantom ...", after_help = qdisc::HELP.as_str())]
    Replace(Words),
    /// Remove the one of a device.
    #[command(after_help = "Example:\n  xdc qdisc del dev eth1 root")]
    Del(Words),
    /// Print every effective value, in words that can be typed back.
    #[command(after_help = "Examples:\n  xdc qdisc show\n  xdc qdisc show -s dev eth1")]
    Show {
        /// Statistics too.
        #[arg(short, long)]
        statistics: bool,
        /// As JSON, statistics included.
        #[arg(long)]
        json: bool,
        /// `dev DEV` [default: all devices].
        words: Vec<String>,
    },
}

#[derive(clap::Args)]
pub struct Words {
    /// In tc's syntax.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    pub words: Vec<String>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// Lines of a screen that an engineer has open, and columns that --help is made for.
    const SCREEN: (usize, usize) = (50, 100);

    /// The words of each command that people are shown.
    fn paths(command: &clap::Command, so_far: &[String], found: &mut Vec<Vec<String>>) {
        let mut path = so_far.to_vec();
        path.push(command.get_name().to_owned());
        found.push(path.clone());
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            paths(sub, &path, found);
        }
    }

    #[test]
    fn help_fits_a_screen_and_has_an_example() {
        let mut found = Vec::new();
        paths(&Cli::command(), &[], &mut found);
        for mut words in found {
            words.push("--help".to_owned());
            let help = Cli::command()
                .term_width(SCREEN.1)
                .try_get_matches_from(&words)
                .unwrap_err()
                .to_string();
            let widest = help.lines().map(|line| line.chars().count()).max();
            assert!(help.lines().count() <= SCREEN.0, "{words:?}:\n{help}");
            assert!(widest <= Some(SCREEN.1), "{words:?}:\n{help}");
            assert!(help.contains("Example"), "{words:?}:\n{help}");
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
