// SPDX-License-Identifier: GPL-2.0
//! The guest's root: the agent as /init, the plan, modules, busybox, and the host's network tools with their
//! libraries.

use std::collections::BTreeSet;
use std::env;
use std::fs::{self, File};
use std::io::{BufWriter, Read};
use std::path::{Path, PathBuf};
use std::process::Command;

use object::Endianness;
use object::elf::{DT_NEEDED, Dyn64, FileHeader64, PT_INTERP};
use object::read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _};
use xdc_base::error::{Error, Result};
use xdc_base::home::{Flavour, Home};
use xdc_proto::{Job, Plan};
use xdc_scenario::programs::called;

use crate::cpio::Archive;

/// Tools for selftests and interactive use, beyond busybox.
const TOOLS: &[&str] = &["ip", "tc", "ss", "sysctl", "ethtool"];

/// Programs for interactive use, if the host has them.
const PROGRAMS: &[&str] = &["iperf3", "netperf", "netserver", "nuttcp", "curl", "tcpdump", "less"];

type Cpio = Archive<BufWriter<File>>;

/// Write the initramfs for `plan` to `path`; `scratch` is a directory for intermediate files.
pub fn write(
    home: &Home,
    flavour: Flavour,
    plan: &Plan,
    path: &Path,
    scratch: &Path,
) -> Result<()> {
    let file = File::create(path).map_err(|err| Error::io(path.display(), &err))?;
    let mut cpio = Archive::new(BufWriter::new(file));
    let writing = |err: std::io::Error| Error::io("writing the initramfs", &err);

    for dir in ["/dev", "/proc", "/sys", "/tmp", "/run", "/host", "/root", "/etc"] {
        cpio.dir(dir).map_err(writing)?;
    }
    // Path of the modprobe with which the kernel loads modules on demand.
    cpio.symlink("/sbin", "usr/sbin").map_err(writing)?;
    cpio.char_device("/dev/console", 5, 1).map_err(writing)?;
    cpio.char_device("/dev/null", 1, 3).map_err(writing)?;
    cpio.file("/etc/passwd", 0o644, b"root:x:0:0:root:/root:/bin/sh\n").map_err(writing)?;
    cpio.file("/etc/group", 0o644, b"root:x:0:\n").map_err(writing)?;

    copy(&mut cpio, "/init", &home.agent()?, 0o755)?;
    let json = serde_json::to_vec(plan)
        .map_err(|err| Error::failure(format!("the plan cannot be written: {err}")))?;
    cpio.file("/xdc/plan.json", 0o644, &json).map_err(writing)?;
    let runs = matches!(plan.job, Job::Run(_) | Job::Probe);
    if has_modules(plan) || !runs {
        let mut modules = home.modules(flavour)?;
        let has =
            |name: &String| modules.iter().any(|path| path.file_stem() == Some(name.as_ref()));
        let foreign = matches!(plan.job, Job::Selftest { root: Some(_), .. })
            || needs_tc(plan)
            || !plan.modules.iter().all(has);
        let of_kernel = home.kernel_modules(flavour).unwrap_or_default();
        let tests = matches!(plan.job, Job::Selftest { .. });
        let is_wanted = |path: &PathBuf| foreign || needed(path) || tests && tested_with(path);
        modules.extend(of_kernel.into_iter().filter(is_wanted));
        add_modules(&mut cpio, home, flavour, &modules, scratch)?;
    }

    match &plan.job {
        // Only the agent runs, and a small initramfs boots sooner.
        Job::Probe | Job::Run(_) => {
            add_modprobe(&mut cpio, home)?;
            if !plan.bpf.is_empty() {
                let bpftool =
                    find_program("bpftool").ok_or_else(|| missing("bpftool", "bpftool"))?;
                add_program(&mut cpio, "/usr/sbin/bpftool", &bpftool)?;
            }
            let commands = commands(plan);
            if !commands.is_empty() {
                add_tools(&mut cpio, TOOLS)?;
                add_tc_plugin(&mut cpio, home)?;
                add_ip_plugin(&mut cpio, home)?;
                add_shell(&mut cpio, false)?;
                add_called(&mut cpio, home, &commands)?;
                add_busybox(&mut cpio, home)?;
            } else if needs_tc(plan) {
                add_tools(&mut cpio, &["tc"])?;
            }
        }
        Job::Shell(_) | Job::Selftest { .. } => {
            add_modprobe(&mut cpio, home)?;
            add_tools(&mut cpio, TOOLS)?;
            add_tc_plugin(&mut cpio, home)?;
            add_ip_plugin(&mut cpio, home)?;
            let interactive = matches!(plan.job, Job::Shell(_));
            add_shell(&mut cpio, interactive)?;
            if interactive {
                add_tools(&mut cpio, PROGRAMS)?;
                add_called(&mut cpio, home, &commands(plan))?;
            }
            // xdc-harness starts guests too, with the xdc beside it.
            let own = env::current_exe().map_err(|err| Error::io("finding xdc itself", &err))?;
            let xdc = Some(own.with_file_name("xdc")).filter(|xdc| xdc.exists()).unwrap_or(own);
            add_program(&mut cpio, "/bin/xdc", &xdc)?;
            for program in home.guest_programs()? {
                let name = program.file_name().unwrap_or_default().to_string_lossy();
                add_program(&mut cpio, &format!("/bin/{name}"), &program)?;
            }
            add_busybox(&mut cpio, home)?;
        }
    }
    if let Job::Selftest { .. } = plan.job {
        for (name, file) in selftest_files(home)? {
            copy(&mut cpio, &format!("/selftests/{name}"), &file, 0o755)?;
        }
        let list = include_bytes!("../../../modules/oot/list.rs");
        cpio.file("/selftests/list.rs", 0o644, list).map_err(writing)?;
    }
    cpio.finish().map_err(writing)
}

