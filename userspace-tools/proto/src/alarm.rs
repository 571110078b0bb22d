// SPDX-License-Identifier: GPL-2.0
//! Kernel error reports. The host watches a guest's console for them and ends the run at the first.
//!
//! The module xdc_alarm makes such mistakes on purpose. If it announces one, with a line in the
//! kernel's log before and after, exactly one report of that mistake must come between the two
//! lines.

/// Texts that occur only in error reports.
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

/// Harmless lines that contain one of [`ALARMS`].
const CHATTER: &[&str] = &[
    // Boot messages of a kernel with these detectors.
    "KernelAddressSanitizer initialized",
    "kmemleak: Kernel memory leak detector initialized",
    "kmemleak: Automatic memory scanning thread started",
    // Fault injection failed an allocation of kmemleak's, which then scans the whole object.
    "kmemleak: Cannot allocate a scan area, scanning the full object",
    // Fault injection while a module with tracepoints is loaded: the kernel warns about itself.
    " at event_define_fields+",
];

/// Kinds of mistakes that xdc_alarm makes, and the kernel's report of each. The order matters:
/// lockdep turns itself off after its first report and after KASAN's.
pub const MISTAKES: [(&str, &str); 4] = [
    ("lockdep", "possible circular locking dependency"),
    ("sleep", "sleeping function called from invalid context"),
    ("warn", "WARNING: "),
    ("kasan", "BUG: KASAN"),
];

/// Log lines before and after an announced mistake; the kind follows.
const ANNOUNCED: &str = "xdc_alarm: on purpose: ";
const MADE: &str = "xdc_alarm: made: ";

/// Printed before a console line that a report interrupted, which the kernel prints again in full
/// (kernel/printk/printk.c, console_prepend_replay).
const REPLAY: &str = "** replaying previous printk message **";

/// Returns whether this line of the kernel's log reports a mistake.
pub fn is_alarm(line: &str) -> bool {
    let has = |texts: &[&str]| texts.iter().any(|text| line.contains(text));
    has(ALARMS) && !has(CHATTER)
}

/// Console log level of a guest (`loglevel=`): messages below this level are shown.
pub const CONSOLE_LEVEL: u32 = 5;

/// Checks a kernel's log, line by line.
#[derive(Debug, Default)]
pub struct Listener {
    /// Announced mistake: kind, expected report, and whether the report has come.
    announced: Option<(&'static str, &'static str, bool)>,
    /// The next line is a replay ([`REPLAY`]).
    replays: bool,
}

impl Listener {
    /// Takes a line; returns the reason to end the run, if the line gives one.
    pub fn hear(&mut self, line: &str) -> Option<String> {
        let replayed = std::mem::replace(&mut self.replays, line.contains(REPLAY));
        if let Some((_, kind)) = line.split_once(ANNOUNCED) {
            if replayed && self.announced.is_some_and(|(known, ..)| known == kind.trim()) {
                return None;
            }
            let nested = self.end();
            let known = MISTAKES.into_iter().find(|known| known.0 == kind.trim());
            self.announced = known.map(|(kind, report)| (kind, report, false));
            return nested.or_else(|| match self.announced {
                Some(_) => None,
                None => Some(format!("unknown kind of injected error: {}", line.trim())),
            });
        }
        if line.contains(MADE) {
            return self.end();
        }
        if !is_alarm(line) {
            return None;
        }
        if let Some((_, report, heard @ false)) = &mut self.announced
            && line.contains(*report)
        {
            *heard = true;
            return None;
        }
        Some(format!("the guest's kernel reports: {}", line.trim()))
    }

    /// Ends the log or an announcement; returns an error if the announced report has not come.
    pub fn end(&mut self) -> Option<String> {
        let (kind, _, heard) = self.announced.take()?;
        (!heard).then(|| format!("the guest's kernel did not report the injected error {kind}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alarms_are_found_and_chatter_is_ignored() {
        for line in [
            "Kernel panic - not syncing: Attempted",
            "BUG: KASAN: slab-out-of-bounds in x",
            "BUG: sleeping function called from invalid context at kernel/locking/mutex.c:1",
            "BUG: spinlock recursion on CPU#0, x/1",
            "BUG: unable to handle page fault for address: ffff",
            "WARNING: CPU: 0 PID: 1 at net/x.c:1",
            "WARNING: kernel/trace/trace_events.c:1 at event_create_dir+0x1/0x2",
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
            "WARNING: kernel/trace/trace_events.c:3147 at event_define_fields+0x604/0x620, CPU#0: x/1",
        ] {
            assert!(!is_alarm(&format!("[    0.0] {line}")), "{line}");
        }
    }

    /// Returns the reasons to end a run with this log.
    fn reasons(log: &[&str]) -> Vec<String> {
        let mut listener = Listener::default();
        let mut found: Vec<String> = log.iter().filter_map(|line| listener.hear(line)).collect();
        found.extend(listener.end());
        found
    }

    #[test]
    fn an_announced_mistake_needs_exactly_one_report() {
        let (start, report) =
            ("[1.0] xdc_alarm: on purpose: kasan", "[1.1] BUG: KASAN: slab-out-of-bounds in x");
        let end = "[1.2] xdc_alarm: made: kasan";
        assert_eq!(reasons(&[start, report, end]), [""; 0]);
        let silent = "the guest's kernel did not report the injected error kasan";
        assert_eq!(reasons(&[start, end]), [silent]);
        assert_eq!(reasons(&[start]), [silent]);
        assert_eq!(reasons(&[start, start, report, end]), [silent]);
        assert_eq!(reasons(&[start, REPLAY, start, report, end]), [""; 0]);
        assert_eq!(reasons(&[start, REPLAY, start, end]), [silent]);
        assert_eq!(reasons(&[start, REPLAY, "other", start, end]).len(), 2);
        for unexpected in [
            &[report][..],
            &[start, report, report, end],
            &[start, report, end, report],
            &[start, report, "WARNING: CPU: 0", end],
            &["xdc_alarm: on purpose: unicorn", end],
        ] {
            assert_eq!(reasons(unexpected).len(), 1, "{unexpected:?}");
        }
    }
}
