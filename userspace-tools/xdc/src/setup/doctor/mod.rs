// SPDX-License-Identifier: GPL-2.0
//! `xdc doctor`: missing requirements of this machine for guests and for modules on the host, and
//! the commands that fix them.

mod host;
mod lab;

use std::path::{Path, PathBuf};

use serde::Serialize;
use xdc_base::error::{Error, Result};
use xdc_base::home::{self, Home};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    /// Works, but limited or slower.
    Warn,
    Fail,
}

#[derive(Debug, Serialize)]
struct Finding {
    what: String,
    verdict: Verdict,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

impl Finding {
    fn ok(what: &str, detail: impl Into<String>) -> Self {
        Self::new(what, Verdict::Ok, detail.into(), None)
    }

    fn warn(what: &str, detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::new(what, Verdict::Warn, detail.into(), Some(fix.into()))
    }

    fn fail(what: &str, detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::new(what, Verdict::Fail, detail.into(), Some(fix.into()))
    }

    fn new(what: &str, verdict: Verdict, detail: String, fix: Option<String>) -> Self {
        Self { what: what.to_owned(), verdict, detail, fix }
    }

    /// Reduces a failure to a warning, for optional requirements.
    fn softened(mut self) -> Self {
        if self.verdict == Verdict::Fail {
            self.verdict = Verdict::Warn;
        }
        self
    }
}

#[derive(Serialize)]
struct Report {
    guests: Vec<Finding>,
    host: Vec<Finding>,
    next: String,
}

/// Returns whether nothing is missing. Missing requirements of modules on the host are failures if
/// a kernel is named, else warnings.
pub fn command(kdir: Option<&Path>, json: bool) -> Result<bool> {
    let guests = match Home::find() {
        Ok(home) => lab::findings(&home)?,
        // An installed xdc can still check the host.
        Err(err) => vec![Finding::fail("checkout", err.to_string(), "XDC_HOME=DIR").softened()],
    };
    let kernel = host::Kernel::at(Path::new("/"), &home::running_release()?, kdir);
    let mut host = host::findings(&kernel);
    if kdir.is_none() {
        host = host.into_iter().map(Finding::softened).collect();
    }
    let next = next(&guests, &host, kdir);
    let sound = guests.iter().chain(&host).all(|finding| finding.verdict != Verdict::Fail);
    let report = Report { guests, host, next };
    if json {
        let text = serde_json::to_string_pretty(&report)
            .map_err(|err| Error::failure(format!("the report cannot be written: {err}")))?;
        println!("{text}");
        return Ok(sound);
    }
    for (title, findings) in [
        ("guests: experiments and tests", &report.guests),
        ("host: modules in your own kernel", &report.host),
    ] {
        println!("{title}");
        for finding in findings {
            print(finding);
        }
    }
    println!("next: {}", report.next);
    Ok(sound)
}

fn print(finding: &Finding) {
    let Finding { what, detail, .. } = finding;
    let verdict = match finding.verdict {
        Verdict::Ok => "ok  ",
        Verdict::Warn => "warn",
        Verdict::Fail => "FAIL",
    };
    println!("  {verdict}  {what}: {detail}");
    if let Some(fix) = &finding.fix {
        println!("        try: {fix}");
    }
}

/// The next command: the fix of the first failure, else a first use.
fn next(guests: &[Finding], host: &[Finding], kdir: Option<&Path>) -> String {
    // With a build tree named, only that kernel matters, not guests.
    let failed = guests
        .iter()
        .filter(|_| kdir.is_none())
        .chain(host)
        .find(|finding| finding.verdict == Verdict::Fail);
    match (failed.and_then(|finding| finding.fix.clone()), kdir) {
        (Some(fix), _) => fix,
        (None, Some(kdir)) => format!("sudo make install KDIR={}", kdir.display()),
        // An installed xdc has no scenarios.
        (None, None) if guests.iter().any(|finding| finding.what == "checkout") => {
            "sudo modprobe tcp_unocc".to_owned()
        }
        (None, None) => "xdc run two-dc-1g --engine uml".to_owned(),
    }
}

/// Joins `root` and a path that may begin with a slash.
fn under(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_command_fixes_the_first_failure() {
        let ok = || vec![Finding::ok("a", "b")];
        let bad = vec![
            Finding::warn("slow", "x", "patience"),
            Finding::fail("gone", "x", "make"),
            Finding::fail("too", "x", "other"),
        ];
        assert_eq!(next(&bad, &ok(), None), "make");
        assert_eq!(next(&ok(), &bad, None), "make");
        assert_eq!(next(&ok(), &ok(), None), "xdc run two-dc-1g --engine uml");
        assert_eq!(next(&ok(), &ok(), Some(Path::new("k"))), "sudo make install KDIR=k");
        assert_eq!(next(&bad, &ok(), Some(Path::new("k"))), "sudo make install KDIR=k");
        let installed = vec![Finding::warn("checkout", "x", "XDC_HOME=DIR")];
        assert_eq!(next(&installed, &ok(), None), "sudo modprobe tcp_unocc");
        let soft: Vec<_> = bad.into_iter().map(Finding::softened).collect();
        assert!(soft.iter().all(|finding| finding.verdict == Verdict::Warn));
    }
}
