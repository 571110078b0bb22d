// SPDX-License-Identifier: GPL-2.0
//! `xdc kdir`: makes a build tree for Rust modules from header packages without Rust metadata.
//!
//! A Rust module needs the metadata of the kernel's Rust crates (rust/*.rmeta), which only the
//! compiler that wrote them can use. If a distribution does not ship them, they are rebuilt from
//! its source with its configuration and tools, and the result is compared with the distribution's
//! kernel.

mod build;
mod headers;
mod verify;

use std::path::{Path, PathBuf};

use serde::Serialize;
use xdc_base::error::{Error, Result};
use xdc_base::home;
use xdc_study::args;

#[derive(clap::Args)]
pub struct Request {
    /// Unpacked header package [default: /lib/modules/RELEASE/build].
    #[arg(long, value_name = "DIR")]
    headers: Option<PathBuf>,
    /// Distribution's source of that kernel [default: that version's in the cache].
    #[arg(long, value_name = "DIR")]
    source: Option<PathBuf>,
    /// Folder with the distribution's compilers [default: this machine's].
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Folder with the kernel's own modules, which a new one must match [default:
    /// /lib/modules/RELEASE].
    #[arg(long, value_name = "DIR")]
    modules: Option<PathBuf>,
    /// Build folder [default: in the cache].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Parallel jobs of make [default: one per CPU].
    #[arg(long, value_name = "N", default_value_t = args::cpus(), hide_default_value = true)]
    jobs: usize,
}

/// A comparison with the distribution's kernel.
#[derive(Debug, Clone, Serialize)]
pub struct Check {
    pub what: &'static str,
    pub same: bool,
    pub detail: String,
}

#[derive(Serialize)]
struct Report<'a> {
    release: &'a str,
    kdir: &'a Path,
    /// Whether modules built against `kdir` fit this kernel.
    usable: bool,
    checks: &'a [Check],
}

/// Returns whether a build tree is ready for use.
pub fn command(request: &Request) -> Result<bool> {
    let dir = match &request.headers {
        Some(dir) => dir.clone(),
        None => {
            let release = home::running_release()?;
            PathBuf::from(format!("/lib/modules/{release}/build"))
        }
    };
    let headers = headers::Headers::read(&dir)?;
    if !headers.config.is_on("RUST") {
        return Err(Error::failure(format!(
            "{} was built without CONFIG_RUST, so it cannot load modules in Rust",
            headers.release
        ))
        .hint("a kernel with CONFIG_RUST=y, such as Debian's 7.3 (trixie-backports)"));
    }
    let tools = build::Tools::find(&headers.config, request.root.as_deref())?;
    if headers.has_metadata() {
        eprintln!("xdc: {} has its Rust metadata already", headers.dir.display());
        return report(request, &headers.release, &headers.dir, &tools.checks);
    }
    if let Some(bad) = tools.checks.iter().find(|check| !check.same) {
        return Err(Error::failure(format!("{}: {}", bad.what, bad.detail)).hint(
            "install the distribution's compiler packages, or unpack them into DIR and use --root DIR",
        ));
    }
    let source = build::source(&headers, request.source.as_deref())?;
    let out = match &request.out {
        Some(out) => out.clone(),
        None => home::cache()
            .ok_or_else(|| Error::usage("the build folder is unknown").hint("--out DIR"))?
            .join("kdir")
            .join(&headers.release),
    };
    let mut checks = tools.checks.clone();
    checks.push(verify::source(&headers, &source)?);
    if checks.iter().all(|check| check.same) {
        build::metadata(&headers, &source, &tools, &out, request.jobs)?;
        checks.extend(verify::tree(&headers, &out)?);
    }
    let modules = request
        .modules
        .clone()
        .unwrap_or_else(|| PathBuf::from("/lib/modules").join(&headers.release));
    if checks.iter().all(|check| check.same) {
        build::finish(&headers, &tools, &modules, &out)?;
    }
    report(request, &headers.release, &out, &checks)
}

fn report(request: &Request, release: &str, kdir: &Path, checks: &[Check]) -> Result<bool> {
    let usable = checks.iter().all(|check| check.same);
    if request.json {
        let report = Report { release, kdir, usable, checks };
        let text = serde_json::to_string_pretty(&report)
            .map_err(|err| Error::failure(format!("the report cannot be written: {err}")))?;
        println!("{text}");
        return Ok(usable);
    }
    for check in checks {
        let verdict = if check.same { "ok  " } else { "FAIL" };
        println!("{verdict}  {}: {}", check.what, check.detail);
    }
    if usable {
        println!("next: make modules KDIR={}", kdir.display());
    } else {
        println!("FAIL  this tree does not match {release}: do not build modules against it");
    }
    Ok(usable)
}
