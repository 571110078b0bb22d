// SPDX-License-Identifier: GPL-2.0
//! Congestion controls that a scenario may name.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use schemars::JsonSchema;
use serde::Deserialize;
use xdc_algo::entry::{Entry, Marks};
use xdc_algo::{Kind, MODULES, Module};
use xdc_base::added::Added;
use xdc_base::error::{Error, Result};
use xdc_base::home::Home;
use xdc_base::text::nearest;
use xdc_netlink::phantom::Mark;
use xdc_proto::privileged::CONGESTION_CONTROL;

use crate::CcSpec;
use crate::sysctl::MOVED_PROFILE;

/// Names of a result's other pictures, in the folder of the congestion controls' pictures.
const OF_RESULTS: [&str; 2] = ["overview", "fct"];

/// A congestion control, or a named combination of two.
#[derive(Debug)]
struct KnownCc {
    name: &'static str,
    /// Name in TCP_CONGESTION.
    cc: &'static str,
    /// For routes to another datacenter; routes within one then use `cc` (`ip route ... congctl`).
    inter_cc: Option<&'static str>,
    /// Module parameters, the kernel's too.
    parameters: &'static [(&'static str, &'static str)],
    /// Module to load; None if built in.
    module: Option<&'static str>,
    /// Backlog that marks, physical or phantom, unless the scenario says otherwise.
    mark: Mark,
    /// net.ipv4.tcp_ecn: 0 off, 1 RFC 3168, 3 AccECN.
    tcp_ecn: u8,
}

/// Defaults: a single congestion control without ECN.
const PLAIN: KnownCc = KnownCc {
    name: "",
    cc: "",
    inter_cc: None,
    parameters: &[],
    module: None,
    mark: Mark::None,
    tcp_ecn: 0,
};

const fn drop_tail(name: &'static str) -> KnownCc {
    KnownCc { name, cc: name, ..PLAIN }
}

/// Congestion control for queues that mark by backlog, with RFC 3168 ECN.
const fn classic_ecn(name: &'static str, cc: &'static str) -> KnownCc {
    KnownCc { name, cc, mark: Mark::Physical, tcp_ecn: 1, ..PLAIN }
}

const fn vegas(name: &'static str, parameters: &'static [(&'static str, &'static str)]) -> KnownCc {
    KnownCc { cc: "vegas", parameters, ..drop_tail(name) }
}

/// Congestion controls besides [`xdc_algo::ALGORITHMS`].
const KERNELS: &[KnownCc] = &[
    classic_ecn("dctcp", "dctcp"),
    // The papers' BBR + MPRDMA. dctcp asks for ECN by itself; bbr must not.
    KnownCc { inter_cc: Some("bbr"), tcp_ecn: 2, ..classic_ecn("bbr-dctcp", "dctcp") },
    drop_tail("cubic"),
    classic_ecn("cubic-ecn", "cubic"),
    drop_tail("bbr"),
    drop_tail("reno"),
    drop_tail("vegas"),
    // GEMINI's Vegas-N: thresholds N times as large.
    vegas("vegas-5", &[("tcp_vegas.alpha", "10"), ("tcp_vegas.beta", "20")]),
    vegas("vegas-10", &[("tcp_vegas.alpha", "20"), ("tcp_vegas.beta", "40")]),
    vegas("vegas-15", &[("tcp_vegas.alpha", "30"), ("tcp_vegas.beta", "60")]),
    vegas("vegas-20", &[("tcp_vegas.alpha", "40"), ("tcp_vegas.beta", "80")]),
    // The kernel's dctcp in Rust, for `xdc-harness twin`.
    KnownCc { module: Some("tcp_dctcp_rs"), ..classic_ecn("dctcp_rs", "dctcp_rs") },
];

/// Our algorithm with its default profile, and a named variety per profile, so that tables can show
/// them side by side.
fn of_algorithm(module: &Module, algorithm: &Entry) -> impl Iterator<Item = Cc> {
    let name = algorithm.name();
    let own = Cc {
        name: name.to_owned(),
        cc: name.to_owned(),
        module: Some(module.name.to_owned()),
        mark: match algorithm.marks {
            Marks::Phantom => Mark::Phantom,
            Marks::Physical => Mark::Physical,
        },
        tcp_ecn: 3,
        ..Cc::from(&PLAIN)
    };
    let several = algorithm.profiles.len() > 1;
    let others = algorithm.profiles().enumerate().filter(move |_| several);
    let others = others.map({
        let own = own.clone();
        move |(at, profile)| Cc {
            name: format!("{name}-{profile}"),
            sysctls: match at == 0 {
                true => Vec::new(),
                false => vec![(format!("net.{name}.profile"), profile.to_owned())],
            },
            ..own.clone()
        }
    });
    [own].into_iter().chain(others)
}

