"""What the status of a policy says, in numbers and in conditions."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from elastic_api.policy import PolicyConditionType, PolicyStatus
from elastic_api.status import Condition
from elastic_operator.plan.allocation.allocate import allocate
from elastic_operator.plan.facts.allocation_inputs import AllocationInputs
from elastic_operator.plan.facts.demand import FailedSize
from elastic_operator.plan.facts.team import Flavor, Quota
from elastic_operator.plan.facts.text import Reason
from elastic_operator.plan.policies.status import PolicyUsage
from tests.plan.allocate.world import GPU, NOW, make_inputs, make_job, make_node, make_team
from tests.plan.policies.builders import make_policy, resolved_of
from tests.plan.quota.cases import make_foreign_pod, on

N4, N5, N6, N8, N100 = ((make_node("n1", gpus),) for gpus in (4, 5, 6, 8, 100))
Numbers = tuple[int, int, int, int, int, int | None]


def report(
    inputs: AllocationInputs,
    name: str = "a",
    *problems: Reason,
    before: PolicyStatus | None = None,
    now: float = NOW,
    stopped: Reason | None = None,
) -> PolicyStatus:
    """The status of that policy after a pass over the input."""
    overview = PolicyUsage(allocate(inputs).accounts, inputs.jobs, stopped=stopped)
    return overview.status(name, 3, problems, before=before or PolicyStatus(), now=now)


def numbers(inputs: AllocationInputs, name: str = "a") -> Numbers:
    """guaranteed, used, borrowed, lent, pending, limit."""
    total = report(inputs, name).total
    assert total is not None
    return total.guaranteed, total.used, total.borrowed, total.lent, total.pending, total.limit


def condition(status: PolicyStatus, kind: str) -> Condition:
    return next(c for c in status.conditions if c.type == kind)


def true_conditions(status: PolicyStatus) -> set[str]:
    return {c.type for c in status.conditions if c.status == "True"}


def elastic(team: str, pods: int = 0, low: int = 1, high: int = 8, **more):
    return make_job(f"job-{team}", low, high, team=team, on=on("n1", pods), **more)


TWO = (make_team("a", 2), make_team("b", 2))
FAMILY = (make_team("p", 4), make_team("a", 1, parent="p"), make_team("b", 2, parent="p"), make_team("q", 2))

CASES = {
    "nothing is used": (N8, TWO, (), "a", (2, 0, 0, 0, 0, None)),
    "within the guarantee": (N8, TWO, (elastic("a", 1, high=1),), "a", (2, 1, 0, 0, 0, None)),
    "a job that borrows": (N8, TWO, (elastic("a", 4, high=4),), "a", (2, 4, 2, 0, 0, None)),
    "who lends": (N4, TWO, (elastic("a", 4, high=4),), "b", (2, 0, 0, 2, 0, None)),
    "no more is lent than is borrowed": (N4, TWO, (elastic("a", 3, high=3),), "b", (2, 0, 0, 1, 0, None)),
    "GPUs that are guaranteed to nobody are borrowed first": (
        N100,
        (make_team("a", 8), make_team("b", 8)),
        (elastic("c", 20, high=20),),
        "b",
        (8, 0, 0, 0, 0, None),
    ),
    "no more is lent than may be": (
        N4,
        (make_team("a", 2), make_team("b", 2, lend=1)),
        (elastic("a", 4, high=4),),
        "b",
        (2, 0, 0, 1, 0, None),
    ),
    "what is in use is not lent": (
        N5,
        TWO,
        (elastic("a", 4, high=4), elastic("b", 1, high=1)),
        "b",
        (2, 1, 0, 1, 0, None),
    ),
    "what a namespace without a policy uses is borrowed": (
        N4,
        TWO,
        (elastic("c", 4, high=4),),
        "b",
        (2, 0, 0, 2, 0, None),
    ),
    "a limit, and what waits beyond it": (
        N8,
        (make_team("a", 2, borrow=2),),
        (elastic("a", 4, high=7),),
        "a",
        (2, 4, 2, 0, 3, 4),
    ),
    "foreign pods are used and borrowed, too": (
        (make_node("n1", 8, used=3, by="a"),),
        TWO,
        (),
        "a",
        (2, 3, 1, 0, 0, None),
    ),
    "pods on their way out are still used": (
        (make_node("n1", 8, leaving=3, by="a"),),
        TWO,
        (),
        "a",
        (2, 3, 1, 0, 0, None),
    ),
    "pods that are made now are used": (N8, TWO, (elastic("a", 0, low=2, high=2),), "a", (2, 2, 0, 0, 0, None)),
    "what waits for others to leave is pending": (
        (make_node("n1", 8, leaving=8, by="b"),),
        TWO,
        (elastic("a", 0, low=2, high=2),),
        "a",
        (2, 0, 0, 2, 2, None),
    ),
    "a parent's numbers are its children's": (
        N8,
        FAMILY,
        (elastic("a", 3, high=5, failed=FailedSize(5, NOW + 60)), elastic("b", 1, high=1)),
        "p",
        (4, 5, 1, 0, 1, None),
    ),
    "a child's own, beside its parent's": (N8, FAMILY, (elastic("a", 3, high=3),), "a", (1, 3, 2, 0, 0, None)),
    "what one child lends another, its parent does not lend": (
        N8,
        FAMILY,
        (elastic("a", 3, high=3),),
        "p",
        (4, 3, 0, 0, 0, None),
    ),
    "a child lends what another takes beyond the GPUs that their parent gives to no child": (
        N6,
        FAMILY,
        (elastic("a", 3, high=3),),
        "b",
        (2, 0, 0, 1, 0, None),
    ),
    "a parent lends to others": (N6, FAMILY, (elastic("q", 5, high=5),), "p", (4, 0, 0, 3, 0, None)),
    "of these a child lends what its parent does not have without the children": (
        N6,
        FAMILY,
        (elastic("q", 5, high=5),),
        "b",
        (2, 0, 0, 2, 0, None),
    ),
}
"""nodes, teams, jobs, the policy asked for, its numbers."""


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_numbers_of_a_policy(case):
    nodes, teams, jobs, name, expected = case
    assert numbers(make_inputs(nodes, jobs, teams=teams), name) == expected


def test_all_teams_together_lend_no_more_than_is_borrowed():
    inputs = make_inputs(N8, (elastic("c", 5, high=5),), teams=(make_team("a", 3), make_team("b", 3)))
    assert [numbers(inputs, name)[3] for name in "ab"] == [1, 2]


def test_a_pod_that_waits_and_is_no_job_s_is_pending():
    full = (make_node("n1", 8, used=8, by="b"),)
    assert numbers(make_inputs(full, (), teams=TWO, foreign_pods=(make_foreign_pod(gpus=2),)))[4] == 2


def test_each_flavor_is_told_by_itself_and_all_are_summed_up():
    flavors = (Flavor("x", (GPU,), {"gpu": "x"}), Flavor("y", (GPU,), {"gpu": "y"}), Flavor("z", (GPU,), {"gpu": "z"}))
    nodes = tuple(
        make_node(f"n-{kind}", 4, labels={"gpu": kind}, used=used, by="a") for kind, used in (("x", 3), ("y", 1))
    )
    team = make_team("a", quotas={"x": Quota(2, 2), "y": Quota(2, 0)})
    status = report(make_inputs(nodes, (), teams=(team,), flavors=flavors))
    assert [(f.name, f.used, f.borrowed, f.limit) for f in status.flavors] == [("x", 3, 1, 4), ("y", 1, 0, 2)]
    assert status.total is not None
    assert (status.total.used, status.total.borrowed, status.total.guaranteed) == (4, 1, 4)
    assert status.total.limit is None, "of flavor z any idle GPU may be borrowed"


def test_the_fair_share_is_told():
    status = report(make_inputs(N8, (elastic("a", 4), elastic("b", 4)), teams=TWO))
    assert [flavor.fair_share for flavor in status.flavors] == [4]


def test_jobs_with_pods_run_and_jobs_that_wait_for_their_first_are_queued():
    jobs = (elastic("a", 4), make_job("waits", 8, team="a"), make_job("over", 1, team="a", wants_pods=False, on="n1"))
    inputs = make_inputs(N8, (*jobs, make_job("other", 8, team="q")), teams=FAMILY)
    for name in ("a", "p"):
        told = report(inputs, name).jobs
        assert told is not None
        assert (told.running, told.queued) == (2, 1)


def test_a_policy_that_could_not_be_read_has_no_numbers_but_a_reason():
    status = report(make_inputs(N8, ()), "a", Reason("InvalidSpec", "spec.x: wrong."))
    assert (status.total, status.flavors, status.jobs) == (None, [], None)
    assert condition(status, "Ready").reason == "InvalidSpec"


# --- conditions


def test_a_policy_that_is_as_written_is_ready_and_all_else_is_false():
    status = report(make_inputs(N8, (), teams=TWO))
    assert true_conditions(status) == {"Ready", "Reclaiming"}
    assert {c.type for c in status.conditions} == set(PolicyConditionType)
    assert {c.observed_generation for c in status.conditions} == {status.observed_generation} == {3}
    assert all(c.reason for c in status.conditions)


PROBLEMS = {
    "UnknownFlavor": ([make_policy("a", flavors=[{"name": "x"}])], set()),
    "ParentMissing": ([make_policy("a", parent="gone")], {"Conflict"}),
    "CircularParents": ([make_policy("a", parent="b"), make_policy("b", parent="a")], {"Conflict"}),
    "Conflict": ([make_policy("b", namespaces=["x"]), make_policy("a", created=1.0, namespaces=["x"])], {"Conflict"}),
    "ParentOwnsNamespaces": (
        [make_policy("a", namespaces=["x"]), make_policy("b", parent="a")],
        {"Conflict"},
    ),
}


@pytest.mark.parametrize("reason", PROBLEMS)
def test_the_problem_of_a_policy_is_the_reason_that_it_is_not_ready(reason: str):
    policies, expected = PROBLEMS[reason]
    resolved = resolved_of(policies, [])
    inputs = replace(make_inputs(N8, ()), teams=resolved.teams)
    status = report(inputs, "a", *resolved.problems["uid-a"])
    ready = condition(status, "Ready")
    assert (ready.status, ready.reason) == ("False", reason)
    assert ready.message == resolved.problems["uid-a"][0].message
    assert true_conditions(status) == expected | {"Reclaiming"}


def test_that_nothing_is_reclaimed_is_told_with_the_reason():
    inputs = make_inputs(N8, (), teams=TWO)
    assert condition(report(inputs), "Reclaiming").reason == "On"
    told = condition(report(inputs, stopped=Reason("Paused", "No GPUs are reclaimed.")), "Reclaiming")
    assert (told.status, told.reason, told.message) == ("False", "Paused", "No GPUs are reclaimed.")


def test_of_several_problems_the_first_gives_the_reason_and_all_are_told():
    problems = (Reason("UnknownFlavor", "One."), Reason("Conflict", "Two."), Reason("ParentMissing", "Three."))
    status = report(make_inputs(N8, (), teams=TWO), "a", *problems)
    ready, conflict = condition(status, "Ready"), condition(status, "Conflict")
    assert (ready.reason, ready.message) == ("UnknownFlavor", "One. Two. Three.")
    assert (conflict.reason, conflict.message) == ("Conflict", "Two. Three.")


def test_guarantees_beyond_the_gpus_there_are_is_told_with_the_numbers():
    teams = (make_team("a", 6), make_team("b", 3), make_team("c"), make_team("d", 9, parent="a"))
    inputs = make_inputs(N8, (), teams=teams)
    told = condition(report(inputs, "a"), "Overcommitted")
    assert (told.status, told.reason) == ("True", "GuaranteesExceedGPUs")
    assert told.message.startswith("Flavor 'default': 9 GPUs are guaranteed (a, b), and nodes that take pods have 8.")
    assert "Lower guaranteed" in told.message
    assert [condition(report(inputs, name), "Overcommitted").status for name in "bcd"] == ["True", "False", "False"]


def test_guarantees_of_exactly_the_gpus_there_are_are_covered():
    inputs = make_inputs(N8, (), teams=(make_team("a", 6), make_team("b", 2)))
    assert condition(report(inputs), "Overcommitted").status == "False"


def test_foreign_pods_that_pass_the_limit_are_told_with_the_numbers():
    nodes = (make_node("n1", 8, used=4, by="a"),)
    team = make_team("a", 2, borrow=1)
    told = condition(report(make_inputs(nodes, (), teams=(team,))), "ForeignOverLimit")
    assert (told.status, told.reason) == ("True", "ForeignPods")
    assert "use 4 GPUs and may use 3; 4 are used by pods that belong to no job" in told.message
    assert (
        condition(report(make_inputs(nodes, (), teams=(make_team("a", 2, borrow=2),))), "ForeignOverLimit").status
        == "False"
    )


def test_a_parent_tells_of_foreign_pods_in_its_children_s_namespaces():
    nodes = (make_node("n1", 8, used=4, by="a"),)
    inputs = make_inputs(nodes, (), teams=(make_team("p", 2, borrow=1), make_team("a", parent="p")))
    assert condition(report(inputs, "p"), "ForeignOverLimit").status == "True"
    assert condition(report(inputs, "a"), "ForeignOverLimit").status == "False"


def test_a_condition_keeps_its_time_until_its_truth_changes():
    inputs = make_inputs(N8, (), teams=TWO)
    first = report(inputs, now=NOW)
    same = report(inputs, before=first, now=NOW + 60)
    assert same == first
    problem = Reason("UnknownFlavor", "One.")
    wrong = report(inputs, "a", problem, before=first, now=NOW + 60)
    later = datetime.fromtimestamp(NOW + 60, UTC)
    assert condition(wrong, "Ready").last_transition_time == later
    assert condition(wrong, "Conflict").last_transition_time == condition(first, "Conflict").last_transition_time
    reworded = report(inputs, "a", Reason("UnknownFlavor", "Two."), before=wrong, now=NOW + 120)
    assert condition(reworded, "Ready").last_transition_time == later
    assert condition(reworded, "Ready").message == "Two."
