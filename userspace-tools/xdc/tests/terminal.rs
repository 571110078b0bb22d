// SPDX-License-Identifier: GPL-2.0
//! `xdc top` under a pseudoterminal: every way to end restores the terminal.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize};

const PATIENCE: Duration = Duration::from_secs(60);
const ENTER_SCREEN: &str = "\x1b[?1049h";
const LEAVE_SCREEN: &str = "\x1b[?1049l";
const HIDE_CURSOR: &str = "\x1b[?25l";
const SHOW_CURSOR: &str = "\x1b[?25h";

/// A program on its own terminal.
struct Run {
    child: Child,
    keyboard: Option<File>,
    /// Reads the output until the terminal closes.
    reader: Option<JoinHandle<()>>,
    gone: Arc<AtomicBool>,
    terminal: File,
    shown: Arc<Mutex<String>>,
    before: Termios,
}

impl Run {
    fn start(program: impl AsRef<OsStr>, args: &[&str]) -> Self {
        // CLOEXEC, as the program would keep its own terminal open.
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let controller = openpt(flags).unwrap();
        grantpt(&controller).unwrap();
        unlockpt(&controller).unwrap();
        let name = ptsname(&controller, Vec::new()).unwrap();
        // Held open until the end, so that its settings can be read.
        let terminal =
            OpenOptions::new().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        let size = Winsize { ws_row: 24, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&terminal, size).unwrap();
        let before = tcgetattr(&terminal).unwrap();
        let mut command = Command::new(program);
        command
            .args(args)
            .env("TERM", "xterm")
            .stdin(terminal.try_clone().unwrap())
            .stdout(terminal.try_clone().unwrap())
            .stderr(terminal.try_clone().unwrap())
            .process_group(0);
        let child = command.spawn().unwrap();
        let keyboard = File::from(controller);
        let mut screen = keyboard.try_clone().unwrap();
        let shown = Arc::new(Mutex::new(String::new()));
        let to = Arc::clone(&shown);
        let gone = Arc::new(AtomicBool::new(false));
        let is_gone = Arc::clone(&gone);
        let reader = thread::spawn(move || {
            let look = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
            let mut bytes = [0; 4096];
            while !is_gone.load(Ordering::Relaxed) {
                if poll(&mut [PollFd::new(&screen, PollFlags::IN)], Some(&look)) == Ok(0) {
                    continue;
                }
                let Ok(n @ 1..) = screen.read(&mut bytes) else {
                    break;
                };
                *to.lock().unwrap() += &String::from_utf8_lossy(&bytes[..n]);
            }
        });
        Self {
            child,
            keyboard: Some(keyboard),
            reader: Some(reader),
            gone,
            terminal,
            shown,
            before,
        }
    }

    fn xdc_top() -> Self {
        // A background test may inherit an ignored SIGINT, which xdc would respect.
        let xdc = ["--default-signal=INT,TERM,HUP", env!("CARGO_BIN_EXE_xdc")];
        let run = Self::start("env", &[&xdc[..], &["top", "--interval", "50ms"]].concat());
        // A space may be a cursor move, so wait for a single word.
        run.wait_for("quit");
        run
    }

    fn shown(&self) -> String {
        self.shown.lock().unwrap().clone()
    }

