// SPDX-License-Identifier: GPL-2.0
/*
 * Connections: makes TCP repair losses.
 *
 * The functions of TCP for it are not exported, but a protocol's release callback is: TCP calls it when a
 * socket is released, to run timers that found the socket in use. With a timer's flag set, the callback runs
 * that timer.
 */

#include <net/mptcp.h>
#include <net/psp.h>
#include <net/request_sock.h>
#include <net/tcp.h>

#include "tlt.h"

/* Does the work of tcp_mstamp_refresh(), which is not exported. */
static void xdc_conn_refresh(struct tcp_sock *tp)
{
	u64 now = tcp_clock_ns();

	tp->tcp_clock_cache = now;
	tp->tcp_mstamp = div_u64(now, NSEC_PER_USEC);
}

/*
 * Sends the ACK that TCP owes for the peer's FIN. The next packet clears that debt, and if it is a clock
 * byte, the peer drops it as old together with its ACK. Data have their own echo; a FIN has none.
 */
void xdc_conn_ack_fin(struct sock *sk)
{
	if (!(sk->sk_shutdown & RCV_SHUTDOWN) || !inet_csk_ack_scheduled(sk))
		return;
	xdc_conn_refresh(tcp_sk(sk));
	__tcp_send_ack(sk, tcp_sk(sk)->rcv_nxt, 0);
}

/*
 * Sends an ACK and records its reason for the hook. The hook runs on the same processor, below this call with
 * softirqs off, so no other packet of the socket can be confused with it.
 */
void xdc_conn_send_ack(struct sock *sk, u32 errand)
{
	struct xdc_errand *slot = this_cpu_ptr(&xdc_errand);

	slot->sk = sk;
	slot->errand = errand;
	xdc_conn_refresh(tcp_sk(sk));
	__tcp_send_ack(sk, tcp_sk(sk)->rcv_nxt, 0);
	slot->sk = NULL;
}

struct xdc_conn_order xdc_conn_order(const struct sock *sk)
{
	return (struct xdc_conn_order) { .reordering = tcp_sk(sk)->reordering, .seen = tcp_sk(sk)->reord_seen };
}

void xdc_conn_set_order(struct sock *sk, struct xdc_conn_order order)
{
	tcp_sk(sk)->reordering = order.reordering;
	tcp_sk(sk)->reord_seen = order.seen;
}

/* A minisocket in FIN_WAIT2 has the same sk_state. */
bool xdc_conn_is_time_wait(const struct sock *sk)
{
	return sk->sk_state == TCP_TIME_WAIT &&
	       READ_ONCE(inet_twsk(sk)->tw_substate) == TCP_TIME_WAIT;
}

/* Returns whether the packet being sent is the tail loss probe. */
bool xdc_conn_is_probing(const struct sock *sk)
{
	return READ_ONCE(inet_csk(sk)->icsk_pending) == ICSK_TIME_LOSS_PROBE &&
	       !time_after(tcp_timeout_expires((struct sock *)sk), jiffies);
}

/* Returns the departure time of the packet being sent, by the pacing rate. */
u64 xdc_conn_departure_us(const struct sock *sk)
{
	return div_u64(tcp_sk(sk)->tcp_wstamp_ns, NSEC_PER_USEC);
}

static void xdc_conn_release(struct sock *sk, int flag)
{
	if (!test_and_set_bit(flag, &sk->sk_tsq_flags))
		sock_hold(sk);
	sk->sk_prot->release_cb(sk);
}

static bool xdc_is_out_of_order(const struct sk_buff *skb)
{
	return !(TCP_SKB_CB(skb)->sacked & TCPCB_TAGBITS) && list_empty(&skb->tcp_tsorted_anchor);
}

/*
 * Restores RACK's list. RACK removes segments marked lost from its list. If an ACK of a single byte comes
 * before the retransmission, TCP takes the loss as spurious and clears the mark (tcp_try_undo_partial()), but
 * RACK would ignore the segment. It is older than all segments on the list.
 */