/// Whether a guest that runs the plan loads modules.
pub fn has_modules(plan: &Plan) -> bool {
    !plan.modules.is_empty() || needs_tc(plan)
}

/// Whether a port has a queue or a policer that tc adds: it may be a module of the kernel.
fn needs_tc(plan: &Plan) -> bool {
    let topology = match &plan.job {
        Job::Run(run) | Job::Shell(run) => &run.topology,
        Job::Selftest { .. } | Job::Probe => return false,
    };
    let links = topology.links.iter();
    let mut queues = links.flat_map(|link| [&link.ab.queue, &link.ba.queue]).flatten();
    let mut directions = topology.links.iter().flat_map(|link| [&link.ab, &link.ba]);
    queues.any(|queue| !queue.is_made_by_agent())
        || directions.any(|direction| direction.policer.is_some())
}

/// Commands of the scenario's author.
pub fn commands(plan: &Plan) -> Vec<&str> {
    let (Job::Run(run) | Job::Shell(run)) = &plan.job else {
        return Vec::new();
    };
    let setup = run.topology.nodes.iter().flat_map(|node| &node.setup);
    let programs = run.programs.iter().map(|program| &program.command);
    setup.chain(programs).map(String::as_str).collect()
}

/// Adds the host's programs that commands call, except those of busybox or the shell.
fn add_called(cpio: &mut Cpio, home: &Home, commands: &[&str]) -> Result<()> {
    let names: BTreeSet<String> = commands.iter().flat_map(|text| called(text)).collect();
    let applets = applets(home)?;
    for name in names {
        let to = format!("/usr/sbin/{name}");
        if cpio.contains(&to) || SHELL_WORDS.contains(&name.as_str()) {
            continue;
        }
        match find_program(&name) {
            Some(path) => {
                let mut magic = [0; 2];
                let read = File::open(&path).and_then(|mut file| file.read_exact(&mut magic));
                if read.is_ok() && &magic == b"#!" && !applets.contains(&name) {
                    return Err(Error::usage(format!(
                        "'{name}' is a script, but a guest can run only programs"
                    ))
                    .hint("call its interpreter's program, or write the command out"));
                }
                if &magic != b"#!" {
                    add_program(cpio, &to, &path)?;
                }
            }
            None if applets.contains(&name) => {}
            None => {
                return Err(Error::usage(format!(
                    "a command of the scenario calls '{name}', which is not installed here"
                ))
                .hint("a guest gets this machine's programs: install it"));
            }
        }
    }
    Ok(())
}

