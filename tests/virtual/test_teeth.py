"""The stories and histories would notice: an operator that breaks one rule is caught by the one that is named here."""

from __future__ import annotations

import pytest

from tests.simulate.violation import ViolationError
from tests.virtual import test_outages, test_replicas
from tests.virtual.history import run_history
from tests.virtual.mutants import MUTANTS
from tests.virtual.story import tell

pytestmark = pytest.mark.simulation

STORIES = {**test_replicas.STORIES, **test_outages.STORIES}
CAUGHT_BY: dict[str, tuple[str, int]] = {
    "a leader counts its time from the answer, and for longer than others wait": (
        "a leader that hears nothing stops before anybody may take over",
        0,
    ),
    "a lease is taken whoever holds it": ("when the leader is killed the other goes on", 0),
    "a lease that somebody deleted is free": ("a lease that somebody deletes is made again by who leads", 2),
    "a leader does not look at its lease again": ("a leader that is stopped hands over before its lease ends", 0),
    "a lease is not handed back": ("a leader that is stopped hands over before its lease ends", 0),
    "who is stuck keeps its lease": ("a leader whose loop does not go on is followed", 0),
    "writes are not fenced": ("a frozen leader writes nothing when it is thawed", 0),
    "a leader begins with what it knows": ("a frozen leader writes nothing when it is thawed", 0),
    "after 410 nothing is listed": ("deletions come before an expired watch", 0),
    "what a list does not have stays": ("the API server is away for 40 seconds", 0),
    "late news bring back what was deleted": ("an API server takes two seconds", 0),
    "a silent watch is waited for": ("watches are silent", 0),
    "jobs that kopf does not tell of are not looked for": ("watches are silent", 0),
    "kopf is not started again": ("when the leader is killed the other goes on", 0),
    "a pod whose making was not answered was not made": (
        "two jobs ask for one place while nobody hears whether the first has it",
        0,
    ),
    "pods of a job that is gone stay its own": ("", 1),
    "stores that are old are trusted": ("a job is to grow while nothing is heard of nodes", 0),
}
"""The story and its seed; without a name the random history of that seed."""


@pytest.mark.parametrize("rule", MUTANTS)
def test_an_operator_that_breaks_this_rule_is_caught_and_only_the_broken_one(rule: str) -> None:
    name, seed = CAUGHT_BY[rule]
    with MUTANTS[rule](), pytest.raises(ViolationError):
        _live(name, seed)
    _live(name, seed)


def _live(name: str, seed: int) -> None:
    if name:
        tell(STORIES[name], seed)
    else:
        run_history(seed)
