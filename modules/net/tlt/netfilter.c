// SPDX-License-Identifier: GPL-2.0
/* Hooks in the packet path. */

#include <linux/netfilter.h>
#include <linux/netfilter_ipv4.h>
#include <linux/netfilter_ipv6.h>
#include <net/dsfield.h>
#include <net/gso.h>
#include <net/ip.h>
#include <net/ip6_checksum.h>
#include <net/ipv6.h>
#include <net/tcp.h>

#include "tlt.h"

static struct nf_hook_ops xdc_nf_ops[4];
static void (*xdc_nf_exit)(void *priv, struct net *net);

static int __net_init xdc_nf_net_init(struct net *net)
{
	return nf_register_net_hooks(net, xdc_nf_ops, ARRAY_SIZE(xdc_nf_ops));
}

/* A grace period passes between this and the following callbacks. */
static void __net_exit xdc_nf_net_pre_exit(struct net *net)
{
	nf_unregister_net_hooks(net, xdc_nf_ops, ARRAY_SIZE(xdc_nf_ops));
}

static void __net_exit xdc_nf_net_exit(struct net *net)
{
	xdc_nf_exit(xdc_nf_ops[0].priv, net);
}

static struct pernet_operations xdc_nf_net_ops = {
	.init		= xdc_nf_net_init,
	.pre_exit	= xdc_nf_net_pre_exit,
	.exit		= xdc_nf_net_exit,
};

/* One per module: namespaces could not tell two apart. */
int xdc_nf_register(void *priv, nf_hookfn *local_in, nf_hookfn *post_routing,
		    void (*exit)(void *priv, struct net *net), int priority)
{
	int i;

	if (cmpxchg(&xdc_nf_exit, NULL, exit))
		return -EBUSY;
	for (i = 0; i < ARRAY_SIZE(xdc_nf_ops); i++) {
		xdc_nf_ops[i] = (struct nf_hook_ops) {
			.hook		= i & 1 ? post_routing : local_in,
			.priv		= priv,
			.pf		= i & 2 ? NFPROTO_IPV6 : NFPROTO_IPV4,
			.hooknum	= i & 1 ? NF_INET_POST_ROUTING : NF_INET_LOCAL_IN,
			.priority	= priority,
		};
	}
	i = register_pernet_subsys(&xdc_nf_net_ops);
	if (i)
		xdc_nf_exit = NULL;
	return i;
}

void xdc_nf_unregister(void)
{
	unregister_pernet_subsys(&xdc_nf_net_ops);
	xdc_nf_exit = NULL;
}

/*
 * Identifies a connection by its socket. NAT may have changed the addresses of a departing packet; a received
 * packet has them back.
 */
static void xdc_key_of_sock(struct xdc_flow_key *key, const struct sock *sk)
{
#if IS_ENABLED(CONFIG_IPV6)
	if (key->ipv6) {
		key->local = sk->sk_v6_rcv_saddr;
		key->remote = sk->sk_v6_daddr;
	}
#endif
	if (!key->ipv6) {
		ipv6_addr_set_v4mapped(sk->sk_rcv_saddr, &key->local);
		ipv6_addr_set_v4mapped(sk->sk_daddr, &key->remote);
	}
	key->local_port = htons(sk->sk_num);
	key->remote_port = sk->sk_dport;
}

/* Parses the TCP segment in @skb, whose data begin with the IP header. Returns whether it is complete. */
bool xdc_nf_segment(struct sk_buff *skb, const struct nf_hook_state *state,
		    struct xdc_segment *segment)
{
	bool in = state->hook == NF_INET_LOCAL_IN;
	const struct in6_addr *saddr, *daddr;
	const struct sock *sender = NULL;
	struct in6_addr v4[2];
	struct tcphdr *tcp, tcp_copy;
	unsigned int offset, len;
	u8 dsfield, ttl;

