// SPDX-License-Identifier: GPL-2.0
/*
 * Instructions per ACK of congestion controls, and per packet of qdiscs and hooks, for
 * selftests/guest/bench.sh; the files are in /sys/kernel/debug/xdc_bench.
 */
#include <linux/module.h>

#include "bench.h"

u64 bench_overhead;

static struct dentry *bench_dir;

static void bench_calibrate(void)
{
	struct bench_count empty = {};
	u64 least = U64_MAX;
	int i;

	for (i = 0; i < 64; i++) {
		empty.instructions = 0;
		BENCH(&empty, barrier());
		least = min(least, empty.instructions);
	}
	bench_overhead = least;
}

static int __init bench_init(void)
{
	bench_calibrate();
	bench_dir = debugfs_create_dir("xdc_bench", NULL);
	bench_tcp_init(bench_dir);
	bench_qdisc_init(bench_dir);
	bench_hook_init(bench_dir);
	return 0;
}

static void __exit bench_exit(void)
{
	debugfs_remove(bench_dir);
	bench_tcp_exit();
	bench_hook_exit();
}

module_init(bench_init);
module_exit(bench_exit);
MODULE_AUTHOR("xdc developers");
MODULE_DESCRIPTION("Instructions per ACK and per packet");
MODULE_LICENSE("GPL");
