// SPDX-License-Identifier: GPL-2.0
/*
 * Counts congestion controls while TCP uses them. Writing a name, "dctcp", to `wrap` registers "b_dctcp",
 * which forwards each callback to dctcp and counts its cost; `callbacks` returns the counts. "dctcp again"
 * registers "b_again": dctcp, counted separately.
 */
#include <linux/module.h>
#include <linux/net.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <net/tcp.h>

#include "bench.h"

#define PREFIX "b_"

enum bench_callback {
	CONG_AVOID,
	CONG_CONTROL,
	SSTHRESH,
	SET_STATE,
	CWND_EVENT,
	CWND_EVENT_TX_START,
	IN_ACK_EVENT,
	PKTS_ACKED,
	MIN_TSO_SEGS,
	UNDO_CWND,
	SNDBUF_EXPAND,
	CALLBACKS,
};

static const char * const bench_names[CALLBACKS] = {
	[CONG_AVOID]		= "cong_avoid",
	[CONG_CONTROL]		= "cong_control",
	[SSTHRESH]		= "ssthresh",
	[SET_STATE]		= "set_state",
	[CWND_EVENT]		= "cwnd_event",
	[CWND_EVENT_TX_START]	= "cwnd_event_tx_start",
	[IN_ACK_EVENT]		= "in_ack_event",
	[PKTS_ACKED]		= "pkts_acked",
	[MIN_TSO_SEGS]		= "min_tso_segs",
	[UNDO_CWND]		= "undo_cwnd",
	[SNDBUF_EXPAND]		= "sndbuf_expand",
};

struct bench_cc {
	struct tcp_congestion_ops ops;		/* ops of the sockets */
	const struct tcp_congestion_ops *counted;
	char row[TCP_CA_NAME_MAX];
	u64 acks;
	struct bench_count counts[CALLBACKS];
	struct list_head list;
};

static LIST_HEAD(bench_ccs);
static DEFINE_MUTEX(bench_lock);

static struct bench_cc *bench_cc(struct sock *sk)
{
	return container_of((struct tcp_congestion_ops *)inet_csk(sk)->icsk_ca_ops,
			    struct bench_cc, ops);
}

/* The counted module finds itself through the socket, which must point to it during the call. */
#define FORWARD(sk, callback, call) do {				\
	struct bench_cc *cc = bench_cc(sk);				\
									\
	inet_csk(sk)->icsk_ca_ops = cc->counted;			\
	BENCH(&cc->counts[callback], call);				\
	inet_csk(sk)->icsk_ca_ops = &cc->ops;				\
} while (0)

static void bench_cong_avoid(struct sock *sk, u32 ack, u32 acked)
{
	FORWARD(sk, CONG_AVOID, cc->counted->cong_avoid(sk, ack, acked));
}

static void bench_cong_control(struct sock *sk, u32 ack, int flag,
			       const struct rate_sample *rs)
{
	FORWARD(sk, CONG_CONTROL, cc->counted->cong_control(sk, ack, flag, rs));
}

static u32 bench_ssthresh(struct sock *sk)
{
	u32 ret;

	FORWARD(sk, SSTHRESH, ret = cc->counted->ssthresh(sk));
	return ret;
}

static void bench_set_state(struct sock *sk, u8 new_state)
{
	FORWARD(sk, SET_STATE, cc->counted->set_state(sk, new_state));
}

static void bench_cwnd_event(struct sock *sk, enum tcp_ca_event event)
{
	FORWARD(sk, CWND_EVENT, cc->counted->cwnd_event(sk, event));
}

static void bench_cwnd_event_tx_start(struct sock *sk)
{
	FORWARD(sk, CWND_EVENT_TX_START, cc->counted->cwnd_event_tx_start(sk));
}

/* Replaces every congestion control's callback, to count ACKs. */
static void bench_in_ack_event(struct sock *sk, u32 flags)
{
	bench_cc(sk)->acks++;
	if (bench_cc(sk)->counted->in_ack_event)
		FORWARD(sk, IN_ACK_EVENT, cc->counted->in_ack_event(sk, flags));
}

static void bench_pkts_acked(struct sock *sk, const struct ack_sample *sample)
{
	FORWARD(sk, PKTS_ACKED, cc->counted->pkts_acked(sk, sample));
}

static u32 bench_min_tso_segs(struct sock *sk)
{
	u32 ret;

	FORWARD(sk, MIN_TSO_SEGS, ret = cc->counted->min_tso_segs(sk));
	return ret;
}

static u32 bench_undo_cwnd(struct sock *sk)
{
	u32 ret;

	FORWARD(sk, UNDO_CWND, ret = cc->counted->undo_cwnd(sk));
	return ret;
}

static u32 bench_sndbuf_expand(struct sock *sk)
{
	u32 ret;

	FORWARD(sk, SNDBUF_EXPAND, ret = cc->counted->sndbuf_expand(sk));
	return ret;
}

