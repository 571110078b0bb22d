// SPDX-License-Identifier: GPL-2.0
//! Loads a new module in a guest, whose kernel then names the module's congestion controls.

use std::time::Duration;

use xdc_base::error::{Error, Result};
use xdc_base::home::{Flavour, Home};
use xdc_base::progress::Progress;
use xdc_guest::engine::{Clock, Engine};
use xdc_result::runner::Runner;
use xdc_scenario::engine::Kind;
use xdc_scenario::{parse, plan};

use super::breaks;

/// Silence after which a guest that loads the module has failed.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The port loads sch_phantom, because a guest without any module of a plan has none to load later.
const SCENARIO: &str = r#"
ccs = ["cubic"]
[topology]
hosts = ["a", "b"]
[[topology.links]]
a = "a"
b = "b"
rate = "100mbit"
queue_ab = "port"
[queues.port]
limit = "100kB"
phantom = "100kB"
[[run]]
on = "a"
command = '''
cat /proc/sys/net/ipv4/tcp_available_congestion_control
dmesg -c >/dev/null
modprobe MODULE 2>&1
dmesg
echo
cat /proc/sys/net/ipv4/tcp_available_congestion_control
'''
"#;

/// Names of the congestion controls that a module of `home` adds to a kernel.
pub fn names(home: &Home, flavour: Flavour, module: &str) -> Result<Vec<String>> {
    let kind = match flavour {
        Flavour::Uml | Flavour::UmlDebug => Kind::Uml,
        Flavour::X86 | Flavour::Debug => Kind::Qemu,
    };
    let progress = Progress::default();
    let runner = Runner {
        home,
        engine: Engine::new(home, kind, flavour, Clock::Wall)?,
        timeout: TIMEOUT,
        trace: &[],
        pcap: &[],
        progress: &progress,
    };
    let text = SCENARIO.replace("MODULE", module);
    let scenario = parse("trial", &text, &[])?.scenario;
    let plan = plan::plan(&scenario, "cubic", scenario.seed, 1)?;
    let record = runner
        .run_one(&format!("loading {module}"), plan, None)
        .map_err(|err| err.about(format!("the guest that loaded {module}.ko failed")))?;
    let said = record.outputs.first().map_or("", |output| &output.text);
    read(module, said)
}

/// Reads the output of the command above: names, messages, names.
fn read(module: &str, said: &str) -> Result<Vec<String>> {
    let lines: Vec<_> = said.lines().map(str::to_owned).collect();
    let ([before, messages @ ..], Some(after)) = (lines.as_slice(), lines.last()) else {
        return Err(Error::failure("the guest named no congestion control"));
    };
    let messages = &messages[..messages.len().saturating_sub(1)];
    let old: Vec<_> = before.split_whitespace().collect();
    let new = after.split_whitespace().filter(|name| !old.contains(name));
    let new: Vec<_> = new.map(str::to_owned).collect();
    let causes = breaks::explain(messages);
    if new.is_empty() {
        let details: Vec<_> = messages.iter().filter(|line| !line.is_empty()).cloned().collect();
        let what = format!("{module}.ko registers no congestion control in a guest");
        let err = match causes.first() {
            Some((cause, fix)) => Error::failure(format!("{what}: {cause}")).hint(*fix),
            None => {
                Error::failure(what).hint("tcp_register_congestion_control() in its init function")
            }
        };
        return Err(err.details(details));
    }
    for (cause, fix) in causes {
        eprintln!("xdc: {module}: {cause}; try: {fix}");
    }
    Ok(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_names_and_causes_are_read() {
        let names = |said| read("tcp_x", said);
        let good = "reno cubic\n[    1.0] tcp_x: loading out-of-tree module taints kernel.\n\nreno cubic x x2\n";
        assert_eq!(names(good).unwrap(), ["x", "x2"]);
        let known = "reno cubic\nmodprobe: ERROR: could not insert 'tcp_x': File exists\n\
                     [    1.0] TCP: cubic already registered or non-unique key\n\nreno cubic\n";
        let lines = names(known).unwrap_err().lines().join("\n");
        assert!(lines.contains("has a congestion control of this name"), "{lines}");
        assert!(lines.contains("File exists"), "{lines}");
        assert!(names("").is_err());
        assert!(names("reno\n\nreno\n").is_err());
    }
}