	/*
	 * Through a VRF a packet comes twice: first for the VRF's device, with the socket locked, and then
	 * from that device, after a qdisc that may have delayed and orphaned it. Through the slave alone it
	 * comes once, from no device.
	 */
	if (!in && state->in && netif_is_l3_master(state->in))
		return false;
	if (state->pf == NFPROTO_IPV4) {
		const struct iphdr *ip = ip_hdr(skb);

		if (ip->protocol != IPPROTO_TCP || ip_is_fragment(ip))
			return false;
		offset = ip_hdrlen(skb);
		dsfield = ipv4_get_dsfield(ip);
		ttl = ip->ttl;
		ipv6_addr_set_v4mapped(ip->saddr, &v4[0]);
		ipv6_addr_set_v4mapped(ip->daddr, &v4[1]);
		saddr = &v4[0];
		daddr = &v4[1];
	} else {
		const struct ipv6hdr *ip = ipv6_hdr(skb);

		if (ip->nexthdr != IPPROTO_TCP)
			return false;
		offset = sizeof(*ip);
		dsfield = ipv6_get_dsfield(ip);
		ttl = ip->hop_limit;
		saddr = &ip->saddr;
		daddr = &ip->daddr;
	}
	tcp = skb_header_pointer(skb, offset, sizeof(tcp_copy), &tcp_copy);
	len = offset + (tcp ? tcp->doff * 4 : 0);
	if (!tcp || tcp->doff < 5 || len > skb->len)
		return false;

	memset(segment, 0, sizeof(*segment));
	segment->key.ipv6 = state->pf == NFPROTO_IPV6;
	segment->key.local = in ? *daddr : *saddr;
	segment->key.remote = in ? *saddr : *daddr;
	segment->key.local_port = in ? tcp->dest : tcp->source;
	segment->key.remote_port = in ? tcp->source : tcp->dest;
	if (!in)
		sender = xdc_nf_full_sock(skb, state);
	segment->out = !in;
	if (sender) {
		xdc_key_of_sock(&segment->key, sender);
		segment->dif = READ_ONCE(sender->sk_bound_dev_if);
	}
	if (in && segment->key.ipv6) {
		segment->dif = inet6_iif(skb);
		segment->sdif = inet6_sdif(skb);
	} else if (in) {
		segment->dif = inet_iif(skb);
		segment->sdif = inet_sdif(skb);
	}
	segment->dscp = dsfield >> 2;
	segment->ttl = ttl;
	segment->syn = tcp->syn;
	segment->ack_flag = tcp->ack;
	segment->fin = tcp->fin;
	segment->rst = tcp->rst;
	segment->seq = ntohl(tcp->seq);
	segment->ack = ntohl(tcp->ack_seq);
	segment->len = skb->len - len;
	/* A device may deliver a burst without its number of segments. */
	segment->segs = max_t(u32, 1, skb_shinfo(skb)->gso_segs);
	segment->tcp_offset = offset;
	return true;
}

static void xdc_change_dscp(struct sk_buff *skb, u8 dscp)
{
	if (skb->protocol == htons(ETH_P_IPV6))
		ipv6_change_dsfield(ipv6_hdr(skb), INET_ECN_MASK, dscp << 2);
	else
		ipv4_change_dsfield(ip_hdr(skb), INET_ECN_MASK, dscp << 2);
}

static unsigned int xdc_ip_bytes(const struct sk_buff *skb)
{
	return skb->protocol == htons(ETH_P_IPV6) ?
		sizeof(struct ipv6hdr) : sizeof(struct iphdr);
}

/* Keeps the two ECN bits. */
bool xdc_nf_set_dscp(struct sk_buff *skb, u8 dscp)
{
	if (skb_ensure_writable(skb, xdc_ip_bytes(skb)))
		return false;
	xdc_change_dscp(skb, dscp);
	return true;
}

/*
 * Sends a packet made by a hook past the hooks after it, including those of the same priority such as
 * conntrack's.
 */