static void bench_init(struct sock *sk)
{
	struct inet_connection_sock *icsk = inet_csk(sk);
	struct bench_cc *cc = bench_cc(sk);

	icsk->icsk_ca_ops = cc->counted;
	cc->counted->init(sk);
	if (icsk->icsk_ca_ops == cc->counted) {
		icsk->icsk_ca_ops = &cc->ops;
		return;
	}
	/* The module refused the socket, which fell back to Reno, with the reference. */
	__module_get(icsk->icsk_ca_ops->owner);
	module_put(THIS_MODULE);
}

static void bench_release(struct sock *sk)
{
	struct bench_cc *cc = bench_cc(sk);

	inet_csk(sk)->icsk_ca_ops = cc->counted;
	cc->counted->release(sk);
	inet_csk(sk)->icsk_ca_ops = &cc->ops;
}

/* Returns the ops of @name, with a reference to their module. */
static const struct tcp_congestion_ops *bench_find(const char *name)
{
	const struct tcp_congestion_ops *ops;
	struct socket *sock;
	int ret;

	ret = sock_create_kern(&init_net, AF_INET, SOCK_STREAM, IPPROTO_TCP, &sock);
	if (ret)
		return ERR_PTR(ret);
	ret = sock->ops->setsockopt(sock, SOL_TCP, TCP_CONGESTION,
				    KERNEL_SOCKPTR((void *)name), strlen(name));
	ops = inet_csk(sock->sk)->icsk_ca_ops;
	if (!ret && !try_module_get(ops->owner))
		ret = -ENOENT;
	sock_release(sock);
	return ret ? ERR_PTR(ret) : ops;
}

static int bench_wrap(const char *name, const char *row)
{
	const struct tcp_congestion_ops *counted = bench_find(name);
	struct tcp_congestion_ops *ops;
	struct bench_cc *cc;
	int ret;

	if (IS_ERR(counted))
		return PTR_ERR(counted);
	cc = kzalloc_obj(*cc);
	if (!cc) {
		module_put(counted->owner);
		return -ENOMEM;
	}
	cc->counted = counted;
	ops = &cc->ops;
	ops->owner = THIS_MODULE;
	ops->flags = counted->flags;
	ops->get_info = counted->get_info;
	strscpy(cc->row, row);
	snprintf(ops->name, sizeof(ops->name), PREFIX "%s", row);
	ops->in_ack_event = bench_in_ack_event;
#define WRAP(name) (ops->name = counted->name ? bench_##name : NULL)
	WRAP(cong_avoid);
	WRAP(cong_control);
	WRAP(ssthresh);
	WRAP(set_state);
	WRAP(cwnd_event);
	WRAP(cwnd_event_tx_start);
	WRAP(pkts_acked);
	WRAP(min_tso_segs);
	WRAP(undo_cwnd);
	WRAP(sndbuf_expand);
	WRAP(init);
	WRAP(release);
#undef WRAP

	ret = tcp_register_congestion_control(ops);
	if (ret) {
		module_put(counted->owner);
		kfree(cc);
		return ret;
	}
	mutex_lock(&bench_lock);
	list_add_tail(&cc->list, &bench_ccs);
	mutex_unlock(&bench_lock);
	return 0;
}

static ssize_t bench_wrap_write(struct file *file, const char __user *from,
				size_t count, loff_t *pos)
{
	char *text, *name, *row;
	int ret;

	if (count >= 2 * TCP_CA_NAME_MAX)
		return -EINVAL;
	text = memdup_user_nul(from, count);
	if (IS_ERR(text))
		return PTR_ERR(text);
	row = strim(text);
	name = strsep(&row, " ");
	ret = bench_wrap(name, row ?: name);
	kfree(text);
	return ret ? ret : count;
}

static const struct file_operations bench_wrap_fops = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.write = bench_wrap_write,
};

/* A line per callback: ROW ACKS CALLBACK CALLS INSTRUCTIONS */
static int bench_callbacks_show(struct seq_file *file, void *data)
{
	const struct bench_cc *cc;
	int i;

	mutex_lock(&bench_lock);
	list_for_each_entry(cc, &bench_ccs, list) {
		for (i = 0; i < CALLBACKS; i++) {
			const struct bench_count *count = &cc->counts[i];

			if (count->calls)
				seq_printf(file, "%s %llu %s %llu %llu\n",
					   cc->row, cc->acks, bench_names[i],
					   count->calls, count->instructions);
		}
	}
	mutex_unlock(&bench_lock);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(bench_callbacks);

void bench_tcp_init(struct dentry *dir)
{
	debugfs_create_file("wrap", 0200, dir, NULL, &bench_wrap_fops);
	debugfs_create_file("callbacks", 0400, dir, NULL, &bench_callbacks_fops);
}

/* No socket is left, because sockets hold references to the module. */
void bench_tcp_exit(void)
{
	struct bench_cc *cc, *next;

	list_for_each_entry_safe(cc, next, &bench_ccs, list) {
		tcp_unregister_congestion_control(&cc->ops);
		module_put(cc->counted->owner);
		kfree(cc);
	}
}
