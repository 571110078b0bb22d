// SPDX-License-Identifier: GPL-2.0
/*
 * An example congestion control in C to start from: Reno that keeps 7/10 of the window on loss.
 * `xdc cc add examples/tcp_seven.c` builds it.
 */
#include <linux/module.h>
#include <net/tcp.h>

/* State of one socket. */
struct seven {
	u32 cwnd_before_cut;
};

static void seven_init(struct sock *sk)
{
	struct seven *ca = inet_csk_ca(sk);

	BUILD_BUG_ON(sizeof(struct seven) > ICSK_CA_PRIV_SIZE);
	ca->cwnd_before_cut = 0;
}

static u32 seven_ssthresh(struct sock *sk)
{
	struct seven *ca = inet_csk_ca(sk);

	ca->cwnd_before_cut = tcp_snd_cwnd(tcp_sk(sk));
	return max(ca->cwnd_before_cut * 7 / 10, 2U);
}

static u32 seven_undo_cwnd(struct sock *sk)
{
	struct seven *ca = inet_csk_ca(sk);

	return max(tcp_snd_cwnd(tcp_sk(sk)), ca->cwnd_before_cut);
}

static void seven_cong_avoid(struct sock *sk, u32 ack, u32 acked)
{
	struct tcp_sock *tp = tcp_sk(sk);

	if (!tcp_is_cwnd_limited(sk))
		return;
	if (tcp_in_slow_start(tp)) {
		acked = tcp_slow_start(tp, acked);
		if (!acked)
			return;
	}
	tcp_cong_avoid_ai(tp, tcp_snd_cwnd(tp), acked);
}

static struct tcp_congestion_ops seven __read_mostly = {
	.init		= seven_init,
	.ssthresh	= seven_ssthresh,
	.undo_cwnd	= seven_undo_cwnd,
	.cong_avoid	= seven_cong_avoid,
	.name		= "seven",
	.owner		= THIS_MODULE,
};

static int __init seven_register(void)
{
	return tcp_register_congestion_control(&seven);
}

static void __exit seven_unregister(void)
{
	tcp_unregister_congestion_control(&seven);
}

module_init(seven_register);
module_exit(seven_unregister);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Example of a congestion control in C");
