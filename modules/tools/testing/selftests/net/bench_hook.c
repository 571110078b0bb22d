// SPDX-License-Identifier: GPL-2.0
/*
 * Counts the last hooks of the IPv4 packet path per packet, and the work that they queue. Writing a row to
 * `hooks` counts the hooks of the present namespace for that row; reading returns the counts.
 *
 * The wrapped hooks stay wrapped, so this module and the counted one cannot be unloaded.
 *
 * `busy` returns the instructions of the processor, which must be the only one, since the first read, without
 * those of idling. The interrupt that ends idling counts with its softirqs only.
 */
#include <linux/cpumask.h>
#include <linux/module.h>
#include <linux/netfilter.h>
#include <linux/nsproxy.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/tcp.h>
#include <linux/tracepoint.h>
#include <linux/uaccess.h>
#include <linux/workqueue.h>
#include <trace/events/power.h>
#include <net/ip.h>
#include <net/net_namespace.h>

#include "bench.h"

#define ROW_BYTES	24
#define ROWS		8
/* The work of modules/net/tlt/flows.c. */
#define WORK		"xdc_flow_work"

enum bench_packet {
	DATA_OUT,
	ACK_OUT,
	DATA_IN,
	ACK_IN,
	WORKED,
	PACKETS,
};

static const char * const bench_packets[PACKETS] = {
	[DATA_OUT]	= "data-out",
	[ACK_OUT]	= "ack-out",
	[DATA_IN]	= "data-in",
	[ACK_IN]	= "ack-in",
	[WORKED]	= "work",
};

struct bench_row {
	char name[ROW_BYTES];
	struct bench_count counts[PACKETS];
};

struct bench_hook {
	nf_hookfn *hook;
	void *priv;
};

static struct bench_row bench_rows[ROWS];
static unsigned int bench_row_count;
static struct bench_row *bench_row = bench_rows;
static DEFINE_MUTEX(bench_hook_lock);

static enum bench_packet bench_kind(const struct sk_buff *skb, const struct nf_hook_state *state)
{
	const struct iphdr *ip = ip_hdr(skb);
	struct tcphdr *tcp, copy;
	unsigned int header;
	bool out = state->hook == NF_INET_POST_ROUTING;

	tcp = skb_header_pointer(skb, ip_hdrlen(skb), sizeof(copy), &copy);
	if (ip->protocol != IPPROTO_TCP || !tcp || tcp->syn || tcp->fin || tcp->rst)
		return PACKETS;
	header = ip_hdrlen(skb) + tcp->doff * 4;
	if (skb->len > header)
		return out ? DATA_OUT : DATA_IN;
	return out ? ACK_OUT : ACK_IN;
}

static unsigned int bench_hooked(void *priv, struct sk_buff *skb,
				 const struct nf_hook_state *state)
{
	const struct bench_hook *counted = priv;
	enum bench_packet kind = bench_kind(skb, state);
	struct bench_count other = {};
	unsigned int verdict;

	/* Interrupts are off, so queued work runs afterwards. */
	local_bh_disable();
	BENCH(kind == PACKETS ? &other : &bench_row->counts[kind],
	      verdict = counted->hook(counted->priv, skb, state));
	local_bh_enable();
	return verdict;
}

/* Wraps the last of @entries, unless it is wrapped. */
static int bench_wrap_last(struct nf_hook_entries __rcu *entries)
{
	struct nf_hook_entries *all = rcu_dereference_protected(entries, true);
	struct bench_hook *counted;
	struct nf_hook_entry *last;

	if (!all || !all->num_hook_entries)
		return -ENOENT;
	last = &all->hooks[all->num_hook_entries - 1];
	if (last->hook == bench_hooked)
		return 0;
	counted = kzalloc_obj(*counted);
	if (!counted)
		return -ENOMEM;
	counted->hook = last->hook;
	counted->priv = last->priv;
	/* With one processor, no packet can come in between. */
	local_bh_disable();
	last->priv = counted;
	last->hook = bench_hooked;
	local_bh_enable();
	/* Hooks point to this module's code. */
	__module_get(THIS_MODULE);
	return 0;
}

static u64 bench_began, bench_waited, bench_waits_since, bench_served_since;

static bool bench_is_counted(const void *function)
{
	char name[KSYM_SYMBOL_LEN];

	snprintf(name, sizeof(name), "%ps", function);
	return !strncmp(name, WORK, strlen(WORK));
}

static void bench_work_start(void *data, struct work_struct *work)
{
	bench_began = bench_is_counted(work->func) ? get_cycles() : 0;
}

static void bench_work_end(void *data, struct work_struct *work, work_func_t function)
{
	u64 now = get_cycles();

	if (!bench_began || !bench_is_counted(function))
		return;
	bench_row->counts[WORKED].calls++;
	bench_row->counts[WORKED].instructions += now - bench_began;
}

static void bench_waits(void *data, unsigned int state, unsigned int cpu)
{
	u64 now = get_cycles();

	if (state != PWR_EVENT_EXIT) {
		bench_waits_since = now;
	} else if (bench_waits_since) {
		bench_waited += now - bench_waits_since;
		bench_waits_since = 0;
	}
}

