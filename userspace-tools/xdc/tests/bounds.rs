// SPDX-License-Identifier: GPL-2.0
//! Small scenarios that ask for much: each is planned or refused with little memory and few steps.
//! The tests count allocations, not time.

#[path = "../../testing/fuzz/src/meter.rs"]
mod meter;

use std::sync::Mutex;

use xdc::fuzzing;

const MB: usize = 1 << 20;

/// Beyond this limit the test ends, before the machine runs out of memory.
#[global_allocator]
static METER: meter::Meter = meter::Meter::new(3072 * MB);

const MOST_BYTES: usize = 768 * MB;
/// Each takes tens of nanoseconds.
const MOST_ALLOCATIONS: usize = 40_000_000;

/// A star of hosts and a sink, with more keys at the top, in the hosts' link, and at the end.
fn star(hosts: usize, top: &str, link: &str, end: &str) -> String {
    format!(
        r#"ccs = ["cubic"]
scale = 1
sample = "1ms"
jain_window = "5ms"
duration = "20ms"
{top}
[topology]
ecmp = true
hosts = ["h[1-{hosts}]", "r"]
routers = ["s"]
[[topology.links]]
a = "h[1-{hosts}]"
b = "s"
rate = "1gbit"
{link}
[[topology.links]]
a = "s"
b = "r"
rate = "1gbit"
queue_ab = "port"
[queues.port]
limit = "100kb"
[[flows]]
src = "h1"
dst = "r"
{end}
"#
    )
}

fn end(end: &str) -> String {
    star(30_000, "", "", end)
}

/// Plans the scenario within bounds; returns false if it is refused.
#[track_caller]
fn bounded(what: &str, text: &str) -> bool {
    // All tests share the meter.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock();
    let mut planned = false;
    let (bytes, allocations) = METER.measure(|| planned = fuzzing::scenario(text));
    println!("{what}: {} MB, {allocations} allocations", bytes / MB);
    assert!(bytes < MOST_BYTES, "{what}: {} MB", bytes / MB);
    assert!(allocations < MOST_ALLOCATIONS, "{what}: {allocations} allocations");
    planned
}

#[test]
fn a_large_network_is_planned() {
    assert!(bounded("30,000 hosts", &end("")));
    let all = "[[flows]]\nsrc = \"h[1-30000]\"\ndst = \"r\"\nbytes = 1\n";
    assert!(bounded("a flow of each", &end(all)));
    let poisson = "[[traffic]]\nkind = \"poisson\"\nhosts = [\"h[1-30000]\"]\nsizes = \"1kB\"\n\
                   load = \"10%\"\nflows = 20000\n";
    assert!(bounded("each to each", &end(poisson)));
    let tree = "kind = \"fat-tree\"\nk = 40\nrate = \"1gbit\"";
    let tree = format!(
        "ccs = [\"cubic\"]\n[topology.fabric]\n{tree}\n[[traffic]]\nkind = \"permutation\"\n\
         hosts = [\"a[0-15999]\"]\nsizes = \"1kB\"\n"
    );
    assert!(bounded("a fat-tree", &tree));
}

/// Bounds the bytes of a plan.
#[test]
fn large_plans_are_refused() {
    let event = "[[event]]\nat = \"1ms\"\nlink = \"h[1-30000]-s\"\ndown = true\n".repeat(1500);
    let links = "\"h[1-30000]-s\",".repeat(5000);
    let list = format!("[[event]]\nat = \"1ms\"\ndown = true\nlink = [{links}]\n");
    let command = format!("\"{}\",", "x".repeat(9_000));
    let setup = format!("[host.\"h[1-30000]\"]\nsetup = [{}]\n", command.repeat(10));
    let value = "1".repeat(90_000);
    let sysctl = format!("[host.\"h[1-30000]\"]\nsysctl = {{ \"net.ipv4.x\" = \"{value}\" }}\n");
    let words = "x ".repeat(45_000);
    let tc = star(
        30_000,
        "",
        "queue_ab = \"big\"\nqueue_ba = \"big\"",
        &format!("[queues.big]\ntc = \"pfifo limit 100 {words}\""),
    );
    let fec = format!("[tunnel]\nfec = \"{}8+2\"\n", "0".repeat(90_000));
    let all = "[[flows]]\nsrc = \"h[1-30000]\"\ndst = \"r\"\nbytes = 1\n";
    let link = "[[topology.links]]\na = \"h[1-30000]\"\nb = \"s\"\nrate = \"1gbit\"\n";
    let range = |n: usize| format!("[host.\"h[{n}-30000]\"]\ninitcwnd = 10\n");
    let ranges: String = (1..3000).map(range).collect();
    let long = format!("[[flows]]\nsrc = \"{}[1-60000]\"\ndst = \"r\"\n", "x".repeat(90_000));
    let run = "[[run]]\non = \"h[1-30000]\"\ncommand = \"x\"\noutput = \"y\"\n".repeat(1000);
    let watch = "[[watch]]\nname = \"w\"\nfrom = \"h[1-30000]\"\nto = \"s\"\n".repeat(1500);
    let traffic = "[[traffic]]\nkind = \"incast\"\nhosts = [\"h[1-30000]\"]\nto = \"r\"\n\
                   sizes = \"1kB\"\n"
        .repeat(1000);
    let bursts = "[[traffic]]\nkind = \"bursts\"\nhosts = [\"h[1-30000]\"]\nto = \"r\"\n\
                  sizes = \"1kB\"\nflows = 1\nperiod = \"1us\"\nduration = \"10ms\"\n";
    let switches = "{ at = \"1ms\", cc = \"cubic\" },".repeat(64);
    let switch =
        format!("[[flows]]\nsrc = \"h1\"\ndst = \"r\"\ncount = 50000\nswitch = [{switches}]\n");
    for (what, text) in [
        ("events", end(&event)),
        ("an event's links", end(&list)),
        ("commands", end(&setup)),
        ("sysctls", end(&sysctl)),
        ("words of tc", tc),
        ("tunnels", end(&format!("{fec}{all}"))),
        ("parallel links", end(&link.repeat(1500))),
        ("ranges of hosts", end(&ranges)),
        ("a long name", end(&long)),
        ("programs", end(&run)),
        ("watched ports", star(30_000, "", "queue = \"port\"", &watch)),
        ("incasts", end(&traffic)),
        ("bursts", end(bursts)),
        ("changes of a flow", end(&switch)),
    ] {
        assert!(!bounded(what, &text), "{what} should be refused");
    }
}

