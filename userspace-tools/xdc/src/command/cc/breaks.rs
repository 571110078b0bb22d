// SPDX-License-Identifier: GPL-2.0
//! Changes of the kernel's interface that break older congestion controls in C, with the fix.

/// A change, and the traces that it leaves.
struct Break {
    /// Text in the line of an error.
    said: &'static str,
    /// Text in that line, or in one of the next [`NEAR`] before the next error.
    near: &'static str,
    what: &'static str,
    fix: &'static str,
}

/// Lines that clang prints for an error.
const NEAR: usize = 5;

const TYPES: &str = "incompatible function pointer types";
const FIELD: &str = "does not refer to any field";
const FEW: &str = "too few arguments";

const fn changed(
    said: &'static str,
    near: &'static str,
    what: &'static str,
    fix: &'static str,
) -> Break {
    Break { said, near, what, fix }
}

const fn gone(name: &'static str, what: &'static str, fix: &'static str) -> Break {
    changed("undeclared", name, what, fix)
}

const BREAKS: &[Break] = &[
    changed(
        TYPES,
        ".cong_control",
        "Linux 6.10 gave cong_control the arguments 'ack' and 'flag'",
        "void NAME(struct sock *sk, u32 ack, int flag, const struct rate_sample *rs)",
    ),
    changed(
        TYPES,
        ".pkts_acked",
        "Linux 4.7 changed the arguments of pkts_acked",
        "void NAME(struct sock *sk, const struct ack_sample *sample)",
    ),
    changed(
        TYPES,
        ".cong_avoid",
        "cong_avoid has other arguments",
        "void NAME(struct sock *sk, u32 ack, u32 acked)",
    ),
    changed(TYPES, ".min_tso_segs", "min_tso_segs has another type", "u32 NAME(struct sock *sk)"),
    changed(
        TYPES,
        ".in_ack_event",
        "in_ack_event has another type",
        "void NAME(struct sock *sk, u32 flags)",
    ),
    changed(
        TYPES,
        ".get_info",
        "Linux 4.1 changed the type of get_info",
        "size_t NAME(struct sock *sk, u32 ext, int *attr, union tcp_cc_info *info)",
    ),
    changed(
        TYPES,
        ".proc_handler",
        "Linux 6.11 made the table of a sysctl handler const",
        "int NAME(const struct ctl_table *table, int write, void *buffer, size_t *len, loff_t *pos)",
    ),
    changed(
        FIELD,
        "'tso_segs",
        "struct tcp_congestion_ops has neither tso_segs_goal nor tso_segs, but min_tso_segs",
        ".min_tso_segs, of type u32 (struct sock *sk): the smallest number of segments in a burst",
    ),
    changed(
        FIELD,
        "'rtt_sample'",
        "struct tcp_congestion_ops has no rtt_sample",
        ".pkts_acked, whose struct ack_sample has rtt_us",
    ),
    changed(
        FIELD,
        "'struct tcp_congestion_ops'",
        "a field is not in this kernel's struct tcp_congestion_ops; some algorithms need a patched kernel",
        "without this field; include/net/tcp.h of the kernel has all fields",
    ),
    changed(
        "ICSK_CA_PRIV_SIZE",
        "",
        "the state of a socket is larger than ICSK_CA_PRIV_SIZE, 104 bytes",
        "a smaller struct, or one that init allocates and release frees",
    ),
    changed(
        FEW,
        "tcp_slow_start(",
        "tcp_slow_start takes the acknowledged packets and returns the unused ones",
        "acked = tcp_slow_start(tp, acked)",
    ),
    changed(
        FEW,
        "tcp_cong_avoid_ai(",
        "tcp_cong_avoid_ai takes the acknowledged packets",
        "tcp_cong_avoid_ai(tp, w, acked)",
    ),
    gone(
        "'register_sysctl_table'",
        "the kernel has no register_sysctl_table",
        "register_net_sysctl_sz(net, \"net/NAME\", table, ARRAY_SIZE(table)), without an empty last row",
    ),
    gone("'prandom_u32'", "Linux 6.1 removed prandom_u32", "get_random_u32()"),
    gone("'prandom_u32_max'", "Linux 6.2 removed prandom_u32_max", "get_random_u32_below(n)"),
    gone(
        "'del_timer",
        "Linux 6.15 renamed del_timer and del_timer_sync",
        "timer_delete(timer) and timer_delete_sync(timer)",
    ),
    gone(
        "'from_timer'",
        "Linux 6.16 renamed from_timer",
        "timer_container_of(state, timer, field)",
    ),
    gone(
        "'tcp_time_stamp'",
        "the kernel has no variable tcp_time_stamp",
        "tcp_jiffies32, or tcp_sk(sk)->tcp_mstamp in microseconds",
    ),
    // Messages of the kernel that loads the module.
    changed(
        "sysctl table check failed",
        "procname is null",
        "Linux 6.11 refuses a table of sysctls with an empty last row",
        "the table without the row {}, and register_net_sysctl_sz(net, path, table, ARRAY_SIZE(table))",
    ),
    changed(
        "already registered",
        "",
        "the kernel has a congestion control of this name",
        "another .name in struct tcp_congestion_ops",
    ),
    changed(
        "does not implement required ops",
        "",
        "ssthresh, undo_cwnd, and one of cong_avoid and cong_control are required",
        "tcp_reno_ssthresh, tcp_reno_undo_cwnd and tcp_reno_cong_avoid for the missing ones",
    ),
    changed(
        "Unknown symbol",
        "",
        "the module calls a function that the guests' kernel does not export to modules",
        "only functions with EXPORT_SYMBOL in the kernel's source",
    ),
];

