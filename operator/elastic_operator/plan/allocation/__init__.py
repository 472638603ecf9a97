"""Decides for all jobs at once: how many pods each gets and on which nodes, which pods are preempted, and why a job is
not bigger.

The order of service:
    allocate        serves all entries, and again if a preemption was futile; then requests new nodes
    rounds          guarantees, fair shares, then GPUs that no other team uses; in each round, minima before growth
    turn_order      which team: the one with the lowest share value
    fair_share      how many GPUs each team should have
    queues          all entries, by team and account, in the order in which they are served
    scale_up_queues jobs that may grow, in groups that can all grow or none

Quotas:
    accounts        the GPUs that each team uses, and may use
    lending         the GPUs of its idle guarantee that each team lends to others
    quota_refusal   which rule keeps a team from using more: for decisions, and for the sentence that users read

Places:
    admit           gives a job its minimum, or nothing
    grow            gives a job its next size
    gangs           gives all foreign pods of a gang their places, or none of them
    placement       places pods in free room
    node_board      what is free on each node, now and soon
    free_resources  what a pod requires, and whether a node has that
    fit             kube-scheduler's requirements of a node apart from free room: labels, taints, affinity
    node_requests   which entries request new nodes from the cluster's autoscaler

Who makes room (folder `preemption`):
    rules           who may take GPUs from whom
    candidates      which pods may be evicted for a preemptor, in units, and what a unit costs
    victim_queue    the units under one account, the weakest first
    options         the units that must be evicted from a node, the cheapest first
    preempt         takes the cheapest option for each pod, and gives back what is not needed

Which pods are evicted:
    victims         the pods that were preempted in this pass, and for whom
    check_evictions whether a limit on evictions within a minute forbids a preemption

The state of a pass:
    state           board, accounts and entries; it makes every change
    entry           the members that a job or foreign pod keeps, and the placements that it gets
    journal         the changes, each with its undoing
    pass_state      the part that is new in each pass
    pass_memo       answers that hold within a pass or a round
    equivalence     for which entries an answer holds

What comes out:
    result          each job's grant, and which pods are evicted for whom
    assignments     the pods of one job to keep, to release and to create
    explain         why a job is not bigger
    explain_quota   the same where a quota, or the right of other teams, is the reason
    supply          how many pods the nodes hold, for these sentences
"""
