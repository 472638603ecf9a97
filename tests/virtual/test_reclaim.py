"""A foreign pod reclaims GPUs that its team lent, while leaders die between the steps of the reclaim."""

from __future__ import annotations

import pytest

from tests.kit.requests import CutOff, Refusal, Request, deletes_a_pod, makes_a_pod, nominates, writes_job_status
from tests.simulate import server as kinds
from tests.simulate.facts import lacks_gpus, name_of, node_of, nominated_for, owner_of, reservation_in, terminating
from tests.simulate.server import Body
from tests.simulate.violation import require
from tests.virtual.actions import HOME, job, nodes, refuse
from tests.virtual.world import ProcessWorld, run_world

OWNER, GUEST = "red", "blue"
SHORT, PASSES = 3.0, 130.0
"""The latter is longer than everything is left undecided."""


STEPS = {"nominated": nominates, "told-to-go": deletes_a_pod, "written-down": writes_job_status}


class Losses:
    """The pods of the job that were asked to go."""

    def __init__(self, world: ProcessWorld) -> None:
        self.names: dict[str, str] = {}
        world.server.listeners.append(self._changed)

    def _changed(self, plural: str, old: Body | None, new: Body | None) -> None:
        body = new or old
        if plural == kinds.PODS and body and owner_of(body) and (new is None or terminating(new)):
            self.names[body["metadata"]["uid"]] = name_of(body)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("step", STEPS)
def test_leader_killed_during_a_reclaim_evicts_no_second_pod(step: str, seed: int) -> None:
    async def scenario(world: ProcessWorld) -> None:
        nodes(2, 4)(world)
        for team, guaranteed in ((OWNER, 4), (GUEST, 0)):
            flavors = [{"name": "a", "guaranteed": guaranteed, "borrowing": {"limit": 0}}]
            spec = {"namespaces": [team], "flavors": flavors, "priority": 0}
            world.server.create(kinds.POLICIES, {"metadata": {"name": team}, "spec": spec})
        first = world.start()
        job(small=2, big=8)(world)
        await world.until("a job that has everything", lambda: world.settled("toy", 8), seconds=SHORT)
        older = world.add_foreign(GUEST, gpus=1, pool="a")
        await world.until("one that waits", lambda: lacks_gpus(world.pod(name_of(older))), seconds=SHORT)
        losses, known, resizes = Losses(world), len(world.status("toy")["history"]), world.status("toy")["resizes"]
        world.machines.let_go = False
        died: list[float] = []

        def after(request: Request, status: int) -> None:
            if status < 300 and STEPS[step](request) and not died:
                first.kill()
                died.append(world.clock.passed)

        def before(request: Request) -> None:
            if died and request.writes:
                raise CutOff

        first.line.before, first.line.after = before, after
        pod = world.add_foreign(OWNER, gpus=1, pool="a")
        await world.until("a death", lambda: died, seconds=SHORT)
        reserved = [e.request for e in first.line.log if e.status == 200 and nominates(e.request)]
        node = reserved[0].body["status"]["nominatedNodeName"]
        require(len(losses.names) == (0 if step == "nominated" else 1), f"{losses.names}")
        second = world.start()
        await world.until("another leader", lambda: second.leads, seconds=20)
        await world.until("a victim", lambda: losses.names, seconds=SHORT)
        await world.advance(5)

        def is_kept() -> bool:
            """The scheduler takes it away whenever it tries the pod in vain; it is made again 50 ms later."""
            now = world.pod(name_of(pod))
            return nominated_for(now) == node == reservation_in(now).get("node")

        await world.until("the same node", is_kept, seconds=1)
        world.machines.let_go = True
        world.wake_machines()
        await world.until("its place", lambda: node_of(world.pod(name_of(pod))) == node, seconds=SHORT)
        await world.until("seven pods", lambda: world.settled("toy", 7), seconds=SHORT)
        await world.advance(PASSES)
        require(len(losses.names) == 1, f"{losses.names}")
        require(not node_of(world.pod(name_of(older))), "who came before got what was not made free for him")
        status = world.status("toy")
        new = status["history"][: len(status["history"]) - known]
        require([(change["to"], change["reason"]) for change in new] == [(7, "QuotaReclaimed")], f"{new}")
        require((status["resizes"], status.get("restarts", 0)) == (resizes + 1, 0), f"{status}")

    run_world(seed, scenario)


