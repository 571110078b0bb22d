// SPDX-License-Identifier: GPL-2.0
/* A registration that a worker does. */

#include <linux/completion.h>
#include <linux/workqueue.h>

#include "helpers.h"

static void xdc_deferred_work(struct work_struct *work)
{
	struct xdc_deferred *deferred;

	deferred = container_of(work, struct xdc_deferred, work);
	deferred->run(deferred);
	complete_all(&deferred->done);
}

void xdc_deferred_start(struct xdc_deferred *deferred,
			void (*run)(struct xdc_deferred *deferred))
{
	INIT_WORK(&deferred->work, xdc_deferred_work);
	init_completion(&deferred->done);
	deferred->run = run;
	schedule_work(&deferred->work);
}

/* Waits up to @ms: positive if it is done, 0 if not, negative if the process is killed. */
long xdc_deferred_wait(struct xdc_deferred *deferred, unsigned int ms)
{
	return wait_for_completion_killable_timeout(&deferred->done,
						    msecs_to_jiffies(ms));
}

/* Waits until the worker has ended. */
void xdc_deferred_flush(struct xdc_deferred *deferred)
{
	flush_work(&deferred->work);
}
