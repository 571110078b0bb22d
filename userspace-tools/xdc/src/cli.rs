// SPDX-License-Identifier: GPL-2.0
//! The command line: arguments, help, examples.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use xdc_study::{bench, hunt, paper, score, selftest, sweep, table, tune};

use crate::command::{acceltor, cc, export, run, shell, show, unorc};
use crate::live::elephants;
use crate::live::observe;
use crate::live::qdisc;
use crate::live::trace;
use crate::setup::kdir;

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
  xdc run uno-incast-mixed --cc toll,cubic
  xdc doctor

Exit codes: 0 fine, 1 failure or an expectation that does not hold, 2 usage, 129 SIGHUP,
130 Ctrl-C, 143 SIGTERM. Under nohup SIGHUP is ignored."
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
  xdc run two-dc-1g --engine uml --cc toll,gemini --seed 7
  xdc run uno-incast-mixed --set queues.port.limit=500kB
  xdc run uno-incast-mixed --set 'cc.unocc.sysctl.\"net.unocc.profile\"=artifact'
  xdc run two-dc-1g --set net.ipv4.tcp_sack=0 --set scale=10
  xdc run two-dc-1g --engine qemu --cc unocc --trace
  sudo xdc run two-dc-1g --engine host --cc cubic,dctcp")]
    Run(run::Request),
    /// Run a grid: a scenario over parameters, congestion controls and seeds.
    #[command(after_help = "\
Examples:
  xdc sweep uno-incast-mixed --seeds 1-5
  xdc sweep uno-incast-mixed --cc gemini --axis queues.port.min=10%,25%,50%
  xdc sweep grid.toml --plot fct_ms.p99,drops
  xdc sweep grid.toml --backend slurm --jobs 64 --sbatch=--partition=batch

Finished cells are kept: the same command continues after an interruption, and reruns
cells that depend on a changed module, kernel or scenario.")]
    Sweep(sweep::Request),
    /// Run the figures of a paper, and write a page with both numbers.
    #[command(after_help = "\
Examples:
  xdc paper uno --quick
  xdc paper gemini --figure 8,9
  xdc paper uno --figure 8 --seeds 1-5
  xdc paper uno --quick --check

A claim that does not hold here is a finding, not a failure: it does not change the exit code.
As with sweep, finished cells are kept.")]
    Paper(paper::Request),
    /// Score a congestion control against references.
    #[command(after_help = "\
Examples:
  xdc score unocc --quick
  xdc score cubic --rows S1,S4 --json
  xdc score westwood --define mine.toml --quick      its [cc.westwood] tables
  xdc score gemini --quick --against old.json        fails if a cell is clearly worse
  xdc score --references --quick --update            updates the repository's references

docs/method.md explains the scores. Finished runs stay in the cache.")]
    Score(score::Request),
    /// Tune a congestion control within a budget, and test the result on other rows.
    #[command(after_help = "\
Examples:
  xdc tune gemini --on S1,S4 --budget 200
  xdc tune dctcp --on S1,S4 --budget 200      the same budget for another algorithm

The winner on set A is compared with the default on set B, which has other rows, seeds, RTTs and
rates: docs/run-experiments.md.")]
    Tune(tune::Request),
    /// Search networks in which a congestion control fails and a reference does well.
    #[command(after_help = "\
Examples:
  xdc hunt bbr --budget 10m
  xdc hunt dctcp --goal rtt-unfair --space datacenter --against cubic --budget 300
  xdc hunt cubic --goal high:timeouts --against bbr

Writes the three worst networks as scenarios with pictures, which `xdc run FILE` repeats:
docs/hunt.md. As with sweep, finished runs are kept: the same command continues.")]
    Hunt(hunt::Request),
    /// Add your own congestion controls, list them, remove them.
    #[command(
        subcommand,
        after_help = "\
Examples:
  xdc cc add tcp_mine.c
  xdc run two-dc-1g --cc mine,cubic"
    )]
    Cc(CcCommand),
    /// Show the scenarios.
    #[command(after_help = "Example:\n  xdc list --json | jq -r '.[].name'")]
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show a scenario: its links, ports and flows, in words or drawn.
    #[command(after_help = "\
