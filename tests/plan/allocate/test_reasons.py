"""Why a job is not bigger or does not run: the reason, and a sentence with wanted, has, limit, used and what to do."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from elastic_api.status import SizeReason
from elastic_operator.plan.allocation.explain import Explainer
from elastic_operator.plan.facts.demand import Bar, FailedSize, PreemptionBar
from elastic_operator.plan.facts.node import Taint
from elastic_operator.plan.facts.pod_shape import excluding_nodes
from elastic_operator.plan.facts.text import Reason
from tests.plan.allocate.world import NOW, grants, make_job, make_node, make_shape, make_team

FOUR, EIGHT = make_shape(4), make_shape(8)
H100 = make_shape(1, node_selector={"gpu": "h100"})
FULL = make_node("n1", 4, used=4)

AVOIDS_N1 = "The job avoids node n1 until 2026-01-01T00:00:00Z."

CASES = {
    "at its maximum": (
        [make_node("n1", 4)],
        [make_job("a", 1, 2)],
        SizeReason.AT_MAXIMUM,
        "The job gets 2 of 2 pods. Raise maxReplicas to let it grow.",
    ),
    "no pod may be preempted for it": (
        [FULL],
        [make_job("a", 1, 2, bar=Bar(PreemptionBar.PODS_REFUSED))],
        SizeReason.INSUFFICIENT_NODES,
        "The job gets 0 of 2 pods and needs at least 1. 1 more needs 1 nvidia.com/gpu on one node; 1 usable node has 0"
        " of 4 GPUs free. Add a node, or wait. The operator evicts no pods for this job for now, because the API server"
        " refused the job's pods in a dry run. Correct the job, or wait.",
    ),
    "suspended": ([make_node("n1", 4)], [make_job("a", 1, 2, wants_pods=False)], SizeReason.SUSPENDED, ""),
    "ending": (
        [make_node("n1", 4)],
        [make_job("a", sizes=(), on="n1")],
        SizeReason.AT_MAXIMUM,
        "The job is ending: it keeps 1 pod and gets no new ones.",
    ),
    "growth is delayed": (
        [make_node("n1", 4)],
        [make_job("a", 1, 2, on="n1", free=1, may_grow_at=NOW + 9)],
        SizeReason.SCALE_UP_DELAYED,
        "The job gets 1 of 2 pods. There is room for 2 pods; the job grows elasticity.scaleUpDelaySeconds after its"
        " last change of size is complete. Lower that to grow sooner, or wait.",
    ),
    "growth is delayed but there is no room anyway": (
        [make_node("n1", 1)],
        [make_job("a", 1, 2, on="n1", free=1, may_grow_at=NOW + 9)],
        SizeReason.INSUFFICIENT_NODES,
        "The job gets 1 of 2 pods. 1 more needs 1 nvidia.com/gpu on one node; 1 usable node has 0 of 1 GPU free. Add a"
        " node, or wait.",
    ),
    "a size failed": (
        [make_node("n1", 4)],
        [make_job("a", 1, 2, on="n1", failed=FailedSize(2, NOW + 9, "no volume in zone b."))],
        SizeReason.SCALE_UP_FAILED,
        "The job gets 1 of 2 pods. The last attempt failed: no volume in zone b. The operator retries at"
        " 1970-01-01T00:16:49Z.",
    ),
    "it gets no more pods": (
        [make_node("n1", 4)],
        [make_job("a", 1, 2, on="n1", failed=FailedSize(2, inf))],
        SizeReason.SCALE_UP_FAILED,
        "The job gets 1 of 2 pods. It gets no more pods.",
    ),
    "it avoids the only node": (
        [make_node("n1", 4)],
        [make_job("a", shape=excluding_nodes(make_shape(), ["n1"]), avoided=(AVOIDS_N1,))],
        SizeReason.INSUFFICIENT_NODES,
        "The job gets 0 of 1 pod. 1 more needs 1 nvidia.com/gpu on one node; the only node does not suit the pods"
        " (the job avoids it for now). Add a node, or wait. The job avoids node n1 until 2026-01-01T00:00:00Z.",
    ),
    "it avoids more nodes than are named": (
        [FULL],
        [make_job("a", avoided=(AVOIDS_N1,) * 5)],
        SizeReason.INSUFFICIENT_NODES,
        "The job gets 0 of 1 pod. 1 more needs 1 nvidia.com/gpu on one node; 1 usable node has 0 of 4 GPUs free. Add a"
        f" node, or wait. {AVOIDS_N1} {AVOIDS_N1} {AVOIDS_N1} It avoids 2 more.",
    ),
    "the next allowed size is too large": (
        [make_node("n1", 4)],
        [make_job("a", sizes=(2, 8), on="n1 n1")],
        SizeReason.SIZE_NOT_ALLOWED,
        "The job gets 2 of 8 pods. 6 more need 1 nvidia.com/gpu each; there is room for 2, and the next allowed size is"
        " 8. Allow sizes in between (allowedReplicas, replicaStep), or wait.",
    ),
    "pods of other jobs use the GPUs of its minimum": (
        [make_node("n1", 4)],
        [make_job("a", 4, on="n1 n1 n1 n1", age=9), make_job("b", 2, 4)],
        SizeReason.HIGHER_PRIORITY_JOBS,
        "The job gets 0 of 4 pods and needs at least 2. 2 more need 1 nvidia.com/gpu each; 1 usable node has 0 of 4"
        " GPUs free, and pods of other jobs use the rest. Wait, or give the job a higher priority.",
    ),
    "pods of other jobs use the GPUs that it would grow into": (
        [make_node("n1", 4)],
        [make_job("a", 3, on="n1 n1 n1"), make_job("b", 1, 2, on="n1")],
        SizeReason.HIGHER_PRIORITY_JOBS,
        "The job gets 1 of 2 pods. 1 more needs 1 nvidia.com/gpu on one node; 1 usable node has 0 of 4 GPUs free, and"
        " pods of other jobs use the rest. Wait.",
    ),
    "no node has the label": (
        [make_node("n1", 4), make_node("n2", 4, taints=(Taint("sick", "NoSchedule", "yes"),))],
        [make_job("b", shape=H100)],
        SizeReason.NODE_SELECTOR_UNSATISFIED,
        "The job gets 0 of 1 pod. 1 more needs 1 nvidia.com/gpu on one node; none of the 2 nodes suits the pods (1 of"
        " them: no label gpu=h100, 1 of them: taint sick=yes:NoSchedule). Change the template's nodeSelector, affinity"
        " or tolerations, or add a node.",
    ),
    "there are no nodes": (
        [],
        [make_job("b")],
        SizeReason.NODE_SELECTOR_UNSATISFIED,
        "The job gets 0 of 1 pod. 1 more needs 1 nvidia.com/gpu on one node; there are no nodes. Change the template's"
        " nodeSelector, affinity or tolerations, or add a node.",
    ),
    "enough GPUs but not on one node": (
        [make_node("n1", 8, used=4), make_node("n2", 8, used=4)],
        [make_job("b", shape=EIGHT)],
        SizeReason.GPUS_FRAGMENTED,
        "The job gets 0 of 1 pod. 1 more needs 8 nvidia.com/gpu on one node; 2 usable nodes have 8 of 16 GPUs free, but"
        " spread over so many nodes that the pods do not fit. Use pods with fewer GPUs each, or wait.",
    ),
    "GPUs are free but CPU is not": (
        [make_node("n1", 4, cpu=16, used_cpu=15)],
        [make_job("b", 1, shape=make_shape(1, cpu=2))],
        SizeReason.INSUFFICIENT_CPU_OR_MEMORY,
        "The job gets 0 of 1 pod. 1 more needs 2 cpu on one node; GPUs are free, but 1 usable node is short of cpu. Ask"
        " for less per pod, free some, or wait.",
    ),
    "no node has this much CPU": (
        [make_node("n1", 4, cpu=16)],
        [make_job("b", 1, shape=make_shape(1, cpu=32))],
        SizeReason.INSUFFICIENT_CPU_OR_MEMORY,
        "The job gets 0 of 1 pod. 1 more needs 32 cpu on one node; GPUs are free, but 1 usable node is short of cpu."
        " Ask for less per pod.",
    ),
    "the host port is taken": (
        [make_node("n1", 4, used_ports=frozenset({("", "TCP", 80)}))],
        [make_job("b", 1, shape=make_shape(1, host_ports=frozenset({("10.0.0.1", "TCP", 80)})))],
        SizeReason.INSUFFICIENT_CPU_OR_MEMORY,
        "The job gets 0 of 1 pod. 1 more needs a place on one node; GPUs are free, but 1 usable node is short of host"
        " ports. Ask for less per pod, free some, or wait.",
    ),
    "no node has so many GPUs": (
        [make_node("n1", 4), make_node("n2", 2)],
        [make_job("b", shape=EIGHT)],
        SizeReason.INSUFFICIENT_NODES,
        "The job gets 0 of 1 pod. 1 more needs 8 nvidia.com/gpu on one node; the largest usable node has 4"
        " nvidia.com/gpu. Ask for less per pod, or add larger nodes.",
    ),
    "the disk of the only node is full": (
        [make_node("n1", 4, taints=(Taint("node.kubernetes.io/disk-pressure", "NoSchedule"),))],
        [make_job("a")],
        SizeReason.INSUFFICIENT_NODES,
        "The job gets 0 of 1 pod. 1 more needs 1 nvidia.com/gpu on one node; no suitable node is usable (n1 is under"
        " DiskPressure). Add a node, or wait.",
    ),
    "the free node is cordoned": (
        [make_node("n1", 4), make_node("n2", 4, cordoned=True)],
        [make_job("b", 1, 2, shape=FOUR, on="n1")],
        SizeReason.INSUFFICIENT_NODES,
        "The job gets 1 of 2 pods. 1 more needs 4 nvidia.com/gpu on one node; 1 usable node has 0 of 4 GPUs free (n2 is"
        " cordoned). Uncordon it, add a node, or wait.",
    ),
    "every suitable node is closed": (
        [make_node("n1", 4, cordoned=True), make_node("n2", 4, ready=False)],
        [make_job("b")],
        SizeReason.INSUFFICIENT_NODES,
        "The job gets 0 of 1 pod. 1 more needs 1 nvidia.com/gpu on one node; no suitable node is usable (n1 is"
        " cordoned, n2 is NotReady). Uncordon it, add a node, or wait.",
    ),
    "foreign pods use the nodes": (
        [FULL],
        [make_job("b", 2, 3)],
        SizeReason.INSUFFICIENT_NODES,
        "The job gets 0 of 3 pods and needs at least 2. 2 more need 1 nvidia.com/gpu each; 1 usable node has 0 of 4"
        " GPUs free. Add a node, or wait.",
    ),
    "only the master finds no room": (
        [make_node("n1", 4, cpu=2)],
        [make_job("b", 2, master=make_shape(4, cpu=1), shape=make_shape(1, cpu=1), on="- n1")],
        SizeReason.INSUFFICIENT_NODES,
        "The job gets 1 of 2 pods. A master needs 4 nvidia.com/gpu on one node; 1 usable node has 3 of 4 GPUs free. Add"
        " a node, or wait.",
    ),
}


@pytest.mark.parametrize("fact", CASES)
def test_reason(fact):
    nodes, jobs, limit, message = CASES[fact]
    granted = grants(nodes, jobs)[jobs[-1].uid]
    assert (granted.size_reason.code, granted.message) == (limit, message)


@pytest.mark.parametrize("bar", PreemptionBar)
def test_a_job_for_which_no_pods_are_evicted_says_the_true_cause(bar):
    told = grants([FULL], [make_job("a", bar=Bar(bar))])["a"].message
    assert f"The operator evicts no pods for this job for now, because {bar}." in told
    assert ("Correct the job" in told) is bar.is_lifted_by_edit


def test_a_job_whose_pods_repeatedly_found_no_node_says_until_when_it_preempts_no_pods():
    told = grants([FULL], [make_job("a", bar=Bar(PreemptionBar.NOT_PLACED, NOW + 9))])["a"].message
    cause = "because kube-scheduler repeatedly found no node for the job's pods. Wait."
    assert told.endswith(f"The operator evicts no pods for this job before 1970-01-01T00:16:49Z, {cause}")


def test_a_job_within_its_guarantee_says_that_reclaim_is_stopped():
    jobs = [make_job("borrower", 4, team="b", on="n1 n1 n1 n1"), make_job("owner", 2, team="a")]
    teams = (make_team("a", 4), make_team("b"))
    stopped = Reason("Paused", "No GPUs are reclaimed: reclaim.paused is set in the operator's settings.")
    told = grants([make_node("n1", 4)], jobs, teams=teams, reclaim_stopped=stopped)["owner"].message
    assert told.endswith(f"policy 'a' uses 0; its fair share is 2 (4 guaranteed). {stopped.message}")


def test_a_sentence_does_not_change_with_the_clock_alone():
    jobs = [make_job("a", 1, 2, on="n1", free=1, may_grow_at=NOW + 9)]
    early, late = (grants([make_node("n1", 4)], jobs, now)["a"] for now in (NOW, NOW + 8))
    assert early == late


def test_long_lists_of_nodes_are_cut():
    nodes = [make_node(f"n{i}", 4, cordoned=True) for i in range(9)]
    assert "n0 is cordoned, n1 is cordoned, n2 is cordoned and 6 more" in grants(nodes, [make_job("a")])["a"].message


def test_amounts_are_written_as_users_write_them():
    shape = replace(make_shape(0), requests={"cpu": 1500, "memory": 3 << 30, "pods": 1})
    message = grants([make_node("n1", 0, cpu=1)], [make_job("a", shape=shape)])["a"].message
    assert "1.5 cpu, 3Gi memory" in message


@pytest.mark.parametrize(
    ("memory", "words"),
    [(1.5, "1.5Gi"), (999.96, "1000Gi"), (9_999.9, "10000Gi"), (26_083.2, "26083Gi"), (0.5, "512Mi")],
)
def test_large_amounts_are_whole_numbers(memory, words):
    shape = replace(make_shape(0), requests={"cpu": 1500, "memory": int(memory * (1 << 30)), "pods": 1})
    message = grants([make_node("n1", 0, cpu=1)], [make_job("a", shape=shape)])["a"].message
    assert f", {words} memory" in message


def test_an_error_while_a_grant_is_explained_is_not_taken_for_a_job_without_a_grant(monkeypatch):
    def raises(*_):
        raise KeyError("cpu")

    found = grants([make_node("n1", 1)], [make_job("a", 4)])
    monkeypatch.setattr(Explainer, "why", raises)
    assert found.get("b") is None
    with pytest.raises(KeyError, match="cpu"):
        found.get("a")
