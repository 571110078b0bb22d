// SPDX-License-Identifier: GPL-2.0
/*
 * toll in C, from "Integer form" in docs/toll.md: the twin of tcp_toll for `xdc-harness twin`.
 * For connections with AccECN; C is a parameter, and the sysctls have their default values.
 */
#include <linux/device/driver.h>
#include <linux/module.h>
#include <net/tcp.h>

enum { GAIN = 51, SHARE = 64, BETA = 256, STEP = 36, ALL = 1024, TEN_S_US = 10000000 };

static uint line_rate_mbps = 10000;
module_param(line_rate_mbps, uint, 0644);

struct toll {
	u64 window, push;			/* W in 2^-16 bytes, H in bytes */
	u32 price, speed, rate;			/* in 2^-20, 2^-36, 2^-12 bytes per us */
	u32 base_us, next_base_us, least_us, last_us, round_us, delivered_ce;
	u16 delay, last_price, swing, lead;	/* in 2^-15, lead in 2^-16 */
	u16 ten_s:4, slow_start:1, queued:1, reduced:1, probing:1, due:1;	/* due: a loss */
};

static u64 toll_bdp(const struct toll *t, u32 part)
{
	return (u64)READ_ONCE(line_rate_mbps) * t->base_us / 8 * part / 1024;
}

static u64 toll_held(const struct toll *t, u64 bytes)
{
	return bytes * ((u64)t->price * t->lead >> 16) >> 20;
}

static u32 toll_cwnd(const struct tcp_sock *tp, const struct toll *t, u32 slack, u64 *send)
{
	u64 w = t->window >> 16;

	*send = max(w - toll_held(t, w), 1ULL);
	return t->probing ? 4 : max((*send + *send / 4) / tp->mss_cache + slack, 1);
}

static void toll_output(struct sock *sk, u32 slack)
{
	struct tcp_sock *tp = tcp_sk(sk);
	const struct toll *t = inet_csk_ca(sk);
	u64 send;
	u32 cwnd = toll_cwnd(tp, t, slack, &send);
	u64 pacing = t->base_us ? send * USEC_PER_SEC / t->base_us : ~0ULL;

	tcp_snd_cwnd_set(tp, min(cwnd, tp->snd_cwnd_clamp));
	WRITE_ONCE(tp->snd_ssthresh, t->slow_start ? TCP_INFINITE_SSTHRESH : 2);
	WRITE_ONCE(sk->sk_pacing_rate, min(pacing, READ_ONCE(sk->sk_max_pacing_rate)));
}

static void toll_derive(struct toll *t)
{
	u32 damp = 32768 + 8 * max(t->swing - 32768 / 12, 0);
	u64 w = t->window >> 16, a = toll_bdp(t, SHARE);

	t->push = min3(w / 2 + 3 * a / 16, a, 5 * w / 2);
	t->lead = (BETA << 21) / damp;
	t->speed = ((u64)GAIN << 41) / damp / (t->base_us + 32ULL);
}

static u64 toll_loss_window(const struct toll *t)
{
	u64 r = (u64)t->rate * t->base_us >> 12;

	return t->reduced ? t->window :
	       min(t->window, max((r + toll_held(t, r)) * 15 << 12, t->window / 2));
}

static void toll_loss(const struct tcp_sock *tp, struct toll *t)
{
	t->window = toll_loss_window(t);
	t->slow_start &= t->reduced;
	t->round_us = t->reduced ? t->round_us : tp->tcp_mstamp;
	t->reduced = 1;
}

