// SPDX-License-Identifier: GPL-2.0
/*
 * Included by the C file of each module that computes with vector registers.
 *
 * Model: lib/raid/raid6/x86/avx2.c. The compiler uses none of these registers itself, so what is in them
 * stays from one asm to the next, between kernel_fpu_begin() and kernel_fpu_end().
 */

#include "shim.h"

#if defined(CONFIG_X86_64) && !defined(CONFIG_UML)

#include <asm/cpufeature.h>
#include <asm/fpu/api.h>

struct xdc_vector {
	u8 bytes[32];
};

/* x^8 in GF(256) of polynomial 0x11d. */
static const struct xdc_vector xdc_x1d __aligned(32) = { { [0 ... 31] = 0x1d } };

bool xdc_vectors_begin(void)
{
	/* A processor may tell of instructions for whose registers the kernel has no state. */
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

/* Register n times 2, by register t: 0x1d is added where the highest bit was set. */
#define XDC_DOUBLE(n, t) do {							\
	asm volatile("vpcmpgtb %ymm" #n ", %ymm15, %ymm" #t);			\
	asm volatile("vpaddb %ymm" #n ", %ymm" #n ", %ymm" #n);			\
	asm volatile("vpand %ymm14, %ymm" #t ", %ymm" #t);			\
	asm volatile("vpxor %ymm" #t ", %ymm" #n ", %ymm" #n);			\
} while (0)

/* Vector n at "to", by registers n and t. */
#define XDC_STEP(n, t) do {							\
	asm volatile("vmovdqu %0, %%ymm" #n : : "m" (to[n]));			\
	if (doublings > 0)							\
		XDC_DOUBLE(n, t);						\
	if (doublings > 1)							\
		XDC_DOUBLE(n, t);						\
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

/* "row" x 2^"doublings" + "data", over all whole vectors of "bytes"; how many bytes these are. */
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

/* The same without data. */
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

#endif
