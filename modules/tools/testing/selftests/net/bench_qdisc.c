// SPDX-License-Identifier: GPL-2.0
/*
 * Counts a device's root qdisc per packet at a constant backlog: each packet is enqueued, and the first one
 * dequeued. Writing "DEV BACKLOG PACKETS ECN" to `qdisc` runs it; reading returns the counts.
 */
#include <linux/delay.h>
#include <linux/etherdevice.h>
#include <linux/ip.h>
#include <linux/netdevice.h>
#include <linux/nsproxy.h>
#include <linux/rtnetlink.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/tcp.h>
#include <net/inet_ecn.h>
#include <net/ip.h>
#include <net/pkt_sched.h>
#include <net/tcp.h>

#include "bench.h"

#define PAYLOAD_BYTES	1448
#define TCP_BYTES	(sizeof(struct tcphdr) + TCPOLEN_TSTAMP_ALIGNED)
#define FLOWS		8
#define MAX_BACKLOG	1000
#define MAX_PACKETS	1000000

struct bench_run {
	struct net_device *dev;
	struct Qdisc *sch;
	u32 backlog;
	u32 packets;
	u32 ecn;

	/* Packets are clones whose payload is referenced, as TCP's are. */
	struct sk_buff_head payloads;
	struct sk_buff_head spare;
	u32 made;

	struct bench_count enqueue;
	struct bench_count dequeue;
	u64 marked;
	u64 dropped;
};

/* Results of the last run, under RTNL. */
static struct {
	struct bench_count enqueue;
	struct bench_count dequeue;
	u64 marked;
	u64 dropped;
} bench_last;

static struct sk_buff *bench_make(struct bench_run *run)
{
	struct sk_buff *payload, *skb;
	struct tcphdr *tcp;
	struct ethhdr *eth;
	struct iphdr *ip;

	payload = alloc_skb_fclone(MAX_TCP_HEADER + PAYLOAD_BYTES, GFP_KERNEL);
	if (!payload)
		return NULL;
	__skb_queue_tail(&run->payloads, payload);
	skb_reserve(payload, MAX_TCP_HEADER);
	skb_put_zero(payload, PAYLOAD_BYTES);
	__skb_header_release(payload);
	skb = skb_clone(payload, GFP_KERNEL);
	if (!skb)
		return NULL;

	tcp = skb_push(skb, TCP_BYTES);
	skb_reset_transport_header(skb);
	memset(tcp, 0, TCP_BYTES);
	tcp->source = htons(10000 + run->made++ % FLOWS);
	tcp->dest = htons(5001);
	tcp->doff = TCP_BYTES / 4;
	tcp->ack = 1;

	ip = skb_push(skb, sizeof(*ip));
	skb_reset_network_header(skb);
	memset(ip, 0, sizeof(*ip));
	ip->version = 4;
	ip->ihl = sizeof(*ip) / 4;
	ip->tot_len = htons(skb->len);
	ip->frag_off = htons(IP_DF);
	ip->ttl = 64;
	ip->protocol = IPPROTO_TCP;
	ip->saddr = htonl(0x0a090001);
	ip->daddr = htonl(0x0a090002);

	eth = skb_push(skb, sizeof(*eth));
	skb_reset_mac_header(skb);
	memset(eth, 0, sizeof(*eth));
	eth->h_proto = htons(ETH_P_IP);
	skb->protocol = htons(ETH_P_IP);
	return skb;
}

/* Returns a packet that no qdisc has seen. */
static struct sk_buff *bench_next(struct bench_run *run)
{
	struct sk_buff *skb = __skb_dequeue(&run->spare);
	struct iphdr *ip;

	if (!skb)
		skb = bench_make(run);
	if (!skb)
		return NULL;
	ip = ip_hdr(skb);
	ip->tos = run->ecn;
	ip_send_check(ip);
	skb->dev = run->dev;
	skb_clear_tstamp(skb);
	memset(skb->cb, 0, sizeof(skb->cb));
	qdisc_skb_cb(skb)->pkt_len = skb->len;
	qdisc_skb_cb(skb)->pkt_segs = 1;
	return skb;
}

static void bench_enqueue(struct bench_run *run, struct sk_buff *skb)
{
	struct sk_buff *to_free = NULL, *next;
	struct Qdisc *sch = run->sch;

	spin_lock_bh(qdisc_lock(sch));
	BENCH(&run->enqueue, (void)sch->enqueue(skb, sch, &to_free));
	spin_unlock_bh(qdisc_lock(sch));

	for (skb = to_free; skb; skb = next) {
		next = skb->next;
		skb_mark_not_on_list(skb);
		__skb_queue_tail(&run->spare, skb);
		run->dropped++;
	}
}

