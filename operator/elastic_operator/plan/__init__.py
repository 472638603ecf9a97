"""Facts in, decisions out. Pure: no clock, no I/O, no randomness; the same input gives the same output.

One pass: `job.observe` finds what has happened to each job, `job.demand` what it demands, `allocation` decides what
each of them gets, and `job.reconcile` plans the writes for it. `policies` makes teams of quota policies. The words,
with the field's word in brackets where it differs:

Of one job:
    incarnation     all pods of a job under one rendezvous id; a lost master begins the next one (torchelastic: run;
                    JobSet: restart attempt)
    active          of a pod: it has not ended and is not being deleted (Kubernetes' controllers: active)
    member          an active pod of the present incarnation (torchelastic: agent)
    context         the facts outside a job that its plan depends on: nodes, classes, its team
    feedback        news of a job beside its object and its pods: from its master, its pods' logs, and writes for it
    observation     the knowledge of a job in one pass: its members, and its status with the news written into it
    size            a number of pods, the master included (torchrun: --nnodes)
    minimum         the smallest allowed size; a job has all of it or does not train (kueue: minCount)
    demand          the wishes of a job: allowed sizes, and the shapes of its pods (kueue: Workload)
    load            a pod's use of its node: resources, GPUs among them, and host ports
    shape           kube-scheduler's requirements of a node for a pod of one template: room for its load, and more
    plan            the writes of one pass for one job, in their order
    group           the training processes of all members, by the report of an Elastic job's master or by the logs of a
                    Torchrun job (torchelastic: a round of the rendezvous). Several pods of others are a gang instead
    gate            a scheduling gate of a pod: kube-scheduler does not look at the pod until the gate is removed
    misplaced       of a pod: it is not bound, and the node that was planned for it has closed or filled since
    provisioning    of a pod: it has no node, and makes the cluster's autoscaler add one (kueue: ProvisioningRequest)
    membership      the pods that take part in an Elastic job; its master reads it from an annotation

Of quotas:
    flavor          a kind of GPU (kueue: ResourceFlavor). The setting flavors[].resources says what counts as a GPU:
                    MIG slices, for example (`plan.facts.gpus`)
    team            a quota policy, or a namespace without one; teams form a tree (kueue: ClusterQueue, Cohort)
    account         the book of one team for one flavor: what it uses, and what it may use
    guarantee       the GPUs that a team gets whenever it wants them (kueue: nominalQuota)
    limit           the most that it may use: guarantee and borrow limit (kueue: nominalQuota + borrowingLimit)
    fair share      the part of all GPUs that a team should have, by guarantees, weights and demands (KAI: fair share)
    entitlement     the right by which a team uses GPUs: guaranteed, within the fair share, or borrowed
    tier            the teams of one priority: a higher tier gets idle GPUs first (API: priority)
    share value     use relative to fair share; the team with the lowest one is served next (kueue:
                    DominantResourceShare, shown as weightedShare)
    entitled        of a team: the rules let it take GPUs from another team (`allocation.preemption.rules`)
    turn            the time for which a job keeps its GPUs while a job of equal priority in its team waits (Slurm:
                    time slice of gang scheduling)
    not yet held    of GPUs that an account counts: planned for a pod, which does not exist yet (166). They are taken
                    before GPUs that pods hold

Of one allocation:
    inputs          what an allocation decides from: nodes, demands, foreign pods, teams (kueue: Snapshot)
    foreign pod     a pod of no job of ours. An allocation plans a node for those that wait for GPUs; several may form
                    a gang: all of them or none
    plain pod       a pod that names no job of ours as its controller; a ResourceQuota may limit these (98)
    entry           a job, or a foreign pod, in a pass: the members it keeps, the placements it gets (kueue: entry)
    equivalent      of entries: the same question about them has the same answer (`allocation.equivalence`)
    position        the place of an entry in the order in which jobs are served
    serve           try to give an entry what it demands: its minimum, or more (kueue: a scheduling cycle's nominate and
                    admit)
    round           all entries are served once, under one entitlement. Rounds are repeated while they change anything
    finding         an answer that is kept for all equivalent entries, until something voids it (`pass_memo`)
    state           entries, accounts and board of a pass; every change can be undone (kueue: its Snapshot, too)
    board           the free room on each node: now, and soon, when all that leaves has left (kube-scheduler: NodeInfo)
    admit           give a job its minimum, as a whole (kueue: admit)
    grow            of a job: to get more than its minimum (API: scale up)
    reserve         keep a node for a foreign pod that is nominated to it and cannot use it yet (kube-scheduler:
                    nominated pods count as if they were there); of a limit on evictions: keep a part for a preemptor
    set aside       keep room in one pass for a part of the minimum of a job that has waited too long (37)
    placement       room on a node for a pod of a job that is to be created (kube-scheduler: assumed pod); a slot is a
                    placement with a pod's index
    assignment      a job's pods to keep, to release and to create (kueue: Admission); a grant is an assignment with
                    the reason why it is not larger (column LIMITED BY)

Of taking GPUs:
    preempt         decide to delete pods for a preemptor (kueue: preempt)
    futile          of a preemption: the preemptor did not use the room (112, 139, 219)
    eviction        the deletion of a pod for another team or for a foreign pod (kueue: evict)
    grace           the time that any deleted pod gets to end: at most reclaim.gracePeriodSeconds of the team's policy,
                    else the setting (`grace_ceiling` in `read.job_contexts`). At a deletion `loop.writes.plan_executor`
                    shortens it
    release         of a job: to give up members, for a preemptor or because it may not keep them
    defer           of a job: to release pods later, when it is known that their preemptors can use the room
    preemptor       the entry for which pods of others are preempted
    victim job      a job with preempted pods, or with candidates; its account is a victim account
    candidate       a pod that may be preempted for a preemptor
    victim          a pod that was preempted for a preemptor; its victim job may keep it after all (kueue: target)
    unit            pods of one job that are preempted together: one worker, or the whole job (kube-scheduler: victims)
    option          the units to preempt so that one pod fits onto one node (kube-scheduler calls this a candidate)
    fill back       keep pods after all, where their preemptors fit elsewhere (kueue: fill back)
    eviction limit  the most evictions within a minute
    over limit      of a preemptor: an eviction limit keeps it from preempting now
    nomination      a node for a foreign pod, written into its status (kube-scheduler: nominatedNodeName). The node is
                    `reserved` if this operator wrote it, and `nominated` if another program did

Of what fails or waits:
    fault           an error of the operator's own at one object, which is quarantined: others are served without it
    write error     why the last write for a job failed, while it is tried again (`loop.writes.failed_writes`)
    avoid           of a job: to get no pod on a node whose kubelet refused pods of the job
    back-off        a time in which nothing is tried for a foreign pod or a gang (kube-scheduler: backoff)
    withheld        of a job: it gets nothing, because the next pass would undo this pass's decision about it (143)
    hold            of a job: to leave it as it is, because its size changed too often (API: heldUntil)
    node outage     too many nodes are not Ready at once for any of them to count as lost (kube-controller-manager:
                    zone disruption)
"""