static int xdc_nf_continue(struct sk_buff *skb, const struct nf_hook_state *state)
{
	struct nf_hook_state copy = *state;
	const struct nf_hook_entries *hooks;
	unsigned int i;
	int ret;

	if (state->pf == NFPROTO_IPV4)
		hooks = rcu_dereference(state->net->nf.hooks_ipv4[state->hook]);
	else
		hooks = rcu_dereference(state->net->nf.hooks_ipv6[state->hook]);
	for (i = 0; hooks && i < hooks->num_hook_entries; i++) {
		if (hooks->hooks[i].priv != xdc_nf_ops[0].priv ||
		    hooks->hooks[i].hook != xdc_nf_ops[1].hook)
			continue;
		ret = nf_hook_slow(skb, &copy, hooks, i + 1);
		if (ret != 1)
			return ret;
		break;
	}
	return state->okfn(state->net, state->sk, skb);
}

/*
 * Sends a burst of segments as two packets: all but the last segment, and the last with another DSCP. Returns
 * NF_ACCEPT if @skb is unchanged. A verdict cannot express NET_XMIT_CN or NET_XMIT_DROP, so @congested does;
 * if no packet was sent, TCP gets an error.
 *
 * The burst shares its segmentation data with TCP's copy, so its head is copied first. The kernel then cuts
 * it by a segment size that yields two packets.
 */
u32 xdc_nf_split_last(struct sk_buff *skb, const struct nf_hook_state *state,
		      u8 dscp, u8 last_dscp, bool *congested)
{
	struct skb_shared_info *shinfo = skb_shinfo(skb);
	struct sk_buff *segs, *last;
	unsigned int type, head;
	bool sent = false;
	u32 error = 0;
	u16 size, n;
	int ret;

	if (pskb_expand_head(skb, 0, 0, GFP_ATOMIC))
		return NF_ACCEPT;
	shinfo = skb_shinfo(skb);
	type = shinfo->gso_type;
	size = shinfo->gso_size;
	n = shinfo->gso_segs;
	head = skb_transport_offset(skb) + tcp_hdrlen(skb);
	if (n < 2 || skb->len - head <= (n - 1) * size || (n - 1) * size > U16_MAX - head) {
		segs = __skb_gso_segment(skb, NETIF_F_SG | NETIF_F_HW_CSUM, true);
		n = 0;
	} else {
		shinfo->gso_size = (n - 1) * size;
		shinfo->gso_segs = 2;
		segs = __skb_gso_segment(skb, NETIF_F_SG | NETIF_F_HW_CSUM, true);
		if (IS_ERR_OR_NULL(segs)) {
			shinfo = skb_shinfo(skb);
			shinfo->gso_size = size;
			shinfo->gso_segs = n;
		}
	}
	if (IS_ERR_OR_NULL(segs))
		return NF_ACCEPT;
	if (n > 2) {
		shinfo = skb_shinfo(segs);
		shinfo->gso_type = type;
		shinfo->gso_size = size;
		shinfo->gso_segs = n - 1;
		/* A packet cut as one has the IP IDs of n - 1. */
		if (state->pf == NFPROTO_IPV4 && segs->next && !segs->next->next) {
			struct iphdr *ip = ip_hdr(segs->next);

			ip->id = htons(ntohs(ip_hdr(segs)->id) + n - 1);
			ip_send_check(ip);
		}
	}
	consume_skb(skb);
	skb_list_walk_safe(segs, skb, last) {
		skb_mark_not_on_list(skb);
		xdc_change_dscp(skb, last ? dscp : last_dscp);
		ret = xdc_nf_continue(skb, state);
		if (ret > 0)
			*congested = true;
		if (!net_xmit_eval(ret))
			sent = true;
		else
			error = ret < 0 ? -ret : ENOBUFS;
	}
	return sent ? NF_STOLEN : NF_STOLEN | error << NF_VERDICT_QBITS;
}

/* Returns whether the checksum is right, or known not to matter. */
bool xdc_nf_is_intact(struct sk_buff *skb, const struct nf_hook_state *state,
		      const struct xdc_segment *segment)
{
	return !nf_checksum(skb, state->hook, segment->tcp_offset, IPPROTO_TCP, state->pf);
}

/*
 * Returns the socket that sends @skb. A packet of another socket, as of a tunnel, or of another namespace
 * does not count.
 */
