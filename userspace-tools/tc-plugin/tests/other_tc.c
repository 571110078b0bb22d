// SPDX-License-Identifier: GPL-2.0
/*
 * A tc with another plugin interface. It loads q_phantom.so as tc does and
 * calls each word after the name in the table with tc's arguments.
 *
 * LAYOUT 0: one more word after the name. 1: two words swapped. 2: no tables.
 */
#include <dlfcn.h>
#include <stdio.h>

struct util {
	struct util *next;
	const char *id;
	void *words[LAYOUT == 0 ? 7 : 6];
};

int prio_print_opt(void)
{
	return 0;
}

#define F ((void *)prio_print_opt)
#if LAYOUT == 0
#define TABLE(kind, parse, print, xstats, parse_class, print_class, block) \
	struct util kind##_qdisc_util = { NULL, #kind, \
		{ NULL, parse, print, xstats, parse_class, print_class, block } }
#elif LAYOUT == 1
#define TABLE(kind, parse, print, xstats, parse_class, print_class, block) \
	struct util kind##_qdisc_util = { NULL, #kind, \
		{ parse, xstats, print, parse_class, print_class, block } }
#endif
#if LAYOUT < 2
TABLE(pfifo, F, F, NULL, NULL, NULL, NULL);
TABLE(prio, F, F, NULL, NULL, NULL, NULL);
TABLE(fq_codel, F, F, F, NULL, NULL, NULL);
TABLE(htb, F, F, F, F, F, NULL);
TABLE(red, F, F, F, NULL, NULL, F);
#endif

int main(int argc, char **argv)
{
	typedef int (*function)(struct util *, long, void *, void *, void *);
	void *plugin = dlopen(argv[argc - 1], RTLD_LAZY);
	struct util *util = plugin ? dlsym(plugin, "phantom_qdisc_util") : NULL;
	unsigned int i;

	if (!util) {
		fprintf(stderr, "%s\n", dlerror());
		return 2;
	}
	/* Without the refusal, each function would dereference an argument. */
	for (i = 0; i < sizeof(util->words) / sizeof(util->words[0]); i++)
		if (((function)util->words[i])(util, -1, (void *)1, (void *)2, (void *)3) != -1)
			return 3;
	printf("%s: %u words refuse\n", util->id, i);
	return 0;
}
