// SPDX-License-Identifier: GPL-2.0
//! UML guests, built by `make`, with a hostile agent: their effects on the machine and on the
//! caller's terminal.

use std::ffi::OsString;
use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// Common start of the agents: mounts the host's folder and opens the channel for messages.
const BEGIN: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <unistd.h>
static int messages;
static void say(const char *line) { (void)!write(messages, line, strlen(line)); }
static void begin(void) {
    mkdir("/host", 0755);
    mount("none", "/host", "hostfs", 0, "/");
    messages = open("/host/messages", O_WRONLY | O_APPEND);
}
static void end(void) { sync(); reboot(RB_POWER_OFF); }
"#;

/// A checkout whose agent is this C program, and a place to run it.
struct Hostile {
    home: TempDir,
    temp: TempDir,
}

impl Hostile {
    fn new(program: &str) -> Self {
        let real = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let real = real.canonicalize().unwrap();
        let home = tempfile::tempdir().unwrap();
        let build = home.path().join("build");
        fs::create_dir(&build).unwrap();
        for name in ["scenarios", "userspace-tools"] {
            symlink(real.join(name), home.path().join(name)).unwrap();
        }
        symlink(real.join("build/uml"), build.join("uml")).unwrap();
        let source = home.path().join("agent.c");
        fs::write(&source, format!("{BEGIN}{program}")).unwrap();
        let compiled = Command::new("cc")
            .args(["-static", "-O1", "-o"])
            .arg(build.join("agent"))
            .arg(&source)
            .output()
            .unwrap();
        assert!(compiled.status.success(), "{compiled:?}");
        Self { home, temp: tempfile::tempdir().unwrap() }
    }

    fn args(&self) -> Vec<OsString> {
        let words = "run links --engine uml --cc cubic --timeout 60 --results";
        let words = words.split(' ').map(OsString::from);
        words.chain([self.home.path().join("results").into()]).collect()
    }

    fn envs(&self) -> [(&str, &Path); 2] {
        [("XDC_HOME", self.home.path()), ("TMPDIR", self.temp.path())]
    }

    fn run(&self) -> Output {
        self.run_by(Command::new(env!("CARGO_BIN_EXE_xdc")))
    }