Examples:
  xdc show two-dc-1g
  xdc show two-dc-1g --svg topology.svg
  xdc show two-dc-1g --path a1 r --svg path.svg")]
    Show(show::Request),
    /// Write a commented scenario to start from.
    #[command(after_help = "\
Examples:
  xdc new
  xdc new incast.toml && xdc run incast.toml")]
    New {
        /// The file to write; it must not exist.
        #[arg(default_value = "scenario.toml")]
        file: PathBuf,
    },
    /// Print the JSON schema of scenarios, for editors.
    #[command(after_help = "Example:\n  xdc schema >scenario.schema.json")]
    Schema,
    /// Check a result against its scenario's expectations.
    #[command(after_help = "\
Examples:
  xdc check results/two-dc-1g/1
  xdc check two-dc-1g           the newest one")]
    Check {
        /// A directory that `xdc run` made, or a scenario's name.
        result: PathBuf,
        /// Directory of results, for a scenario given by name.
        #[arg(long, value_name = "DIR", default_value = "results")]
        results: PathBuf,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Compare two results, and fail if they differ by more than [[agree]] allows.
    #[command(after_help = "\
Examples:
  xdc compare results/two-dc-1g/1 results/two-dc-1g/2
  xdc compare qemu/two-dc-1g uml/two-dc-1g      the newest of each
  xdc compare main/two-dc-1g branch/two-dc-1g --plot both.svg")]
    Compare {
        /// First result: a directory that `xdc run` made.
        a: PathBuf,
        /// Second result.
        b: PathBuf,
        /// Draw both results in one picture: completion times and queues.
        #[arg(long, value_name = "FILE.svg")]
        plot: Option<PathBuf>,
        /// Accept results of different scenarios.
        #[arg(long)]
        different: bool,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Print a result as a Markdown table, or write it into a page.
    #[command(after_help = "\
Examples:
  xdc table results/uno-incast-mixed/1
  xdc table uno-incast-mixed --metrics fct_ms.p99,drops      the newest one
  xdc table uno-incast-mixed --update README.md")]
    Table(table::Request),
    /// Write a result as files of flent or iperf3.
    #[command(after_help = "\
Examples:
  xdc export two-dc-1g --flent
  xdc export results/two-dc-1g/1 --iperf3 --out /tmp")]
    Export(export::Request),
    /// Open a shell in a guest that has a scenario's network.
    #[command(after_help = "\
Examples:
  xdc shell
  xdc shell two-dc-1g --cc unocc     then: flows; ip netns exec a1 ss -ti")]
    Shell(shell::Request),
    /// Run the tests in selftests/guest/ in a guest.
    #[command(after_help = "\
Examples:
  xdc selftest
  xdc selftest --engine uml
  xdc selftest 40-qdisc --engine uml --kernel uml-debug
  xdc selftest 41-parents --kernel debug")]
    Selftest(selftest::Request),
    /// Count instructions per ACK and per packet, side by side in one emulated boot.
    #[command(after_help = "\
Examples:
  xdc bench
  xdc bench --boots 2            compares two boots
  xdc bench --update-docs        writes the tables of docs/performance.md")]
    Bench(bench::Request),
    /// Plan AccelToR (queues, round trips, timers), or classify elephants.
    #[command(
        subcommand,
        after_help = "\
Examples:
  xdc acceltor plan --racks 8
  sudo xdc acceltor elephants bond0"
    )]
    Acceltor(AcceltorCommand),
    /// Configure the peers of a tunnel of kind unorc: add, set, del, show.
    #[command(
        subcommand,
        after_help = "\
Examples:
  (umask 077; xdc unorc key >u0.key)
  xdc unorc peer add u0 10.0.0.2 --allowed 10.50.0.2/32 --key u0.key
  xdc unorc peer show u0