/// All congestion controls that a scenario may use without defining them; installed ones first.
static KNOWN: LazyLock<Vec<Cc>> = LazyLock::new(|| {
    let ccs = || MODULES.iter().filter(|module| module.kind == Kind::cc);
    let ours = |installed| {
        let ours = ccs().filter(move |module| module.is_installed() == installed);
        ours.filter_map(|module| Some(of_algorithm(module, module.algorithm?))).flatten()
    };
    let mut known: Vec<_> = ours(true).collect();
    known.extend(KERNELS.iter().map(Cc::from));
    known.extend(ours(false));
    // Other modules: treated like Reno.
    for module in ccs() {
        let name = module.name.trim_start_matches("tcp_");
        if !known.iter().any(|cc| cc.cc == name) {
            known.push(Cc {
                name: name.to_owned(),
                cc: name.to_owned(),
                module: Some(module.name.to_owned()),
                ..Cc::from(&PLAIN)
            });
        }
    }
    known.extend(added().iter().flat_map(of_added));
    known
});

/// Congestion controls of `xdc cc add`; unit tests do not depend on them.
fn added() -> Vec<Added> {
    let home = (!cfg!(test)).then(Home::find);
    let home = home.and_then(Result::ok);
    home.map(|home| home.added()).unwrap_or_default()
}

/// Treats an added one like Reno; `[cc.NAME]` may change its ECN and marks.
fn of_added(added: &Added) -> impl Iterator<Item = Cc> {
    added.names.iter().map(|name| Cc {
        name: name.clone(),
        cc: name.clone(),
        module: Some(added.module.clone()),
        ..Cc::from(&PLAIN)
    })
}

/// Returns whether xdc itself has a congestion control of this name, or a result has such a file.
pub fn is_taken(name: &str) -> bool {
    let added = added();
    let is_added = |cc: &Cc| added.iter().any(|added| cc.module.as_ref() == Some(&added.module));
    let mut own = KNOWN.iter().filter(|cc| !is_added(cc));
    is_of_results(name) || own.any(|cc| cc.name == name || cc.cc == name)
}

fn is_of_results(name: &str) -> bool {
    OF_RESULTS.contains(&name) || name.starts_with("trace-")
}

/// A congestion control of a run, known or defined by the scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cc {
    /// Name in tables and on the command line.
    pub name: String,
    /// Name in TCP_CONGESTION.
    pub cc: String,
    pub inter_cc: Option<&'static str>,
    /// Applied after the scenario's `[cc.CC]`, which also holds for its varieties, and before the
    /// table of this variety.
    pub sysctls: Vec<(String, String)>,
    pub parameters: &'static [(&'static str, &'static str)],
    pub module: Option<String>,
    /// BPF object file.
    pub bpf: Option<String>,
    pub mark: Mark,
    pub tcp_ecn: u8,
}

impl From<&KnownCc> for Cc {
    fn from(known: &KnownCc) -> Self {
        Self {
            name: known.name.to_owned(),
            cc: known.cc.to_owned(),
            inter_cc: known.inter_cc,
            sysctls: Vec::new(),
            parameters: known.parameters,
            module: known.module.map(str::to_owned),
            bpf: None,
            mark: known.mark,
            tcp_ecn: known.tcp_ecn,
        }
    }
}

/// ECN mode of `[cc.NAME]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Ecn {
    None,
    Rfc3168,
    /// As RFC 3168 on the wire; the algorithm has its receiver echo each mark.
    Dctcp,
    #[serde(rename = "accecn")]
    Accurate,
}

impl Ecn {
    /// Value of net.ipv4.tcp_ecn.
    fn tcp_ecn(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Rfc3168 | Self::Dctcp => 1,
            Self::Accurate => 3,
        }
    }
}

/// Looks a name up in the scenario's `[cc.NAME]` tables, then among known ones.
pub fn find(name: &str, own: &BTreeMap<String, CcSpec>) -> Result<Cc> {
    let known = |name: &str| KNOWN.iter().find(|cc| cc.name == name).cloned();
    let fits = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) || !name.chars().all(fits) {
        return Err(unknown(name, own));
    }
    let spec = own.get(name);
    let Some((spec, kernel)) = spec.and_then(|spec| Some((spec, spec.kernel.as_deref()?))) else {
        let mut cc = known(name).ok_or_else(|| unknown(name, own))?;
        if let Some(spec) = spec {
            cc.refine(spec);
        }
        return Ok(cc);
    };
    CONGESTION_CONTROL.check(kernel)?;
    if is_of_results(name) {
        return Err(
            Error::usage(format!("[cc.{name}] has the name of a result file")).hint("another name")
        );
    }
    if let Some(known) = known(name).filter(|known| known.cc != kernel) {
        return Err(Error::usage(format!(
            "[cc.{name}] is already '{}' and cannot be '{kernel}'",
            known.cc
        ))
        .hint("another name"));
    }
    // A known one keeps its settings; any other is the kernel's, without ECN.
    let mut cc = match known(kernel) {
        Some(known) => known,
        None => Cc { module: Some(format!("tcp_{kernel}")), ..Cc::from(&PLAIN) },
    };
    name.clone_into(&mut cc.name);
    kernel.clone_into(&mut cc.cc);
    cc.refine(spec);
    Ok(cc)
}

