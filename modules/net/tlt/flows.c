// SPDX-License-Identifier: GPL-2.0
/*
 * State per TCP connection: a table by addresses and ports, and for each entry work that runs in a softirq
 * after the packet that requested it.
 *
 * A bucket's lock protects its entries. The hooks take it, so TCP must not send under it. An entry is freed
 * with its last reference: of the table, of queued work, or of a timer.
 */

#include <linux/hrtimer.h>
#include <linux/jhash.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/wait_bit.h>
#include <linux/workqueue.h>
#include <net/inet6_hashtables.h>
#include <net/inet_hashtables.h>

#include "tlt.h"

/* Upper bound of the delay until a socket in use is tried again. */
#define XDC_FLOW_MAX_RETRY_US 1000U

struct xdc_flow {
	/* Hooks walk the bucket's list without a lock. */
	struct hlist_node node;
	struct rcu_head rcu;
	struct xdc_flows *flows;
	/* Present bucket, or the last one: late work may outlive the namespace. */
	struct xdc_flow_bucket *bucket;
	struct net *net;
	struct xdc_flow_key key;
	/* Device or VRF to which the socket is bound, or 0. */
	int bound_dev_if;
	int dif, sdif;
	refcount_t refs;
	/* Removed from the table. Under the bucket's lock. */
	bool dead;
	/* The connection was found closed. Under the bucket's lock. */
	bool closed;
	/* Owner of the list that the entry is in, if any; changes under the bucket's lock and the list's. */
	struct xdc_flow_cpu *cpu;
	struct list_head due;
	/* Consecutive times that the socket was in use. Under the bucket's lock. */
	u8 retries;
	/* TCP has yet to process a packet that queued the entry. Under the bucket's lock. */
	bool pending;
	struct hrtimer timer;
	u64 state[XDC_FLOW_STATE_WORDS];
};

/*
 * Flows with pending work of a processor. TCP processes a packet on the processor of its hook, and later
 * softirqs there come after it. Separate work items per flow could already be queued on another processor and
 * run before TCP has seen the packet.
 */
struct xdc_flow_cpu {
	struct work_struct work;
	spinlock_t lock;
	struct list_head due;
};

static struct xdc_flow_bucket *xdc_flow_bucket(struct xdc_flows *flows, const struct net *net,
					       const struct xdc_flow_key *key)
{
	u32 hash = jhash2((const u32 *)key, sizeof(*key) / sizeof(u32),
			  flows->seed ^ net_hash_mix(net));

	return &flows->buckets[hash & (XDC_FLOW_BUCKETS - 1)];
}

/*
 * Two VRFs or links may have connections with equal addresses and ports. Like TCP's lookup, this matches a
 * socket that is bound to nothing or to the packet's device.
 */
static bool xdc_flow_is_of(const struct xdc_flow *flow, const struct net *net,
			   const struct xdc_segment *segment)
{
	if (flow->net != net || memcmp(&flow->key, &segment->key, sizeof(flow->key)))
		return false;
	return segment->out ? flow->bound_dev_if == segment->dif :
		inet_sk_bound_dev_eq(net, flow->bound_dev_if, segment->dif, segment->sdif);
}

static void xdc_flow_put(struct xdc_flow *flow)
{
	struct xdc_flows *flows = flow->flows;

	if (!refcount_dec_and_test(&flow->refs))
		return;
	kfree_rcu(flow, rcu);
	if (atomic_dec_and_test(&flows->count))
		wake_up_var(&flows->count);
}

/* Under the bucket's lock. The caller takes over the table's reference. */
static void xdc_flow_unlink(struct xdc_flow *flow)
{
	hlist_del_rcu(&flow->node);
	flow->dead = true;
	flow->flows->removed(flow->flows, flow->net);
}

