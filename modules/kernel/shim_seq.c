// SPDX-License-Identifier: GPL-2.0
/* Included by the C files of modules that write a file of /proc in Rust. */

#include <linux/seq_file.h>

#include "shim.h"

void xdc_seq_text(struct seq_file *seq, const u8 *text, unsigned int len)
{
	seq_write(seq, text, len);
}

void xdc_seq_number(struct seq_file *seq, u64 number)
{
	seq_put_decimal_ull(seq, " ", number);
}
