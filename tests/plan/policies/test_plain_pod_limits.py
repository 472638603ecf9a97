"""How many GPUs plain pods may hold, namespace by namespace: what is held for good stays within the guarantee."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from elastic_operator.plan.facts.team import Flavor, Quota, Team, Teams
from elastic_operator.plan.policies.plain_pod_limits import non_preemptible_gpus, plain_pod_limits
from tests.plan.allocate.world import make_job, make_shape, make_team
from tests.plan.quota.cases import on

GPU, AMD, MIG = "nvidia.com/gpu", "amd.com/gpu", "nvidia.com/mig-1g.10gb"
ONE = (Flavor(),)
A100, H100 = Flavor("a100", (GPU,), {"gpu": "a100"}), Flavor("h100", (GPU,), {"gpu": "h100"})


def gpus(**namespaces):
    """What so many GPUs in each namespace are."""
    return {name: {GPU: count} for name, count in namespaces.items()}


def limits(*teams, of, flavors=ONE, plain=None, kept=None):
    """Of the one resource, by namespace; `of` names the namespaces of each team."""
    covered = {namespace: team for team, namespaces in of.items() for namespace in namespaces}
    found = plain_pod_limits(Teams(teams, covered), flavors, plain=plain or {}, kept=kept or {})
    return {name: one[GPU] for name, one in found.items()}


def test_plain_pods_of_a_team_with_one_namespace_may_always_hold_the_guarantee():
    for held in (0, 3, 8, 20):
        assert limits(make_team("a", 8), of={"a": ["x"]}, plain=gpus(x=held)) == {"x": 8}


def test_a_team_that_is_guaranteed_nothing_may_hold_none():
    assert limits(make_team("a", 0), make_team("b", 8), of={"a": ["x"], "b": ["y"]}) == {"x": 0, "y": 8}


def test_namespaces_without_a_policy_have_no_limit():
    assert limits(make_team("a", 8), of={"a": ["x"]}, plain=gpus(stranger=8)) == {"x": 8}


def test_what_plain_pods_hold_in_one_namespace_is_off_the_limit_of_the_teams_others():
    found = limits(make_team("a", 8), of={"a": ["x", "y", "z"]}, plain=gpus(x=3, y=2))
    assert found == {"x": 6, "y": 5, "z": 3}


def test_no_limit_is_below_zero_where_a_team_holds_more_than_it_is_guaranteed():
    assert limits(make_team("a", 4), of={"a": ["x", "y"]}, plain=gpus(x=6)) == {"x": 4, "y": 0}


def test_only_jobs_that_cannot_be_reclaimed_reduce_the_limit_by_all_they_hold():
    jobs = (
        make_job("bound", 3, team="x", on=on("n1", 3), shape=make_shape(2), preemptible=False),
        make_job("free", 8, team="x", on=on("n2", 8)),
    )
    kept = non_preemptible_gpus(jobs, (GPU,))
    assert kept == gpus(x=6)
    assert limits(make_team("a", 8), of={"a": ["x", "y"]}, plain=gpus(x=1), kept=kept) == {"x": 2, "y": 1}


def test_a_team_stays_within_the_guarantee_of_the_one_above_it_too():
    teams = make_team("all", 10), make_team("a", 8, parent="all"), make_team("b", 8, parent="all")
    found = limits(*teams, of={"a": ["x"], "b": ["y", "z"]}, plain=gpus(x=1, y=4))
    assert found == {"x": 6, "y": 8, "z": 4}


def test_a_parent_without_a_guarantee_leaves_its_children_none():
    assert limits(make_team("all"), make_team("a", 8, parent="all"), of={"a": ["x"]}) == {"x": 0}


def test_flavors_of_one_resource_add_up():
    team = make_team("a", quotas={"a100": Quota(4), "h100": Quota(2)})
    assert limits(team, of={"a": ["x", "y"]}, flavors=(A100, H100), plain=gpus(x=5)) == {"x": 6, "y": 1}


def test_resources_of_one_flavor_share_its_guarantee():
    both = Flavor("both", (GPU, AMD))
    found = plain_pod_limits(
        Teams((make_team("a", 8, flavor="both"),), {"x": "a", "y": "a"}),
        (both,),
        plain={"x": {GPU: 3}, "y": {AMD: 1}},
        kept={},
    )
    assert found == {"x": {AMD: 4, GPU: 7}, "y": {AMD: 5, GPU: 4}}


def test_a_resource_that_has_a_flavor_of_its_own_uses_that_first():
    own, shared = Flavor("own", (GPU,)), Flavor("shared", (GPU, MIG), {"mig": "yes"})
    team = make_team("a", quotas={"own": Quota(4), "shared": Quota(2)})
    found = plain_pod_limits(Teams((team,), {"x": "a"}), (own, shared), plain={"x": {GPU: 5}}, kept={})
    assert found == {"x": {GPU: 6, MIG: 1}}


def test_each_resource_of_the_settings_has_a_limit():
    amd = Flavor("amd", (AMD,))
    found = plain_pod_limits(Teams((make_team("a", 8),), {"x": "a"}), (*ONE, amd), plain={}, kept={})
    assert found == {"x": {AMD: 0, GPU: 8}}


NAMESPACES = ("p", "q", "r", "s")
OF = {"a": ["p", "q"], "b": ["r"], "c": ["s"]}


@st.composite
def worlds(draw):
    """Teams, two of them with a parent, and what is held in each namespace."""
    number = st.integers(0, 6)
    parents = {"a": "all", "b": "all", "c": None}
    teams = [make_team("all", draw(number)), *(make_team(n, draw(number), parent=p) for n, p in parents.items())]
    plain = {name: {GPU: draw(number)} for name in NAMESPACES}
    kept = {name: {GPU: draw(number)} for name in NAMESPACES}
    return teams, plain, kept


def held_by(team: Team, teams, plain, kept) -> int:
    below = {team.name, *(one.name for one in teams if one.parent == team.name)}
    mine = [namespace for name in below for namespace in OF.get(name, ())]
    return sum(plain[name][GPU] + kept[name][GPU] for name in mine)


@given(worlds(), st.lists(st.sampled_from(NAMESPACES), max_size=30))
def test_plain_pods_created_one_by_one_never_bring_a_team_beyond_its_guarantee(world, makers):
    """As the API server lets them in, with limits that follow each pod."""
    teams, plain, kept = world
    for maker in makers:
        limit = limits(*teams, of=OF, plain=plain, kept=kept)[maker]
        if plain[maker][GPU] + 1 > limit:
            continue
        plain = {**plain, maker: {GPU: plain[maker][GPU] + 1}}
        name = next(team for team, namespaces in OF.items() if maker in namespaces)
        above = [team for team in teams if team.name == name or (team.name == "all" and name in ("a", "b"))]
        assert all(held_by(team, teams, plain, kept) <= team.quotas["default"].guaranteed for team in above)