static struct sock *xdc_nf_sender(const struct sk_buff *skb,
				  const struct nf_hook_state *state)
{
	struct sock *sk = skb->sk;

	return sk && sk == state->sk && net_eq(sock_net(sk), state->net) ? sk : NULL;
}

struct sock *xdc_nf_full_sock(const struct sk_buff *skb, const struct nf_hook_state *state)
{
	struct sock *sk = xdc_nf_sender(skb, state);

	return sk && sk_fullsock(sk) && sk_is_tcp(sk) && sk->sk_state != TCP_LISTEN ? sk : NULL;
}

/* Returns the request that a SYN-ACK answers. It has no namespace in state->sk. */
struct sock *xdc_nf_request(const struct sk_buff *skb, const struct nf_hook_state *state)
{
	struct sock *sk = skb->sk;

	/* ipvlan sends packets of another namespace. */
	return sk && sk->sk_state == TCP_NEW_SYN_RECV && net_eq(sock_net(sk), state->net) ?
		sk : NULL;
}

/* Returns the first SACK option from @option to @end, or NULL. */
static const u8 *xdc_next_sack(const u8 *option, const u8 *end)
{
	while (option < end && *option != TCPOPT_EOL) {
		if (*option == TCPOPT_NOP) {
			option++;
			continue;
		}
		if (option + 1 >= end || option[1] < 2 || option + option[1] > end)
			return NULL;
		if (*option == TCPOPT_SACK)
			return option;
		option += option[1];
	}
	return NULL;
}

/* Returns the offset of the SACK option that begins with @seq as a D-SACK, or 0. TCP puts a D-SACK first. */
static unsigned int xdc_find_dsack(const struct sk_buff *skb, unsigned int tcp_offset, u32 seq)
{
	const struct tcphdr *tcp = (void *)(skb->data + tcp_offset);
	const u8 *option = (void *)(tcp + 1), *end = (u8 *)tcp + tcp->doff * 4;

	for (; (option = xdc_next_sack(option, end)); option += option[1]) {
		if (option[1] >= TCPOLEN_SACK_BASE + TCPOLEN_SACK_PERBLOCK &&
		    get_unaligned_be32(option + 2) == seq &&
		    get_unaligned_be32(option + 6) == seq + 1 &&
		    !after(seq + 1, ntohl(tcp->ack_seq)))
			return option - skb->data;
	}
	return 0;
}

/* Removes a D-SACK of the one byte at @seq from @skb, which is about to be sent. */
bool xdc_nf_cut_dsack(struct sk_buff *skb, const struct xdc_segment *segment, u32 seq)
{
	const struct tcphdr *tcp;
	unsigned int at, left;
	u8 *option;

	if (skb->ip_summed != CHECKSUM_PARTIAL ||
	    skb_transport_offset(skb) != segment->tcp_offset ||
	    !pskb_may_pull(skb, segment->tcp_offset + sizeof(*tcp)))
		return false;
	tcp = (void *)(skb->data + segment->tcp_offset);
	if (skb_ensure_writable(skb, segment->tcp_offset + tcp->doff * 4))
		return false;
	at = xdc_find_dsack(skb, segment->tcp_offset, seq);
	if (!at)
		return false;
	option = skb->data + at;
	left = option[1] - TCPOLEN_SACK_PERBLOCK;
	memmove(option + TCPOLEN_SACK_BASE, option + TCPOLEN_SACK_BASE + TCPOLEN_SACK_PERBLOCK,
		left - TCPOLEN_SACK_BASE);
	option[1] = left;
	if (left == TCPOLEN_SACK_BASE)
		memset(option, TCPOPT_NOP, TCPOLEN_SACK_BASE);
	memset(option + left, TCPOPT_NOP, TCPOLEN_SACK_PERBLOCK);
	return true;
}

