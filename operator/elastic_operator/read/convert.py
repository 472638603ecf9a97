"""Converts Kubernetes objects, as structs, to the planner's facts of `plan/facts`. Decides nothing."""

from __future__ import annotations

from datetime import datetime

import msgspec

from elastic_api import template
from elastic_api.quantity import amount
from elastic_operator.build.names import secret_name
from elastic_operator.cluster.meta import Condition, find_condition
from elastic_operator.cluster.objects import Node
from elastic_operator.cluster.pod import Pod, SelectorTerm, Waiting
from elastic_operator.plan.facts import node as model
from elastic_operator.plan.facts.job import STARTS, LastOutput, MainContainer, OwnPod
from elastic_operator.plan.facts.pod_shape import host_ports
from elastic_operator.plan.facts.requirements import Load
from elastic_worker import contract
from elastic_worker.last_lines import parted

_REFUSALS = frozenset(
    {"NodeAffinity", "NodePorts", "NodeShutdown", "TopologyAffinityError", "UnexpectedAdmissionError"}
)
"""The values of status.reason of pods that the kubelet did not admit; `OutOf...` is such a value, too."""
_CLUSTER_REASONS = _REFUSALS | {"NodeLost", "Preempting", "Shutdown", "Terminated"}
"""The same, and the values of pods that the kubelet ended, and that did not end by themselves."""

EVICTED = "Evicted"
_NOT_ADMITTED = "The node had condition"
"""The beginning of an eviction's message if the kubelet did not admit the pod. If the node ran short of something, the
evicted pod has the condition DisruptionTarget. Any other evicted pod exceeded a limit of its own: of an emptyDir, or of
storage.
"""

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
"""The taint by which somebody declares that a node is off, and that its pods may be deleted (86)."""

SANDBOX_IS_READY = "PodReadyToStartContainers"
"""The condition of pods whose volumes and network are ready. Kubelets before 1.35 set it only after the first pull."""

_DISRUPTIONS = {
    "PreemptionByScheduler": "preempted by a pod of higher priority",
    "DeletionByTaintManager": "its node was tainted NoExecute",
    "EvictionByEvictionAPI": "evicted, as by a drain of its node",
    "DeletionByPodGC": "its node is gone",
    "TerminationByKubelet": "ended by its kubelet",
}
"""Reasons of the condition DisruptionTarget. A plain DELETE, such as our own, does not set that condition."""


def epoch(time: str) -> float:
    """Seconds since the epoch of an RFC 3339 time as the API writes it; 0 for "", which stands for "not set"."""
    return datetime.fromisoformat(time).timestamp() if time else 0.0


def node_facts(node: Node) -> model.Node:
    """The node, without its use by pods (`Ledger.with_use`)."""
    return model.Node(
        name=node.metadata.name,
        allocatable={name: amount(name, quantity) for name, quantity in node.status.allocatable.items()},
        labels=node.metadata.labels,
        taints=node.spec.taints or (),
        unschedulable=node.spec.unschedulable,
        ready=unready_since(node) is None,
    )


def closed_node(node: Node) -> model.Node:
    """The node as a closed one. Only its labels are read, because they name the kind of its GPUs."""
    return model.Node(name=node.metadata.name, allocatable={}, labels=node.metadata.labels, unschedulable=True)


def is_out_of_service(node: Node) -> bool:
    """Whether the node has the taint `OUT_OF_SERVICE`: somebody has given it up."""
    return any(taint.key == OUT_OF_SERVICE for taint in node.spec.taints or ())


def ready_since(node: Node) -> float:
    """When a Ready node became Ready, by its status."""
    ready = find_condition(node.status.conditions, "Ready")
    return epoch((ready and ready.last_transition_time) or "")


def age_at(node: Node, time: float) -> float:
    """The node's age at that time. The same clock wrote both."""
    return time - epoch(node.metadata.creation_timestamp or "")


def unready_since(node: Node) -> float | None:
    """When the node stopped being Ready; None if it is Ready. For a node that never reported, its creation."""
    ready = find_condition(node.status.conditions, "Ready")
    if ready is not None and ready.status == "True":
        return None
    return epoch((ready and ready.last_transition_time) or node.metadata.creation_timestamp or "")


def requests_of(pod: Pod) -> dict[str, int]:
    """A pod's requests, by the same rules as for templates, with one of the node's `pods`."""
    return {**template.requests_of({"spec": msgspec.to_builtins(pod.spec)}), "pods": 1}


def host_ports_of(pod: Pod) -> frozenset[model.HostPort]:
    """The node's ports that the pod uses. With hostNetwork, the API server has set each `hostPort`."""
    return frozenset(host_ports(msgspec.to_builtins(pod.spec)))


def node_of(pod: Pod) -> str | None:
    """The node that the pod is bound to, else the only node that it may be bound to; None if there is neither."""
    return pod.spec.node_name or pinned_node(pod)


