"""Whatever policies people write, what they come to is sound."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from elastic_operator.plan.allocation.allocate import allocate
from elastic_operator.plan.allocation.lending import lendable, lent_gpus
from elastic_operator.plan.policies.resolve import Policy
from tests.plan.allocate.worlds import shared_inputs
from tests.plan.policies.builders import labelled, make_policy, parents, resolved_of

NAMES = ("a", "b", "c", "d", "e")
SPACES = ("x", "y", "z")
LABELS = ("", "1", "2")
selectors = st.one_of(
    st.none(),
    st.just({}),
    st.builds(lambda value: {"matchLabels": {"team": value}}, st.sampled_from(LABELS)),
    st.builds(
        lambda operator: {"matchExpressions": [{"key": "team", "operator": operator}]},
        st.sampled_from(("Exists", "DoesNotExist")),
    ),
)


@st.composite
def worlds(draw: st.DrawFn):
    """Policies of different names and any ages, some unreadable, and namespaces."""
    policies = []
    for name in draw(st.lists(st.sampled_from(NAMES), unique=True)):
        if draw(st.integers(0, 9)) == 0:
            policies.append(make_policy(name, created=draw(st.integers(0, 3)), invalid="spec: wrong."))
            continue
        spec = {
            "parent": draw(st.one_of(st.none(), st.sampled_from((*NAMES, "gone")))),
            "namespaces": draw(st.lists(st.sampled_from(SPACES), unique=True)),
            "namespaceSelector": draw(selectors),
            "flavors": [{"name": name} for name in draw(st.sets(st.sampled_from(("default", "other"))))],
        }
        policies.append(make_policy(name, created=draw(st.integers(0, 3)), **spec))
    spaces = [labelled(name, team=draw(st.sampled_from(LABELS))) for name in draw(st.sets(st.sampled_from(SPACES)))]
    return policies, spaces


def readable(policies: list[Policy]) -> dict[str, Policy]:
    return {policy.name: policy for policy in policies if policy.spec is not None}


@given(worlds())
def test_teams_are_a_forest_of_the_readable_policies(world):
    policies, spaces = world
    above = parents(resolved_of(policies, spaces))
    assert above.keys() == readable(policies).keys()
    for name in above:
        steps, up = 0, above[name]
        while up is not None:
            steps, up = steps + 1, above[up]
            assert steps <= len(above)


@given(worlds())
def test_a_namespace_is_owned_by_a_policy_that_asks_for_it_and_has_no_children(world):
    policies, spaces = world
    resolved = resolved_of(policies, spaces)
    with_children = set(parents(resolved).values())
    for space, owner in resolved.teams.covered.items():
        assert owner not in with_children
        spec = readable(policies)[owner].spec
        assert space in spec.namespaces or spec.namespace_selector is not None


@given(worlds())
def test_who_gets_less_than_it_asks_for_is_told(world):
    policies, spaces = world
    resolved = resolved_of(policies, spaces)
    above = parents(resolved)
    for policy in policies:
        if policy.spec is None or policy.uid in resolved.problems:
            continue
        assert above[policy.name] == policy.spec.parent
        assert all(resolved.teams.covered[space] == policy.name for space in policy.spec.namespaces)
    assert {p.uid for p in policies if p.spec is None} <= resolved.problems.keys()


@given(worlds(), st.randoms())
def test_the_order_of_policies_and_namespaces_makes_no_difference(world, random):
    policies, spaces = world
    shuffled = [random.sample(things, len(things)) for things in world]
    assert resolved_of(*shuffled) == resolved_of(policies, spaces)


@given(shared_inputs())
def test_a_team_lends_no_more_than_it_can_and_all_teams_together_no_more_than_is_borrowed(inputs):
    accounts = allocate(inputs).accounts
    lent = lent_gpus(accounts, "default", lambda account: account.used_with_terminating)
    assert all(0 <= gpus <= lendable(account, account.used_with_terminating) for account, gpus in lent.items())
    groups = [accounts.tops("default")]
    if all(
        sum(child.guaranteed for child in parent.children) <= parent.guaranteed for parent in lent if parent.children
    ):
        groups.append([account for account in lent if not account.children])  # else a parent borrows for its children
    for teams in groups:
        borrowed = sum(max(0, account.used_with_terminating - account.guaranteed) for account in teams)
        assert sum(lent[account] for account in teams) <= borrowed