/* Looks up the connection's socket of any kind, with a reference, or NULL. */
static struct sock *xdc_flow_lookup(struct net *net, const struct xdc_flow_key *key,
				    int dif, int sdif)
{
#if IS_ENABLED(CONFIG_IPV6)
	if (key->ipv6)
		return __inet6_lookup_established(net, &key->remote, key->remote_port,
						  &key->local, ntohs(key->local_port),
						  dif, sdif);
#endif
	return __inet_lookup_established(net, key->remote.s6_addr32[3], key->remote_port,
					 key->local.s6_addr32[3], ntohs(key->local_port),
					 dif, sdif);
}

static bool xdc_flow_is_open(struct xdc_flow *flow)
{
	struct sock *sk;
	bool open;

	rcu_read_lock();
	sk = xdc_flow_lookup(flow->net, &flow->key, flow->dif, flow->sdif);
	open = sk && sk->sk_state != TCP_TIME_WAIT && sk->sk_state != TCP_CLOSE;
	if (sk)
		sock_gen_put(sk);
	rcu_read_unlock();
	return open;
}

/* Returns whether entries are left. */
static bool xdc_flows_drop(struct xdc_flows *flows, bool (*goes)(struct xdc_flow *, const void *),
			   const void *arg)
{
	struct hlist_node *next;
	struct xdc_flow *flow;
	bool left = false;
	int i;

	for (i = 0; i < XDC_FLOW_BUCKETS; i++) {
		struct xdc_flow_bucket *bucket = &flows->buckets[i];

		if (hlist_empty(&bucket->head))
			continue;
		spin_lock_bh(&bucket->lock);
		hlist_for_each_entry_safe(flow, next, &bucket->head, node) {
			if (!goes(flow, arg)) {
				left = true;
				continue;
			}
			xdc_flow_unlink(flow);
			xdc_flow_put(flow);
		}
		spin_unlock_bh(&bucket->lock);
		cond_resched();
	}
	return left;
}

static bool xdc_flow_is_closed(struct xdc_flow *flow, const void *arg)
{
	bool was_closed = flow->closed;

	/* A socket on its way to TIME_WAIT still has the entry: wait one more round. */
	flow->closed = !xdc_flow_is_open(flow);
	return flow->closed && was_closed;
}

static bool xdc_flow_is_of_net(struct xdc_flow *flow, const void *net)
{
	return !net || flow->net == net;
}

/* Removes entries of closed sockets, whose end is not announced. */
static void xdc_flows_collect(struct work_struct *work)
{
	struct xdc_flows *flows = container_of(to_delayed_work(work), struct xdc_flows, collect);

	if (xdc_flows_drop(flows, xdc_flow_is_closed, NULL))
		schedule_delayed_work(&flows->collect, HZ);
}

/* One per module: a new namespace has no other way to find it. */
static struct xdc_flows *xdc_flows_shown;

/* Position 0 is the line of names, others are buckets. */
static void *xdc_flows_at(loff_t *pos)
{
	while (*pos > 0 && *pos <= XDC_FLOW_BUCKETS &&
	       hlist_empty(&xdc_flows_shown->buckets[*pos - 1].head))
		++*pos;
	if (*pos > XDC_FLOW_BUCKETS)
		return NULL;
	return *pos ? &xdc_flows_shown->buckets[*pos - 1] : SEQ_START_TOKEN;
}

static void *xdc_flows_seq_start(struct seq_file *seq, loff_t *pos)
{
	return xdc_flows_at(pos);
}

static void *xdc_flows_seq_next(struct seq_file *seq, void *v, loff_t *pos)
{
	++*pos;
	return xdc_flows_at(pos);
}

static void xdc_flows_seq_stop(struct seq_file *seq, void *v)
{
}

