"""`elastic-operator replay`: every decision of the pass that follows from a snapshot, with its reason."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from elastic_operator.plan.facts.decisions import Event, Nomination, Plan, Slot
from elastic_operator.plan.facts.demand import Member
from elastic_operator.plan.facts.text import names_of
from elastic_operator.plan.job.observation import NodeState
from elastic_operator.tools.cluster_snapshot import ClusterSnapshot
from elastic_operator.tools.decisions import JobDecision, ReplayedPass, decide, has_room, in_words
from elastic_operator.tools.snapshot_file import plain
from elastic_operator.tools.table import Row, aligned

HEAD = ("JOB", "TEAM", "FLAVOR", "PODS", "GPUS", "LIMITED BY")
NOT_SHOWN = ("conditions", "history", "pods", "queue", "selector", "training")
"""Parts of a status that are shown elsewhere, or that decide nothing."""


def as_data(snapshot: ClusterSnapshot) -> dict[str, Any]:
    """The decisions as JSON's own types."""
    outcome = decide(snapshot)
    return {
        "kind": "Decisions",
        "version": 3,
        "now": snapshot.now,
        "jobs": [_job(decision) for decision in outcome.jobs],
        "nominations": plain(outcome.nominations),
        "stopped": outcome.stopped and {"reason": outcome.stopped.code, "message": outcome.stopped.message},
    }


def as_text(snapshot: ClusterSnapshot) -> str:
    """The decisions as a table; below each job the reason, the observation, and the plan."""
    outcome = decide(snapshot)
    table = aligned(HEAD, [_row(decision) for decision in outcome.jobs])
    stopped = f"note: {outcome.stopped.message}\n" if outcome.stopped else ""
    return table + "".join(f"{_reclaim(outcome, reclaim)}\n" for reclaim in outcome.nominations) + stopped


# -- data --------------------------------------------------------------------------------------------------------------


def _job(d: JobDecision) -> dict[str, Any]:
    return {
        "namespace": d.job.namespace,
        "name": d.job.name,
        "uid": d.job.uid,
        "team": d.team,
        "flavor": d.demand.shape.flavor if d.demand else "",
        "before": len(d.pods_before),
        "after": len(d.pods),
        "gpus_before": d.gpus(d.pods_before),
        "gpus_after": d.gpus(d.pods),
        "observed": _observed(d),
        "grant": _grant(d),
        "plan": _plan(d.plan),
    }


def _plan(plan: Plan) -> dict[str, Any]:
    """The plan, with the pods to delete by their names, and the pods to create, which all are ready."""
    fields: dict[str, Any] = plain(plan)
    if plan.write_status_first:
        fields["commit_first"] = fields.pop("write_status_first")  # the key of older releases
    if plan.creates:
        shared, slots = fields["creates"], fields["creates"].pop("slots")
        fields["creates"] = [{name: slot[name] for name in ("role", "index", "node")} | shared for slot in slots]
    if plan.deletes:
        fields["deletes"] = [
            {"name": one.name, "uid": one.uid, "reason": one.reason} | ({"force": True} if one.force else {})
            for one in plan.deletes
        ]
    return fields


def _observed(d: JobDecision) -> dict[str, Any]:
    """The observation of the job, with its pods by their names."""
    obs = d.obs
    return {
        "events": plain(obs.events),
        "members": [pod.name for pod in obs.members],
        "to_delete": [{"name": deletion.name, "reason": deletion.reason} for deletion in obs.to_delete],
        "lost_nodes": obs.nodes_in(NodeState.LOST),
        "kept_nodes": obs.nodes_in(NodeState.KEPT),
        "avoided": plain(obs.avoided),
        "no_pods_before": obs.no_pods_before,
        "in_backoff": obs.is_in_backoff,
    }


