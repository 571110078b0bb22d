// SPDX-License-Identifier: GPL-2.0
//! For the tests of this crate and of the crates that use it.

/// Two senders and a receiver.
pub const SMALL: &str = r#"
title = "Two to one"
engine = "uml"
ccs = ["unocc", "cubic"]
sample = "1ms"
[topology]
mtu = 1500
hosts = ["a[1-2]", "r"]
routers = ["s"]
[[topology.links]]
a = "a[1-2]"
b = "s"
rate = "1gbit"
delay_ba = "100us"
[[topology.links]]
a = "s"
b = "r"
rate = "1gbit"
queue_ab = "port"
[queues.port]
limit = "100kb"
min = "25kb"
max = "75%"
[[watch]]
name = "port"
from = "s"
to = "r"
[[flows]]
group = "all"
src = "a[1-2]"
dst = "r"
bytes = "1MiB"
[cc.unocc.sysctl]
"net.unocc.line_rate_mbps" = 1000
"net.unocc.intra_rtt_us" = 100
[[expect]]
metric = "drops"
cc = "unocc"
max = 0
source = "test"
"#;