static void xdc_conn_restore_order(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct sk_buff *skb = tcp_rtx_queue_head(sk);

	if (!skb || !xdc_is_out_of_order(skb))
		return;
	skb_rbtree_walk_from(skb) {
		if (xdc_is_out_of_order(skb))
			list_add(&skb->tcp_tsorted_anchor, &tp->tsorted_sent_queue);
	}
}

/*
 * Has RACK mark lost the packets sent before @mstamp_us, or with 0 those before the newest acknowledged
 * packet, without waiting for reordering. The socket then enters recovery, notifies the congestion control,
 * and retransmits.
 */
void xdc_conn_detect(struct sock *sk, u64 mstamp_us, u32 end_seq)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u32 rtt_us = tp->rack.rtt_us, lost = tp->lost;
	u8 pending = inet_csk(sk)->icsk_pending;
	unsigned long expires = tcp_timeout_expires(sk);

	if (mstamp_us && (mstamp_us > tp->rack.mstamp ||
			  (mstamp_us == tp->rack.mstamp && after(end_seq, tp->rack.end_seq)))) {
		tp->rack.mstamp = mstamp_us;
		tp->rack.end_seq = end_seq;
	}
	xdc_conn_restore_order(sk);
	/* Makes earlier packets older than any reordering window. */
	tp->rack.rtt_us = 0;
	inet_csk_reset_xmit_timer(sk, ICSK_TIME_REO_TIMEOUT, 0, tcp_rto_max(sk));
	xdc_conn_release(sk, TCP_WRITE_TIMER_DEFERRED);
	tp->rack.rtt_us = rtt_us;
	/* Without a loss, restore the previous timer. */
	if (tp->lost == lost && tp->packets_out &&
	    (pending == ICSK_TIME_LOSS_PROBE || pending == ICSK_TIME_REO_TIMEOUT ||
	     pending == ICSK_TIME_RETRANS))
		inet_csk_reset_xmit_timer(sk, pending,
					  time_after(expires, jiffies) ? expires - jiffies : 1,
					  tcp_rto_max(sk));
}

/* Retransmits one lost segment, whatever the window, unless the pacing rate forbids it. */
void xdc_conn_retransmit(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u32 cwnd = tcp_snd_cwnd(tp), lent = tcp_packets_in_flight(tp) + 1;

	if (cwnd < lent)
		tcp_snd_cwnd_set(tp, lent);
	xdc_conn_release(sk, TCP_TSQ_DEFERRED);
	if (cwnd < lent && tcp_snd_cwnd(tp) == lent)
		tcp_snd_cwnd_set(tp, cwnd);
}

/* Reacts to a full queue of this host as TCP does to ip_queue_xmit()'s error. */
void xdc_conn_reduce(struct sock *sk)
{
	tcp_enter_cwr(sk);
}

/* Returns whether the connection is open. */
bool xdc_conn_is_open(const struct sock *sk)
{
	return (1 << sk->sk_state) & (TCPF_ESTABLISHED | TCPF_FIN_WAIT1 | TCPF_FIN_WAIT2 |
				      TCPF_CLOSING | TCPF_CLOSE_WAIT | TCPF_LAST_ACK);
}

/* Returns whether payload, not only a FIN, is unacknowledged. */
bool xdc_conn_has_payload(struct sock *sk)
{
	const struct sk_buff *head = tcp_rtx_queue_head(sk);

	return head && tcp_sk(sk)->snd_una - TCP_SKB_CB(head)->seq < head->len;
}

bool xdc_conn_has_lost(const struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	return tp->lost_out > tp->retrans_out;
}

/* Returns whether cork or Nagle holds less than a segment. */
static bool xdc_conn_keeps_small(const struct tcp_sock *tp)
{
	return (tp->nonagle & TCP_NAGLE_CORK) ||
	       (!tp->nonagle && after(tp->snd_sml, tp->snd_una) &&
		!after(tp->snd_sml, tp->snd_nxt));
}

