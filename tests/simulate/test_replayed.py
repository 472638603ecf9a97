"""The operator decides each pass of random histories again, from a snapshot file, with the same result."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from elastic_operator.loop import reconciler
from elastic_operator.loop.store_view import StoreView
from elastic_operator.plan.planner import Planner
from elastic_operator.tools import snapshot_file
from elastic_operator.tools.cluster_snapshot import snapshot_of, without_output
from elastic_operator.tools.decisions import JobDecision, decide
from tests.simulate.history import run_history

EVENTS = 20


class Replays:
    """Stands beside the planner of the loop: decides each of its passes again, and compares."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._decide, self._reconcile = Planner.decide, reconciler.reconcile
        self._replayed: Mapping[str, JobDecision] = {}
        self.grants = self.deletes = self.creates = 0
        monkeypatch.setattr(Planner, "decide", lambda planner, world, reclaim: self.decide(planner, world, reclaim))
        monkeypatch.setattr(reconciler, "reconcile", self.reconcile)

    def decide(self, planner, world, reclaim):
        """Decide, and compare who gets what."""
        decisions = self._decide(planner, world, reclaim)
        if not isinstance(world, StoreView):
            return decisions
        recorded = snapshot_of(world, reclaim, world.reader.policies.made)
        read = snapshot_file.decode(json.loads(snapshot_file.encode(recorded)), source="f")
        assert read == recorded
        outcome = decide(read)
        self._replayed = {decision.job.uid: decision for decision in outcome.jobs}
        assert self._replayed.keys() == decisions.obs.keys()
        replayed = {uid: found.grant for uid, found in self._replayed.items() if found.grant is not None}
        assert replayed == dict(decisions.allocation)
        assert {pod.uid: pod for pod in outcome.nominations} == {
            pod.uid: pod for pod in decisions.allocation.nominations
        }
        self.grants += len(replayed)
        return decisions

    def reconcile(self, obs, grant, *, now):
        """Plan, and compare what is done where the job gets all at once that it is granted."""
        plan = self._reconcile(obs, grant, now=now)
        if self._replayed[obs.job.uid].grant == grant:
            replayed = self._replayed[obs.job.uid].plan
            assert replayed == replace(plan, status=without_output(plan.status), requeue_at=replayed.requeue_at)
            # A deadline whose start is not written yet counts from the first look, which may be earlier.
            assert plan.requeue_at <= replayed.requeue_at
            self.deletes += len(plan.deletes)
            self.creates += len(plan.slots)
        return plan


@pytest.mark.parametrize(("seed", "hostile"), [(0, False), (1, False), (2, True)])
def test_each_pass_is_decided_again_from_its_file_as_the_operator_decided_it(seed, hostile, monkeypatch):
    replays = Replays(monkeypatch)
    run_history(seed, EVENTS, hostile=hostile)
    assert min(replays.grants, replays.deletes, replays.creates) > 0
