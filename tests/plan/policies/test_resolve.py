"""Who owns which namespace and who is whose parent, and what is told where policies contradict each other."""

from elastic_operator.plan.facts.team import Flavor, Quota, Teams
from tests.plan.policies.builders import labelled, make_policy, parents, reasons, resolved_of, the_problem


def test_a_policy_becomes_a_team_of_its_name_with_all_it_says():
    policy = make_policy(
        "team-a",
        created=5.0,
        namespaces=["a", "b"],
        flavors=[{"name": "default", "guaranteed": 2, "borrowing": {"limit": 4, "weight": 3}, "lending": {"limit": 1}}],
        priority=7,
        perJob={"maxGPUs": 8},
        reclaim={"minRuntimeSeconds": 60, "gracePeriodSeconds": 30},
        timeSharing={"quantumSeconds": 1800},
    )
    resolved = resolved_of([policy], [])
    (team,) = resolved.teams.listed
    assert (team.name, team.created, team.parent, team.has_policy) == ("team-a", 5.0, None, True)
    assert team.quotas == {"default": Quota(guaranteed=2, borrow_limit=4, weight=3, lend_limit=1)}
    assert (team.priority, team.max_gpus_per_job, team.min_runtime_seconds, team.quantum_seconds) == (7, 8, 60, 1800)
    assert resolved.teams.covered == {"a": "team-a", "b": "team-a"}
    assert not resolved.problems


def test_a_selector_takes_the_namespaces_that_meet_all_of_it():
    expressions = [
        {"key": "team", "operator": "In", "values": ["a", "b"]},
        {"key": "stage", "operator": "NotIn", "values": ["scratch"]},
        {"key": "owner", "operator": "Exists"},
        {"key": "retired", "operator": "DoesNotExist"},
    ]
    policy = make_policy(namespaceSelector={"matchLabels": {"gpu": "yes"}, "matchExpressions": expressions})
    good = {"gpu": "yes", "team": "a", "owner": "me"}
    namespaces = [
        labelled("good", **good),
        labelled("staged", **good, stage="prod"),
        labelled("no-label", team="a", owner="me"),
        labelled("other-team", **good | {"team": "c"}),
        labelled("scratch", **good, stage="scratch"),
        labelled("ownerless", gpu="yes", team="a"),
        labelled("retired", **good, retired=""),
    ]
    assert resolved_of([policy], namespaces).teams.covered == {"good": "a", "staged": "a"}


def test_an_empty_selector_takes_all_namespaces_and_an_absent_one_none():
    namespaces = [labelled("x"), labelled("y", team="b")]
    assert resolved_of([make_policy(namespaceSelector={})], namespaces).teams.covered == {"x": "a", "y": "a"}
    assert resolved_of([make_policy()], namespaces).teams.covered == {}


def test_a_namespace_that_is_named_needs_not_exist_yet():
    assert resolved_of([make_policy(namespaces=["later"])], []).teams.covered == {"later": "a"}


def test_a_namespace_belongs_to_the_older_policy_and_the_younger_is_told():
    older, younger = (
        make_policy("older", created=1, namespaces=["x", "y"]),
        make_policy("b", created=2, namespaces=["x"]),
    )
    resolved = resolved_of([younger, older], [])
    assert resolved.teams.covered == {"x": "older", "y": "older"}
    assert reasons(resolved) == {"uid-b": ["Conflict"]}
    assert the_problem(resolved).message == (
        "Namespace x belongs to the older policy 'older'. A namespace has one policy: remove it from spec.namespaces or"
        " spec.namespaceSelector of one of the two."
    )


def test_of_policies_of_one_age_the_first_by_name_wins_and_the_other_is_told():
    """As after one `kubectl apply` of both: times have whole seconds, and uids are random."""
    second, first = make_policy("z", uid="1", namespaces=["x"]), make_policy("a", uid="2", namespaces=["x"])
    resolved = resolved_of([second, first], [])
    assert resolved.teams.covered == {"x": "a"}
    assert reasons(resolved) == {"1": ["Conflict"]}
    assert the_problem(resolved).message.startswith(
        "Namespace x belongs to policy 'a', which is as old as this one and the first by name. A namespace has one"
    )


def test_an_older_policy_that_selects_wins_over_a_younger_one_that_names():
    older = make_policy("older", created=1, namespaceSelector={})
    younger = make_policy("younger", created=2, namespaces=["x"])
    assert resolved_of([younger, older], [labelled("x")]).teams.covered == {"x": "older"}


def test_of_many_namespaces_in_conflict_some_are_named():
    older = make_policy("older", created=1, namespaceSelector={})
    younger = make_policy("younger", created=2, namespaceSelector={})
    problem = the_problem(resolved_of([older, younger], [labelled(f"n{i}") for i in range(8)]))
    assert problem.message.startswith("Namespaces n0, n1, n2, n3, n4 and 3 more belong to the older policy 'older'.")


