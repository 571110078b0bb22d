// SPDX-License-Identifier: GPL-2.0
/*
 * Scalable TCP as a BPF congestion control (struct_ops): tcp_example.rs without a module. Declares only the
 * kernel types in use; the loader resolves their fields by name.
 *
 *     clang -target bpf -g -O2 -c scalable.bpf.c -o scalable.bpf.o
 */

typedef unsigned int u32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))
#define KFUNC __attribute__((section(".ksyms")))

/* A complete type, because the loader compares it with the kernel's. */
struct sock {
};

struct tcp_sock {
	u32 snd_cwnd;
	u32 snd_ssthresh;
} __attribute__((preserve_access_index));

struct tcp_congestion_ops {
	u32 (*ssthresh)(struct sock *sk);
	void (*cong_avoid)(struct sock *sk, u32 ack, u32 acked);
	u32 (*undo_cwnd)(struct sock *sk);
	char name[16];
};

extern u32 tcp_slow_start(struct tcp_sock *tp, u32 acked) KFUNC;
extern void tcp_cong_avoid_ai(struct tcp_sock *tp, u32 w, u32 acked) KFUNC;
extern u32 tcp_reno_undo_cwnd(struct sock *sk) KFUNC;

/* Acknowledged packets per packet of increase. */
#define INCREASE_EVERY 100

/* On loss, the window shrinks by one part of this many. */
#define DECREASE_PART 8

SEC("struct_ops")
u32 scalable_ssthresh(u64 *args)
{
	struct tcp_sock *tp = (struct tcp_sock *)args[0];
	u32 left = tp->snd_cwnd - tp->snd_cwnd / DECREASE_PART;

	return left > 2 ? left : 2;
}

SEC("struct_ops")
void scalable_cong_avoid(u64 *args)
{
	struct tcp_sock *tp = (struct tcp_sock *)args[0];
	u32 acked = args[2];
	u32 every;

	if (tp->snd_cwnd < tp->snd_ssthresh) {
		acked = tcp_slow_start(tp, acked);
		if (!acked)
			return;
	}
	every = tp->snd_cwnd;
	if (every > INCREASE_EVERY)
		every = INCREASE_EVERY;
	tcp_cong_avoid_ai(tp, every, acked);
}

SEC("struct_ops")
u32 scalable_undo_cwnd(u64 *args)
{
	return tcp_reno_undo_cwnd((struct sock *)args[0]);
}

SEC(".struct_ops")
struct tcp_congestion_ops scalable = {
	.ssthresh = (void *)scalable_ssthresh,
	.cong_avoid = (void *)scalable_cong_avoid,
	.undo_cwnd = (void *)scalable_undo_cwnd,
	.name = "bpf_scalable",
};

char _license[] SEC("license") = "GPL";