static int xdc_flows_seq_show(struct seq_file *seq, void *v)
{
	struct xdc_flow_bucket *bucket = v;
	const struct xdc_flow *flow;
	u64 now_us;

	if (v == SEQ_START_TOKEN) {
		seq_printf(seq, "local remote %s\n", xdc_flows_shown->columns);
		return 0;
	}
	spin_lock_bh(&bucket->lock);
	now_us = div_u64(tcp_clock_ns(), NSEC_PER_USEC);
	hlist_for_each_entry(flow, &bucket->head, node) {
		const struct xdc_flow_key *key = &flow->key;

		if (flow->net != seq_file_net(seq))
			continue;
		if (key->ipv6)
			seq_printf(seq, "[%pI6c]:%u [%pI6c]:%u",
				   &key->local, ntohs(key->local_port),
				   &key->remote, ntohs(key->remote_port));
		else
			seq_printf(seq, "%pI4:%u %pI4:%u",
				   &key->local.s6_addr32[3], ntohs(key->local_port),
				   &key->remote.s6_addr32[3], ntohs(key->remote_port));
		xdc_flows_shown->show(flow->state, now_us, seq);
		seq_putc(seq, '\n');
	}
	spin_unlock_bh(&bucket->lock);
	return 0;
}

static const struct seq_operations xdc_flows_seq_ops = {
	.start	= xdc_flows_seq_start,
	.next	= xdc_flows_seq_next,
	.stop	= xdc_flows_seq_stop,
	.show	= xdc_flows_seq_show,
};

static int __net_init xdc_flows_net_init(struct net *net)
{
	return proc_create_net(xdc_flows_shown->file, 0444, net->proc_net,
			       &xdc_flows_seq_ops, sizeof(struct seq_net_private)) ? 0 : -ENOMEM;
}

/* Returns after the last reader has left. */
static void __net_exit xdc_flows_net_exit(struct net *net)
{
	remove_proc_entry(xdc_flows_shown->file, net->proc_net);
}

static struct pernet_operations xdc_flows_net_ops = {
	.init	= xdc_flows_net_init,
	.exit	= xdc_flows_net_exit,
};

static void xdc_flow_work(struct work_struct *work);

int xdc_flows_init(struct xdc_flows *flows)
{
	int i, ret = -ENOMEM;

	if (cmpxchg(&xdc_flows_shown, NULL, flows))
		return -EBUSY;
	flows->cpus = alloc_percpu(struct xdc_flow_cpu);
	flows->buckets = kvcalloc(XDC_FLOW_BUCKETS, sizeof(*flows->buckets), GFP_KERNEL);
	if (!flows->cpus || !flows->buckets)
		goto free;
	for_each_possible_cpu(i) {
		struct xdc_flow_cpu *cpu = per_cpu_ptr(flows->cpus, i);

		INIT_WORK(&cpu->work, xdc_flow_work);
		spin_lock_init(&cpu->lock);
		INIT_LIST_HEAD(&cpu->due);
	}
	for (i = 0; i < XDC_FLOW_BUCKETS; i++)
		spin_lock_init(&flows->buckets[i].lock);
	flows->seed = get_random_u32();
	atomic_set(&flows->count, 0);
	INIT_DELAYED_WORK(&flows->collect, xdc_flows_collect);
	ret = register_pernet_subsys(&xdc_flows_net_ops);
	if (!ret)
		return 0;
free:
	kvfree(flows->buckets);
	free_percpu(flows->cpus);
	WRITE_ONCE(xdc_flows_shown, NULL);
	return ret;
}

/* Removes the flows of @net, or all, and waits for their work. No other code may add any meanwhile. */
void xdc_flows_flush(struct xdc_flows *flows, struct net *net)
{
	if (!atomic_read(&flows->count))
		return;
	xdc_flows_drop(flows, xdc_flow_is_of_net, net);
	/* Work that found its flow alive is in a softirq. */
	synchronize_rcu();
}

void xdc_flows_destroy(struct xdc_flows *flows)
{
	int i;

	unregister_pernet_subsys(&xdc_flows_net_ops);
	xdc_flows_flush(flows, NULL);
	cancel_delayed_work_sync(&flows->collect);
	wait_var_event(&flows->count, !atomic_read(&flows->count));
	for_each_possible_cpu(i)
		cancel_work_sync(&per_cpu_ptr(flows->cpus, i)->work);
	/* Code that released the last reference has left this module. */
	synchronize_rcu();
	kvfree(flows->buckets);
	free_percpu(flows->cpus);
	WRITE_ONCE(xdc_flows_shown, NULL);
}