/// Builtins of a shell.
const SHELL_WORDS: &[&str] = &[
    ".", ":", "[", "break", "case", "cd", "continue", "done", "echo", "esac", "eval", "exit",
    "export", "false", "fi", "for", "kill", "printf", "pwd", "read", "return", "set", "shift",
    "test", "trap", "true", "type", "ulimit", "umask", "unset", "wait",
];

/// All files in selftests/guest/ and its subfolders, by path.
pub fn selftest_files(home: &Home) -> Result<Vec<(String, PathBuf)>> {
    let mut files = Vec::new();
    let mut folders = vec![(String::new(), home.selftests())];
    while let Some((prefix, dir)) = folders.pop() {
        let entries = fs::read_dir(&dir).map_err(|err| Error::io(dir.display(), &err))?;
        for entry in entries.flatten() {
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            let path = entry.path();
            if path.is_dir() {
                folders.push((format!("{prefix}{name}/"), path));
            } else if path.is_file() {
                files.push((format!("{prefix}{name}"), path));
            }
        }
    }
    files.sort();
    Ok(files)
}

fn copy(cpio: &mut Cpio, to: &str, from: &Path, permissions: u32) -> Result<()> {
    let data = fs::read(from).map_err(|err| Error::io(from.display(), &err))?;
    cpio.file(to, permissions, &data).map_err(|err| Error::io("writing the initramfs", &err))
}

/// Adds the modules at modprobe's path, with depmod's index.
fn add_modules(
    cpio: &mut Cpio,
    home: &Home,
    flavour: Flavour,
    modules: &[PathBuf],
    scratch: &Path,
) -> Result<()> {
    let release = home.release(flavour)?;
    let dir = format!("/lib/modules/{release}");
    let root = scratch.join("modules");
    let staged = root.join(&dir[1..]);
    let extra = staged.join("extra");
    fs::create_dir_all(&extra).map_err(|err| Error::io(extra.display(), &err))?;
    let stage = |from: &Path, to: &Path| {
        let to = to.join(from.file_name().unwrap_or_default());
        fs::copy(from, &to).map_err(|err| Error::io(from.display(), &err))
    };
    for module in modules {
        stage(module, &extra)?;
    }
    for list in home.builtin_lists(flavour) {
        stage(&list, &staged)?;
    }

    let mut depmod = match (home.busybox(), find_program("depmod")) {
        (Some(busybox), _) => {
            let mut command = Command::new(busybox);
            command.arg("depmod");
            command
        }
        (None, Some(depmod)) => Command::new(depmod),
        (None, None) => return Err(missing("depmod", "kmod")),
    };
    let output = depmod
        .arg("-b")
        .arg(&root)
        .arg(&release)
        .output()
        .map_err(|err| Error::io("depmod", &err))?;
    if !output.status.success() {
        return Err(Error::failure("depmod failed on the modules of xdc")
            .details(vec![String::from_utf8_lossy(&output.stderr).into_owned()]));
    }
    for (from, to) in [(&extra, format!("{dir}/extra")), (&staged, dir.clone())] {
        let mut files: Vec<_> = fs::read_dir(from)
            .map_err(|err| Error::io(from.display(), &err))?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.is_file())
            .collect();
        files.sort();
        for file in files {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            copy(cpio, &format!("{to}/{name}"), &file, 0o644)?;
        }
    }
    Ok(())
}

