"""One pass after the other: wake, read, decide, write. Only this and `cluster` change the world.

A pass:
    compose         puts a leader's loop together
    controller      wakes, reads the world, has the planner decide, and hands over what it decided
    batching        how soon the next pass follows
    stored_world    the world, as the stores show it
    reconciler      makes the plan of each job, and starts on it
    reason_messages which jobs get a new message on why they are not bigger

Plans are carried out (folder `writes`):
    dispatch        one plan at a time for each job, when it is due
    act             the writes of one plan, in their order
    create          the pods
    networking      the Service, the NetworkPolicy and the Secret
    master          where the Service leads, and who takes part in an Elastic job
    job_status      the status, and what the API server drops of it
    status_times    when a status is written
    failed_writes   when a job's writes are tried again

Before pods are evicted for others (folder `reclaim`):
    eviction_gate   whether a job's pods may be evicted now, and what must be done first
    dry_runs        asks the API server which jobs' pods it would accept
    dry_run         the question about one job
    dry_run_answers what it answered, and which jobs may preempt by that
    nominator       nodes for pending pods of others
    nominate        the write that keeps a node for one
    eviction_limiter whether pods may be evicted at all, and how many within a minute
    reclaim_reporter what users read of it
    reclaim_times   how long preemptors wait, for metrics

Beside the passes (folder `forecast`):
    forecasts       works out what would be, in a thread
    queue_positions places in line, and when jobs start
    what_ifs        the jobs that only ask what they would get
"""