@pytest.mark.parametrize("seed", [2, 3])
def test_nominated_pods_with_new_places_cause_no_repeated_decisions(
    seed: int,
) -> None:
    """Each decision would be the same until the nomination is answered: in virtual time, one without end."""
    count = 8

    async def scenario(world: ProcessWorld) -> None:
        nodes(count, 4)(world)
        for team, guaranteed in ((OWNER, 2 * count), (HOME, 0)):
            spec = {"namespaces": [team], "flavors": [{"name": "a", "guaranteed": guaranteed}]}
            world.server.create(kinds.POLICIES, {"metadata": {"name": team}, "spec": spec})
        world.start()
        names = [f"job-{index}" for index in range(count)]
        for name in names:
            job(name, small=2, big=4)(world)
        await world.until("they run", lambda: all(world.settled(name, 4) for name in names), seconds=10)
        await world.advance(3.0)
        began = world.clock.passed
        owners = [name_of(world.add_foreign(OWNER, gpus=1, pool="a")) for _ in range(2 * count)]
        await world.until("all of them run", lambda: all(node_of(world.pod(name)) for name in owners), seconds=120)
        await world.advance(10.0)
        written = [entry for each in world.replicas for entry in each.line.requests(since=began)]
        statuses = sum(writes_job_status(entry.request) for entry in written)
        most = 2 * 2 * count  # one before and one after each pod that goes
        require(statuses <= most, f"{statuses} statuses of {count} jobs, each of which gives 2 pods")

    run_world(seed, scenario)


@pytest.mark.parametrize("seed", range(2))
def test_changed_pod_of_a_nominated_gang_undoes_no_decision(seed: int) -> None:
    """The rest of its gang was not planned for meanwhile: jobs were to grow again, or a place was emptied in vain."""
    count, size, gpus = 10, 6, 4

    async def scenario(world: ProcessWorld) -> None:
        nodes(count, gpus)(world)
        for team, guaranteed in ((OWNER, size * gpus), (HOME, 0)):
            spec = {"namespaces": [team], "flavors": [{"name": "a", "guaranteed": guaranteed}]}
            world.server.create(kinds.POLICIES, {"metadata": {"name": team}, "spec": spec})
        line = world.start().line
        names = [f"job-{index}" for index in range(count)]
        for name in names:
            job(name, small=1, big=gpus)(world)
        await world.until("they run", lambda: all(world.settled(name, gpus) for name in names), seconds=20)
        await world.advance(SHORT)
        losses, known = Losses(world), {name: len(world.status(name)["history"]) for name in names}
        line.faults.delay = 0.3
        line.faults.refusals.append(Refusal(409, nominates, times=1))
        gang = [name_of(world.add_foreign(OWNER, gpus=gpus, pool="a", job="gang")) for _ in range(size)]
        await world.until("all have nodes", lambda: all(node_of(world.pod(name)) for name in gang), seconds=20)
        await world.advance(20)
        require(len(losses.names) == size * gpus, f"{losses.names}")
        changes = {name: len(world.status(name)["history"]) - known[name] for name in names}
        require(max(changes.values()) == 1, f"changes of jobs: {changes}")

    run_world(seed, scenario)


def test_job_whose_new_pods_are_refused_gives_pods_up_at_once() -> None:
    """One of its pods terminates all the time. So its refused growth is tried again and again, and not given up."""

    async def scenario(world: ProcessWorld) -> None:
        nodes(2, 4)(world)
        for team, guaranteed in ((OWNER, 8), (GUEST, 0)):
            flavors = [{"name": "a", "guaranteed": guaranteed, "borrowing": {"limit": 0}}]
            spec = {"namespaces": [team], "flavors": flavors, "priority": 0}
            world.server.create(kinds.POLICIES, {"metadata": {"name": team}, "spec": spec})
        world.start()
        ends = world.add_foreign(OWNER, gpus=2, pool="a")
        await world.advance(SHORT)
        job(small=1, big=8, elasticity={"scaleUpDelaySeconds": 0})(world)
        await world.until("a job that has the rest", lambda: world.settled("toy", 6), seconds=10)
        losses = Losses(world)
        world.machines.let_go = False
        world.add_foreign(OWNER, gpus=1, pool="a")
        await world.until("a victim", lambda: losses.names, seconds=SHORT)
        refuse(403, where=makes_a_pod)(world)
        world.server.remove(kinds.PODS, world.pod(name_of(ends)))
        await world.advance(63)
        require(len(losses.names) == 1, f"{losses.names}")
        world.add_foreign(OWNER, gpus=4, pool="a")
        await world.until("more victims", lambda: len(losses.names) > 1, seconds=SHORT)

    run_world(0, scenario)