def _grant(d: JobDecision) -> dict[str, Any] | None:
    """The grant, with its pods by their roles and nodes."""
    if d.grant is None:
        return None
    preemptors = {"preemptors": plain(names_of(d.grant.preemptors))} if d.grant.preemptors else {}
    grant = plain(d.grant)
    del grant["assignment"], grant["size_reason"]
    why = {"limit": d.limit, "message": d.message}
    places = {what: list(map(_place, found)) for what, found in d.moves.items()}
    return {"replicas": grant.pop("target_replicas"), **places, **why, **grant, **preemptors}


def _place(pod: Member | Slot) -> dict[str, Any]:
    return {"role": pod.role, "index": pod.index, "node": pod.node, "ready": has_room(pod)}


# -- text --------------------------------------------------------------------------------------------------------------


def _reclaim(outcome: ReplayedPass, reclaim: Nomination) -> str:
    members = ((d, m) for d in outcome.jobs if d.demand for m in d.demand.members)
    pods = {m.uid: f"{d.job.key} {m.role} {m.index}" for d, m in members}
    victims = ", ".join(pods[uid] for uid in reclaim.victims)
    place = f"reclaim: pod {reclaim.namespace}/{reclaim.name} has a place on {reclaim.node}"
    return f"{place} when these are gone: {victims}" if victims else place


def _row(d: JobDecision) -> Row:
    flavor = d.demand.shape.flavor if d.demand else ""
    pods = _change(len(d.pods_before), len(d.pods))
    gpus = _change(d.gpus(d.pods_before), d.gpus(d.pods))
    return Row((d.job.key, d.team, flavor, pods, gpus, d.limit), tuple(_below(d)))


def _below(d: JobDecision) -> Iterator[str]:
    if d.message:
        yield d.message
    yield from (f"observed: {_event(event)}" for event in d.obs.events)
    yield from (f"{what}: {in_words(pods)}" for what, pods in d.moves.items() if pods)
    if d.grant is not None and d.grant.preemptors:
        yield f"released for: {', '.join(names_of(d.grant.preemptors))}"
    yield from _done(d, d.plan)


def _done(d: JobDecision, plan: Plan) -> Iterator[str]:
    """The writes of the plan. A reason that was printed above is not repeated."""
    yield from (
        f"delete {pod.name}{' by force' if pod.force else ''}: {_once(d, pod.reason) or 'as above'}"
        for pod in plan.deletes
    )
    yield from (f"create {slot.pod_name(d.job.name)}{f' on {slot.node}' if slot.node else ''}" for slot in plan.slots)
    if plan.delete_job:
        yield "delete the job"
    yield from _conditions(d, plan)
    yield from _written(*(plain(status) for status in (d.job.status, plan.status)))
    yield from (f"event: {_event(event)}" for event in plan.events if event not in d.obs.events)


def _conditions(d: JobDecision, plan: Plan) -> Iterator[str]:
    """Conditions that change in more than their wording, and new ones with news."""
    conditions = {condition.type: condition for condition in d.job.status.conditions}
    for now in plan.status.conditions:
        before, message = conditions.get(now.type), _once(d, now.message)
        if (before.status, before.reason) != (now.status, now.reason) if before else (now.status != "False" or message):
            was = f"{before.status} ({before.reason}) -> " if before else ""
            yield f"condition {now.type}: {was}{now.status} ({now.reason}){f': {message}' if message else ''}"


def _once(d: JobDecision, text: str) -> str:
    return "" if text == d.message else text


def _written(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """The other fields of the status that change."""
    for name in sorted({*before, *after} - {*NOT_SHOWN}):
        old, new = (
            json.dumps(status[name], ensure_ascii=False) if name in status else "" for status in (before, after)
        )
        if old != new:
            yield f"status.{name}: {' -> '.join(filter(None, (old, new or 'none')))}"


def _event(event: Event) -> str:
    return f"{event.reason}: {event.message}"


def _change(before: int, after: int) -> str:
    return f"{before} -> {after}" if before != after else str(after)
