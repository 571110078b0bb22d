// SPDX-License-Identifier: GPL-2.0
//! Commands of a scenario: `[[run]]` and `setup`.

use std::collections::BTreeSet;

use xdc_base::error::{Error, Result};
use xdc_proto::{Program, Topology};

use crate::budget::{Budget, text_bytes};
use crate::limits::{MAX_COMMAND_BYTES, MAX_PROGRAMS};
use crate::{Scenario, expand, no_node};

/// Programs of the scenario, one for each node that runs it.
pub fn programs(
    budget: &Budget,
    scenario: &Scenario,
    topology: &Topology,
    scale: u32,
) -> Result<Vec<Program>> {
    output_files(budget, scenario)?;
    let mut programs = Vec::new();
    for spec in &scenario.programs {
        check_command(&spec.command)?;
        for node in expand(budget, &spec.on)? {
            if !topology.nodes.iter().any(|known| known.name == node) {
                let nodes = topology.nodes.iter().map(|known| known.name.as_str());
                return Err(no_node("[[run]] is on ".to_owned(), &node, nodes));
            }
            let texts = [&spec.command, spec.samples.as_ref().unwrap_or(&node)];
            budget.charge("[[run]]", 1, text_bytes(texts.map(String::as_str)))?;
            programs.push(Program {
                node,
                command: spec.command.clone(),
                start_us: spec.start.0 * u64::from(scale) / 1000,
                daemon: spec.daemon,
                samples: spec.samples.clone(),
            });
        }
    }
    let flows = !scenario.flows.is_empty() || !scenario.traffic.is_empty();
    if scenario.duration.is_none() && !flows && programs.iter().all(|program| program.daemon) {
        return Err(
            Error::usage("the run has no end: all its programs are daemons").hint("a 'duration'")
        );
    }
    Ok(programs)
}

/// Output file among the results of each of [`programs`].
pub fn output_files(budget: &Budget, scenario: &Scenario) -> Result<Vec<Option<String>>> {
    let mut files = Vec::new();
    let mut names = BTreeSet::new();
    for spec in &scenario.programs {
        let nodes = expand(budget, &spec.on)?;
        if files.len().saturating_add(nodes.len()) > MAX_PROGRAMS {
            return Err(Error::usage(format!("more than {MAX_PROGRAMS} programs"))
                .hint("fewer [[run]], or fewer names in 'on'"));
        }
        for node in &nodes {
            let file = spec.output.as_ref().map(|name| match nodes.len() {
                1 => name.clone(),
                _ => format!("{node}-{name}"),
            });
            if let Some(name) = &file {
                check_file(name)?;
                if !names.insert(name.clone()) {
                    return Err(Error::usage(format!("two programs write the file '{name}'")));
                }
            }
            files.push(file);
        }
    }
    Ok(files)
}

pub fn check_command(command: &str) -> Result<()> {
    if command.trim().is_empty() || command.len() > MAX_COMMAND_BYTES {
        return Err(Error::usage(format!("a command must have 1 to {MAX_COMMAND_BYTES} bytes")));
    }
    Ok(())
}

/// Requires a plain file name.
fn check_file(name: &str) -> Result<()> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.is_empty() || name.len() > 100 || name.starts_with('.') || !name.chars().all(fits) {
        return Err(Error::usage(format!("'{name}' is not a valid name for a result file"))
            .hint("letters, digits, '.', '_' and '-', for example \"iperf3.json\""));
    }
    // A browser would run scripts in these files.
    if [".html", ".htm", ".svg", ".xhtml", ".xml"]
        .iter()
        .any(|end| name.to_ascii_lowercase().ends_with(end))
    {
        return Err(Error::usage(format!("'{name}' may contain scripts"))
            .hint("another name, such as \"report.txt\""));
    }
    Ok(())
}

/// Programs that a command calls: words at positions where a shell looks for one. Text in single
/// quotes is skipped.
pub fn called(command: &str) -> BTreeSet<String> {
    let mut words = Words::default();
    let mut before = ' ';
    let mut chars = command.chars().peekable();
    while let Some(c) = chars.next() {
        let next = chars.peek().copied().unwrap_or(' ');
        match c {
            '\'' if !words.quoted => {
                words.word.extend(chars.by_ref().take_while(|&c| c != '\'').map(|_| '\''));
            }
            '"' => words.quoted = !words.quoted,
            '(' if before == '$' => words.open(),
            ')' if !words.quoted => words.close(),
            '{' if before == '$' => words.word.extend(chars.by_ref().take_while(|&c| c != '}')),
            _ if words.quoted => words.word.push('"'),
            '&' if before == '>' || before == '<' || next == '>' => words.word.push(c),
            '(' => words.open(),
            '|' | '&' | ';' | '\n' | '{' | '}' | '`' => words.end_command(),
            c if c.is_whitespace() => words.end(),
            c => words.word.push(c),
        }
        before = c;
    }
    words.end();
    words.called
}