static void toll_end_round(const struct tcp_sock *tp, struct toll *t, const struct rate_sample *rs)
{
	u32 mss = tp->mss_cache, least = max(t->least_us, 1), new = t->price >> 5;
	u8 ten_s = tp->tcp_mstamp / TEN_S_US % 16;
	s64 late;

	if (t->ten_s != ten_s) {
		t->ten_s = ten_s;
		t->base_us = t->next_base_us;
		t->next_base_us = least;
	}
	t->base_us = min_not_zero(t->base_us, least);
	t->next_base_us = min_not_zero(t->next_base_us, least);
	late = ((s64)least - (t->base_us + t->base_us / 4 + 50)) * 32768 / t->base_us;
	t->delay = t->window >> 16 < 4 * mss ? 0 : clamp(late, 0, 32768);
	if (least < t->base_us + t->base_us / 16)
		t->queued = 0;
	else if (least > t->base_us + t->base_us / 8)
		t->queued |= t->price < 1 << 10;
	t->reduced = 0;
	t->swing += (abs((s32)new - t->last_price) - t->swing) / 8;
	t->last_price = new;
	toll_derive(t);
	t->window = min(t->window, 8 * max(toll_bdp(t, ALL), 4ULL * mss) << 16);
	if (rs->delivered >= 0 && rs->interval_us > 0 && !rs->is_app_limited)
		t->rate = min(((u64)rs->delivered * mss << 12) / rs->interval_us, U32_MAX);
	t->round_us = tp->tcp_mstamp;
	t->least_us = U32_MAX;
}

static void toll_pay(struct toll *t, u32 mss, u32 acked, u32 marked, u32 passed_us, bool used)
{
	u64 up, down, of = max3(t->window >> 18, 8ULL * mss, (u64)acked);
	u64 w = max(t->window >> 16, 1ULL), ceiling = toll_bdp(t, ALL) + toll_bdp(t, ALL) / 4;

	t->price += div64_s64(((s64)marked << 20) - (s64)t->price * acked, of);
	if (t->slow_start) {
		up = min(max(toll_bdp(t, STEP), w / 8), w);
		if (used)
			t->window += mul_u64_u64_div_u64((u64)(acked - marked) << 16, up, w);
		w = t->window >> 16;
		toll_derive(t);
		if (w >= ceiling ||
		    (marked && w * t->price > 2 * t->push * ((1 << 20) - t->price))) {
			t->slow_start = 0;
			t->window = min(t->window, max(ceiling, 10ULL * mss) << 16);
		}
		return;
	}
	marked = max(marked, (u32)((u64)acked * t->delay >> 15));
	up = used ? t->push * min(passed_us, 4ULL * t->base_us) : 0;
	up = mul_u64_u64_div_u64(up, acked - marked, acked);
	down = (u64)t->base_us * marked;
	if (up > down)
		t->window += mul_u64_u64_shr(up - down, t->speed, 20);
	else
		t->window -= min(t->window, mul_u64_u64_shr(down - up, t->speed, 20));
	t->window = clamp(t->window, (u64)mss << 14, 1ULL << 56);
}

static void toll_cong_control(struct sock *sk, u32 ack, int flag, const struct rate_sample *rs)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct toll *t = inet_csk_ca(sk);
	u32 mss = tp->mss_cache, now = tp->tcp_mstamp, rtt_us = rs->rtt_us;
	u32 acked = rs->acked_sacked, marked = min(tp->delivered_ce - t->delivered_ce, acked);
	bool used = tcp_is_cwnd_limited(sk) ||
		    (rs->prior_in_flight >= tcp_snd_cwnd(tp) / 2 && !rs->is_app_limited);

	t->delivered_ce = tp->delivered_ce;
	if ((t->due && acked) ||
	    (rs->losses && inet_csk(sk)->icsk_ca_state == TCP_CA_Recovery))
		toll_loss(tp, t);
	t->due &= !acked;
	if (rs->rtt_us >= 0 && (tp->tcp_usec_ts || (rs->prior_mstamp && !rs->is_retrans))) {
		t->least_us = min(t->least_us, rtt_us);
		if ((s32)(now - rtt_us - t->round_us) >= 0)
			toll_end_round(tp, t, rs);
	}
	if (acked && t->base_us)
		toll_pay(t, mss, acked * mss, marked * mss, now - t->last_us, used);
	t->last_us = now;
	t->probing = t->queued && tp->tcp_mstamp % TEN_S_US <= 3 * (tp->srtt_us >> 3);
	toll_output(sk, 3);
	if (rs->losses && inet_csk(sk)->icsk_ca_state == TCP_CA_Recovery && !tp->prr_out)
		tcp_snd_cwnd_set(tp, max(tcp_snd_cwnd(tp),
					 min(tcp_packets_in_flight(tp) + 1, tp->snd_cwnd_clamp)));
}