ip link adds the device: docs/unorc.md."
    )]
    Unorc(UnorcCommand),
    /// Record tracepoints of the modules, or plot a recording.
    #[command(args_conflicts_with_subcommands = true, after_help = trace::help())]
    Trace {
        #[command(subcommand)]
        command: Option<TraceCommand>,
        #[command(flatten)]
        request: trace::Request,
    },
    /// Configure the phantom qdisc of a device: add, change, replace, show, del.
    #[command(
        subcommand,
        after_help = "Example:\n  xdc qdisc add dev eth1 root phantom limit 1mb rate 10gbit mark phantom"
    )]
    Qdisc(QdiscCommand),
    /// Make a build tree for a kernel whose header packages lack Rust's metadata.
    #[command(after_help = "\
Examples:
  xdc kdir                                 for the running kernel
  xdc kdir --headers /usr/src/linux-headers-7.3.4+deb13-amd64 --source linux-source-7.3
  xdc kdir --root trixie                   with the tools of a distribution in a folder

Builds the kernel's Rust crates from the distribution's source and configuration with the same
tools that built the kernel, compares the result with the packages, and names each difference.")]
    Kdir(kdir::Request),
    /// Show TCP sockets with the full state of toll, unocc and gemini, live.
    #[command(after_help = observe::ss::EXAMPLES)]
    Ss(observe::ss::Args),
    /// Show one phantom queue, live: rates, marks, drops, backlog.
    #[command(override_usage = "xdc watch dev DEV [handle N:] ...", after_help = observe::watch::EXAMPLES)]
    Watch(observe::watch::Args),
    /// Show flows and queues, live, on the full screen.
    #[command(after_help = observe::top::EXAMPLES)]
    Top(observe::top::Args),
    /// Show missing parts of this host, and the commands that install them.
    #[command(after_help = "\
Examples:
  xdc doctor
  xdc doctor --kdir /lib/modules/7.3.4/build     checks whether modules build and load")]
    Doctor {
        /// Check this kernel build tree for building modules; a missing part is then a failure.
        #[arg(long, value_name = "DIR")]
        kdir: Option<PathBuf>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Print a completion script for a shell.
    #[command(after_help = "\
Examples:
  xdc completions bash > /etc/bash_completion.d/xdc
  xdc completions zsh > /usr/local/share/zsh/site-functions/_xdc")]
    Completions { shell: clap_complete::Shell },
    /// Write the man pages, xdc.1 and one for each command.
    #[command(after_help = "Example:\n  xdc man /usr/local/share/man/man1")]
    Man {
        /// The folder to write to.
        dir: PathBuf,
    },
}

#[derive(Subcommand)]
pub enum TraceCommand {
    /// Plot a recording: windows, marks, RTTs, queues.
    #[command(after_help = "Example:\n  xdc trace plot trace.jsonl -o trace.svg")]
    Plot {
        /// A file that `xdc trace -o` has written.
        file: PathBuf,
        /// The picture to write.
        #[arg(short, long, value_name = "FILE.svg")]
        output: PathBuf,
    },
}

#[derive(Subcommand)]
pub enum CcCommand {
    /// Build a congestion control for the guests' kernels, so that --cc knows its name.
    #[command(after_help = "\
Examples:
  xdc cc add tcp_mine.rs       uses the project's abstractions: docs/writing.md
  xdc cc add tcp_mine.c
  xdc cc add mine/             a folder with a Kbuild or Makefile
  xdc cc add tcp_mine.ko       built for the guests' kernel

A guest loads the module once, to learn its names. The same command replaces it.")]
    Add(cc::Add),
    /// List the added congestion controls: name, module, kernels, source.
    #[command(after_help = "Examples:\n  xdc cc list\n  xdc cc list --json | jq -r '.[].name'")]
    List(cc::List),
    /// Remove an added congestion control, its module and its name.
    #[command(after_help = "Example:\n  xdc cc remove mine")]
    Remove(cc::Remove),
}

