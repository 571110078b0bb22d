/* SPDX-License-Identifier: GPL-2.0 */
/* GF(256) arithmetic with vector registers. */
#ifndef _XDC_UNORC_GF256_X86_H
#define _XDC_UNORC_GF256_X86_H

#include <linux/types.h>

bool xdc_vectors_begin(void);
void xdc_vectors_end(void);
size_t xdc_vectors_step(u8 *row, unsigned int doublings, const u8 *data, size_t bytes);
size_t xdc_vectors_scale(u8 *row, unsigned int doublings, size_t bytes);
void xdc_vectors_pair(u8 *p, u8 *q, const u8 *data, size_t bytes);

#endif /* _XDC_UNORC_GF256_X86_H */
