// SPDX-License-Identifier: GPL-2.0
/* Counters per namespace. */

#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <net/netns/generic.h>
#include <net/snmp.h>

#include "tlt.h"

static unsigned int xdc_counters_id;
static const struct xdc_counters *xdc_counters;

struct xdc_counters_mib {
	unsigned long mibs[XDC_MAX_COUNTERS];
};

struct xdc_counters_net {
	DEFINE_SNMP_STAT(struct xdc_counters_mib, mib);
	atomic_t gauge;
};

/* snmp_fold_field() is exported for IPv6 alone. */
static unsigned long xdc_counters_sum(const struct xdc_counters_net *area, int index)
{
	unsigned long sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += READ_ONCE(per_cpu_ptr(area->mib, cpu)->mibs[index]);
	return sum;
}

/* Writes the format of /proc/net/netstat, for nstat. */
static int xdc_counters_show(struct seq_file *seq, void *v)
{
	const struct xdc_counters_net *area;
	int i;

	area = net_generic(seq_file_single_net(seq), xdc_counters_id);
	seq_printf(seq, "%s:", xdc_counters->prefix);
	for (i = 0; i < xdc_counters->count; i++)
		seq_printf(seq, " %s", xdc_counters->names[i]);
	seq_printf(seq, "\n%s:", xdc_counters->prefix);
	for (i = 0; i < xdc_counters->count; i++)
		seq_printf(seq, " %lu", i == xdc_counters->gauge ?
			   (unsigned long)atomic_read(&area->gauge) :
			   xdc_counters_sum(area, i));
	seq_putc(seq, '\n');
	return 0;
}

static int __net_init xdc_counters_net_init(struct net *net)
{
	struct xdc_counters_net *area = net_generic(net, xdc_counters_id);

	area->mib = alloc_percpu(struct xdc_counters_mib);
	if (!area->mib)
		return -ENOMEM;
	if (!proc_create_net_single(xdc_counters->file, 0444, net->proc_net,
				    xdc_counters_show, NULL)) {
		free_percpu(area->mib);
		return -ENOMEM;
	}
	return 0;
}

static void __net_exit xdc_counters_net_exit(struct net *net)
{
	struct xdc_counters_net *area = net_generic(net, xdc_counters_id);

	remove_proc_entry(xdc_counters->file, net->proc_net);
	free_percpu(area->mib);
}

static struct pernet_operations xdc_counters_ops = {
	.init	= xdc_counters_net_init,
	.exit	= xdc_counters_net_exit,
	.id	= &xdc_counters_id,
	.size	= sizeof(struct xdc_counters_net),
};

/* One for each module. */
int xdc_counters_register(const struct xdc_counters *counters)
{
	int ret;

	if (cmpxchg(&xdc_counters, NULL, counters))
		return -EBUSY;
	ret = register_pernet_subsys(&xdc_counters_ops);
	if (ret)
		WRITE_ONCE(xdc_counters, NULL);
	return ret;
}

void xdc_counters_unregister(void)
{
	unregister_pernet_subsys(&xdc_counters_ops);
	WRITE_ONCE(xdc_counters, NULL);
}

void xdc_counter_add(const struct net *net, unsigned int index, u32 n)
{
	const struct xdc_counters_net *area = net_generic(net, xdc_counters_id);

	if (index < XDC_MAX_COUNTERS)
		SNMP_ADD_STATS(area->mib, index, n);
}

/* Returns the sum. */
int xdc_gauge_add(const struct net *net, int n)
{
	struct xdc_counters_net *area = net_generic(net, xdc_counters_id);

	return atomic_add_return(n, &area->gauge);
}