    /// Runs within a limit of the shell's `ulimit`.
    fn run_within(&self, limit: &str) -> Output {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &format!("ulimit {limit}; exec \"$@\""), "sh"])
            .arg(env!("CARGO_BIN_EXE_xdc"));
        self.run_by(shell)
    }

    fn run_by(&self, mut command: Command) -> Output {
        command.args(self.args()).envs(self.envs()).env_remove("XDG_RUNTIME_DIR").output().unwrap()
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_guest_cannot_reach_host_files() {
    let victims = tempfile::tempdir().unwrap();
    let secret = victims.path().join("secret");
    fs::write(&secret, "precious").unwrap();
    let before = fs::metadata(&secret).unwrap().mode();
    // Escapes by `..`, at any depth of the guest's folder, and by links that the host follows.
    let program = r#"
int main(void) {
    char buffer[64];
    int n = 0, f;
    begin();
    mkdir("/out", 0755);
    mount("none", "/out", "hostfs", 0, "/../../../../../../../../../../VICTIMS");
    f = open("/out/secret", O_RDONLY);
    if (f >= 0 && read(f, buffer, sizeof buffer) > 0) n |= 1;
    f = open("/out/written", O_WRONLY | O_CREAT, 0755);
    if (f >= 0) n |= 2;
    if (chmod("/out/secret", 04755) == 0) n |= 4;
    if (truncate("/out/secret", 0) == 0) n |= 8;
    if (unlink("/out/secret") == 0) n |= 16;
    if (chown("/out/secret", 1, 1) == 0) n |= 32;
    symlink("VICTIMS/secret", "/host/link");
    f = open("/host/link", O_RDONLY);
    if (f >= 0 && read(f, buffer, 8) == 8 && !memcmp(buffer, "precious", 8)) n |= 64;
    f = open("/host/own", O_WRONLY | O_CREAT, 0755);
    if (f >= 0 && fchmod(f, 04755) == 0) n |= 128;
    strcpy(buffer, "{\"type\":\"error\",\"what\":\"got through: 000\"}\n");
    char *digits = strstr(buffer, "000");
    digits[0] += n / 100, digits[1] += n / 10 % 10, digits[2] += n % 10;
    say(buffer);
    end();
}
"#;
    let program = program.replace("VICTIMS", victims.path().to_str().unwrap());
    let output = Hostile::new(&program).run();
    let said = said(&output);
    assert!(said.contains("got through: 000"), "{said}");
    assert_eq!(fs::read_to_string(&secret).unwrap(), "precious");
    assert_eq!(fs::metadata(&secret).unwrap().mode(), before);
    assert_eq!(fs::read_dir(victims.path()).unwrap().count(), 1);
}

#[test]
fn guest_output_cannot_control_the_terminal() {
    let program = r#"
int main(void) {
    begin();
    (void)!write(1, "WARNING: \033[31mred\n", 18);
    say("{\"type\":\"error\",\"what\":\"\\u001b]0;owned\\u0007\\u001b[2Jxdc: all is well\"}\n");
    end();
}
"#;
    let output = Hostile::new(program).run();
    let text = said(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("\\u{1b}]0;owned\\u{7}"), "{text}");
    assert!(!text.contains(['\u{1b}', '\u{7}']), "{text}");
}

#[test]
fn a_guest_with_endless_output_is_ended() {
    let program = r#"
static char buffer[1 << 20];
int main(void) {
    begin();
    memset(buffer, 'x', sizeof buffer);
    while (write(messages, buffer, sizeof buffer) > 0);
    for (;;) pause();
}
"#;
    let hostile = Hostile::new(program);
    let output = hostile.run();
    let text = said(&output);
    assert!(text.contains("without a newline"), "{text}");
    assert_eq!(output.status.code(), Some(1), "{text}");
    // Only the console stays, and --timeout did not end the run.
    assert_eq!(fs::read_dir(hostile.temp.path()).unwrap().count(), 0);
    let results = hostile.home.path().join("results");
    let mut folders = fs::read_dir(results).unwrap().map(|it| it.unwrap().path());
    let failed: Vec<_> = folders.by_ref().flat_map(|it| fs::read_dir(it).unwrap()).collect();
    assert!(failed.len() == 1, "{failed:?}");
}

#[test]
fn a_guest_that_fills_its_folder_is_ended() {
    let program = r#"
int main(void) {
    char name[32] = "/host/file0000000";
    begin();
    for (int n = 0; n < 1000000; n++) {
        for (int i = 16, rest = n; i >= 10; i--, rest /= 10) name[i] = '0' + rest % 10;
        close(open(name, O_WRONLY | O_CREAT, 0600));
    }
    for (;;) pause();
}
"#;
    let hostile = Hostile::new(program);
    let output = hostile.run();
    let text = said(&output);
    assert!(text.contains("has made more than"), "{text}");
    assert_eq!(fs::read_dir(hostile.temp.path()).unwrap().count(), 0);
}

/// Runs a probe confined like a UML guest.
fn confined(probe: &str, writable: &Path, words: &[&str]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("probe.c");
    fs::write(&source, probe).unwrap();
    let program = dir.path().join("probe");
    let compiled = Command::new("cc")
        .args(["-static", "-O1", "-o"])
        .args([&program, &source])
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{compiled:?}");
    Command::new(env!("CARGO_BIN_EXE_xdc"))
        .args(["tethered", &std::process::id().to_string()])
        .args(["limit", "1000000", "read"])
        .arg(&program)
        .arg("write")
        .arg(writable)
        .args(["confine", "--"])
        .arg(&program)
        .args(words)
        .output()
        .unwrap()
}

/// Landlock does not restrict path sockets, UDP, System V shared memory, process limits, names
/// (inotify) or terminal input. Each line is an attempt that succeeds under Landlock alone.
#[test]
fn a_guest_cannot_reach_other_processes() {
    const PROBE: &str = r#"
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <signal.h>
#include <sys/msg.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <termios.h>
#include <sys/xattr.h>
#include <sched.h>
#include <unistd.h>
#define WAY(what, got) do { if (got) puts(what); } while (0)
int main(int argc, char **argv) {
    struct sockaddr_un path = { .sun_family = AF_UNIX };
    struct sockaddr_in udp = { .sin_family = AF_INET, .sin_port = htons(atoi(argv[2])) };
    struct rlimit limit;
    struct sched_param param = { 0 };
    int pair[2] = { -1, -1 };
    strcpy(path.sun_path, argv[1]);
    udp.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    WAY("a socket by its path", !connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&path, sizeof path));
    WAY("UDP", sendto(socket(AF_INET, SOCK_DGRAM, 0), "x", 1, 0, (void *)&udp, sizeof udp) == 1);
    WAY("netlink", socket(AF_NETLINK, SOCK_RAW, 0) >= 0);
    strcat(path.sun_path, ".datagrams");
    socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
    WAY("a pair of datagram sockets", sendto(pair[0], "x", 1, 0, (void *)&path, sizeof path) == 1);
    socketpair(AF_UNIX, SOCK_RAW, 0, pair);
    WAY("a pair of raw sockets", sendto(pair[0], "x", 1, 0, (void *)&path, sizeof path) == 1);
    WAY("shared memory", shmget(IPC_PRIVATE, 4096, 0600) >= 0);
    WAY("semaphores", semget(IPC_PRIVATE, 1, 0600) >= 0);
    WAY("a queue of System V", msgget(IPC_PRIVATE, 0600) >= 0);
    WAY("a queue of POSIX", mq_open("/xdc-test", O_RDWR | O_CREAT, 0600, NULL) >= 0);
    WAY("limits of another process", !prlimit(getppid(), RLIMIT_CORE, NULL, &limit));
    WAY("the priority of another process", !setpriority(PRIO_PROCESS, getppid(), 0));
    WAY("the scheduler of another process", !sched_setscheduler(getppid(), SCHED_OTHER, &param));
    struct { unsigned long flags, rest[10]; } args = { CLONE_NEWUSER, { 0, 0, 0, SIGCHLD } };
    WAY("a user namespace", !syscall(SYS_unshare, CLONE_NEWUSER));
    long child = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
    if (!child) _exit(0);
    WAY("a child in a user namespace", child > 0);
    child = syscall(SYS_clone3, &args, sizeof args);
    if (!child) _exit(0);
    WAY("a child in a user namespace, by clone3", child > 0);
    /* Ways to outlive the run. */
    int status = 0;
    if (!(child = fork())) _exit(setsid() >= 0 || !setpgid(0, 0));
    WAY("a child outside of its group", waitpid(child, &status, 0) != child || status);
    child = syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);
    if (!child) _exit(0);
    WAY("a child of the parent", child > 0);
    WAY("a life beyond the end of xdc", !prctl(PR_SET_PDEATHSIG, 0));
    WAY("open files that xdc cannot count", !prctl(PR_SET_DUMPABLE, 0));
    WAY("signals", !kill(getppid(), 0));
    WAY("ptrace", !ptrace(PTRACE_SEIZE, getppid(), 0, 0));
    /* Names, contents and memory of others. */
    int names = inotify_init1(IN_NONBLOCK);
    WAY("names, by inotify", inotify_add_watch(names, "/", IN_ALL_EVENTS) >= 0);
    WAY("names, by fanotify", syscall(SYS_fanotify_init, 0, 0) >= 0);
    WAY("page faults", syscall(SYS_userfaultfd, 1) >= 0);
    struct { struct file_handle it; char rest[128]; } handle = { { .handle_bytes = 128 } };
    int mount;
    WAY("handles of files", !name_to_handle_at(AT_FDCWD, "/etc", &handle.it, &mount, 0));
    char byte;
    struct iovec here = { &byte, 1 }, there = { argv, 1 };
    WAY("memory of another process", process_vm_readv(getppid(), &here, 1, &there, 1, 0) >= 0 || errno != ENOSYS);
    WAY("other processes", syscall(SYS_pidfd_open, getppid(), 0) >= 0);
    WAY("resources shared with another process", !syscall(SYS_kcmp, getppid(), getpid(), 0, 0, 0) || errno != ENOSYS);
    WAY("a context of AIO", !syscall(SYS_io_setup, 1, &(unsigned long){0}));
    WAY("io_uring", syscall(SYS_io_uring_setup, 1, (char[256]){0}) >= 0);
    WAY("counters of the processor", syscall(SYS_perf_event_open, 0, 0, -1, -1, 0) >= 0 || errno != ENOSYS);
    WAY("keys of the kernel", syscall(SYS_keyctl, 0, -3, 0) >= 0);
    WAY("the mounts", syscall(SYS_open_tree, AT_FDCWD, "/", 0) >= 0);
    WAY("the mounts, by number", syscall(457, (char[64]){0}, (char[512]){0}, 512, 0) >= 0 || errno != ENOSYS);
    WAY("a mode", !chmod(argv[3], 0777));
    WAY("an owner", !chown(argv[3], getuid(), getgid()));
    WAY("a time", !utimensat(AT_FDCWD, argv[3], NULL, 0));
    WAY("attributes", getxattr(argv[3], "user.x", &byte, 1) >= 0 || errno != ENOSYS);
    WAY("a call of x32", syscall(SYS_getpid | 0x40000000) >= 0);
    WAY("a call of later kernels", syscall(460) >= 0 || errno != ENOSYS);
    /* Without a terminal, EPERM shows a refusal before the kernel looks for one. */
    WAY("keys of a terminal", ioctl(0, TIOCSTI, "x") && errno != EPERM);
    WAY("another use of a terminal", ioctl(0, TIOCSETD, &mount) && errno != EPERM);
    WAY("a frozen terminal", ioctl(0, TCXONC, TCOOFF) && errno != EPERM);
    WAY("an exclusive terminal", ioctl(0, TIOCEXCL) && errno != EPERM);
    WAY("the size of a terminal", ioctl(0, TIOCSWINSZ, &byte) && errno != ENOSYS);
    WAY("a file that becomes a terminal's", ioctl(0, FIOASYNC, &mount) && errno != ENOSYS);
    /* The kernel reads the lower half of the word. */
    WAY("keys, by a longer number", ioctl(0, TIOCSTI | 1ul << 32, "x") && errno != EPERM);
    /* What User Mode Linux needs. */
    puts(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) ? "no pair of streams" : "a pair of streams");
    puts(memfd_create("x", 0) < 0 ? "no memory" : "memory");
    puts(getrlimit(RLIMIT_STACK, &limit) ? "no limits of its own" : "limits of its own");
    puts(isatty(0) || errno != ENOTTY ? "no modes of a terminal" : "modes of a terminal");
    return 0;
}
"#;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let _stream = UnixListener::bind(&path).unwrap();
    let _datagrams = UnixDatagram::bind(dir.path().join("socket.datagrams")).unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = udp.local_addr().unwrap().port().to_string();
    let writable = tempfile::tempdir().unwrap();
    let words = [path.to_str().unwrap(), &port, writable.path().to_str().unwrap()];
    let output = confined(PROBE, writable.path(), &words);
    let through = String::from_utf8_lossy(&output.stdout);
    assert_eq!(
        through, "a pair of streams\nmemory\nlimits of its own\nmodes of a terminal\n",
        "{output:?}"
    );
}