def pinned_node(pod: Pod) -> str | None:
    """The node that every term of the pod's required node affinity names, if there is one."""
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
    terms = (affinity and affinity.required and affinity.required.node_selector_terms) or ()
    names = {_pin(term) for term in terms}
    return names.pop() if len(names) == 1 else None


def _pin(term: SelectorTerm) -> str | None:
    for requirement in term.match_fields or ():
        values = requirement.values or ()
        if requirement.key == "metadata.name" and requirement.operator == "In" and len(values) == 1:
            return values[0]
    return None


def is_ended(pod: Pod) -> bool:
    """Whether the pod has ended and holds no resources."""
    return pod.status.phase in ("Succeeded", "Failed")


def waits_for_node(pod: Pod) -> bool:
    """Whether the pod has no node yet and has not ended."""
    return not pod.spec.node_name and pod.metadata.deletion_timestamp is None and not is_ended(pod)


def scheduler_messages(pod: Pod) -> tuple[str, str]:
    """The message of a scheduler that finds no node for the pod, and that of one that failed at the pod and will try it
    again; "" without such a message. In the second case neither more room nor another pod would help (208).
    """
    tried = _not_placed(pod)
    message = (tried.message or tried.reason) if tried else ""
    return ("", message) if tried and tried.reason == "SchedulerError" else (message, "")


def is_untried(pod: Pod) -> bool:
    """Whether no scheduler has tried a waiting pod yet, although the pod has no scheduling gate."""
    return not pod.spec.node_name and not pod.spec.scheduling_gates and _not_placed(pod) is None


def _not_placed(pod: Pod) -> Condition | None:
    """The condition of a pod that a scheduler could not place; None for a pod that has a node, and for a pod that no
    scheduler has looked at, such as one with scheduling gates (176).

    When the gates are removed, the condition stays as it is until kube-scheduler has looked at the pod.
    """
    scheduled = find_condition(pod.status.conditions, "PodScheduled")
    if pod.spec.node_name or pod.spec.scheduling_gates or scheduled is None or scheduled.status != "False":
        return None
    return scheduled if scheduled.reason != "SchedulingGated" else None


def disruption(pod: Pod) -> str:
    """How the cluster ended the pod, or is ending it; "" if the cluster did not end it."""
    target = find_condition(pod.status.conditions, "DisruptionTarget")
    if target is not None and target.status == "True":
        return _sentence(_DISRUPTIONS.get(target.reason, target.reason), target.message)
    reason = pod.status.reason
    ended = reason in _CLUSTER_REASONS or reason.startswith("OutOf") or _was_refused(pod)
    return _sentence(reason, pod.status.message) if pod.status.phase == "Failed" and ended else ""


def _was_refused(pod: Pod) -> bool:
    """Whether the kubelet refused the pod: the pod ended on its node without having started."""
    status = pod.status
    began = any(container.state.running or container.state.terminated for container in status.container_statuses or ())
    evicted = status.reason == EVICTED and status.message.startswith(_NOT_ADMITTED)
    refused = evicted or status.reason in _REFUSALS or status.reason.startswith("OutOf")
    return status.phase == "Failed" and not began and refused


def main_container_name(pod: Pod) -> str:
    """The container that trains: the one called `pytorch`, else the first."""
    names = [container.name for container in pod.spec.containers]
    return contract.MAIN_CONTAINER if contract.MAIN_CONTAINER in names else names[0]


def main_container(pod: Pod) -> MainContainer:
    """The state of the container that trains. If the clock of its node is behind, the times from that node are not
    used.
    """
    main = main_container_name(pod)
    state = next((s.state for s in pod.status.container_statuses or () if s.name == main), None)
    if state is None:
        return MainContainer()
    if (end := state.terminated) is not None:
        finished = None if _clock_is_behind(pod) else _time(end.finished_at)
        evicted = pod.status.phase == "Failed" and pod.status.reason == EVICTED
        reason, message = (EVICTED, pod.status.message) if evicted else (end.reason, end.message)
        message, last = parted(message)
        output = LastOutput(last.pod, last.exit_code, last.rank, last.lines) if last is not None else None
        return MainContainer(
            exit_code=end.exit_code, finished_at=finished, reason=reason, message=message, last_output=output
        )
    if state.running is not None:
        since = pod.metadata.creation_timestamp if _clock_is_behind(pod) else state.running.started_at
        return MainContainer(running_since=_time(since))
    if state.waiting is not None:
        return _waiting(pod, main, state.waiting)
    return MainContainer()


