// SPDX-License-Identifier: GPL-2.0
//! System calls allowed to a confined guest's process (User Mode Linux or QEMU).
//!
//! Landlock does not restrict: modes, owners and times of files; names (inotify); sockets, by which
//! another program of the same user acts for the guest; memory, limits and priorities of that
//! user's processes; keys typed into a terminal; and calls of root, such as mount. An unlisted call
//! does not exist for the guest; nor do calls of later kernels.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch,
};

/// One line per purpose. `selftests/guest` in both engines shows missing calls.
#[rustfmt::skip]
const ALLOWED: &[i64] = &[
    // Files that are open or allowed by Landlock.
    libc::SYS_read, libc::SYS_readv, libc::SYS_pread64, libc::SYS_preadv, libc::SYS_preadv2,
    libc::SYS_write, libc::SYS_writev, libc::SYS_pwrite64, libc::SYS_pwritev, libc::SYS_pwritev2,
    libc::SYS_open, libc::SYS_openat, libc::SYS_openat2, libc::SYS_creat,
    libc::SYS_close, libc::SYS_close_range, libc::SYS_lseek, libc::SYS_dup, libc::SYS_dup2, libc::SYS_dup3,
    libc::SYS_fcntl, libc::SYS_flock, libc::SYS_ioctl, libc::SYS_fadvise64,
    libc::SYS_fsync, libc::SYS_fdatasync, libc::SYS_fallocate, libc::SYS_truncate, libc::SYS_ftruncate,
    libc::SYS_stat, libc::SYS_fstat, libc::SYS_lstat, libc::SYS_newfstatat, libc::SYS_statx,
    libc::SYS_statfs, libc::SYS_fstatfs, libc::SYS_access, libc::SYS_faccessat, libc::SYS_faccessat2,
    libc::SYS_getdents64, libc::SYS_getcwd, libc::SYS_fchdir,
    libc::SYS_readlink, libc::SYS_readlinkat,
    libc::SYS_mkdir, libc::SYS_mkdirat, libc::SYS_rmdir, libc::SYS_unlink, libc::SYS_unlinkat,
    libc::SYS_rename, libc::SYS_renameat, libc::SYS_renameat2, libc::SYS_link, libc::SYS_linkat,
    libc::SYS_symlink, libc::SYS_symlinkat, libc::SYS_mknod, libc::SYS_mknodat, libc::SYS_umask,
    // Memory.
    libc::SYS_brk, libc::SYS_mmap, libc::SYS_munmap, libc::SYS_mremap, libc::SYS_mprotect,
    libc::SYS_madvise, libc::SYS_msync, libc::SYS_mincore, libc::SYS_memfd_create,
    libc::SYS_mlock, libc::SYS_munlock, libc::SYS_membarrier,
    // Pipes and polling.
    libc::SYS_pipe, libc::SYS_pipe2, libc::SYS_socketpair, libc::SYS_sendmsg, libc::SYS_recvmsg,
    libc::SYS_sendto, libc::SYS_recvfrom, libc::SYS_shutdown,
    libc::SYS_poll, libc::SYS_ppoll, libc::SYS_select, libc::SYS_pselect6,
    libc::SYS_epoll_create, libc::SYS_epoll_create1, libc::SYS_epoll_ctl, libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait, libc::SYS_epoll_pwait2, libc::SYS_eventfd, libc::SYS_eventfd2, libc::SYS_signalfd4,
    // Time.
    libc::SYS_clock_gettime, libc::SYS_clock_getres, libc::SYS_gettimeofday, libc::SYS_time,
    libc::SYS_clock_nanosleep, libc::SYS_nanosleep, libc::SYS_alarm, libc::SYS_getitimer, libc::SYS_setitimer,
    libc::SYS_timer_create, libc::SYS_timer_settime, libc::SYS_timer_gettime, libc::SYS_timer_getoverrun,
    libc::SYS_timer_delete, libc::SYS_timerfd_create, libc::SYS_timerfd_settime, libc::SYS_timerfd_gettime,
    // Threads, children and their signals. With Landlock ABI 6 signals reach no other process.
    libc::SYS_clone, libc::SYS_fork, libc::SYS_vfork, libc::SYS_execve, libc::SYS_execveat,
    libc::SYS_exit, libc::SYS_exit_group, libc::SYS_wait4, libc::SYS_waitid,
    libc::SYS_futex, libc::SYS_set_robust_list, libc::SYS_get_robust_list, libc::SYS_rseq,
    libc::SYS_set_tid_address, libc::SYS_arch_prctl, libc::SYS_sched_yield, libc::SYS_sched_getaffinity,
    libc::SYS_sched_getparam, libc::SYS_sched_getscheduler, libc::SYS_getcpu, libc::SYS_getpriority,
    libc::SYS_kill, libc::SYS_tkill, libc::SYS_tgkill, libc::SYS_pause, libc::SYS_restart_syscall,
    libc::SYS_rt_sigaction, libc::SYS_rt_sigprocmask, libc::SYS_rt_sigpending, libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigsuspend, libc::SYS_rt_sigtimedwait, libc::SYS_sigaltstack,
    // The process itself.
    libc::SYS_getpid, libc::SYS_getppid, libc::SYS_gettid, libc::SYS_getpgrp, libc::SYS_getpgid,
    libc::SYS_getsid, libc::SYS_getuid, libc::SYS_geteuid,
    libc::SYS_getgid, libc::SYS_getegid, libc::SYS_getresuid, libc::SYS_getresgid, libc::SYS_getgroups,
    libc::SYS_capget, libc::SYS_prctl, libc::SYS_personality, libc::SYS_seccomp, libc::SYS_prlimit64,
    libc::SYS_getrlimit, libc::SYS_setrlimit, libc::SYS_getrusage, libc::SYS_times,
    libc::SYS_uname, libc::SYS_sysinfo, libc::SYS_getrandom,
];