    #[track_caller]
    fn wait_for(&self, words: &str) {
        let start = Instant::now();
        while !self.shown().contains(words) {
            assert!(start.elapsed() < PATIENCE, "no '{words}' in {:?}", self.shown());
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn press(&mut self, keys: &str) {
        let mut keyboard = self.keyboard.as_ref().unwrap();
        keyboard.write_all(keys.as_bytes()).unwrap();
    }

    fn is_raw(&self) -> bool {
        let now = tcgetattr(&self.terminal).unwrap();
        !now.local_modes.contains(LocalModes::ICANON)
    }

    /// Closes the terminal, like a lost connection.
    fn hang_up(&mut self) {
        self.gone.store(true, Ordering::Relaxed);
        self.reader.take().unwrap().join().unwrap();
        self.keyboard = None;
    }

    #[track_caller]
    fn status(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            if start.elapsed() >= PATIENCE {
                self.child.kill().unwrap();
                panic!("no end: {:?}", self.shown());
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits for the end, and compares the terminal with its first state.
    #[track_caller]
    fn ends(mut self) -> (ExitStatus, String) {
        let status = self.status();
        self.wait_for(LEAVE_SCREEN);
        let shown = self.shown();
        let last = |sequence: &str| shown.rfind(sequence);
        assert!(last(LEAVE_SCREEN) > last(ENTER_SCREEN), "{shown:?}");
        assert!(last(SHOW_CURSOR) >= last(HIDE_CURSOR), "{shown:?}");
        let after = tcgetattr(self.terminal.as_fd()).unwrap();
        let modes = |t: &Termios| {
            (
                t.input_modes,
                t.output_modes,
                t.control_modes,
                t.local_modes,
                format!("{:?}", t.special_codes),
            )
        };
        assert_eq!(modes(&after), modes(&self.before));
        (status, shown)
    }
}

impl Drop for Run {
    /// Ends the program if a test fails.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn q_ends_top() {
    let mut run = Run::xdc_top();
    assert!(run.is_raw());
    run.press("p");
    run.wait_for("PAUSED");
    run.press("q");
    assert_eq!(run.ends().0.code(), Some(0));
}

#[test]
fn ctrl_c_ends_top() {
    let mut run = Run::xdc_top();
    run.press("\x03");
    let (status, _) = run.ends();
    assert_eq!(status.code(), Some(130));
}

#[test]
fn signals_end_top() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let run = Run::xdc_top();
        kill_process(Pid::from_child(&run.child), signal).unwrap();
        let (status, _) = run.ends();
        assert_eq!(status.code(), Some(code));
    }
}

/// A guest controls the terminal, and is killed.
#[test]
fn ending_a_shell_restores_the_terminal() {
    let xdc = ["--default-signal=INT,TERM,HUP", env!("CARGO_BIN_EXE_xdc")];
    for engine in ["uml", "qemu"] {
        let shell = ["shell", "--engine", engine];
        let mut run = Run::start("env", &[&xdc[..], &shell].concat());
        let start = Instant::now();
        while !run.is_raw() {
            assert!(start.elapsed() < PATIENCE, "{:?}", run.shown());
            thread::sleep(Duration::from_millis(10));
        }
        kill_process(Pid::from_child(&run.child), Signal::TERM).unwrap();
        assert_eq!(run.status().code(), Some(143));
        assert!(!run.is_raw(), "{engine}");
        let after = tcgetattr(&run.terminal).unwrap();
        assert_eq!(after.output_modes, run.before.output_modes, "{engine}");
        assert_eq!(after.local_modes, run.before.local_modes, "{engine}");
    }
}

/// No output is possible, but the exit code reports the end.
#[test]
fn top_ends_with_its_terminal() {
    let mut run = Run::xdc_top();
    run.hang_up();
    assert_eq!(run.status().code(), Some(1));
}

/// Panics inside the screen, in an ignored unit test.
#[test]
fn a_panic_restores_the_terminal() {
    let own_tests = newest_unit_tests();
    let test = "live::observe::top::tests::panics_on_the_screen";
    let run = Run::start(own_tests, &["--exact", test, "--ignored", "--nocapture"]);
    run.wait_for(ENTER_SCREEN);
    let (status, shown) = run.ends();
    assert!(!status.success());
    let left = shown.find(LEAVE_SCREEN).expect("the screen is left");
    let message = shown.find("on purpose").expect("the panic's message");
    assert!(message > left, "{shown:?}");
}

/// The executable with the unit tests of src/, which cargo built with this one.
fn newest_unit_tests() -> PathBuf {
    let deps = std::env::current_exe().unwrap();
    let mut found: Vec<_> = deps
        .parent()
        .unwrap()
        .read_dir()
        .unwrap()
        .flatten()
        .filter(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            name.starts_with("xdc-") && !name.contains('.')
        })
        .map(|entry| (entry.metadata().unwrap().modified().unwrap(), entry.path()))
        .collect();
    found.sort();
    found.reverse();
    // xdc itself matches the name too: take the file that lists this test.
    let has_test = |path: &PathBuf| {
        let output = Command::new(path).args(["--list", "--ignored"]).stdin(Stdio::null()).output();
        output
            .is_ok_and(|out| String::from_utf8_lossy(&out.stdout).contains("panics_on_the_screen"))
    };
    let tests = found.into_iter().map(|(_, path)| path).find(has_test);
    tests.expect("cargo test builds the unit tests too")
}

#[test]
fn top_without_a_terminal_suggests_xdc_ss() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_xdc")).arg("top").stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("must be a terminal") && said.contains("xdc ss"), "{said}");
    assert!(output.stdout.is_empty());
}
