"""Turns the stores into the facts that decisions are made from. Reads memory only; writes nothing.

All parts:
    reader          puts the parts together
    ledger          the use of GPUs by all pods, and the pods of each job
    counted_pod     one pod as the ledger counts it
    sums            sums over pods, by node and by namespace
    assumed_pods    pods that are being created
    terminating_pods pods whose deletion hangs
    convert         from Kubernetes objects to facts

Jobs:
    jobs            a job as a fact
    job_contexts    the facts outside a job that its plan depends on, and the longest grace of its pods
    specs           a job's spec and status, parsed; warnings about parts of the spec
    shapes          the requirements of a job's pods
    priority        the priority of a job among jobs
    pod_priority    the PriorityClass of a job's pods
    uncounted_devices jobs that request devices which the operator does not count
    written_times   times in a status that a wrong clock wrote
    unwritten_evictions evictions that a status does not have yet

Nodes and teams:
    nodes           nodes with their use
    node_outages    whether too many nodes are not Ready at once
    first_seen      times of nodes and pods that a wrong clock wrote
    policies        teams
    external_changes when something changed that the operator did not change itself

Foreign pods (folder `foreign`):
    foreign_pods    the pods of others that wait for GPUs
    foreign_pod     whether the operator makes room for one of them
    nomination_backoffs pods that could not be nominated, until the next try
    reservation     the node that is kept for one of them
    gang_key        which of them are a gang
    whole_gangs     which gangs are whole
    gang_nodes      the nodes of a gang, as one pool

Words, with the field's word in brackets where it differs:

    store           the API server's objects of one kind (client-go: informer cache; kopf: index)
    ledger          the account of all use (kueue: cache)
    assumed         of a pod: its create was sent, and it is not observed yet (kube-scheduler: assumed pod)
    own, foreign    of a pod: its controller is one of our jobs; it is of somebody else
    overdue         of a pod: its deletion takes longer than its grace
    whole           of a gang: no further pod of it is expected (kube-scheduler: PodGroup with minCount pods)
    external change a change that the operator did not make
"""