/// Terminal requests of User Mode Linux; terminal modes are restored after the guest's end. Other
/// requests freeze the terminal, lock it or change its size.
const OF_TERMINALS: &[u64] = &[
    libc::TCGETS,
    libc::TCSETS,
    libc::TCSETSW,
    libc::TCSETSF,
    libc::TIOCGWINSZ,
    // Requests of later libraries.
    libc::TCGETS2,
    libc::TCSETS2,
    libc::TCSETSW2,
    libc::TCSETSF2,
];

/// QEMU's 9p reads file attributes and sets none. Landlock does not restrict this.
const ATTRIBUTES: &[i64] =
    &[libc::SYS_getxattr, libc::SYS_lgetxattr, libc::SYS_fgetxattr, libc::SYS_llistxattr];

/// Denied arguments of a listed call: call, argument, comparison, value. All are ints, so the
/// kernel and the filter ignore the upper halves.
const DENIED_FOR: &[(i64, u8, SeccompCmpOp, u64)] = &[
    // Limits of another process: a CPU time limit ends it.
    (libc::SYS_prlimit64, 0, SeccompCmpOp::Ne, 0),
    // A datagram socket pair can be redirected to any socket: UML uses stream pairs.
    (libc::SYS_socketpair, 0, SeccompCmpOp::Ne, libc::AF_UNIX as u64),
    (libc::SYS_socketpair, 1, OF_TYPE, libc::SOCK_DGRAM as u64),
    (libc::SYS_socketpair, 1, OF_TYPE, libc::SOCK_RAW as u64),
    // Types keys into the terminal from which a shell was started.
    (libc::SYS_ioctl, 1, SeccompCmpOp::Eq, libc::TIOCSTI),
    (libc::SYS_ioctl, 1, SeccompCmpOp::Eq, libc::TIOCLINUX),
    // Turns the terminal into one of a modem, a mouse or a network device.
    (libc::SYS_ioctl, 1, SeccompCmpOp::Eq, TIOCSETD),
    // Freezes the terminal, and locks out other programs.
    (libc::SYS_ioctl, 1, SeccompCmpOp::Eq, libc::TCXONC),
    (libc::SYS_ioctl, 1, SeccompCmpOp::Eq, libc::TIOCEXCL),
    // Hides open files from xdc.
    (libc::SYS_prctl, 0, SeccompCmpOp::Eq, libc::PR_SET_DUMPABLE as u64),
    // Makes the child a child of xdc instead.
    having(libc::CLONE_PARENT),
    // A child in its own namespaces has all capabilities of root there.
    having(libc::CLONE_NEWNS),
    having(libc::CLONE_NEWCGROUP),
    having(libc::CLONE_NEWUTS),
    having(libc::CLONE_NEWIPC),
    having(libc::CLONE_NEWUSER),
    having(libc::CLONE_NEWPID),
    having(libc::CLONE_NEWNET),
];

