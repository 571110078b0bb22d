// SPDX-License-Identifier: GPL-2.0

#include <linux/if_vlan.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/skbuff.h>
#include <linux/tcp.h>
#include <net/inet_ecn.h>
#include <net/ip.h>

#include "helpers.h"

/*
 * Returns the protocol after VLAN tags, and the offset of its header. If a packet entered a bridge
 * with two tags, its network header is the second tag.
 */
static __be16 xdc_skb_network(const struct sk_buff *skb, int *offset)
{
	__be16 protocol = skb->protocol;

	*offset = skb_network_offset(skb);
	if (eth_type_vlan(protocol))
		protocol = __vlan_get_protocol(skb, protocol, offset);
	return protocol;
}

/* Returns DSCP and ECN without changing the packet; negative if it has neither. */
int xdc_skb_dsfield(const struct sk_buff *skb)
{
	const struct ipv6hdr *ip6;
	const struct iphdr *ip;
	struct ipv6hdr copy;
	int offset;

	BUILD_BUG_ON(sizeof(*ip) > sizeof(copy));
	switch (xdc_skb_network(skb, &offset)) {
	case htons(ETH_P_IP):
		ip = skb_header_pointer(skb, offset, sizeof(*ip), &copy);
		return ip ? ipv4_get_dsfield(ip) : -1;
	case htons(ETH_P_IPV6):
		ip6 = skb_header_pointer(skb, offset, sizeof(*ip6), &copy);
		return ip6 ? ipv6_get_dsfield(ip6) : -1;
	}
	return -1;
}

/*
 * Returns whether the network header, of @header bytes, is writable in place: a tap or TCP's
 * retransmit queue, for example, may share the bytes.
 */
static bool xdc_skb_header_is_ours(const struct sk_buff *skb, unsigned int header)
{
	unsigned int end = skb_network_offset(skb) + header;

	return end <= skb_headlen(skb) &&
	       (!skb_cloned(skb) || skb_clone_writable(skb, end));
}

/*
 * Returns the first @end bytes of the packet, linear and unshared. A holder of a reference to the
 * packet, such as pktgen, relies on the position of its bytes.
 */
static void *xdc_skb_make_ours(struct sk_buff *skb, unsigned int end)
{
	return !skb_shared(skb) && pskb_may_pull(skb, end) && !skb_try_make_writable(skb, end) ?
		skb->data : NULL;
}

static __always_inline enum xdc_ecn xdc_ipv4_set_ce(struct iphdr *ip)
{
	if (INET_ECN_is_ce(ip->tos))
		return XDC_ALREADY_CE;
	return IP_ECN_set_ce(ip) ? XDC_ECT_TO_CE : XDC_NOT_ECT;
}

static enum xdc_ecn xdc_ipv6_set_ce(struct sk_buff *skb, struct ipv6hdr *ip)
{
	if (INET_ECN_is_ce(ipv6_get_dsfield(ip)))
		return XDC_ALREADY_CE;
	return IP6_ECN_set_ce(skb, ip) ? XDC_ECT_TO_CE : XDC_NOT_ECT;
}

/* Handles any packet: IPv6, after VLAN tags, in fragments, shared. */
static noinline enum xdc_ecn xdc_skb_set_ce_slowly(struct sk_buff *skb)
{
	void *data;
	int offset;

	switch (xdc_skb_network(skb, &offset)) {
	case htons(ETH_P_IP):
		data = xdc_skb_make_ours(skb, offset + sizeof(struct iphdr));
		return data ? xdc_ipv4_set_ce(data + offset) : XDC_NOT_ECT;
	case htons(ETH_P_IPV6):
		data = xdc_skb_make_ours(skb, offset + sizeof(struct ipv6hdr));
		return data ? xdc_ipv6_set_ce(skb, data + offset) : XDC_NOT_ECT;
	}
	return XDC_NOT_ECT;
}

/* Fast path without copy or call. */
enum xdc_ecn xdc_skb_set_ce(struct sk_buff *skb)
{
	if (likely(skb->protocol == htons(ETH_P_IP) &&
		   xdc_skb_header_is_ours(skb, sizeof(struct iphdr))))
		return xdc_ipv4_set_ce(ip_hdr(skb));
	return xdc_skb_set_ce_slowly(skb);
}

/* TCP header of a packet that is no fragment. */
struct xdc_skb_tcp {
	const struct tcphdr *tcp;
	struct tcphdr tcp_copy;
	/* NULL for the other family. */
	const struct iphdr *ip;
	const struct ipv6hdr *ip6;
	struct ipv6hdr ip_copy;
	/* Available payload after the header. */
	int payload;
};

static bool xdc_skb_tcp(const struct sk_buff *skb, struct xdc_skb_tcp *it)
{
	__be16 protocol;
	int offset, end;

	protocol = xdc_skb_network(skb, &offset);
	it->ip = NULL;
	it->ip6 = NULL;
	if (protocol == htons(ETH_P_IP)) {
		it->ip = skb_header_pointer(skb, offset, sizeof(*it->ip), &it->ip_copy);
		if (!it->ip || it->ip->protocol != IPPROTO_TCP || ip_is_fragment(it->ip))
			return false;
		end = offset + ntohs(it->ip->tot_len);
		offset += it->ip->ihl * 4;
	} else if (protocol == htons(ETH_P_IPV6)) {
		it->ip6 = skb_header_pointer(skb, offset, sizeof(*it->ip6), &it->ip_copy);
		if (!it->ip6 || it->ip6->nexthdr != IPPROTO_TCP)
			return false;
		end = offset + sizeof(*it->ip6) + ntohs(it->ip6->payload_len);
		offset += sizeof(*it->ip6);
	} else {
		return false;
	}
	it->tcp = skb_header_pointer(skb, offset, sizeof(it->tcp_copy), &it->tcp_copy);
	if (!it->tcp)
		return false;
	it->payload = end - offset - it->tcp->doff * 4;
	return true;
}

/*
 * Returns whether the packet is TCP without payload, and no SYN, FIN or RST, which must not be
 * lost.
 */
bool xdc_skb_is_pure_ack(const struct sk_buff *skb)
{
	struct xdc_skb_tcp it;

	return !skb_is_gso(skb) && xdc_skb_tcp(skb, &it) && !it.payload &&
	       !it.tcp->syn && !it.tcp->fin && !it.tcp->rst;
}