/// Bounds the steps of a plan.
#[test]
fn long_lists_take_no_quadratic_time() {
    let modules: String = (0..12_000).map(|n| format!("\"m{n}\",")).collect();
    assert!(bounded("modules", &end(&format!("[host.h1]\nmodules = [{modules}]\n"))));
    let ccs: String = (0..3500).map(|n| format!("[cc.c{n}]\nkernel = \"cubic\"\n")).collect();
    assert!(bounded("congestion controls", &end(&ccs)));
    let unknown: String = (0..8000).map(|n| format!("\"d{n}\",")).collect();
    let text = star(10, "", "", &ccs).replace("\"cubic\"]", &format!("\"cubic\", {unknown}]"));
    assert!(!bounded("unknown congestion controls", &text));
    let names: String = (0..5000).map(|n| format!("[host.g{n}]\ninitcwnd = 1\n")).collect();
    assert!(!bounded("unknown hosts", &end(&names)));
    let long = "y".repeat(40_000);
    let near = format!("[cc.{long}]\nkernel = \"cubic\"\n");
    let text = star(10, "", "", &near).replace("\"cubic\"]", &format!("\"{long}x\"]"));
    assert!(!bounded("two long names", &text));
    let wrong: String = (0..4000).map(|n| format!("k{n} = 1\n")).collect();
    assert!(!bounded("unknown keys", &star(10, &wrong, "", "")));
    assert!(!bounded("no TOML", &"]\n".repeat(50_000)));
    let missing = "[[flows]]\n".repeat(9_000);
    assert!(!bounded("missing keys", &star(10, "", "", &missing)));
    let queues: String = (0..1000).map(|n| format!("[queues.q{n}]\nlimit = \"1MB\"\n")).collect();
    let many: String = (0..1500).map(|n| format!("\"c{n}\",")).collect();
    let text = star(10, "", "", &format!("{queues}{}", &ccs[..40_000]));
    bounded("queues by congestion control", &text.replace("\"cubic\"]", &format!("{many}]")));
}

/// Bounds paths and drawings.
#[test]
fn the_path_search_is_bounded() {
    let row = "ccs = [\"cubic\"]\n[topology]\nhosts = [\"a\", \"b\"]\nrouters = [\"s[1-30000]\"]\n\
               [[topology.links]]\na = \"a\"\nb = \"s1\"\nrate = \"1gbit\"\n\
               [[topology.links]]\na = \"s[1-29999]\"\nb = \"s[2-30000]\"\nrate = \"1gbit\"\n\
               [[topology.links]]\na = \"b\"\nb = \"s30000\"\nrate = \"1gbit\"\n\
               [[flows]]\nsrc = \"a\"\ndst = \"b\"\nbytes = 1\n";
    assert!(!bounded("routers in a row", row));
    assert!(bounded("a longest row", &row.replace("30000", "250").replace("29999", "249")));
    let own = "ccs = [\"bbr-dctcp\"]\ninter_rtt = \"1ns\"\n[topology]\n\
               hosts = [\"h[1-15000]\"]\nrouters = [\"s[1-15000]\", \"r\"]\n\
               [[topology.links]]\na = \"h[1-15000]\"\nb = \"s[1-15000]\"\nrate = \"1gbit\"\n\
               [[topology.links]]\na = \"s[1-15000]\"\nb = \"r\"\nrate = \"1gbit\"\n\
               [[flows]]\nsrc = \"h[1-14999]\"\ndst = \"h[2-15000]\"\nbytes = 1\n";
    assert!(!bounded("a switch each", own));
    let spines = "ccs = [\"cubic\"]\n[topology.fabric]\nkind = \"leaf-spine\"\nleaves = 1\n\
                  hosts = 2\nspines = 4000000000\nrate = \"1gbit\"\n\
                  [[flows]]\nsrc = \"a0\"\ndst = \"a1\"\nbytes = 1\n";
    assert!(!bounded("spines", spines));
    let bdp = star(30_000, "", "queue = \"port\"", "").replace("\"100kb\"", "\"1bdp\"");
    assert!(bounded("sizes in bdp", &bdp));
}
