"""Decides about one job: what has happened to it, what it demands, and the writes for it. This package knows no other
job.

What has happened:
    observe         calls the rules below, one after the other, and returns the job's observation
    observation     the result: the members, and the status with the news written into it
    classify_pods   which pods are members, and which must be deleted
    lifecycle       ends, deadlines, suspensions, edits
    active_time     how long the job has had pods on nodes
    elastic_rules   the rules of an Elastic job
    master_report   the group that an Elastic job's master reports
    flapping        whether the job's size changes too often
    quarantined     a job at which the operator itself failed

Pods that are lost, fail or do not start:
    losses          lost pods, and the back-off before they are replaced
    lost_nodes      which nodes count as lost
    still_training  the exception in Elastic mode: the master says that the pods there train
    survivors       the exception in Torchrun mode: the other pods train without the lost ones
    failures        pods whose main container failed
    unplaceable     pods that are refused, or get no node; the back-off before they are tried again
    not_started     pods that have a node and do not start
    avoided_nodes   which nodes the job avoids, and for how long

What it demands:
    demand          allowed sizes and the shapes of pods, without the nodes to avoid; when the job may grow
    remaining_pods  the demand of a job that gets no new pods

The writes for it:
    deferred_release which pods are released later, because it is unknown whether others can use the room; the grant
                    meanwhile
    reconcile       the plan: which pods are created and deleted
    resize          records a change of size in the status and an event
    plan_writes     the deletes, the creates, and the status
    master_place    the node of a new master
    membership      the pods that an Elastic job's master reads from its annotation
    finished        the plan of a job that is over, suspended, or made for a question

What users read:
    conditions      Ready, FullSize and the others that answer a question: each with its reason
    warnings        which conditions are True only while there is something to warn about. A warning about a part of the
                    spec begins in `read.specs`, one about classes or devices in `read.job_contexts`
    counts          numbers of pods, processes and GPUs
    pending_reasons why pods do not run yet
"""