/// Prints little, then at its end more than memory can hold.
#[test]
fn endless_last_output_is_read_in_parts() {
    let program = r#"
static char valid[1 << 20], lines[1 << 20];
int main(void) {
    static const char word[] = "{\"type\":\"progress\",\"what\":\"\",\"done\":0.0}\n";
    begin();
    for (unsigned i = 0; i < sizeof valid; i++) valid[i] = word[i % (sizeof word - 1)];
    memset(lines, '\n', sizeof lines);
    /* Enough to delay the host, to the end of a line, and then empty lines. */
    for (int i = 0; i < 400; i++) (void)!write(messages, valid, sizeof valid / (sizeof word - 1) * (sizeof word - 1));
    for (int i = 0; i < 400; i++) (void)!write(messages, lines, sizeof lines);
    end();
}
"#;
    let hostile = Hostile::new(program);
    // 400 MB of empty lines are 10 GB of strings; the guest maps more than 4.
    let output = hostile.run_within("-v 7000000");
    let text = said(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("unexpected message from the guest"), "{text}");
    assert_eq!(fs::read_dir(hostile.temp.path()).unwrap().count(), 0);
}

/// Nested deeper than a process has file descriptors.
#[test]
fn deep_folders_of_a_guest_are_removed() {
    let program = r#"
int main(void) {
    begin();
    (void)!chdir("/host");
    for (int i = 0; i < 500; i++)
        if (mkdir("d", 0700) || chdir("d")) break;
    mkdir("closed", 0300);
    say("{\"type\":\"error\",\"what\":\"made\"}\n");
    end();
}
"#;
    let hostile = Hostile::new(program);
    let output = hostile.run_within("-n 256");
    let text = said(&output);
    assert!(text.contains("made"), "{text}");
    assert_eq!(fs::read_dir(hostile.temp.path()).unwrap().count(), 0);
}