/// Words of a command line up to a character.
#[derive(Default)]
struct Words {
    called: BTreeSet<String>,
    word: String,
    /// Whether the command has its program: further words are arguments.
    found: bool,
    /// Whether inside double quotes.
    quoted: bool,
    /// `found` and `quoted` of the enclosing commands.
    around: Vec<(bool, bool)>,
}

impl Words {
    fn end(&mut self) {
        let word = std::mem::take(&mut self.word);
        let assigns = word
            .split_once('=')
            .is_some_and(|(name, _)| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'));
        let redirects = word.contains(['<', '>']);
        if self.found || word.is_empty() || assigns || redirects || KEYWORDS.contains(&&*word) {
            return;
        }
        self.found = true;
        if word.chars().all(is_of_name) {
            self.called.insert(word);
        }
    }

    fn end_command(&mut self) {
        self.end();
        self.found = false;
    }

    /// Enters a subcommand at `(` or `$(`.
    fn open(&mut self) {
        self.end();
        self.around.push((self.found, self.quoted));
        (self.found, self.quoted) = (false, false);
    }

    /// Leaves at `)`, also the one of a `case`.
    fn close(&mut self) {
        self.end();
        (self.found, self.quoted) = self.around.pop().unwrap_or_default();
    }
}

/// Shell words that precede a command.
const KEYWORDS: &[&str] =
    &["if", "then", "else", "elif", "while", "until", "do", "exec", "time", "!", "env", "nohup"];

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || "._+-".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::plan;
    use crate::{parse, testing::SMALL};

    #[test]
    fn called_programs_are_found() {
        let names = |command: &str| called(command).into_iter().collect::<Vec<_>>().join(" ");
        assert_eq!(names("iperf3 -c $r -J -t 5"), "iperf3");
        assert_eq!(
            names("A=1 exec netserver -D & sleep 1; netperf | tail"),
            "netperf netserver sleep tail"
        );
        assert_eq!(names("while true; do ping -c 1 $r; done"), "done ping true");
        assert_eq!(names("$x"), "");
        assert_eq!(names("awk '{ print; x = $1 | cut }' f | sort"), "awk sort");
        // Arguments after substitutions, redirections and quotes call nothing.
        assert_eq!(names("ip route change $(ip -4 route) mtu 1400"), "ip");
        assert_eq!(names("x=$(seq 2) tee f; y=1 z=`cat f` wc"), "cat seq tee wc");
        assert_eq!(names("ping -c 1 ${r} >f 2>&1 && tail f >&2"), "ping tail");
        assert_eq!(names("echo \"a; b | $(date +\"%s\") c\" | wc"), "date echo wc");
        assert_eq!(names("(tc -s qdisc; sort f) | head"), "head sort tc");
        assert_eq!(names("case $x in a) uptime;; esac"), "case esac uptime");
    }

    #[test]
    fn mistakes_in_programs_are_named() {
        let refused = |run: &str| {
            let text = format!("{SMALL}[[run]]\n{run}\n");
            let planned = parse("small", &text, &[])
                .and_then(|loaded| plan(&loaded.scenario, "cubic", 1, 1).map(drop));
            planned.unwrap_err().lines().join(" ")
        };
        assert!(refused("on = \"z\"\ncommand = \"true\"").contains("not a node"));
        assert!(refused("on = \"a1\"\ncommand = \"\"").contains("a command must have"));
        let page = refused("on = \"a1\"\ncommand = \"true\"\noutput = \"Report.HTML\"");
        assert!(page.contains("may contain scripts"));
        for file in ["../x", "/etc/passwd", ".x", "a b"] {
            let run = format!("on = \"a1\"\ncommand = \"true\"\noutput = \"{file}\"");
            assert!(refused(&run).contains("not a valid name for a result file"), "{file}");
        }
    }
}