/// asm-generic/ioctls.h
const TIOCSETD: u64 = 0x5423;

/// clone(2) with this flag. clone3(2), with flags in memory, is unlisted: libraries fall back to
/// clone(2).
const fn having(flag: i32) -> (i64, u8, SeccompCmpOp, u64) {
    let flag = flag as u32 as u64;
    (libc::SYS_clone, 0, SeccompCmpOp::MaskedEq(flag), flag)
}

/// Socket type; the other bits are flags.
const OF_TYPE: SeccompCmpOp = SeccompCmpOp::MaskedEq(0xf);

type Filter = std::result::Result<BpfProgram, BackendError>;

/// Both filters apply; the kernel takes the strictest result.
pub fn filters(is_qemu: bool) -> [Filter; 2] {
    [allowed(is_qemu), denied()]
}

/// ENOSYS makes libraries do without a call, as on an older kernel; EPERM ends some of them.
fn allowed(is_qemu: bool) -> Filter {
    let more: &[i64] = if is_qemu { ATTRIBUTES } else { &[] };
    let all = ALLOWED.iter().chain(more);
    let mut rules: BTreeMap<_, _> = all.map(|&call| (call, Vec::new())).collect();
    if !is_qemu {
        let rule = |&request| SeccompRule::new(vec![condition(1, SeccompCmpOp::Eq, request)?]);
        let requests = OF_TERMINALS.iter().map(rule).collect::<Result<_, _>>()?;
        rules.insert(libc::SYS_ioctl, requests);
    }
    SeccompFilter::new(
        rules,
        SeccompAction::Errno(libc::ENOSYS as u32),
        SeccompAction::Allow,
        TargetArch::x86_64,
    )?
    .try_into()
}

fn denied() -> Filter {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for (call, argument, compare, value) in DENIED_FOR {
        let rule = SeccompRule::new(vec![condition(*argument, compare.clone(), *value)?])?;
        rules.entry(*call).or_default().push(rule);
    }
    // The guest must die with xdc.
    let outlive = SeccompRule::new(vec![
        condition(0, SeccompCmpOp::Eq, libc::PR_SET_PDEATHSIG as u64)?,
        condition(1, SeccompCmpOp::Ne, libc::SIGKILL as u64)?,
    ])?;
    rules.entry(libc::SYS_prctl).or_default().push(outlive);
    SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Errno(libc::EPERM as u32),
        TargetArch::x86_64,
    )?
    .try_into()
}

fn condition(
    argument: u8,
    compare: SeccompCmpOp,
    value: u64,
) -> std::result::Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, compare, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seccomp_filters_compile() {
        for is_qemu in [false, true] {
            assert!(filters(is_qemu).iter().all(|filter| filter.is_ok()));
        }
    }

    /// Otherwise the second filter has no effect.
    #[test]
    fn filtered_arguments_belong_to_allowed_calls() {
        assert!(DENIED_FOR.iter().all(|(call, ..)| ALLOWED.contains(call)));
    }
}
