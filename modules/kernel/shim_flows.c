// SPDX-License-Identifier: GPL-2.0
/*
 * Included by the C file of a module that keeps something for each TCP
 * connection: a table by addresses and ports, and for each entry work that runs in a
 * softirq after the packet that asked for it.
 *
 * The lock of a bucket is that of the entries in it. It is a leaf: under it nothing
 * of TCP is called. An entry goes when its last reference does: that of the table,
 * that of queued work, that of a timer.
 */

#include <linux/hrtimer.h>
#include <linux/jhash.h>
#include <linux/wait_bit.h>
#include <linux/workqueue.h>
#include <net/inet6_hashtables.h>
#include <net/inet_hashtables.h>

#include "shim.h"

struct xdc_flow {
	struct hlist_node node;
	struct xdc_flows *flows;
	struct net *net;
	struct xdc_flow_key key;
	int dif, sdif;
	refcount_t refs;
	/* Out of the table. Under the bucket's lock. */
	bool dead;
	struct work_struct work;
	struct hrtimer timer;
	u64 state[XDC_FLOW_STATE_WORDS];
};

static struct xdc_flow_bucket *xdc_flow_bucket(struct xdc_flows *flows, const struct net *net,
					       const struct xdc_flow_key *key)
{
	u32 hash = jhash2((const u32 *)key, sizeof(*key) / sizeof(u32),
			  flows->seed ^ net_hash_mix(net));

	return &flows->buckets[hash & (XDC_FLOW_BUCKETS - 1)];
}

static void xdc_flow_put(struct xdc_flow *flow)
{
	struct xdc_flows *flows = flow->flows;

	if (!refcount_dec_and_test(&flow->refs))
		return;
	kfree(flow);
	if (atomic_dec_and_test(&flows->count))
		wake_up_var(&flows->count);
}

/* With the bucket's lock. The reference of the table is the caller's from now on. */
static void xdc_flow_unlink(struct xdc_flow *flow)
{
	hlist_del(&flow->node);
	flow->dead = true;
	flow->flows->removed(flow->flows, flow->net);
}

/* What the connection's lookup finds, with a reference: any kind of socket, or none. */
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

/* Returns whether any are left. */
static bool xdc_flows_drop(struct xdc_flows *flows, bool (*goes)(struct xdc_flow *, const void *),
			   const void *arg)
{
	struct hlist_head list = HLIST_HEAD_INIT;
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
			hlist_add_head(&flow->node, &list);
		}
		spin_unlock_bh(&bucket->lock);
		cond_resched();
	}
	hlist_for_each_entry_safe(flow, next, &list, node)
		xdc_flow_put(flow);
	return left;
}

static bool xdc_flow_is_closed(struct xdc_flow *flow, const void *arg)
{
	return !xdc_flow_is_open(flow);
}

static bool xdc_flow_is_of_net(struct xdc_flow *flow, const void *net)
{
	return !net || flow->net == net;
}

/* Nobody says that a socket has gone. */
static void xdc_flows_collect(struct work_struct *work)
{
	struct xdc_flows *flows = container_of(to_delayed_work(work), struct xdc_flows, collect);

	if (xdc_flows_drop(flows, xdc_flow_is_closed, NULL))
		schedule_delayed_work(&flows->collect, HZ);
}

int xdc_flows_init(struct xdc_flows *flows)
{
	int i;

	flows->buckets = kvcalloc(XDC_FLOW_BUCKETS, sizeof(*flows->buckets), GFP_KERNEL);
	if (!flows->buckets)
		return -ENOMEM;
	for (i = 0; i < XDC_FLOW_BUCKETS; i++)
		spin_lock_init(&flows->buckets[i].lock);
	flows->seed = get_random_u32();
	atomic_set(&flows->count, 0);
	INIT_DELAYED_WORK(&flows->collect, xdc_flows_collect);
	return 0;
}

/* The flows of @net, or all; afterwards nothing of them runs. Nobody adds any meanwhile. */
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
	xdc_flows_flush(flows, NULL);
	cancel_delayed_work_sync(&flows->collect);
	wait_var_event(&flows->count, !atomic_read(&flows->count));
	/* Whoever put the last one has left our code. */
	synchronize_rcu();
	kvfree(flows->buckets);
}

/* Queues it where the packet is that it is for, so that TCP sees that first. */
void xdc_flow_queue(struct xdc_flow *flow)
{
	refcount_inc(&flow->refs);
	if (!queue_work_on(smp_processor_id(), system_bh_wq, &flow->work))
		xdc_flow_put(flow);
}

static enum hrtimer_restart xdc_flow_timer(struct hrtimer *timer)
{
	struct xdc_flow *flow = container_of(timer, struct xdc_flow, timer);

