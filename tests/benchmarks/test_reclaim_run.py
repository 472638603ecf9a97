"""The whole benchmark of reclaim, on a cluster of six nodes: the figures are of what they are said to be.

On fewer, two whole nodes are all that is left beyond the teams' guarantees, and the teams' pods may lie so that no node
can be emptied without going below one: then the second pod of the gang waits, and rightly so.
"""

from __future__ import annotations

import pytest

from benchmarks.reclaim.__main__ import run
from benchmarks.reclaim.scenario import Scenario
from benchmarks.reclaim.stages import Stage
from devcluster.progress import Progress

pytestmark = [pytest.mark.cluster, pytest.mark.extended, pytest.mark.timeout(600)]
SMALL = Scenario(nodes=6, jobs=12, teams=2, tries=2, gang=2)


@pytest.fixture(scope="module")
def figures():
    return run(SMALL, name="benchtest", replicas=1, keep=False, progress=Progress(quiet=True))


def test_every_try_is_bound_and_costs_what_it_asked_for(figures):
    tries = {"large": figures.large, "one": figures.small[1], "two": figures.small[2]}
    assert {kind: [each.pods for each in made] for kind, made in tries.items()} == {
        "large": [1, 1],
        "one": [1, 1],
        "two": [2, 2],
    }
    for made in tries.values():
        assert [(each.bound, each.evicted) for each in made] == [(each.pods, each.gpus) for each in made]


def test_every_step_of_a_reclaim_is_seen(figures):
    for each in (*figures.large, *figures.small[1]):
        assert list(each.parts()) == list(Stage)


def test_the_gang_gets_its_nodes(figures):
    """At more cost than it asks for: a node that is full of small jobs is only free once whole jobs have gone."""
    assert figures.gang.bound == 2
    assert 16 <= figures.gang.evicted < 2 * 16
    assert 0 <= figures.gang.evicted_besides < 16


def test_the_same_job_gets_its_nodes_from_a_plain_client_too(figures):
    assert (figures.by_hand.bound, figures.by_hand.evicted) == (2, 16)
    assert not figures.by_hand.stages[Stage.NOMINATED]


def test_every_figure_of_the_last_line_was_measured(figures):
    summary = figures.summary()
    assert 1.0 <= summary["evicted_ratio"] < 2.0
    measured = {key: value for key, value in summary.items() if key != "evicted_besides"}
    assert all(value is not None and value > 0 for value in measured.values()), summary