impl Cc {
    fn refine(&mut self, spec: &CcSpec) {
        if spec.bpf.is_some() {
            self.bpf.clone_from(&spec.bpf);
            self.module = None;
        }
        if let Some(module) = &spec.module {
            self.module = Some(module.clone()).filter(|module| !module.is_empty());
        }
        self.tcp_ecn = spec.ecn.map_or(self.tcp_ecn, Ecn::tcp_ecn);
        self.mark = spec.mark.unwrap_or(self.mark);
    }
}

fn unknown(name: &str, own: &BTreeMap<String, CcSpec>) -> Error {
    let (moved, to) = MOVED_PROFILE;
    if name == moved {
        return Error::usage(format!("'{name}' is now '{to}'")).hint(format!("--cc {to}"));
    }
    let defined = own.iter().filter(|(_, spec)| spec.kernel.is_some());
    let defined = defined.map(|(name, _)| name.as_str());
    let known = KNOWN.iter().map(|cc| cc.name.as_str());
    let names: Vec<_> = known.chain(defined).collect();
    let near = nearest(name, &names);
    let asked = near.map_or(String::new(), |near| format!("; '{near}'?"));
    let known = near.map_or_else(|| names.join(", "), |near| format!("'{near}'"));
    Error::usage(format!("no congestion control '{name}'{asked}")).hint(format!(
        "{known}, xdc cc add FILE for your own, or [cc.{name}] kernel = \"NAME\" for one of the kernel's"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(text: &str) -> BTreeMap<String, CcSpec> {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn a_scenario_defines_congestion_controls() {
        let own = own("[westwood]\nkernel = \"westwood\"\n\
                       [mine]\nkernel = \"mine\"\nmodule = \"tcp_my\"\necn = \"accecn\"\nmark = \"phantom\"\n\
                       [late]\nkernel = \"unocc\"\n[bpf]\nkernel = \"bpf_cubic\"\nmodule = \"\"\n\
                       [cubic]\necn = \"rfc3168\"\nmark = \"physical\"\n");
        let westwood = find("westwood", &own).unwrap();
        assert_eq!(westwood.module.as_deref(), Some("tcp_westwood"));
        assert_eq!((westwood.tcp_ecn, westwood.mark), (0, Mark::None));
        let mine = find("mine", &own).unwrap();
        assert_eq!(mine.module.as_deref(), Some("tcp_my"));
        assert_eq!((mine.tcp_ecn, mine.mark), (3, Mark::Phantom));
        let late = find("late", &own).unwrap();
        assert_eq!((late.name.as_str(), late.cc.as_str()), ("late", "unocc"));
        assert_eq!((late.tcp_ecn, late.mark), (3, Mark::Phantom));
        assert_eq!(find("bpf", &own).unwrap().module, None);
        // Settings of `cubic` that differ from the defaults.
        let cubic = find("cubic", &own).unwrap();
        assert_eq!((cubic.tcp_ecn, cubic.mark), (1, Mark::Physical));
        assert_eq!(find("reno", &own).unwrap().mark, Mark::None);
    }

    #[test]
    fn every_algorithm_has_a_name_per_profile() {
        let known = &KNOWN;
        for algorithm in xdc_algo::ALGORITHMS {
            let name = algorithm.name();
            let of_it: Vec<_> = known.iter().filter(|cc| cc.cc == name).collect();
            let profiles = algorithm.profiles.len();
            let names = profiles + usize::from(profiles > 1);
            assert_eq!(of_it.len(), names, "{name}");
            assert!(of_it.iter().all(|cc| cc.tcp_ecn == 3));
            assert_eq!(of_it[0].sysctls, []);
        }
        let paper = known.iter().find(|cc| cc.name == "unocc-paper").unwrap();
        assert_eq!((paper.cc.as_str(), &paper.sysctls[..]), ("unocc", &[][..]));
        let artifact = known.iter().find(|cc| cc.name == "unocc-artifact").unwrap();
        let profile = ("net.unocc.profile".to_owned(), "artifact".to_owned());
        assert_eq!(artifact.sysctls, [profile]);
        let mut names: Vec<_> = known.iter().map(|cc| &cc.name).collect();
        names.sort();
        assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
    }

    #[test]
    fn unknown_and_invalid_names_are_refused() {
        let own = own("[x]\nkernel = \"a name with spaces\"\n[cubic]\nkernel = \"bbr\"\n");
        let said = |name| find(name, &own).unwrap_err().to_string();
        assert!(said("unoc").contains("'unocc'?"), "{}", said("unoc"));
        assert!(said("unocc-linux").contains("now 'toll'"));
        assert!(said("x").contains("not a valid name"), "{}", said("x"));
        assert!(said("cubic").contains("already"), "{}", said("cubic"));
    }
}