/* Returns whether @skb acknowledges data up to @end_seq, by ACK number or SACK block. */
bool xdc_nf_reports(struct sk_buff *skb, const struct xdc_segment *segment, u32 end_seq)
{
	u8 buffer[60];
	const struct tcphdr *tcp;
	const u8 *option, *end, *block;
	unsigned int len;

	if (!after(end_seq, segment->ack))
		return true;
	tcp = skb_header_pointer(skb, segment->tcp_offset, sizeof(*tcp), buffer);
	len = tcp ? tcp->doff * 4 : 0;
	tcp = len ? skb_header_pointer(skb, segment->tcp_offset, len, buffer) : NULL;
	if (!tcp)
		return false;
	option = (const u8 *)(tcp + 1);
	end = (const u8 *)tcp + len;
	for (; (option = xdc_next_sack(option, end)); option += option[1]) {
		for (block = option + TCPOLEN_SACK_BASE;
		     block + TCPOLEN_SACK_PERBLOCK <= option + option[1]; block += TCPOLEN_SACK_PERBLOCK)
			if (before(get_unaligned_be32(block), end_seq) &&
			    !after(end_seq, get_unaligned_be32(block + 4)))
				return true;
	}
	return false;
}

/* See xdc_conn_send_ack(). */
struct xdc_errand {
	const struct sock *sk;
	u32 errand;
};
static DEFINE_PER_CPU(struct xdc_errand, xdc_errand);

/* Returns the reason of the ACK that @sk is sending, or 0. */
u32 xdc_nf_errand(const struct sock *sk)
{
	return raw_cpu_read(xdc_errand.sk) == sk && in_softirq() ? raw_cpu_read(xdc_errand.errand) : 0;
}

/* Turns @skb, an ACK of its locked socket, into one byte of data: the first unacknowledged byte. */
bool xdc_nf_make_clock(struct sk_buff *skb, const struct xdc_segment *segment, struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	const struct sk_buff *head;
	unsigned int offset, truesize;
	struct tcphdr *tcp;
	u8 byte;

	/* An errand proves that the socket is locked. */
	if (!xdc_nf_errand(sk))
		return false;
	/* The byte may be urgent, which it could not express. */
	if (tp->snd_una != tp->snd_up)
		return false;
	/* Other code changed the numbers, as conntrack's helpers do, so ours would be wrong. */
	if (segment->seq != tp->snd_nxt && segment->seq != tcp_wnd_end(tp))
		return false;
	head = tcp_rtx_queue_head(sk);
	if (!head || segment->len || skb->ip_summed != CHECKSUM_PARTIAL || skb_cloned(skb) ||
	    skb_is_nonlinear(skb) || skb_transport_offset(skb) != segment->tcp_offset)
		return false;
	offset = tp->snd_una - TCP_SKB_CB(head)->seq;
	if (offset >= head->len || !skb_frags_readable(head) ||
	    skb_copy_bits(head, offset, &byte, 1))
		return false;
	if (skb_tailroom(skb) < 1 && pskb_expand_head(skb, 0, 1, GFP_ATOMIC))
		return false;

	/* A pure ACK was charged almost nothing: skb_set_tcp_pure_ack(). */
	truesize = SKB_TRUESIZE(skb_end_offset(skb));
	if (skb_is_tcp_pure_ack(skb) && skb->destructor == __sock_wfree) {
		refcount_add(truesize - skb->truesize, &sk->sk_wmem_alloc);
		skb->truesize = truesize;
	}

	skb_put_u8(skb, byte);
	tcp = (void *)(skb->data + segment->tcp_offset);
	tcp->seq = htonl(tp->snd_una);
	if (segment->key.ipv6) {
		struct ipv6hdr *ip = ipv6_hdr(skb);

		ip->payload_len = htons(skb->len - sizeof(*ip));
		tcp->check = ~tcp_v6_check(skb->len - segment->tcp_offset,
					   &ip->saddr, &ip->daddr, 0);
	} else {
		struct iphdr *ip = ip_hdr(skb);

		ip->tot_len = htons(skb->len);
		ip_send_check(ip);
		tcp->check = ~tcp_v4_check(skb->len - segment->tcp_offset,
					   ip->saddr, ip->daddr, 0);
	}
	return true;
}