/* The interrupt that ends idling, and its softirqs, come before PWR_EVENT_EXIT. */
static void bench_serves(void *data, unsigned int vector)
{
	bench_served_since = bench_waits_since ? get_cycles() : 0;
}

static void bench_served(void *data, unsigned int vector)
{
	if (bench_served_since)
		bench_waited -= get_cycles() - bench_served_since;
	bench_served_since = 0;
}

struct bench_probe {
	const char *name;
	void *function;
	struct tracepoint *at;
	bool is_on;
};

static struct bench_probe bench_work[] = {
	{ "workqueue_execute_start", bench_work_start },
	{ "workqueue_execute_end", bench_work_end },
};

static struct bench_probe bench_idle[] = {
	{ "cpu_idle", bench_waits },
	{ "softirq_entry", bench_serves },
	{ "softirq_exit", bench_served },
};

#ifdef CONFIG_TRACEPOINTS
static void bench_find(struct tracepoint *tp, void *priv)
{
	struct bench_probe *probe = priv;

	if (!strcmp(tp->name, probe->name))
		probe->at = tp;
}

static int bench_watch(struct bench_probe *probes, unsigned int count)
{
	unsigned int i;
	int ret;

	for (i = 0; i < count; i++) {
		if (probes[i].is_on)
			continue;
		for_each_kernel_tracepoint(bench_find, &probes[i]);
		if (!probes[i].at)
			return -ENOENT;
		ret = tracepoint_probe_register(probes[i].at, probes[i].function, NULL);
		if (ret)
			return ret;
		probes[i].is_on = true;
	}
	return 0;
}

static void bench_forget(struct bench_probe *probes, unsigned int count)
{
	unsigned int i;

	for (i = 0; i < count; i++)
		if (probes[i].is_on)
			tracepoint_probe_unregister(probes[i].at, probes[i].function, NULL);
	tracepoint_synchronize_unregister();
}
#else
static int bench_watch(struct bench_probe *probes, unsigned int count)
{
	return -EOPNOTSUPP;
}

static void bench_forget(struct bench_probe *probes, unsigned int count)
{
}
#endif

static int bench_hooks(const char *name)
{
	struct netns_nf *nf = &current->nsproxy->net_ns->nf;
	int ret;

	if (bench_row_count && !strcmp(bench_row->name, name)) {
		/* The row exists, for another namespace. */
	} else if (bench_row_count == ROWS) {
		return -ENOSPC;
	} else {
		bench_row = &bench_rows[bench_row_count++];
		strscpy(bench_row->name, name);
	}
	ret = bench_wrap_last(nf->hooks_ipv4[NF_INET_LOCAL_IN]);
	ret = ret ?: bench_wrap_last(nf->hooks_ipv4[NF_INET_POST_ROUTING]);
	return ret ?: bench_watch(bench_work, ARRAY_SIZE(bench_work));
}

static ssize_t bench_hooks_write(struct file *file, const char __user *from,
				 size_t count, loff_t *pos)
{
	char text[ROW_BYTES];
	int ret;

	if (count >= sizeof(text))
		return -EINVAL;
	if (copy_from_user(text, from, count))
		return -EFAULT;
	text[count] = 0;
	mutex_lock(&bench_hook_lock);
	ret = bench_hooks(strim(text));
	mutex_unlock(&bench_hook_lock);
	return ret ? ret : count;
}

/* Columns: ROW PACKET CALLS INSTRUCTIONS */
static int bench_hooks_show(struct seq_file *file, void *data)
{
	int i, j;

	mutex_lock(&bench_hook_lock);
	for (i = 0; i < bench_row_count; i++)
		for (j = 0; j < PACKETS; j++)
			seq_printf(file, "%s %s %llu %llu\n", bench_rows[i].name,
				   bench_packets[j], bench_rows[i].counts[j].calls,
				   bench_rows[i].counts[j].instructions);
	mutex_unlock(&bench_hook_lock);
	return 0;
}
DEFINE_SHOW_STORE_ATTRIBUTE(bench_hooks);

static int bench_busy_show(struct seq_file *file, void *data)
{
	int ret;

	/* Several processors would race on the sums. */
	if (num_online_cpus() > 1)
		return -EOPNOTSUPP;
	mutex_lock(&bench_hook_lock);
	ret = bench_watch(bench_idle, ARRAY_SIZE(bench_idle));
	mutex_unlock(&bench_hook_lock);
	if (!ret)
		seq_printf(file, "%llu\n", get_cycles() - bench_waited);
	return ret;
}
DEFINE_SHOW_ATTRIBUTE(bench_busy);

void bench_hook_init(struct dentry *dir)
{
	debugfs_create_file("busy", 0400, dir, NULL, &bench_busy_fops);
	debugfs_create_file("hooks", 0600, dir, NULL, &bench_hooks_fops);
}

void bench_hook_exit(void)
{
	bench_forget(bench_work, ARRAY_SIZE(bench_work));
	bench_forget(bench_idle, ARRAY_SIZE(bench_idle));
}
