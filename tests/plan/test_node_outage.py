"""Nodes that go one by one are lost; of many that go at once none is, until they are back or somebody says so."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from elastic_operator.plan.facts.node_outage import BACK_SECONDS, WINDOW_SECONDS, NodeOutage, NodeTimes, node_outage
from elastic_operator.plan.job.observation import Observation
from tests.plan.jobs import BOTH, START, group, make_job, make_pod, plan, reasons, see, started
from tests.plan.jobs import at as time_at


def away(*since: float, **fields) -> list[NodeTimes]:
    return [NodeTimes(f"away-{i}", time, **fields) for i, time in enumerate(since)]


def back(*since: float, went: float | None = None) -> list[NodeTimes]:
    return [NodeTimes(f"back-{i}", went, time) for i, time in enumerate(since)]


def well(count: int) -> list[NodeTimes]:
    return [NodeTimes(f"well-{i}") for i in range(count)]


@pytest.mark.parametrize(
    ("nodes", "until"),
    [
        (well(6), None),
        (away(100) + well(5), None),
        (away(100, 110) + well(1), None),
        (away(100, 110, 120) + well(6), None),
        (away(100, 110, 120) + well(5), inf),
        (away(*range(100, 116)), inf),
        (away(100, 100 + WINDOW_SECONDS, 100 + 2 * WINDOW_SECONDS) + well(3), None),
        (away(-90_000, -80_000, 100, 101, 102) + well(3), inf),
        (away(-90_000, -80_000, 100) + well(3), None),
        (away(100, 110, 120, out_of_service=True) + well(3), None),
        (away(100) + back(150, 160, 170, 180) + well(1), 170 + BACK_SECONDS),
        (back(150, 160, 170) + well(3), 150 + BACK_SECONDS),
        (away(150, 160) + well(4), None),
        (away(150, 160) + back(100, went=-200) + well(3), None),
        (away(150, 160) + back(190, went=140) + well(3), 190 + BACK_SECONDS),
        (back(-BACK_SECONDS, -200, -200) + well(3), None),
    ],
)
def test_many_that_went_at_once_are_kept_as_long_as_they_are_away_and_some_time_after(nodes, until):
    found = node_outage(nodes, now=200.0)
    assert (found and found.until) == until


def test_a_node_outage_counts_unready_nodes_without_those_out_of_service():
    dead = [replace(node, name="dead") for node in away(90, out_of_service=True)]
    found = node_outage(away(100, 100, 100) + dead + well(2), now=200.0)
    assert found == NodeOutage(unready=3, total=5, until=inf, kept_nodes=frozenset({"away-0", "away-1", "away-2"}))
    assert found.message.startswith("3 of 5 nodes are not Ready")


def test_a_node_that_goes_long_after_the_many_is_judged_by_itself():
    found = node_outage(away(-90_000, -90_000, -90_000, 100) + well(3), now=200.0)
    assert found is not None
    assert found.kept_nodes == {"away-0", "away-1", "away-2"}


def kept(until: float = inf, nodes: tuple[str, ...] = ("n1", "n2")) -> NodeOutage:
    return NodeOutage(unready=4, total=6, until=until, kept_nodes=frozenset(nodes))


def on_nodes(found: NodeOutage | None, *, status=None, **fields):
    pods = (make_pod("master-0", node="n1"), make_pod("worker-0", node="n2"))
    return make_job(pods, status=status or started(), node_outage=found, **fields)


UNREADY = {"n1": 100, "n2": 100}


def gone(obs: Observation) -> list[str]:
    return [pod.name for pod in obs.to_delete]


def test_in_a_disruption_no_pod_is_given_up_and_the_job_says_so_once():
    planned = plan(on_nodes(kept()), BOTH, unready=UNREADY)
    assert (planned.deletes, planned.slots, planned.status.incarnation) == ((), (), 1)
    assert [(event.reason, event.type) for event in planned.events] == [("NodesUnreachable", "Warning")]
    assert reasons(planned)["NodesUnreachable"] == ("True", "ManyAtOnce")
    assert "out-of-service" in planned.status.condition("NodesUnreachable").message
    assert "4 of 6 nodes" in planned.status.condition("Ready").message
    assert plan(on_nodes(kept(), status=planned.status), BOTH, unready=UNREADY).events == ()


def test_a_pod_that_is_terminating_there_is_not_forced_meanwhile():
    pods = (*group(1), make_pod("worker-1", node="n2", deleting_since=START))
    assert plan(make_job(pods, status=started(), node_outage=kept()), BOTH, unready={"n2": 100}).deletes == ()


def test_before_its_wait_is_over_nothing_is_said_of_it():
    planned = plan(on_nodes(kept()), BOTH, now=130, unready=UNREADY)
    assert (planned.events, planned.status.condition("NodesUnreachable")) == ((), None)
    assert planned.requeue_at == START + 140


def test_a_node_that_is_none_of_the_many_is_lost_meanwhile():
    assert gone(see(on_nodes(kept(inf, ("n1",))), unready=UNREADY)) == ["toy-worker-0", "toy-master-0"]


def test_a_job_is_observed_again_when_its_unready_nodes_count_as_lost():
    obs = see(on_nodes(kept(START + 470)), unready=UNREADY)
    assert (gone(obs), obs.requeue_at) == ([], (START + 470, START + 470))
    after = plan(on_nodes(None, status=plan(on_nodes(kept()), BOTH, unready=UNREADY).status), BOTH, unready={})
    assert reasons(after)["NodesUnreachable"] == ("False", "Over")
    assert after.status.condition("NodesUnreachable").last_transition_time == time_at(200)
    assert sorted(gone(see(on_nodes(None), now=470, unready=UNREADY))) == ["toy-master-0", "toy-worker-0"]
