// SPDX-License-Identifier: GPL-2.0

use super::*;

#[test]
fn hosts_of_a_rack_are_aligned_blocks() {
    let blocks = |first_host, hosts| {
        let rack = Rack { first_host, hosts, ..Default::default() };
        rack.blocks()
    };
    assert_eq!(blocks(0, 8), [(0, 3)]);
    assert_eq!(blocks(8, 1), [(8, 0)]);
    assert_eq!(blocks(1, 6), [(1, 0), (2, 1), (4, 1), (6, 0)]);
    assert_eq!(blocks(3, 0), []);
}

#[test]
fn a_sysctl_path_stays_in_its_folder() {
    let path = sysctl_path("net.ipv4.conf.all.rp_filter");
    assert_eq!(path.as_deref(), Some("ipv4/conf/all/rp_filter"));
    for name in [
        "/etc/crontab",
        ".etc.crontab",
        "net./etc/crontab",
        "net..etc.crontab",
        "net.ipv4/../../kernel/panic",
        "net.",
        "net",
        "",
        "kernel.core_pattern",
        "vm.swappiness",
        "net.ipv4.tcp_ecn\0",
        "net.ipv4.tcp_ecn ",
    ] {
        assert_eq!(sysctl_path(name), None, "{name}");
    }
}