/// Adds modprobe, for modules on demand and dependencies. It must be of the same kind as depmod, whose index
/// it reads.
fn add_modprobe(cpio: &mut Cpio, home: &Home) -> Result<()> {
    match home.busybox() {
        Some(busybox) => copy(cpio, "/usr/sbin/modprobe", &busybox, 0o755),
        None => add_tools(cpio, &["modprobe"]),
    }
}

/// Adds the host's installed programs; `xdc doctor` reports missing ones.
fn add_tools(cpio: &mut Cpio, names: &[&str]) -> Result<()> {
    for name in names {
        if let Some(path) = find_program(name) {
            add_program(cpio, &format!("/usr/sbin/{name}"), &path)?;
        }
    }
    Ok(())
}

/// Adds tc's plugins for phantom and acceltor at the host tc's path.
fn add_tc_plugin(cpio: &mut Cpio, home: &Home) -> Result<()> {
    let (Some(plugin), Some(tc)) = (home.tc_plugin(), find_program("tc")) else {
        return Ok(());
    };
    let program = fs::read(&tc).map_err(|err| Error::io(tc.display(), &err))?;
    match plugin_dir(&program) {
        Some(dir) => ["phantom", "acceltor"]
            .iter()
            .try_for_each(|kind| add_program(cpio, &format!("{dir}q_{kind}.so"), &plugin)),
        None => Ok(()),
    }
}

/// Adds ip's plugin for unorc at the host ip's path.
fn add_ip_plugin(cpio: &mut Cpio, home: &Home) -> Result<()> {
    let (Some(plugin), Some(ip)) = (home.ip_plugin(), find_program("ip")) else {
        return Ok(());
    };
    let program = fs::read(&ip).map_err(|err| Error::io(ip.display(), &err))?;
    match compiled_in(&program, "/ip") {
        Some(dir) => add_program(cpio, &format!("{dir}/link_unorc.so"), &plugin),
        None => Ok(()),
    }
}

/// Plugin folder compiled into tc: a string that ends with `/tc/`.
fn plugin_dir(program: &[u8]) -> Option<&str> {
    compiled_in(program, "/tc/")
}

/// A path that is compiled into a program.
fn compiled_in<'a>(program: &'a [u8], end: &str) -> Option<&'a str> {
    program
        .split(|byte| *byte == 0)
        .filter_map(|bytes| str::from_utf8(bytes).ok())
        .find(|text| text.starts_with('/') && text.ends_with(end))
}

/// Whether one of the kernel's modules is linked by ours.
fn needed(module: &Path) -> bool {
    let name = module.file_stem().unwrap_or_default();
    name == "udp_tunnel" || name == "ip6_udp_tunnel"
}

/// Whether selftests use one of the kernel's modules beside ours: nftables, a queue to user space, kTLS,
/// bonds, VRFs, VXLAN, and a qdisc that writes into its child's packets.
fn tested_with(module: &Path) -> bool {
    let folder = module.parent().and_then(Path::file_name);
    let in_folder =
        ["netfilter", "tls", "crypto", "bonding"].iter().any(|name| folder == Some(name.as_ref()));
    let named =
        ["sch_sfb", "vrf", "vxlan"].iter().any(|name| module.file_stem() == Some(name.as_ref()));
    in_folder || named
}

/// Adds the host's shell: busybox's would prefer its own applets to programs. Interactive use gets line
/// editing.
fn add_shell(cpio: &mut Cpio, interactive: bool) -> Result<()> {
    let bash = find_program("bash").filter(|_| interactive);
    let shell = bash.or_else(|| find_program("sh"));
    add_program(cpio, "/bin/sh", &shell.ok_or_else(|| missing("sh", "dash"))?)
}

/// Adds a program, and its shared libraries at its loader's paths.
fn add_program(cpio: &mut Cpio, to: &str, from: &Path) -> Result<()> {
    copy(cpio, to, from, 0o755)?;
    for library in shared_libraries(from)? {
        if !cpio.contains(&library) {
            copy(cpio, &library, Path::new(&library), 0o755)?;
        }
    }
    Ok(())
}