#[derive(Subcommand)]
pub enum AcceltorCommand {
    /// Print the parameters of the qdisc and of the senders, with the reasons.
    #[command(after_help = "\
Examples:
  xdc acceltor plan                        the network of the paper
  xdc acceltor plan --racks 8 --packet-rate 10gbit
  xdc acceltor plan --hz 250 --scale 5 --json

Numbers in brackets are the paper's equations and sections; docs/acceltor.md.")]
    Plan(acceltor::Request),
    /// Classify the largest TCP flows as elephants, with eBPF.
    #[command(after_help = "\
Examples:
  sudo xdc acceltor elephants bond0                      until Ctrl-C
  sudo xdc acceltor elephants bond0 --bytes 1MB --top 80 --json

The classifier is a filter for a qdisc with `detect filter`. It counts the payload of each TCP flow;
this program sets the elephants and removes it at the end. After kill -9: tc filter del dev DEV.")]
    Elephants(elephants::Request),
}

#[derive(Subcommand)]
pub enum UnorcCommand {
    /// Configure the peers of a device: add, set, del, show.
    #[command(
        subcommand,
        after_help = "Example:\n  xdc unorc peer add u0 10.0.0.2 --allowed 10.50.0.2/32"
    )]
    Peer(PeerCommand),
    /// Print a new random key: 32 hex digits.
    #[command(after_help = "Example:\n  (umask 077; xdc unorc key >u0.key)")]
    Key,
}

#[derive(Subcommand)]
pub enum PeerCommand {
    /// Add a peer.
    #[command(after_help = "\
Examples:
  xdc unorc peer add u0 10.0.0.2 --allowed 10.50.0.2/32
  xdc unorc peer add u0 10.0.0.3 --allowed 10.50.0.3/32,10.60.0.0/16 --key u0.key")]
    Add(unorc::Add),
    /// Change the ranges or the key of a peer.
    #[command(after_help = "\
Examples:
  xdc unorc peer set u0 10.0.0.2 --allowed 10.50.0.0/24
  xdc unorc peer set u0 10.0.0.2 --key none")]
    Set(unorc::Set),
    /// Remove a peer.
    #[command(after_help = "Example:\n  xdc unorc peer del u0 10.0.0.2")]
    Del(unorc::Place),
    /// Show the peers: remote, session, key, allowed.
    #[command(after_help = "Examples:\n  xdc unorc peer show u0\n  xdc unorc peer show u0 --json")]
    Show(unorc::Show),
}

#[derive(Subcommand)]
pub enum QdiscCommand {
    /// Attach a phantom qdisc to a device that has none.
    #[command(override_usage = "xdc qdisc add dev DEV root phantom ...", after_help = qdisc::HELP.as_str())]
    Add(Words),
    /// Change options of an attached qdisc, without packet loss.
    #[command(override_usage = "xdc qdisc change dev DEV root phantom ...", after_help = qdisc::HELP.as_str())]
    Change(Words),
    /// Replace the attached qdisc.
    #[command(override_usage = "xdc qdisc replace dev DEV root phantom ...", after_help = qdisc::HELP.as_str())]
    Replace(Words),
    /// Remove the qdisc from a device.
    #[command(after_help = "Example:\n  xdc qdisc del dev eth1 root")]
    Del(Words),
    /// Print all effective options in the syntax of `add`.
    #[command(after_help = "Examples:\n  xdc qdisc show\n  xdc qdisc show -s dev eth1")]
    Show {
        /// Print statistics too.
        #[arg(short, long)]
        statistics: bool,
        /// Print JSON, statistics included.
        #[arg(long)]
        json: bool,
        /// `dev DEV` [default: all devices].
        words: Vec<String>,
    },
}

#[derive(clap::Args)]
pub struct Words {
    /// Words in tc's syntax.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    pub words: Vec<String>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// Rows of a usual terminal, and columns that --help is made for.
    const SCREEN: (usize, usize) = (50, 100);

    /// Collects the words of each command that is not hidden.
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