/// Causes and fixes of messages, at most one per message.
pub fn explain(lines: &[String]) -> Vec<(&'static str, &'static str)> {
    let mut found = Vec::new();
    for (n, line) in lines.iter().enumerate() {
        let next = lines[n + 1..].iter().take(NEAR);
        let next: Vec<_> = next.take_while(|line| !line.contains("error:")).collect();
        let fits = |it: &&Break| {
            let is_near = line.contains(it.near) || next.iter().any(|line| line.contains(it.near));
            line.contains(it.said) && is_near
        };
        let cause = BREAKS.iter().find(fits).map(|it| (it.what, it.fix));
        found.extend(cause.filter(|it| !found.contains(it)));
    }
    found
}

/// Remarks about C code that builds and yet does not work.
pub fn remarks(source: &str) -> Vec<&'static str> {
    let mut found = Vec::new();
    if source.contains("CA_EVENT_TX_START") && !source.contains("cwnd_event_tx_start") {
        found.push("cwnd_event does not get CA_EVENT_TX_START; set .cwnd_event_tx_start, void NAME(struct sock *sk)");
    }
    if source.contains("inet_csk_ca(") && !source.contains("ICSK_CA_PRIV_SIZE") {
        found.push("nothing checks the size of the state; add BUILD_BUG_ON(sizeof(struct NAME) > ICSK_CA_PRIV_SIZE)");
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn causes(log: &str) -> String {
        let lines: Vec<_> = log.lines().map(str::to_owned).collect();
        let causes = explain(&lines);
        causes.iter().map(|(what, _)| *what).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn the_old_cong_control_is_explained() {
        let log = "tcp_x.c:52:18: error: incompatible function pointer types initializing 'void (*)(struct sock *, \
                   u32, int, const struct rate_sample *)' with an expression of type 'void (struct sock *)'\n   \
                   52 |         .cong_control   = x_main,\n      |                           ^~~~~~";
        assert!(causes(log).starts_with("Linux 6.10"), "{}", causes(log));
        assert_eq!(causes(&log.replace("cong_control", "release")), "");
    }

    #[test]
    fn a_field_of_another_kernel_is_explained_once() {
        let log = |field| {
            format!(
                "x.c:9:3: error: field designator '{field}' does not refer to any field in type 'struct tcp_congestion_ops'\n"
            )
        };
        assert!(causes(&log("tso_segs_goal")).contains("min_tso_segs"));
        let other = causes(&(log("skb_marked_lost") + &log("tso_segs") + &log("tso_segs")));
        assert!(other.starts_with("a field"), "{other}");
        assert_eq!(other.matches("min_tso_segs").count(), 1, "{other}");
    }

    #[test]
    fn code_that_builds_is_remarked_on() {
        let old = "struct x *x = inet_csk_ca(sk); if (event == CA_EVENT_TX_START)";
        assert_eq!(remarks(old).len(), 2);
        let new = "struct x *x = inet_csk_ca(sk); .cwnd_event_tx_start = x_start, /* CA_EVENT_TX_START */ \
                   BUILD_BUG_ON(sizeof(*x) > ICSK_CA_PRIV_SIZE)";
        assert!(remarks(new).is_empty());
    }
}
