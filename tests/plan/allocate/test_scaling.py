"""How the work of an allocation grows: twice the objects, about twice the calls of functions. Seconds prove nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest

from elastic_api.status import SizeReason
from elastic_operator.plan.allocation.accounts import Account, Entitlement
from elastic_operator.plan.allocation.allocate import allocate
from elastic_operator.plan.allocation.entry import Entry
from elastic_operator.plan.allocation.preemption.candidates import Candidates, VictimUnit
from elastic_operator.plan.allocation.preemption.options import Options
from elastic_operator.plan.allocation.preemption.rules import PreemptionCheck
from elastic_operator.plan.allocation.supply import Supplies
from elastic_operator.plan.facts.demand import JobDemand
from elastic_operator.plan.facts.node import Node
from elastic_operator.plan.facts.requirements import PodShape
from elastic_operator.settings import Settings
from elastic_worker.contract import ROLE_WORKER
from tests.kit.calls import calls_of
from tests.plan.allocate.world import GPU, make_inputs, make_job, make_node, make_shape, make_team
from tests.plan.quota.cases import make_foreign_pod

MOST = 2.2
"""How many times the calls for twice the objects; 2 is linear, 4 quadratic."""


def queued_jobs_of_one_team(jobs: int) -> None:
    """A full cluster, and so many jobs that wait, each with its sentence."""
    nodes = [make_node(f"n{i}", 8, used=7, by="x") for i in range(20)]
    running = make_job("running", 1, 20, on=" ".join(f"n{i}" for i in range(20)))
    queued = [make_job(f"q{i:05}", 1, 4, age=i) for i in range(jobs)]
    allocation = allocate(make_inputs(nodes, [running, *queued], teams=[make_team()]))
    assert all(allocation[uid].message for uid in allocation)


def queued_jobs_of_as_many_shapes(jobs: int) -> None:
    """The same for jobs of which no two request the same CPU."""
    nodes = [make_node(f"n{i}", 8, used=7, by="x") for i in range(20)]
    running = make_job("running", 1, 20, on=" ".join(f"n{i}" for i in range(20)))
    shapes = [PodShape({GPU: 1, "cpu": 1000 + i, "pods": 1}, gpus=1) for i in range(jobs)]
    queued = [make_job(f"q{i:05}", 1, 4, age=i, shape=shape) for i, shape in enumerate(shapes)]
    allocate(make_inputs(nodes, [running, *queued], teams=[make_team()]))


def borrowed(gpus: int) -> tuple[list[Node], JobDemand]:
    """Nodes that one job of a team without a guarantee holds whole."""
    nodes = [make_node(f"n{i}", 8) for i in range(gpus // 8)]
    places = " ".join(f"n{i // 8}" for i in range(gpus))
    return nodes, make_job("borrower", 1, gpus, on=places, team="borrower")


def waiting_pods_of_one_deployment(pods: int) -> None:
    """More than their team is entitled to, beside much that is borrowed."""
    nodes, borrower = borrowed(80)
    foreign_pods = tuple(make_foreign_pod(f"r{i:05}", team="owner", age=i) for i in range(pods))
    teams = [make_team("owner", 8), make_team("borrower", 0)]
    allocate(make_inputs(nodes, [borrower], teams=teams, foreign_pods=foreign_pods))


def gang_under_a_limit(workers: int) -> None:
    """It takes half of its team's limit, which many jobs of lower priority use."""
    nodes = [make_node(f"n{i}", 8) for i in range(2 * workers // 8)]
    places = [f"n{i // 8}" for i in range(workers)]
    jobs = [make_job(f"j{i:05}", 1, 5, on=" ".join(places[i : i + 5]), age=i) for i in range(0, workers, 5)]
    gang = make_job("gang", workers // 2, priority=1)
    granted = allocate(make_inputs(nodes, [*jobs, gang], teams=[make_team(guaranteed=workers, borrow=0)]))["gang"]
    assert len(granted.assignment.create) == workers // 2


def gang_against_one_job(workers: int) -> None:
    """It takes a quarter of what one job of another team has."""
    nodes, borrower = borrowed(workers)
    gang = make_job("gang", workers // 4, team="owner")
    teams = [make_team("owner", workers), make_team("borrower", 0)]
    assert len(allocate(make_inputs(nodes, [borrower, gang], teams=teams))["gang"].assignment.create) == workers // 4


def namespaces_without_a_policy(namespaces: int) -> None:
    """Each has a job, and all begin at once; who begins or grows changes how all of them stand to others."""
    nodes = [make_node(f"n{i}", 8) for i in range(namespaces // 4)]
    jobs = [make_job(f"j{i:05}", 1, 4, team=f"x{i}") for i in range(namespaces)]
    settings = Settings().allocation
    inputs = make_inputs(nodes, jobs, teams=settings.default_parents, default_team=settings.default_team)
    allocation = allocate(inputs)
    assert all(len(allocation.assignment(uid).create) == 2 for uid in allocation)


@pytest.mark.parametrize(
    "work",
    [
        queued_jobs_of_one_team,
        queued_jobs_of_as_many_shapes,
        waiting_pods_of_one_deployment,
        gang_under_a_limit,
        gang_against_one_job,
        namespaces_without_a_policy,
    ],
)
def test_twice_the_objects_cost_at_most_a_little_more_than_twice_the_calls(work: Callable[[int], None]) -> None:
    work(16)  # what is made once
    few, many = calls_of(lambda: work(160)), calls_of(lambda: work(320))
    assert many <= MOST * few, f"{few} calls, then {many}"


def test_growth_that_found_no_room_is_searched_again_only_after_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of three rounds searched all nodes for each team: two thirds of a pass while a gang takes nodes (180)."""
    searched, search = list[str](), Options._search

    def counted(self: Options, role: str, check: PreemptionCheck, victim_jobs: list[Entry]) -> object:
        searched.append(role)
        return search(self, role, check, victim_jobs)

    monkeypatch.setattr(Options, "_search", counted)
    nodes, borrower = borrowed(16)
    too_large = make_job("grower", 1, 2, on="n2", team="owner", shape=make_shape(1, cpu=100), master=make_shape(1))
    teams = [make_team("owner", 8), make_team("borrower", 0)]
    allocate(make_inputs([*nodes, make_node("n2", 1)], [borrower, too_large], teams=teams))
    assert searched == [ROLE_WORKER]


@pytest.mark.parametrize(("parent", "searches"), [(None, 3), ("department", 4)])
def test_options_are_searched_again_only_if_the_preemptor_s_parent_uses_less(
    monkeypatch: pytest.MonkeyPatch, parent: str | None, searches: int
) -> None:
    """In each round, a master finds no pod but those of whole jobs; then master and workers take four of these, in
    vain, as the job needs five. A team without a parent is entitled to no more by that (189).
    """
    searched, search = list[str](), Options._search

    def counted(self: Options, role: str, check: PreemptionCheck, victim_jobs: list[Entry]) -> object:
        searched.append(role)
        return search(self, role, check, victim_jobs)

    monkeypatch.setattr(Options, "_search", counted)
    nodes = [make_node(f"n{i}", 1) for i in range(8)]
    borrowers = [make_job(f"b{i}", team="borrower", on=f"n{i}") for i in range(8)]
    departments = [make_team(parent, 13)] if parent else []
    teams = [*departments, make_team("owner", 8, parent=parent), make_team("borrower", 4, parent=parent)]
    allocation = allocate(make_inputs(nodes, [*borrowers, make_job("needs", 5, team="owner")], teams=teams))
    assert not allocation["needs"].assignment.replicas
    assert len(searched) == searches * len(Entitlement)


def gang_that_ends_jobs(pods: int) -> None:
    """It takes half of the nodes, each of them whole, from jobs of one team that all keep half of their pods."""
    nodes = [make_node(f"n{i:05}", 8) for i in range(2 * pods)]
    jobs = [make_job(f"j{i:05}", 2, 4, on=f"n{i // 2:05} " * 4, team="borrower", age=i) for i in range(4 * pods)]
    gang = tuple(make_foreign_pod(f"g{i:05}", team="owner", gang="g", gpus=8, age=i) for i in range(pods))
    teams = [make_team("owner", 8 * pods), make_team("borrower", 0)]
    assert len(allocate(make_inputs(nodes, jobs, teams=teams, foreign_pods=gang)).nominations) == pods


def gang_whose_nodes_were_taken(pods: int) -> None:
    """The same for a gang whose pods are all nominated for nodes on which another pod of the gang runs (45)."""
    nodes = [make_node(f"n{i:05}", 8) for i in range(2 * pods)]
    taken = [make_node(f"t{i:05}", 8, used=8, by="owner") for i in range(pods)]
    jobs = [make_job(f"j{i:05}", 2, 4, on=f"n{i // 2:05} " * 4, team="borrower", age=i) for i in range(4 * pods)]
    gang = tuple(
        make_foreign_pod(f"g{i:05}", team="owner", gang="g", gpus=8, age=i, reserved=f"t{i:05}") for i in range(pods)
    )
    teams = [make_team("owner", 16 * pods), make_team("borrower", 0)]
    found = allocate(make_inputs([*nodes, *taken], jobs, teams=teams, foreign_pods=gang)).nominations
    assert [nomination.is_new for nomination in found] == [True] * pods


@pytest.mark.parametrize("gang", [gang_that_ends_jobs, gang_whose_nodes_were_taken])
def test_a_gang_examines_each_node_a_few_times_although_each_eviction_changes_the_price_of_all(
    gang: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    examined = 0
    option = Options._option

    def counted(options: Options, role: str, node: int, check: PreemptionCheck) -> object:
        nonlocal examined
        examined += bool(options._state.this_pass.current_gang)
        return option(options, role, node, check)

    monkeypatch.setattr(Options, "_option", counted)
    found = []
    for pods in (20, 40):
        examined = 0
        gang(pods)
        found.append(examined)
    assert found[1] <= MOST * found[0], found


def test_jobs_below_their_minima_find_a_worker_of_their_own_team_without_a_search_of_all_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A gang ends many jobs, and each of them takes its minimum from its team again. These searches were half of all
    passes while half of 500 nodes were cleared (185).
    """
    examined, on_node = list[int](), Candidates.on_node

    def counted(self: Candidates, node: int) -> Iterator[VictimUnit]:
        examined.append(node)
        return on_node(self, node)

    monkeypatch.setattr(Candidates, "on_node", counted)
    found = []
    for jobs in (20, 40):
        examined.clear()
        nodes = [make_node(f"n{i:05}", 4) for i in range(2 * jobs)]
        rich = [make_job(f"r{i:05}", 1, 3, on=f"n{i:05} " * 3, age=2) for i in range(jobs)]
        short = [make_job(f"s{i:05}", 2, on=f"n{i:05}", age=1) for i in range(jobs)]
        full = [make_job(f"f{i:05}", 4, on=f"n{jobs + i:05} " * 4, age=3) for i in range(jobs)]
        allocation = allocate(make_inputs(nodes, [*rich, *short, *full], teams=[make_team()]))
        assert all(allocation[job.uid].assignment.replicas == 2 for job in short)
        found.append(len(examined))
    assert found[1] <= MOST * found[0], found


def test_nodes_are_examined_only_if_a_team_there_has_a_pod_to_give(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planned pod of `starts` puts its team beyond its share, but entitles nobody to that team's pods (166). While
    jobs wait for planned pods beside a gang, searches that examined every node for this took a third of a pass (185).
    """
    examined, on_node = list[int](), Candidates.on_node

    def counted(self: Candidates, node: int) -> Iterator[VictimUnit]:
        examined.append(node)
        return on_node(self, node)

    monkeypatch.setattr(Candidates, "on_node", counted)
    nodes = [make_node("a", 4), *(make_node(f"b{i}", 1) for i in range(5)), make_node("c", 1)]
    large = make_shape(1, cpu=100)
    grower = make_job("grower", 1, 8, on="a a a a", team="grower", shape=large, master=make_shape(1))
    runs = make_job("runs", 5, on="b0 b1 b2 b3 b4", team="starter")
    starts = make_job("starts", 1, team="starter", age=1)
    teams = [make_team("grower", 0), make_team("starter", 0)]
    allocation = allocate(make_inputs(nodes, [grower, runs, starts], teams=teams))
    assert [slot.node for slot in allocation["starts"].assignment.create] == ["c"]
    assert set(examined) == {6}, "the node of the planned pod"


def test_a_search_for_victims_examines_no_node_whose_teams_have_nothing_to_give(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The preemptor's team uses its guarantee, so its own pods go first. While a gang took half of 200 nodes, nine
    tenths of a pass looked for a worker of another team on each node, for nothing (185).
    """
    examined, option = list[int](), Options._option

    def noted(self: Options, role: str, node: int, check: PreemptionCheck | None) -> object:
        examined.append(node)
        return option(self, role, node, check)

    monkeypatch.setattr(Options, "_option", noted)
    nodes = [make_node(f"n{i}", 8) for i in range(10)]
    teams = [make_team("owner", 4), make_team("lender", 8), *(make_team(f"b{i}", 18) for i in range(4))]
    others = [
        make_job(f"b{i}", 1, 40, on=" ".join(f"n{n // 8}" for n in range(20 * i, 20 * i + 20)), team=f"b{i}")
        for i in range(4)
    ]
    own, waiting = (
        make_job("own", 1, 4, on="n10 n10 n10 n10", team="owner"),
        make_job("waiting", 3, team="owner", age=1),
    )
    inputs = make_inputs([*nodes, make_node("n10", 4)], [*others, own, waiting], teams=teams)
    assert len(allocate(inputs).assignment("waiting").create) == 3
    assert len(set(examined)) <= 2, "its own node, and the one of the first pod that another team has to give"


def test_a_search_after_a_quick_one_in_vain_asks_about_no_team_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, asking = list[tuple[object, ...]](), list[bool]()
    victim_jobs, allows = Candidates.victim_jobs, PreemptionCheck.allows

    def noted_victim_jobs(self: Candidates, check: PreemptionCheck) -> list[Entry]:
        asking.append(True)
        found = victim_jobs(self, check)
        asking.pop()
        return found

    def noted(self: PreemptionCheck, account: Account, gpus: int, **more: bool) -> bool:
        if asking:
            asked.append((self, account, gpus, *more.items()))
        return allows(self, account, gpus, **more)

    nodes, borrower = borrowed(16)
    too_large = make_job("grower", 1, 2, on="n2", team="owner", shape=make_shape(1, cpu=100), master=make_shape(1))
    teams = [make_team("owner", 8), make_team("borrower", 0)]
    inputs = make_inputs([*nodes, make_node("n2", 1)], [borrower, too_large], teams=teams)
    monkeypatch.setattr(Candidates, "victim_jobs", noted_victim_jobs)
    monkeypatch.setattr(PreemptionCheck, "allows", noted)
    allocate(inputs)
    assert asked
    assert len(set(asked)) == len(asked)


def test_why_a_job_gets_no_more_pods_is_counted_on_as_many_nodes_as_its_pods_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without the other jobs, the next pod fits on the first node."""
    nodes = [make_node(f"n{i}", 8) for i in range(50)]
    places = " ".join(f"n{i // 7}" for i in range(350))
    grows = make_job("grows", 1, 60, on=" ".join(f"n{i}" for i in range(50)), age=9)
    allocation = allocate(make_inputs(nodes, [grows, make_job("others", 1, 350, on=places)]))
    counted: list[int] = []
    freed = Supplies._freed

    def note(self: Supplies, team: str | None, node: int, own: Mapping[str, int]) -> Mapping[str, int]:
        counted.append(node)
        return freed(self, team, node, own)

    monkeypatch.setattr(Supplies, "_freed", note)
    assert allocation["grows"].size_reason.code == SizeReason.HIGHER_PRIORITY_JOBS
    assert 0 < len(counted) <= 4
