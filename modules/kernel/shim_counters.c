// SPDX-License-Identifier: GPL-2.0
/* Included by the C file of a module that has counters in each namespace. */

#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <net/netns/generic.h>

#include "shim.h"

static unsigned int xdc_counters_id;
static const struct xdc_counters *xdc_counters;

struct xdc_counters_net {
	atomic64_t values[XDC_MAX_COUNTERS];
};

/* As /proc/net/netstat is written, so that nstat reads it. */
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
		seq_printf(seq, " %lld", atomic64_read(&area->values[i]));
	seq_putc(seq, '\n');
	return 0;
}

static int __net_init xdc_counters_net_init(struct net *net)
{
	return proc_create_net_single(xdc_counters->file, 0444, net->proc_net,
				      xdc_counters_show, NULL) ? 0 : -ENOMEM;
}

static void __net_exit xdc_counters_net_exit(struct net *net)
{
	remove_proc_entry(xdc_counters->file, net->proc_net);
}

static struct pernet_operations xdc_counters_ops = {
	.init	= xdc_counters_net_init,
	.exit	= xdc_counters_net_exit,
	.id	= &xdc_counters_id,
	.size	= sizeof(struct xdc_counters_net),
};

int xdc_counters_register(const struct xdc_counters *counters)
{
	xdc_counters = counters;
	return register_pernet_subsys(&xdc_counters_ops);
}

void xdc_counters_unregister(void)
{
	unregister_pernet_subsys(&xdc_counters_ops);
}

s64 xdc_counter_add(const struct net *net, unsigned int index, s64 n)
{
	struct xdc_counters_net *area = net_generic(net, xdc_counters_id);

	return index < XDC_MAX_COUNTERS ? atomic64_add_return(n, &area->values[index]) : 0;
}
