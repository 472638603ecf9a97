"""A real leader dies in the middle of a reclaim; whoever comes next goes on with it, and takes nothing twice.

`tests/virtual/test_reclaim.py` has it die at each step.
"""

from __future__ import annotations

import threading

import pytest

from tests.apiserver.faults.lab import World
from tests.apiserver.operators import eventually
from tests.apiserver.reclaim.lab import Losses, Notebooks
from tests.apiserver.reclaim.observed import Observed, Start
from tests.kit.requests import CutOff, Request, writes_job_status

pytestmark = [pytest.mark.apiserver, pytest.mark.extended]


class Death:
    """Kills the operator when the API server has written a decision down, before it hears of it."""

    def __init__(self, observed: Observed) -> None:
        self._operator, self.came = observed.operator, threading.Event()
        observed.proxy.one_write_at_a_time = True
        observed.proxy.before, observed.proxy.after = self._before_write, self._after_write

    def _before_write(self, request: Request) -> None:
        """The dead do not write."""
        if self.came.is_set() and request.writes:
            raise CutOff

    def _after_write(self, request: Request, status: int) -> None:
        if status < 300 and writes_job_status(request) and not self.came.is_set():
            self._operator.kill()
            self.came.set()
            raise CutOff


def test_leader_killed_during_a_reclaim_evicts_no_second_pod(
    observed: Observed, start: Start, world: World, owner: Notebooks, guest: Notebooks
) -> None:
    guest.create("older")
    guest.wait_unschedulable("older")
    losses, known = Losses(world.api, world.jobs.namespace), len(world.status()["history"])
    world.kubelets.lets_go = False
    death = Death(observed)
    owner.create()
    eventually("a death", death.came.is_set, report=observed.text)
    [node] = [node for kind, _, node in observed.steps() if kind == "reserve"]
    assert len(losses.pods()) == 1, "the victim is deleted before its job says so (203)"
    successor = start()
    eventually("a victim", losses.pods, report=successor.text)
    successor.see_passes(world)
    # kube-scheduler takes it away whenever it tries the pod in vain; the operator makes it again 50 ms later.
    eventually("the same node", lambda: owner.nominated() == node, report=successor.text)
    assert owner.reservation()["node"] == node
    world.kubelets.lets_go = True
    assert owner.wait_bound() == node
    world.wait_settled("toy", 7)
    successor.see_passes(world)
    assert len(losses.pods()) == 1
    assert not guest.node("older")
    assert [change["to"] for change in world.status()["history"][:-known]] == [7]
