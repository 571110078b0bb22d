// SPDX-License-Identifier: GPL-2.0

#include <net/netlink.h>

#include "helpers.h"

struct nlattr *xdc_nla_nest_start(struct sk_buff *skb, int attrtype)
{
	return nla_nest_start_noflag(skb, attrtype);
}

void xdc_nla_nest_end(struct sk_buff *skb, struct nlattr *start)
{
	nla_nest_end(skb, start);
}

void xdc_nla_nest_cancel(struct sk_buff *skb, struct nlattr *start)
{
	nla_nest_cancel(skb, start);
}

int xdc_nla_parse_nested(struct nlattr **table, int max, const struct nlattr *nest,
			 const struct nla_policy *policy,
			 struct netlink_ext_ack *extack)
{
	return nla_parse_nested(table, max, nest, policy, extack);
}

/* The parser keeps the last attribute of each type: any other is a duplicate. */
const struct nlattr *xdc_nla_find_twice(const struct nlattr *nest,
					struct nlattr *const *table)
{
	const struct nlattr *attr;
	int rem;

	nla_for_each_nested(attr, nest, rem) {
		if (table[nla_type(attr)] != attr)
			return attr;
	}
	return NULL;
}

/* NL_SET_ERR_MSG() for a text that is no literal. */
void xdc_extack_set(struct netlink_ext_ack *extack, const char *text)
{
	do_trace_netlink_extack(text);
	if (extack)
		extack->_msg = text;
}
