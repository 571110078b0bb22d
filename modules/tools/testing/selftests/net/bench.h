/* SPDX-License-Identifier: GPL-2.0 */
/* Counts the cost of a function: instructions if the clock counts them (QEMU's -icount), else cycles. */
#ifndef _XDC_BENCH_H
#define _XDC_BENCH_H

#include <linux/debugfs.h>
#include <linux/irqflags.h>
#include <linux/timex.h>

/* Cost of one function's calls. */
struct bench_count {
	u64 calls;
	u64 instructions;
};

/* Cost of reading the clock twice. */
extern u64 bench_overhead;

/*
 * Counts one execution of @call, on a CPU without other work. get_cycles() is volatile assembly, across which
 * calls do not move.
 */
#define BENCH(count, call) do {						\
	struct bench_count *_count = (count);				\
	unsigned long _flags;						\
	u64 _before, _after;						\
									\
	local_irq_save(_flags);						\
	_before = get_cycles();						\
	call;								\
	_after = get_cycles();						\
	local_irq_restore(_flags);					\
	_count->calls++;						\
	_count->instructions += _after - _before - bench_overhead;	\
} while (0)

void bench_tcp_init(struct dentry *dir);
void bench_tcp_exit(void);
void bench_qdisc_init(struct dentry *dir);
void bench_hook_init(struct dentry *dir);
void bench_hook_exit(void);

#endif /* _XDC_BENCH_H */