def _waiting(pod: Pod, main: str, waiting: Waiting) -> MainContainer:
    """The main container, which has not started, with the name of the container that it waits for."""
    init, name = pod.status.init_container_statuses or (), main
    sidecars = {container.name for container in pod.spec.init_containers or () if container.restart_policy == "Always"}
    is_busy = any(status.state.running for status in init if status.name not in sidecars)
    if not is_busy:  # it waits for an init container that cannot start
        troubles = ((status.name, status.state.waiting) for status in init if status.state.waiting)
        name, waiting = next((trouble for trouble in troubles if trouble[1].reason not in STARTS), (main, waiting))
    begun = (status.state.running.started_at for status in init if status.state.running)
    ended = (status.state.terminated.finished_at for status in init if status.state.terminated)
    staged = find_condition(pod.status.conditions, SANDBOX_IS_READY)
    is_staged = staged is not None and staged.status == "True"
    since = _staged_since(pod, staged) if staged is not None and is_staged else None
    times = () if _clock_is_behind(pod) else filter(None, (*map(_time, (*begun, *ended)), since))
    return MainContainer(
        waiting_reason=waiting.reason,
        waiting_message=waiting.message,
        waiting_container=name,
        waiting_since=max(times, default=None),
        is_on_its_way=waiting.reason in STARTS and (is_busy or is_staged),
    )


def _staged_since(pod: Pod, staged: Condition) -> float | None:
    """The latest time at which volumes and network became ready.

    The node's clock may be ahead of the API server's, but by no more than the apparent time from the binding to the
    moment when the kubelet first saw the pod. That time is subtracted.
    """
    since, seen = _time(staged.last_transition_time), _time(pod.status.start_time)
    scheduled = find_condition(pod.status.conditions, "PodScheduled")
    bound = _time(scheduled.last_transition_time if scheduled else None) or _time(pod.metadata.creation_timestamp)
    return since if since is None or seen is None or bound is None else since - max(0.0, seen - bound)


def _clock_is_behind(pod: Pod) -> bool:
    """Whether the clock of the pod's node is behind the API server's: by the written times, the kubelet saw the pod
    before the pod was created.
    """
    seen, made = _time(pod.status.start_time), _time(pod.metadata.creation_timestamp)
    return seen is not None and made is not None and seen < made


def own_pod(pod: Pod, load: Load, *, role: str, index: int) -> OwnPod:
    """A pod of ours as a fact. The ledger has decided that it is ours, and has found its load, `role` and `index`.

    `deleting_since` is the time of the deletion's request; the API's deletionTimestamp is the end of the grace.
    """
    meta, job, conditions = pod.metadata, pod.metadata.controller, pod.status.conditions
    scheduled = find_condition(conditions, "PodScheduled")
    tried, (unschedulable, scheduler_error) = _not_placed(pod), scheduler_messages(pod)
    placed = scheduled is not None and scheduled.status == "True"
    ready = find_condition(conditions, "Ready")
    grace = float(meta.deletion_grace_period_seconds) if meta.deletion_grace_period_seconds else 0.0
    deadline = _time(meta.deletion_timestamp)
    return OwnPod(
        load.requests,
        load.gpus,
        load.host_ports,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        role=role,
        index=index,
        incarnation=_number(meta.labels.incarnation) or 0,
        phase=pod.status.phase,
        created=epoch(meta.creation_timestamp or ""),
        node=node_of(pod),
        bound=bool(pod.spec.node_name),
        bound_since=_time(scheduled.last_transition_time) if placed and scheduled else None,
        deleting_since=None if deadline is None else deadline - grace,
        grace_seconds=grace,
        ready=ready is not None and ready.status == "True",
        main=main_container(pod),
        disrupted=disruption(pod),
        refused=_was_refused(pod),
        unschedulable=unschedulable,
        unschedulable_since=_time(tried.last_transition_time) if unschedulable and tried is not None else None,
        scheduler_error=scheduler_error,
        gates=tuple(gate.name for gate in pod.spec.scheduling_gates or ()),
        nnodes=_nnodes(meta.annotations.nnodes),
        template=meta.annotations.template,
        pod_ip=pod.status.pod_ip,
        master_epoch=_number(meta.annotations.master_epoch) if role == contract.ROLE_MASTER else None,
        membership=meta.annotations.membership if role == contract.ROLE_MASTER else "",
        own_secret=job is not None and meta.annotations.secret == secret_name(job.name, job.uid),
    )


def _number(text: str) -> int | None:
    """A number as the operator writes it; None for any other text. Users can write anything, even a number that is too
    long to be read.
    """
    return int(text) if text.isdecimal() and len(text) < 10 else None


def _nnodes(text: str) -> tuple[int, int] | None:
    low, high = (_number(part) for part in text.partition(":")[::2])
    return None if low is None or high is None else (low, high)


def _time(time: str | None) -> float | None:
    return epoch(time) if time else None


def _sentence(cause: str, message: str) -> str:
    return f"{cause}: {message}" if message else cause
