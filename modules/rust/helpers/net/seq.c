// SPDX-License-Identifier: GPL-2.0

#include <linux/seq_file.h>

#include "helpers.h"

void xdc_seq_text(struct seq_file *seq, const u8 *text, unsigned int len)
{
	seq_write(seq, text, len);
}

void xdc_seq_number(struct seq_file *seq, u64 number)
{
	seq_put_decimal_ull(seq, " ", number);
}
