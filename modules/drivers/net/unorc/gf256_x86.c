// SPDX-License-Identifier: GPL-2.0
/*
 * Arithmetic of GF(256) with vector registers.
 *
 * Model: lib/raid/raid6/x86/avx2.c. The compiler uses none of these registers itself, so they keep
 * their content from one asm to the next, between kernel_fpu_begin() and kernel_fpu_end().
 */

#include "gf256_x86.h"

#if defined(CONFIG_X86_64) && !defined(CONFIG_UML)

#include <asm/cpufeature.h>
#include <asm/fpu/api.h>

struct xdc_vector {
	u8 bytes[32];
};

struct xdc_half {
	u8 bytes[16];
};

/* x^8 in GF(256) of polynomial 0x11d. */
static const struct xdc_vector xdc_x1d __aligned(32) = { { [0 ... 31] = 0x1d } };

bool xdc_vectors_begin(void)
{
	/* A processor may report instructions for whose registers the kernel has no state. */
	if (!boot_cpu_has(X86_FEATURE_AVX2) || !boot_cpu_has(X86_FEATURE_AVX) ||
	    !cpu_has_xfeatures(XFEATURE_MASK_SSE | XFEATURE_MASK_YMM, NULL) || !irq_fpu_usable())
		return false;
	kernel_fpu_begin();
	asm volatile("vmovdqa %0, %%ymm14" : : "m" (xdc_x1d));
	asm volatile("vpxor %ymm15, %ymm15, %ymm15");
	return true;
}

void xdc_vectors_end(void)
{
	asm volatile("vzeroupper");
	kernel_fpu_end();
}