/*
 * Returns whether @skb, of several segments, may wait for an ACK that lets more leave at once
 * (tcp_tso_should_defer()).
 */
static bool xdc_conn_defers(const struct sock *sk, const struct sk_buff *skb)
{
	const struct net *net = sock_net(sk);
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 mss = tp->mss_cache, cwnd = tcp_snd_cwnd(tp), in_flight = tcp_packets_in_flight(tp);
	u32 burst, divisor = READ_ONCE(net->ipv4.sysctl_tcp_tso_win_divisor);
	u32 rtt = tcp_min_rtt(tp) >> READ_ONCE(net->ipv4.sysctl_tcp_tso_rtt_log);
	unsigned long bytes = READ_ONCE(sk->sk_pacing_rate) >> READ_ONCE(sk->sk_pacing_shift);
	u64 room;

	if (skb->len <= mss || inet_csk(sk)->icsk_ca_state >= TCP_CA_Recovery || cwnd <= in_flight)
		return false;
	if (rtt < BITS_PER_TYPE(sk->sk_gso_max_size))
		bytes += sk->sk_gso_max_size >> rtt;
	burst = min_t(unsigned long, bytes, sk->sk_gso_max_size) / mss;
	burst = max_t(u32, burst, READ_ONCE(net->ipv4.sysctl_tcp_min_tso_segs));
	room = min_t(u64, tcp_wnd_end(tp) - TCP_SKB_CB(skb)->seq, (u64)(cwnd - in_flight) * mss);
	return room < (u64)burst * mss &&
	       (!divisor || room < min_t(u64, tp->snd_wnd, (u64)cwnd * mss) / divisor);
}

/* Returns whether data are ready that window, cork, Nagle and TSO deferral permit. */
static bool xdc_conn_can_send(struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	const struct sk_buff *skb = tcp_send_head(sk);
	u32 len;

	if (!skb)
		return false;
	len = min_t(u32, skb->len, tp->mss_cache);
	if (after(TCP_SKB_CB(skb)->seq + len, tcp_wnd_end(tp)))
		return false;
	if (xdc_conn_defers(sk, skb))
		return false;
	return len == tp->mss_cache || !tcp_skb_is_last(sk, skb) ||
	       !xdc_conn_keeps_small(tp);
}

/*
 * Returns whether pending data wait for a timer of TCP: that of the pacing rate, or TCP Small Queues' timer
 * after a transmission.
 */
bool xdc_conn_is_held(struct sock *sk)
{
	struct tcp_sock *tp = tcp_sk(sk);

	if (tcp_packets_in_flight(tp) >= tcp_snd_cwnd(tp))
		return false;
	if (tp->lost_out <= tp->retrans_out && !xdc_conn_can_send(sk))
		return false;
	return hrtimer_is_queued(&tp->pacing_timer) ||
	       test_bit(TSQ_THROTTLED, &sk->sk_tsq_flags);
}

/*
 * Returns whether nothing can follow a packet of @segs segments that ends at @end_seq, because of data,
 * window or Nagle. Reads numbers only: after NFQUEUE the socket may be unlocked.
 */
bool xdc_conn_is_last(const struct sock *sk, u32 end_seq, u32 segs)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 mss = tp->mss_cache, left = READ_ONCE(tp->write_seq) - end_seq;
	unsigned long rate = READ_ONCE(sk->sk_pacing_rate);

	if ((s32)left <= 0)
		return true;
	if (tcp_packets_in_flight(tp) + segs >= tcp_snd_cwnd(tp))
		return true;
	/* With TCP's own pacing, nothing follows until its timer fires (tcp_update_skb_after_send()). */
	if (READ_ONCE(sk->sk_pacing_status) == SK_PACING_NEEDED && tp->data_segs_out >= 10 &&
	    rate && rate != ~0UL)
		return true;
	if (after(end_seq + min(left, mss), tcp_wnd_end(tp)))
		return true;
	return left < mss && xdc_conn_keeps_small(tp);
}