/* Under the bucket's lock. Removes @flow from its list, if any; returns whether it was in one. */
static bool xdc_flow_unqueue(struct xdc_flow *flow)
{
	bool was_due;

	if (!flow->cpu)
		return false;
	spin_lock(&flow->cpu->lock);
	was_due = !list_empty(&flow->due);
	list_del_init(&flow->due);
	spin_unlock(&flow->cpu->lock);
	return was_due;
}

/* Under the bucket's lock. Takes over a reference. */
static void xdc_flow_enqueue(struct xdc_flow *flow)
{
	unsigned int id = smp_processor_id();
	struct xdc_flow_cpu *cpu = per_cpu_ptr(flow->flows->cpus, id);

	if (!xdc_flow_unqueue(flow))
		refcount_inc(&flow->refs);
	flow->cpu = cpu;
	spin_lock(&cpu->lock);
	list_add_tail(&flow->due, &cpu->due);
	spin_unlock(&cpu->lock);
	queue_work_on(id, system_bh_wq, &cpu->work);
}

/* Under the bucket's lock. Takes over a reference. */
static void xdc_flow_start_timer(struct xdc_flow *flow, u32 us)
{
	if (hrtimer_is_queued(&flow->timer))
		return;
	refcount_inc(&flow->refs);
	hrtimer_start(&flow->timer, us_to_ktime(us), HRTIMER_MODE_REL_SOFT);
}

/*
 * Under the bucket's lock, in a hook: queues work for after TCP has processed the packet. Work already queued
 * on another processor waits for that too.
 */
void xdc_flow_queue(struct xdc_flow *flow)
{
	/*
	 * A process releases a packet from NFQUEUE, and only our lock disables softirqs: queued work would
	 * run at its release, before TCP has the packet.
	 */
	if (softirq_count() == SOFTIRQ_DISABLE_OFFSET) {
		xdc_flow_start_timer(flow, XDC_FLOW_MAX_RETRY_US);
		return;
	}
	xdc_flow_enqueue(flow);
	flow->pending = true;
}

/* Returns whether TCP has yet to process a packet. Under the bucket's lock, by the work. */
bool xdc_flow_is_pending(const struct xdc_flow *flow)
{
	return flow->pending;
}

/* Retries after the socket was in use. Meanwhile a hook may have queued the flow. */
static enum hrtimer_restart xdc_flow_timer(struct hrtimer *timer)
{
	struct xdc_flow *flow = container_of(timer, struct xdc_flow, timer);

	spin_lock(&flow->bucket->lock);
	if (!flow->pending)
		xdc_flow_enqueue(flow);
	spin_unlock(&flow->bucket->lock);
	xdc_flow_put(flow);
	return HRTIMER_NORESTART;
}

static void xdc_flow_run(struct xdc_flow *flow, struct xdc_flow_cpu *cpu)
{
	struct sock *sk = NULL;
	u32 retry_us = 0;
	bool ready;

	rcu_read_lock();
	spin_lock_bh(&flow->bucket->lock);
	/* Otherwise the entry is in another list again. */
	if (flow->cpu == cpu && list_empty(&flow->due))
		flow->pending = false;
	ready = !flow->dead && !flow->pending;
	spin_unlock_bh(&flow->bucket->lock);
	if (ready)
		sk = xdc_flow_lookup(flow->net, &flow->key, flow->dif, flow->sdif);
	if (sk && sk_fullsock(sk)) {
		bh_lock_sock_nested(sk);
		retry_us = flow->flows->poll(flow->flows, flow, sk,
					     sock_owned_by_user(sk) || sk->sk_backlog.tail);
		bh_unlock_sock(sk);
	}
	if (sk)
		sock_gen_put(sk);
	spin_lock_bh(&flow->bucket->lock);
	if (!retry_us) {
		flow->retries = 0;
	} else if (!flow->dead) {
		/* Back off, so that interrupts do not starve the user of the socket. */
		if (retry_us << flow->retries < XDC_FLOW_MAX_RETRY_US)
			retry_us <<= flow->retries++;
		else
			retry_us = max(retry_us, XDC_FLOW_MAX_RETRY_US);
		xdc_flow_start_timer(flow, retry_us);
	}
	spin_unlock_bh(&flow->bucket->lock);
	rcu_read_unlock();
	xdc_flow_put(flow);
}