	/* The timer's reference becomes that of the work. */
	if (!queue_work_on(smp_processor_id(), system_bh_wq, &flow->work))
		xdc_flow_put(flow);
	return HRTIMER_NORESTART;
}

static void xdc_flow_work(struct work_struct *work)
{
	struct xdc_flow *flow = container_of(work, struct xdc_flow, work);
	struct xdc_flow_bucket *bucket;
	struct sock *sk = NULL;
	u32 retry_us = 0;
	bool dead;

	rcu_read_lock();
	bucket = xdc_flow_bucket(flow->flows, flow->net, &flow->key);
	spin_lock_bh(&bucket->lock);
	dead = flow->dead;
	spin_unlock_bh(&bucket->lock);
	if (!dead)
		sk = xdc_flow_lookup(flow->net, &flow->key, flow->dif, flow->sdif);
	if (sk && sk_fullsock(sk)) {
		bh_lock_sock_nested(sk);
		retry_us = flow->flows->poll(flow->flows, flow, sk,
					     sock_owned_by_user(sk) || sk->sk_backlog.tail);
		bh_unlock_sock(sk);
	}
	if (sk)
		sock_gen_put(sk);
	if (retry_us && !hrtimer_is_queued(&flow->timer)) {
		refcount_inc(&flow->refs);
		hrtimer_start(&flow->timer, us_to_ktime(retry_us), HRTIMER_MODE_REL);
	}
	rcu_read_unlock();
	xdc_flow_put(flow);
}

/* Returns it with its lock held. */
struct xdc_flow *xdc_flow_find(struct xdc_flows *flows, const struct net *net,
			       const struct xdc_flow_key *key)
{
	struct xdc_flow_bucket *bucket = xdc_flow_bucket(flows, net, key);
	struct xdc_flow *flow;

	if (hlist_empty(&bucket->head))
		return NULL;
	spin_lock_bh(&bucket->lock);
	hlist_for_each_entry(flow, &bucket->head, node) {
		if (flow->net == net && !memcmp(&flow->key, key, sizeof(*key)))
			return flow;
	}
	spin_unlock_bh(&bucket->lock);
	return NULL;
}

void *xdc_flow_lock(struct xdc_flow *flow)
{
	spin_lock_bh(&xdc_flow_bucket(flow->flows, flow->net, &flow->key)->lock);
	return flow->state;
}

void xdc_flow_unlock(struct xdc_flow *flow)
{
	spin_unlock_bh(&xdc_flow_bucket(flow->flows, flow->net, &flow->key)->lock);
}

void *xdc_flow_state(struct xdc_flow *flow)
{
	return flow->state;
}

/* Takes the lock's place: unlocks it, and it is gone. */
void xdc_flow_remove(struct xdc_flow *flow)
{
	struct xdc_flow_bucket *bucket = xdc_flow_bucket(flow->flows, flow->net, &flow->key);
	bool was_dead = flow->dead;

	if (!was_dead)
		xdc_flow_unlink(flow);
	spin_unlock_bh(&bucket->lock);
	if (!was_dead)
		xdc_flow_put(flow);
}

/* Adds one of that state, unless the connection has one. */
int xdc_flow_add(struct xdc_flows *flows, struct net *net, const struct xdc_segment *segment,
		 const void *state, unsigned int size)
{
	struct xdc_flow_bucket *bucket = xdc_flow_bucket(flows, net, &segment->key);
	struct xdc_flow *flow, *other;

	flow = kzalloc(sizeof(*flow), GFP_ATOMIC | __GFP_NOWARN);
	if (!flow)
		return -ENOMEM;
	flow->flows = flows;
	flow->net = net;
	flow->key = segment->key;
	flow->dif = segment->dif;
	flow->sdif = segment->sdif;
	refcount_set(&flow->refs, 1);
	INIT_WORK(&flow->work, xdc_flow_work);
	hrtimer_setup(&flow->timer, xdc_flow_timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL);
	memcpy(flow->state, state, min_t(unsigned int, size, sizeof(flow->state)));

	spin_lock_bh(&bucket->lock);
	hlist_for_each_entry(other, &bucket->head, node) {
		if (other->net == net && !memcmp(&other->key, &flow->key, sizeof(flow->key))) {
			spin_unlock_bh(&bucket->lock);
			kfree(flow);
			return -EEXIST;
		}
	}
	atomic_inc(&flows->count);
	hlist_add_head(&flow->node, &bucket->head);
	spin_unlock_bh(&bucket->lock);
	if (!delayed_work_pending(&flows->collect))
		schedule_delayed_work(&flows->collect, HZ);
	return 0;
}
