// SPDX-License-Identifier: GPL-2.0
//! How a kernel says that something is wrong with it. The host watches a guest's console for
//! these; a test in the guest makes such mistakes and looks whether they would be seen.

/// What only a report of a mistake has.
const ALARMS: &[&str] = &[
    "Kernel panic",
    "BUG: ",
    "Oops: ",
    "Oops[",
    "KASAN",
    "WARNING: ",
    "UBSAN: ",
    "kmemleak: ",
    "unreferenced object",
    "general protection fault",
    "rust_kernel: panicked",
    "INFO: task ",
    "INFO: trying to register",
    "rcu: INFO: ",
    "turning off the locking correctness validator",
    "unregister_netdevice: waiting for",
    "refcount_t: ",
    "list_add corruption",
    "list_del corruption",
    "Out of memory: ",
];

/// Of a kernel that has such detectors, at every boot.
const CHATTER: &[&str] = &[
    "KernelAddressSanitizer initialized",
    "kmemleak: Kernel memory leak detector initialized",
    "kmemleak: Automatic memory scanning thread started",
];

/// Whether this line of the kernel's log is one that ends a run.
pub fn is_alarm(line: &str) -> bool {
    let has = |texts: &[&str]| texts.iter().any(|text| line.contains(text));
    has(ALARMS) && !has(CHATTER)
}

/// Messages of a level below this one reach the console of a guest (`loglevel=`).
pub const CONSOLE_LEVEL: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alarms_are_told_from_chatter() {
        for line in [
            "Kernel panic - not syncing: Attempted",
            "BUG: KASAN: slab-out-of-bounds in x",
            "BUG: sleeping function called from invalid context at kernel/locking/mutex.c:1",
            "BUG: spinlock recursion on CPU#0, x/1",
            "BUG: unable to handle page fault for address: ffff",
            "WARNING: CPU: 0 PID: 1 at net/x.c:1",
            "WARNING: possible circular locking dependency detected",
            "WARNING: inconsistent lock state",
            "watchdog: BUG: soft lockup - CPU#0 stuck for 26s!",
            "INFO: task x:1 blocked for more than 120 seconds.",
            "INFO: trying to register non-static key.",
            "rcu: INFO: rcu_sched detected stalls on CPUs/tasks",
            "Oops: general protection fault, probably for non-canonical address",
            "UBSAN: shift-out-of-bounds in x",
            "kmemleak: Cannot allocate a kmemleak_object structure",
            "rust_kernel: panicked at 'attempt to add with overflow', x.rs:1",
            "unregister_netdevice: waiting for eth0 to become free. Usage count = 2",
        ] {
            assert!(is_alarm(&format!("[    1.0] {line}")), "{line}");
        }
        for line in [
            "kasan: KernelAddressSanitizer initialized (generic)",
            "kmemleak: Kernel memory leak detector initialized (mem pool available: 1)",
            "Linux version 7.3.4",
        ] {
            assert!(!is_alarm(&format!("[    0.0] {line}")), "{line}");
        }
    }
}