static void xdc_flow_work(struct work_struct *work)
{
	struct xdc_flow_cpu *cpu = container_of(work, struct xdc_flow_cpu, work);
	struct xdc_flow *flow;

	for (;;) {
		spin_lock_bh(&cpu->lock);
		flow = list_first_entry_or_null(&cpu->due, struct xdc_flow, due);
		if (flow)
			list_del_init(&flow->due);
		spin_unlock_bh(&cpu->lock);
		if (!flow)
			return;
		xdc_flow_run(flow, cpu);
	}
}

/* Returns the flow, locked. */
struct xdc_flow *xdc_flow_find(struct xdc_flows *flows, const struct net *net,
			       const struct xdc_segment *segment)
{
	struct xdc_flow_bucket *bucket = xdc_flow_bucket(flows, net, &segment->key);
	struct xdc_flow *flow;

	guard(rcu)();
	hlist_for_each_entry_rcu(flow, &bucket->head, node) {
		if (!xdc_flow_is_of(flow, net, segment))
			continue;
		spin_lock_bh(&bucket->lock);
		if (!flow->dead)
			return flow;
		spin_unlock_bh(&bucket->lock);
		break;
	}
	return NULL;
}

void xdc_flow_lock(struct xdc_flow *flow)
{
	spin_lock_bh(&flow->bucket->lock);
}

void xdc_flow_unlock(struct xdc_flow *flow)
{
	spin_unlock_bh(&flow->bucket->lock);
}

void *xdc_flow_state(struct xdc_flow *flow)
{
	return flow->state;
}

/* Removes and unlocks the flow. */
void xdc_flow_remove(struct xdc_flow *flow)
{
	struct xdc_flow_bucket *bucket = flow->bucket;
	bool was_dead = flow->dead;

	if (!was_dead)
		xdc_flow_unlink(flow);
	spin_unlock_bh(&bucket->lock);
	if (!was_dead)
		xdc_flow_put(flow);
}

/* Adds a flow with a state for @sk, unless it has one. Returns it locked. */
struct xdc_flow *xdc_flow_add(struct xdc_flows *flows, struct net *net,
			      const struct xdc_segment *segment, const struct sock *sk,
			      const void *state, unsigned int size)
{
	struct xdc_flow_bucket *bucket = xdc_flow_bucket(flows, net, &segment->key);
	struct xdc_flow *flow, *other;

	flow = kzalloc(sizeof(*flow), GFP_ATOMIC | __GFP_NOWARN);
	if (!flow)
		return ERR_PTR(-ENOMEM);
	flow->flows = flows;
	flow->bucket = bucket;
	flow->net = net;
	flow->key = segment->key;
	flow->bound_dev_if = sk->sk_bound_dev_if;
	flow->dif = segment->dif;
	flow->sdif = segment->sdif;
	refcount_set(&flow->refs, 1);
	INIT_LIST_HEAD(&flow->due);
	hrtimer_setup(&flow->timer, xdc_flow_timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_SOFT);
	memcpy(flow->state, state, min_t(unsigned int, size, sizeof(flow->state)));

	spin_lock_bh(&bucket->lock);
	hlist_for_each_entry(other, &bucket->head, node) {
		if (other->net == net && other->bound_dev_if == flow->bound_dev_if &&
		    !memcmp(&other->key, &flow->key, sizeof(flow->key))) {
			spin_unlock_bh(&bucket->lock);
			kfree(flow);
			return ERR_PTR(-EEXIST);
		}
	}
	atomic_inc(&flows->count);
	hlist_add_head_rcu(&flow->node, &bucket->head);
	if (!delayed_work_pending(&flows->collect))
		schedule_delayed_work(&flows->collect, HZ);
	return flow;
}