def test_a_parent_owns_no_namespaces_and_is_told():
    parent = make_policy("research", namespaces=["x"], namespaceSelector={})
    child = make_policy("a", created=1, namespaces=["y"], parent="research")
    resolved = resolved_of([parent, child], [labelled("x"), labelled("z")])
    assert resolved.teams.covered == {"y": "a"}
    assert parents(resolved) == {"research": None, "a": "research"}
    assert reasons(resolved) == {"uid-research": ["ParentOwnsNamespaces"]}
    assert the_problem(resolved).message.startswith("spec.namespaces: must be absent: other policies name 'research'")


def test_a_namespace_that_a_parent_may_not_own_goes_to_the_next_policy_that_wants_it():
    parent = make_policy("research", namespaces=["x"])
    child = make_policy("a", created=1, namespaces=["x"], parent="research")
    assert resolved_of([parent, child], []).teams.covered == {"x": "a"}


def test_a_policy_whose_parent_is_missing_stands_at_the_top_and_keeps_its_namespaces():
    resolved = resolved_of([make_policy(namespaces=["x"], parent="gone")], [])
    assert parents(resolved) == {"a": None}
    assert resolved.teams.covered == {"x": "a"}
    assert reasons(resolved) == {"uid-a": ["ParentMissing"]}
    assert the_problem(resolved).message == (
        "spec.parent: 'gone': that policy does not exist; create it, or remove the field. Until then this policy is"
        " part of none."
    )


def test_a_policy_whose_parent_cannot_be_read_stands_at_the_top():
    resolved = resolved_of([make_policy("p", invalid="spec.x: wrong."), make_policy(parent="p", created=1)], [])
    assert parents(resolved) == {"a": None}
    assert reasons(resolved) == {"uid-p": ["InvalidSpec"], "uid-a": ["ParentInvalid"]}


def test_namespaces_of_a_policy_that_cannot_be_read_are_without_a_policy():
    resolved = resolved_of([make_policy(invalid="spec.namespaces: 7: must be a list.")], [labelled("x")])
    assert resolved.teams == Teams()
    assert the_problem(resolved).message == (
        "spec.namespaces: 7: must be a list. Until then its namespaces are without a policy."
    )


def test_a_circle_of_parents_is_cut_at_its_oldest_and_all_of_it_are_told():
    a = make_policy("a", created=3, parent="b")
    b = make_policy("b", created=1, parent="c", namespaces=["x"])
    c = make_policy("c", created=2, parent="a")
    outside = make_policy("outside", created=0, parent="c", namespaces=["y"])
    resolved = resolved_of([a, b, c, outside], [])
    assert parents(resolved) == {"outside": "c", "b": None, "c": "a", "a": "b"}
    assert reasons(resolved) == {
        "uid-a": ["CircularParents"],
        "uid-b": ["CircularParents", "ParentOwnsNamespaces"],
        "uid-c": ["CircularParents"],
    }
    assert resolved.problems["uid-a"][0].message == (
        "spec.parent: 'b': must not lead back to this policy (b -> c -> a -> b); remove the parent of one of them."
        " Until then 'b', the oldest, is taken to have none."
    )


def test_a_circle_of_policies_of_one_age_is_cut_at_the_first_by_name():
    a, b = make_policy("a", uid="2", parent="b"), make_policy("b", uid="1", parent="a")
    resolved = resolved_of([b, a], [])
    assert parents(resolved) == {"a": None, "b": "a"}
    assert resolved.problems["1"][0].message.endswith(
        "Until then 'a', of the oldest the first by name, is taken to have none."
    )


def test_a_policy_that_is_its_own_parent_stands_at_the_top():
    resolved = resolved_of([make_policy("a", parent="a", namespaces=["x"])], [])
    assert parents(resolved) == {"a": None}
    assert resolved.teams.covered == {"x": "a"}
    assert reasons(resolved) == {"uid-a": ["CircularParents"]}


def test_a_flavor_that_the_settings_do_not_know_is_ignored_and_told():
    policy = make_policy(flavors=[{"name": "h100", "guaranteed": 1}, {"name": "b200", "guaranteed": 2}])
    resolved = resolved_of([policy], [], flavors=(Flavor("h100"), Flavor("a100")))
    assert resolved.teams.listed[0].quotas == {"h100": Quota(guaranteed=1)}
    assert the_problem(resolved).code == "UnknownFlavor"
    assert the_problem(resolved).message == (
        "spec.flavors: b200: must be among the flavors in the operator's settings (a100, h100); correct the name, or"
        " add the flavor there. Until then the entry is ignored."
    )


def test_the_ceiling_of_a_pods_grace_is_that_of_its_namespaces_policy():
    limited = make_policy(namespaces=["x"], reclaim={"gracePeriodSeconds": 0})
    resolved = resolved_of([limited, make_policy("b", namespaces=["y"])], [])
    assert [resolved.teams.team_of(namespace).grace_seconds for namespace in ("x", "y", "elsewhere")] == [0, None, None]