static bool bench_dequeue(struct bench_run *run)
{
	struct Qdisc *sch = run->sch;
	struct sk_buff *skb;

	spin_lock_bh(qdisc_lock(sch));
	BENCH(&run->dequeue, skb = sch->dequeue(sch));
	spin_unlock_bh(qdisc_lock(sch));

	if (!skb)
		return false;
	skb_mark_not_on_list(skb);
	if (INET_ECN_is_ce(ip_hdr(skb)->tos))
		run->marked++;
	__skb_queue_tail(&run->spare, skb);
	return true;
}

static int bench_drive(struct bench_run *run, u32 packets)
{
	u32 i;

	run->enqueue = (struct bench_count){};
	run->dequeue = (struct bench_count){};
	run->marked = 0;
	run->dropped = 0;
	for (i = 0; i < packets; i++) {
		struct sk_buff *skb = bench_next(run);

		if (!skb)
			return -ENOMEM;
		bench_enqueue(run, skb);
		/* The qdisc drops in dequeue or waits for a timer. */
		if (qdisc_qlen(run->sch) > run->backlog && !bench_dequeue(run))
			return -EBUSY;
		cond_resched();
	}
	return 0;
}

/*
 * Marks the qdisc as running, so that no other code dequeues. Stopping the transmit queues would also do, but
 * a qdisc may look at them.
 */
static int bench_claim(struct Qdisc *sch)
{
	bool claimed = false;
	int i;

	/* A qdisc without its device's lock has no such state. */
	if (sch->flags & TCQ_F_NOLOCK)
		return -EOPNOTSUPP;
	for (i = 0; i < 1000 && !claimed; i++) {
		if (i)
			usleep_range(100, 1000);
		spin_lock_bh(qdisc_lock(sch));
		claimed = qdisc_run_begin(sch);
		spin_unlock_bh(qdisc_lock(sch));
	}
	return claimed ? 0 : -EBUSY;
}

static void bench_release(struct Qdisc *sch)
{
	struct sk_buff *dropped;

	spin_lock_bh(qdisc_lock(sch));
	qdisc_reset(sch);
	dropped = qdisc_run_end(sch);
	spin_unlock_bh(qdisc_lock(sch));
	kfree_skb_list(dropped);
}

static int bench_qdisc(struct bench_run *run)
{
	int ret = bench_claim(run->sch);

	if (ret)
		return ret;
	ret = bench_drive(run, run->backlog);
	/* The first run lets averages reach their level. */
	ret = ret ?: bench_drive(run, run->packets);
	ret = ret ?: bench_drive(run, run->packets);
	if (!ret) {
		bench_last.enqueue = run->enqueue;
		bench_last.dequeue = run->dequeue;
		bench_last.marked = run->marked;
		bench_last.dropped = run->dropped;
	}
	bench_release(run->sch);
	return ret;
}

static ssize_t bench_qdisc_write(struct file *file, const char __user *from,
				 size_t count, loff_t *pos)
{
	struct bench_run run = {};
	char text[64], name[IFNAMSIZ];
	int ret;

	if (count >= sizeof(text))
		return -EINVAL;
	if (copy_from_user(text, from, count))
		return -EFAULT;
	text[count] = 0;
	if (sscanf(text, "%15s %u %u %u", name, &run.backlog, &run.packets, &run.ecn) != 4 ||
	    run.backlog > MAX_BACKLOG || run.packets > MAX_PACKETS ||
	    run.ecn > INET_ECN_MASK)
		return -EINVAL;

	__skb_queue_head_init(&run.payloads);
	__skb_queue_head_init(&run.spare);
	rtnl_lock();
	run.dev = __dev_get_by_name(current->nsproxy->net_ns, name);
	run.sch = run.dev ? rtnl_dereference(run.dev->qdisc) : NULL;
	ret = -ENODEV;
	if (run.sch && run.sch->enqueue)
		ret = bench_qdisc(&run);
	rtnl_unlock();
	__skb_queue_purge(&run.spare);
	__skb_queue_purge(&run.payloads);
	return ret ? ret : count;
}

/* Columns: PACKETS ENQUEUE-INSTRUCTIONS DEQUEUE-INSTRUCTIONS MARKED DROPPED */
static int bench_qdisc_show(struct seq_file *file, void *data)
{
	rtnl_lock();
	seq_printf(file, "%llu %llu %llu %llu %llu\n", bench_last.enqueue.calls,
		   bench_last.enqueue.instructions, bench_last.dequeue.instructions,
		   bench_last.marked, bench_last.dropped);
	rtnl_unlock();
	return 0;
}
DEFINE_SHOW_STORE_ATTRIBUTE(bench_qdisc);

void bench_qdisc_init(struct dentry *dir)
{
	debugfs_create_file("qdisc", 0600, dir, NULL, &bench_qdisc_fops);
}