/// Paths of shared libraries and the loader; empty for a static program.
pub fn shared_libraries(program: &Path) -> Result<BTreeSet<String>> {
    let bytes = fs::read(program).map_err(|err| Error::io(program.display(), &err))?;
    if is_static(&bytes) {
        return Ok(BTreeSet::new());
    }
    let output = Command::new("ldd").arg(program).output().map_err(|err| Error::io("ldd", &err))?;
    // For a static program ldd fails, which is not an error.
    Ok(parse_ldd(&String::from_utf8_lossy(&output.stdout)))
}

/// Whether an ELF file needs no loader and, unlike a plugin, no library.
fn is_static(program: &[u8]) -> bool {
    let Ok(header) = FileHeader64::<Endianness>::parse(program) else {
        return false;
    };
    let endian = header.endian().unwrap_or_default();
    let Ok(parts) = header.program_headers(endian, program) else {
        return false;
    };
    parts.iter().all(|part| {
        let needs = |entries: &[Dyn64<Endianness>]| {
            let mut tags = entries.iter().map(|entry| entry.d_tag(endian));
            tags.any(|tag| tag == DT_NEEDED)
        };
        let dynamic = part.dynamic(endian, program).ok().flatten();
        part.p_type(endian) != PT_INTERP && !dynamic.is_some_and(needs)
    })
}

fn parse_ldd(text: &str) -> BTreeSet<String> {
    text.lines()
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')))
        .map(str::to_owned)
        .collect()
}

fn busybox(home: &Home) -> Result<PathBuf> {
    home.busybox()
        .or_else(|| find_program("busybox"))
        .ok_or_else(|| missing("busybox", "busybox-static"))
}

/// Applets of busybox.
fn applets(home: &Home) -> Result<BTreeSet<String>> {
    let output = Command::new(busybox(home)?)
        .arg("--list")
        .output()
        .map_err(|err| Error::io("busybox", &err))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().map(str::to_owned).collect())
}

fn add_busybox(cpio: &mut Cpio, home: &Home) -> Result<()> {
    add_program(cpio, "/bin/busybox", &busybox(home)?)?;
    for applet in applets(home)? {
        if !cpio.contains(&format!("/usr/sbin/{applet}")) {
            cpio.symlink(&format!("/bin/{applet}"), "busybox")
                .map_err(|err| Error::io("writing the initramfs", &err))?;
        }
    }
    Ok(())
}

pub fn missing(program: &str, package: &str) -> Error {
    Error::failure(format!("{program} is not installed")).hint(format!("apt-get install {package}"))
}

/// Searches PATH, and system directories that a user's PATH may lack.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcs_plugin_folder_is_found() {
        let tc = b"\x7fELF\0\xff\xfe/tc/\0/sys/tc/x\0/usr/lib/x86_64-linux-gnu/tc/\0TC_LIB_DIR\0";
        assert_eq!(plugin_dir(tc), Some("/usr/lib/x86_64-linux-gnu/tc/"));
        assert_eq!(plugin_dir(b"/usr/bin/tc"), None);
    }

    #[test]
    fn a_program_without_a_loader_is_static() {
        let own = fs::read(env::current_exe().unwrap()).unwrap();
        // This test is a dynamic program unless built as a static one.
        assert_eq!(is_static(&own), cfg!(target_feature = "crt-static"));
        assert!(!is_static(b"#!/bin/sh\n"));
    }

    #[test]
    fn libraries_and_loader_are_read_from_ldd() {
        let text = "\tlinux-vdso.so.1 (0x00007ffd)\n\
                    \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let libraries: Vec<_> = parse_ldd(text).into_iter().collect();
        assert_eq!(libraries, ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]);
        assert!(parse_ldd("\tnot a dynamic executable\n").is_empty());
    }
}