/// From a guest that ends at once, before xdc has read its files.
#[test]
fn shared_files_of_a_shell_are_kept_up_to_a_limit() {
    let program = r#"
int main(void) {
    char name[] = "/host/shared/owner0";
    begin();
    for (int n = 0; n < FILES; n++) {
        name[sizeof name - 2] = n ? '0' + n : 0;
        int f = open(name, O_WRONLY | O_CREAT, 0600);
        (void)!ftruncate(f, n ? 4000L << 20 : 1);
        close(f);
    }
    end();
}
"#;
    for (files, kept) in [("1", true), ("4", false)] {
        let hostile = Hostile::new(&program.replace("FILES", files));
        let mut shell = Command::new(env!("CARGO_BIN_EXE_xdc"))
            .args(["shell", "--engine", "uml", "--results"])
            .arg(hostile.home.path().join("results"))
            .envs(hostile.envs())
            .env_remove("XDG_RUNTIME_DIR")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // Held until the guest has ended.
        let input = shell.stdin.take();
        let output = shell.wait_with_output().unwrap();
        drop(input);
        let text = said(&output);
        assert_eq!(output.status.success(), kept, "{text}");
        assert_eq!(text.contains("has made more than"), !kept, "{text}");
        let left = hostile.home.path().join("results/shell/1/shared/owner");
        assert_eq!(left.exists(), kept, "{text}");
        assert_eq!(fs::read_dir(hostile.temp.path()).unwrap().count(), 0);
    }
}