/* Doubles register n, with register t: adds 0x1d if the highest bit was set. "r" is xmm or ymm. */
#define XDC_DOUBLE(r, n, t) do {						\
	asm volatile("vpcmpgtb %" #r #n ", %" #r "15, %" #r #t);		\
	asm volatile("vpaddb %" #r #n ", %" #r #n ", %" #r #n);			\
	asm volatile("vpand %" #r "14, %" #r #t ", %" #r #t);			\
	asm volatile("vpxor %" #r #t ", %" #r #n ", %" #r #n);			\
} while (0)

/* Processes vector n at "to", with registers n and t. */
#define XDC_STEP(n, t) do {							\
	asm volatile("vmovdqu %0, %%ymm" #n : : "m" (to[n]));			\
	if (doublings > 0)							\
		XDC_DOUBLE(ymm, n, t);						\
	if (doublings > 1)							\
		XDC_DOUBLE(ymm, n, t);						\
	if (with_data)								\
		asm volatile("vpxor %0, %%ymm" #n ", %%ymm" #n : : "m" (from[n]));\
	asm volatile("vmovdqu %%ymm" #n ", %0" : "=m" (to[n]));			\
} while (0)

/* "doublings" and "with_data" are constants. */
static __always_inline size_t xdc_vectors_run(u8 *row, const unsigned int doublings, const bool with_data,
					      const u8 *data, size_t bytes)
{
	struct xdc_vector *to = (struct xdc_vector *)row;
	const struct xdc_vector *from = (const struct xdc_vector *)data;
	size_t vectors = bytes / sizeof(*to);
	size_t left;

	for (left = vectors; left >= 8; left -= 8) {
		XDC_STEP(0, 8);
		XDC_STEP(1, 9);
		XDC_STEP(2, 10);
		XDC_STEP(3, 11);
		XDC_STEP(4, 12);
		XDC_STEP(5, 13);
		XDC_STEP(6, 8);
		XDC_STEP(7, 9);
		to += 8;
		if (with_data)
			from += 8;
	}
	for (; left; left--) {
		XDC_STEP(0, 8);
		to++;
		if (with_data)
			from++;
	}
	return vectors * sizeof(*to);
}

/*
 * Computes "row" x 2^"doublings" + "data" over all whole vectors of "bytes"; returns their bytes.
 */
size_t xdc_vectors_step(u8 *row, unsigned int doublings, const u8 *data, size_t bytes)
{
	switch (doublings) {
	case 0:
		return xdc_vectors_run(row, 0, true, data, bytes);
	case 1:
		return xdc_vectors_run(row, 1, true, data, bytes);
	case 2:
		return xdc_vectors_run(row, 2, true, data, bytes);
	default:
		return 0;
	}
}

/* Computes "row" x 2^"doublings"; returns bytes like xdc_vectors_step(). */
size_t xdc_vectors_scale(u8 *row, unsigned int doublings, size_t bytes)
{
	switch (doublings) {
	case 1:
		return xdc_vectors_run(row, 1, false, NULL, bytes);
	case 2:
		return xdc_vectors_run(row, 2, false, NULL, bytes);
	default:
		return 0;
	}
}

/* Updates both parities at "at", with registers n, t and d. */
#define XDC_PAIR(r, type, at, n, t, d) do {					\
	asm volatile("vmovdqu %0, %%" #r #d : : "m" (*(const type *)(data + (at))));\
	asm volatile("vpxor %0, %%" #r #d ", %%" #r #t : : "m" (*(const type *)(p + (at))));\
	asm volatile("vmovdqu %%" #r #t ", %0" : "=m" (*(type *)(p + (at))));	\
	asm volatile("vmovdqu %0, %%" #r #n : : "m" (*(const type *)(q + (at))));\
	XDC_DOUBLE(r, n, t);							\
	asm volatile("vpxor %" #r #d ", %" #r #n ", %" #r #n);			\
	asm volatile("vmovdqu %%" #r #n ", %0" : "=m" (*(type *)(q + (at))));	\
} while (0)

/* Updates both parities of eight bytes. */
#define XDC_PAIR_8(at) do {							\
	asm volatile("vmovq %0, %%xmm2" : : "m" (*(const u64 *)(data + (at))));	\
	asm volatile("vmovq %0, %%xmm1" : : "m" (*(const u64 *)(p + (at))));	\
	asm volatile("vpxor %xmm2, %xmm1, %xmm1");				\
	asm volatile("vmovq %%xmm1, %0" : "=m" (*(u64 *)(p + (at))));		\
	asm volatile("vmovq %0, %%xmm0" : : "m" (*(const u64 *)(q + (at))));	\
	XDC_DOUBLE(xmm, 0, 1);							\
	asm volatile("vpxor %xmm2, %xmm0, %xmm0");				\
	asm volatile("vmovq %%xmm0, %0" : "=m" (*(u64 *)(q + (at))));		\
} while (0)

#define XDC_PAIRS_2(at) do {							\
	XDC_PAIR(ymm, struct xdc_vector, (at), 0, 1, 2);			\
	XDC_PAIR(ymm, struct xdc_vector, (at) + 32, 3, 4, 5);			\
} while (0)

#define XDC_PAIRS_4(at) do {							\
	XDC_PAIRS_2(at);							\
	XDC_PAIR(ymm, struct xdc_vector, (at) + 64, 6, 7, 8);			\
	XDC_PAIR(ymm, struct xdc_vector, (at) + 96, 9, 10, 11);			\
} while (0)

#define XDC_PAIRS_8(at) do {							\
	XDC_PAIRS_4(at);							\
	XDC_PAIRS_4((at) + 128);						\
} while (0)

/* Computes "p" + "data" and 2 "q" + "data" over all whole groups of eight bytes. */
void xdc_vectors_pair(u8 *p, u8 *q, const u8 *data, size_t bytes)
{
	const size_t in_loop = bytes & ~(size_t)511;
	size_t at;

	for (at = 0; at < in_loop; at += 512) {
		XDC_PAIRS_8(at);
		XDC_PAIRS_8(at + 256);
	}
	if (bytes & 256) {
		XDC_PAIRS_8(at);
		at += 256;
	}
	if (bytes & 128) {
		XDC_PAIRS_4(at);
		at += 128;
	}
	if (bytes & 64) {
		XDC_PAIRS_2(at);
		at += 64;
	}
	if (bytes & 32) {
		XDC_PAIR(ymm, struct xdc_vector, at, 0, 1, 2);
		at += 32;
	}
	if (bytes & 16) {
		XDC_PAIR(xmm, struct xdc_half, at, 0, 1, 2);
		at += 16;
	}
	if (bytes & 8)
		XDC_PAIR_8(at);
}

#else

bool xdc_vectors_begin(void)
{
	return false;
}

void xdc_vectors_end(void)
{
}

size_t xdc_vectors_step(u8 *row, unsigned int doublings, const u8 *data, size_t bytes)
{
	return 0;
}

size_t xdc_vectors_scale(u8 *row, unsigned int doublings, size_t bytes)
{
	return 0;
}

void xdc_vectors_pair(u8 *p, u8 *q, const u8 *data, size_t bytes)
{
}

#endif
