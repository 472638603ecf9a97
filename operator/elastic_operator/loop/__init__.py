"""One pass after the other: wake, read, decide, write. Beside it, `upkeep` has writes of its own.

A pass:
    compose         puts a leader's loop together
    controller      wakes, refreshes the view, has the planner decide, and hands its decisions over
    batching        how soon the next pass follows
    store_view      the planner's view of the cluster, as the stores show it
    reconciler      makes and begins the plan of each job
    reason_messages which jobs get a new message on why they are not bigger

Plans are carried out (folder `writes`):
    dispatch        one plan at a time for each job, when it is due
    plan_executor   the writes of one plan, in their order, the status among them
    create          the pods, and before them the Service, the NetworkPolicy and the Secret
    master          the target of the Service, and the membership of an Elastic job
    status_times    when a status is written
    failed_writes   when a job's writes are tried again

Before pods are evicted (folder `reclaim`):
    eviction_gate   whether a job's pods may be evicted now, and the steps before that
    dry_runs        whether the API server would accept the pods of jobs: the questions in their order
    dry_run         one question, and its requests
    dry_run_answers the answers, and which jobs may preempt by them
    nominator       nodes for foreign pods, and the write that keeps a node for one
    eviction_limiter whether pods may be evicted at all, and how many within a minute
    reclaim_reporter log lines and events about waits and evictions
    reclaim_times   how long preemptors wait, for metrics

Beside the passes (folder `forecast`):
    forecasts       makes forecasts, in a thread
    queue_positions places in line, and estimated starts
    what_ifs        the suspended jobs that ask what they would get, and their answers

Words, with the field's word in brackets where it differs:

    pass            one decision about all jobs (kueue: scheduling cycle); kopf and controller-runtime reconcile one
                    object at a time instead
    wake            to begin a pass early, because something changed
    dirty           of a job: it is observed in the next pass (controller-runtime: in the work queue)
    requeue         to have a job's plan made again (controller-runtime: Requeue)
    resync          to decide on every job again, although nothing changed (client-go: resync; kopf: timer)
    fresh           of the stores: heard from the API server recently enough to create or evict pods
    batching        the short wait before a pass, in which more news arrives (kopf: settings.batching)
    work            a plan that is being carried out, one at a time for each job
    gate            the last question before a plan is carried out; its answer No drops the plan. Not a pod's
                    scheduling gate
    dry run         a create that the API server only checks (its parameter dryRun=All)
    what-if         the question of a suspended job, which pods it would get
"""