/* Returns whether the data up to @end_seq have arrived, even if ACKs have no room for them. */
bool xdc_conn_has(const struct sock *sk, u32 end_seq)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	const struct tcp_sack_block *sack = tp->selective_acks;
	int i;

	for (i = 0; i < min_t(int, tp->rx_opt.num_sacks, ARRAY_SIZE(tp->selective_acks)); i++) {
		if (before(sack[i].start_seq, end_seq) && !after(end_seq, sack[i].end_seq))
			return true;
	}
	return !after(end_seq, tp->rcv_nxt);
}

/* Returns whether @segment satisfies the socket's minimum TTL (tcp_v4_rcv(), RFC 5082). */
bool xdc_conn_is_near(const struct sock *sk, const struct xdc_segment *segment)
{
	u8 least = segment->key.ipv6 ? READ_ONCE(inet6_sk(sk)->min_hopcount) :
				       READ_ONCE(inet_sk(sk)->min_ttl);

	return segment->ttl >= least;
}

/* Returns whether @segment is acceptable to the connection (tcp_sequence()). */
bool xdc_conn_is_in_window(const struct sock *sk, const struct xdc_segment *segment)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 window = tcp_receive_window(tp), behind = max(tp->rcv_wnd, tp->window_clamp);
	u32 end_seq = segment->seq + segment->len;

	return !after(segment->seq, tp->rcv_nxt + window) && !before(end_seq, tp->rcv_nxt - behind);
}

/* Returns whether the payload must not be repeated, or losses cannot be told apart. */
bool xdc_conn_is_excluded(const struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	if (tp->repair || sk_is_mptcp(sk))
		return true;
#ifdef CONFIG_SOCK_VALIDATE_XMIT
	if (sk->sk_validate_xmit_skb)
		return true;
#endif
#if IS_ENABLED(CONFIG_INET_PSP)
	if (rcu_access_pointer(sk->psp_assoc))
		return true;
#endif
#ifdef CONFIG_TCP_MD5SIG
	if (rcu_access_pointer(tp->md5sig_info))
		return true;
#endif
#ifdef CONFIG_TCP_AO
	if (rcu_access_pointer(tp->ao_info))
		return true;
#endif
	return (1 << sk->sk_state) & ~(TCPF_SYN_SENT | TCPF_SYN_RECV) && !tcp_is_sack(tp);
}

u32 xdc_conn_mark(const struct sock *sk)
{
	return READ_ONCE(sk->sk_mark);
}

/* Properties of a request: DSCP of its SYN, mark, and whether it may take part. */
u8 xdc_request_dscp(const struct sock *sk)
{
	return tcp_rsk(inet_reqsk((struct sock *)sk))->syn_tos >> 2;
}

u32 xdc_request_mark(const struct sock *sk)
{
	return inet_rsk(inet_reqsk((struct sock *)sk))->ir_mark;
}

bool xdc_request_is_excluded(const struct sock *sk)
{
	const struct request_sock *req = inet_reqsk((struct sock *)sk);

	return !inet_rsk(req)->sack_ok || rsk_is_mptcp(req) || tcp_rsk_used_ao(req);
}

/* Returns the socket of a segment, to be released with xdc_conn_put(). */
struct sock *xdc_conn_find(struct net *net, const struct xdc_segment *segment)
{
	return xdc_flow_lookup(net, &segment->key, segment->dif, segment->sdif);
}

void xdc_conn_put(struct sock *sk)
{
	sock_gen_put(sk);
}

bool xdc_conn_is_full(const struct sock *sk)
{
	return sk_fullsock(sk);
}

/* Returns whether @segment is the ACK that ends the handshake of the request @sk. */
bool xdc_request_is_answered(const struct sock *sk, const struct xdc_segment *segment)
{
	return sk->sk_state == TCP_NEW_SYN_RECV &&
	       segment->ack == tcp_rsk(inet_reqsk((struct sock *)sk))->snt_isn + 1;
}