static u32 toll_ssthresh(struct sock *sk)
{
	return max((toll_loss_window(inet_csk_ca(sk)) >> 16) / tcp_sk(sk)->mss_cache, 2);
}

static void toll_set_state(struct sock *sk, u8 state)
{
	struct tcp_sock *tp = tcp_sk(sk);
	struct toll *t = inet_csk_ca(sk);
	u32 cwnd = tcp_packets_in_flight(tp) + 1;
	u64 send, window = (u64)cwnd * tp->mss_cache << 16;
	u8 old = inet_csk(sk)->icsk_ca_state;

	t->due |= state == TCP_CA_CWR ? tp->delivered_ce == t->delivered_ce :
		  old == TCP_CA_CWR && !after(tp->snd_una, tp->high_seq);
	if (state == TCP_CA_Recovery && old != TCP_CA_Recovery) {
		toll_loss(tp, t);
		cwnd = max(cwnd, toll_cwnd(tp, t, 3, &send));
		tcp_snd_cwnd_set(tp, min(cwnd, tp->snd_cwnd_clamp));
	} else if (state == TCP_CA_Loss && tcp_snd_cwnd(tp) == cwnd) {
		if (old == TCP_CA_CWR)
			toll_loss(tp, t);
		t->slow_start |= window < t->window;
		t->window = min(t->window, window);
	}
}

static void toll_cwnd_event(struct sock *sk, enum tcp_ca_event event)
{
	if (event == CA_EVENT_LOSS)
		toll_loss(tcp_sk(sk), inet_csk_ca(sk));
}

static void toll_tx_start(struct sock *sk)
{
	struct toll *t = inet_csk_ca(sk);

	t->delivered_ce = tcp_sk(sk)->delivered_ce;
	t->round_us = tcp_sk(sk)->tcp_mstamp;
	t->least_us = U32_MAX;
	t->delay = 0;
}

static u32 toll_undo_cwnd(struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	struct toll *t = inet_csk_ca(sk);
	u64 send, cwnd = max(tcp_reno_undo_cwnd(sk), 3);

	t->window = max(t->window, (cwnd - 3) * tp->mss_cache / 5 << 18);
	t->slow_start = tp->prior_ssthresh >= TCP_INFINITE_SSTHRESH;
	return toll_cwnd(tp, t, 3, &send);
}

static void toll_init(struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);
	u32 rtt_us = tp->srtt_us ? max(tp->srtt_us >> 3, 1) : 0;
	struct toll *t = inet_csk_ca(sk);
	u64 now = tp->tcp_mstamp;

	if (rtt_us == 1000 && !tp->tcp_usec_ts)
		rtt_us = 0;
	*t = (struct toll) {
		.window = (u64)tcp_snd_cwnd(tp) * tp->mss_cache << 16, .last_us = now,
		.base_us = rtt_us, .next_base_us = rtt_us, .least_us = U32_MAX, .slow_start = 1,
		.round_us = now, .ten_s = now / TEN_S_US % 16, .delivered_ce = tp->delivered_ce,
	};
	toll_derive(t);
	if (!tp->data_segs_out && tcp_snd_cwnd(tp) > 1 && rtt_us <= 5000)
		t->window = max(t->window, toll_bdp(t, STEP) << 16);
	cmpxchg(&sk->sk_pacing_status, SK_PACING_NONE, SK_PACING_NEEDED);
	toll_output(sk, 0);
}

static struct tcp_congestion_ops toll_c __read_mostly = {
	.flags = TCP_CONG_NEEDS_ECN | TCP_CONG_NEEDS_ACCECN, .owner = THIS_MODULE,
	.name = "toll_c", .init = toll_init, .cong_control = toll_cong_control,
	.set_state = toll_set_state, .cwnd_event = toll_cwnd_event, .ssthresh = toll_ssthresh,
	.cwnd_event_tx_start = toll_tx_start, .undo_cwnd = toll_undo_cwnd,
};

static_assert(sizeof(struct toll) <= ICSK_CA_PRIV_SIZE);
module_driver(toll_c, tcp_register_congestion_control, tcp_unregister_congestion_control);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("toll in C, for xdc-harness twin");
