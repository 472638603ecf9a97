"""How long those wait for whom other teams give GPUs back, and how many GPUs: two teams of two on four GPUs."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

from elastic_operator.loop.reclaim import reclaim_times
from elastic_operator.loop.reclaim.reclaim_times import ReclaimTimes
from elastic_operator.metrics import Metrics
from elastic_operator.metrics.stats import OperatorStats
from elastic_operator.plan.allocation.allocate import allocate
from elastic_operator.plan.facts.text import Reason
from tests.metrics.stats import parse
from tests.plan.allocate.world import carried_out, make_inputs, make_job, make_node, make_team
from tests.plan.quota.cases import make_foreign_pod, on

STOPPED = Reason("Paused", "No GPUs are reclaimed.")
TEAMS = (make_team("a", 2), make_team("b", 2))


class Watched:
    """A cluster of which each allocation is looked at, and a clock that the test moves."""

    def __init__(self, *jobs, foreign_pods=()):
        self.inputs = make_inputs([make_node("n1", 4)], jobs, teams=TEAMS, foreign_pods=tuple(foreign_pods))
        self.now, self.bound, self.metrics = 100.0, {}, Metrics()
        self.times = ReclaimTimes(self.metrics, is_bound=self.bound.get)

    def allocate(self, *, reclaiming=True, after=10.0):
        """Allocates; nothing of it is carried out, but time goes by."""
        inputs = replace(self.inputs, reclaim_stopped=None if reclaiming else STOPPED)
        granted = allocate(inputs)
        with patch.object(reclaim_times.time, "monotonic", lambda: self.now):
            self.times.note_allocation(inputs, granted)
        self.now += after
        return granted

    def carry_out(self):
        """Whoever was to go has gone, and who was to come is there."""
        self.inputs = carried_out(self.inputs, self.allocate())

    def change(self, **fields):
        self.inputs = replace(self.inputs, **fields)

    def told(self):
        """How many were measured, their seconds, GPUs that were lacked, and GPUs that went."""
        found = parse(self.metrics.text(OperatorStats()))
        names = ("seconds_count", "seconds_sum", "requested_gpus_total", "evicted_gpus_total")
        return tuple(found[f"reclaim_{name}",] for name in names)


def borrower(pods=4):
    return make_job("j", 1, 4, team="b", on=on("n1", pods))


def test_a_job_is_measured_from_when_it_was_seen_to_want_until_it_has_its_minimum():
    watched = Watched(borrower(), make_job("k", 2, team="a"))
    watched.allocate(reclaiming=False)
    assert watched.told() == (0, 0, 0, 0)
    watched.allocate()
    watched.allocate()
    assert watched.told() == (0, 0, 2, 2)
    watched.carry_out()
    watched.allocate()
    assert watched.told() == (1, 40, 2, 2)


def test_a_foreign_pod_is_measured_until_it_is_bound():
    watched = Watched(borrower(), foreign_pods=[make_foreign_pod("r", 1)])
    watched.allocate()
    watched.bound["r"] = False
    watched.change(foreign_pods=())
    watched.allocate()
    assert watched.told() == (0, 0, 1, 1)
    watched.bound["r"] = True
    watched.allocate()
    watched.allocate()
    assert watched.told() == (1, 20, 1, 1)


def test_who_is_gone_before_is_not_measured():
    watched = Watched(borrower(), make_job("k", 1, team="a"), foreign_pods=[make_foreign_pod("r", 1)])
    watched.allocate()
    watched.change(jobs=watched.inputs.jobs[:1], foreign_pods=())
    watched.allocate()
    assert watched.told()[:2] == (0, 0)
    watched.change(jobs=(borrower(), make_job("k", 1, team="a", on="n1")))
    watched.allocate()
    assert watched.told()[:2] == (0, 0)


def test_who_finds_idle_gpus_was_given_nothing_back():
    watched = Watched(borrower(2), make_job("k", 2, team="a"), foreign_pods=[])
    watched.carry_out()
    watched.allocate()
    assert watched.told() == (0, 0, 0, 0)


def test_growth_into_ones_own_guarantee_takes_gpus_and_is_not_measured():
    watched = Watched(borrower(3), make_job("k", 1, 2, team="a", on="n1"))
    watched.allocate()
    watched.allocate()
    assert watched.told() == (0, 0, 1, 1)
    watched.carry_out()
    watched.allocate()
    assert watched.told() == (0, 0, 1, 1)


def test_a_pod_that_is_to_go_again_later_went_once():
    watched = Watched(borrower(), make_job("k", 2, team="a"))
    watched.allocate()
    watched.allocate(reclaiming=False)
    watched.allocate()
    assert watched.told()[3] == 2


def test_no_eviction_counts_for_a_pod_with_only_the_name_of_a_preemptor():
    pod = make_foreign_pod("k", 1, unplannable="its claim is not bound")
    namesake = replace(pod, demand=replace(pod.demand, uid="u"))
    watched = Watched(borrower(), make_job("k", 2, team="a"), foreign_pods=[namesake])
    watched.allocate()
    assert watched.told() == (0, 0, 2, 2)
    watched.bound["u"] = True
    watched.change(foreign_pods=())
    watched.allocate()
    assert watched.told() == (0, 0, 2, 2)
