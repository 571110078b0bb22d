// SPDX-License-Identifier: GPL-2.0
/*
 * Makes one error per load that the tests must notice: kind=warn, kasan, lockdep, sleep or leak. For this
 * project's guests only.
 *
 * The watcher of a guest's console ends the guest at an error, unless announce=1: then it expects the error
 * between two lines of this module.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/delay.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>

static char *kind = "";
module_param(kind, charp, 0);
MODULE_PARM_DESC(kind, "warn, kasan, lockdep, sleep or leak");

static bool announce;
module_param(announce, bool, 0);
MODULE_PARM_DESC(announce, "announce the deliberate error in the kernel's log");

/* Reads one byte after an allocation. */
static void read_behind(void)
{
	char *volatile area = kmalloc(13, GFP_KERNEL);

	if (area)
		pr_info("%d\n", READ_ONCE(area[13]));
	kfree(area);
}

/* Takes two locks in both orders. */
static void lock_both_ways(void)
{
	static DEFINE_SPINLOCK(a);
	static DEFINE_SPINLOCK(b);

	spin_lock(&a);
	spin_lock(&b);
	spin_unlock(&b);
	spin_unlock(&a);
	spin_lock(&b);
	spin_lock(&a);
	spin_unlock(&a);
	spin_unlock(&b);
}

/* Sleeps while holding a spinlock. */
static void sleep_under_lock(void)
{
	static DEFINE_SPINLOCK(lock);
	static DEFINE_MUTEX(mutex);

	spin_lock(&lock);
	mutex_lock(&mutex);
	mutex_unlock(&mutex);
	spin_unlock(&lock);
}

/* Time for a console to print a line. */
#define CONSOLE_MS 200

#define LEAK_BYTES 4096
#define LEAKS 32

/*
 * Leaks memory: several times, because a stale word may look like a pointer to it, and in a worker, whose
 * stack and registers are soon reused.
 */
static void leak(struct work_struct *work)
{
	int i;

	for (i = 0; i < LEAKS; i++) {
		void *area = kzalloc(LEAK_BYTES, GFP_KERNEL);

		/* Keeps the compiler from removing the allocation. */
		OPTIMIZER_HIDE_VAR(area);
	}
}

static DECLARE_WORK(leak_work, leak);

static void leak_elsewhere(void)
{
	schedule_work(&leak_work);
	flush_work(&leak_work);
}

/* Not __init, because a report needs the function's name after its text is freed. */
static int xdc_alarm_init(void)
{
	if (announce) {
		pr_alert("on purpose: %s\n", kind);
		/* A report may take over the console, even within a line. */
		msleep(CONSOLE_MS);
	}
	if (!strcmp(kind, "warn"))
		WARN(1, "on purpose\n");
	else if (!strcmp(kind, "kasan"))
		read_behind();
	else if (!strcmp(kind, "lockdep"))
		lock_both_ways();
	else if (!strcmp(kind, "sleep"))
		sleep_under_lock();
	else if (!strcmp(kind, "leak"))
		leak_elsewhere();
	else
		return -EINVAL;
	if (announce)
		pr_alert("made: %s\n", kind);
	return 0;
}
module_init(xdc_alarm_init);

static void __exit xdc_alarm_exit(void)
{
}
module_exit(xdc_alarm_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Deliberate kernel errors, for tests");
