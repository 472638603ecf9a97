"""One hostile team cannot keep GPUs from others for longer than its pods may take to end (see `hostile`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest

from elastic_operator.loop.reclaim.nominator import Nominator
from elastic_operator.plan import observed_jobs
from elastic_operator.plan.job.observation import Observation
from elastic_operator.read import ledger
from elastic_operator.read.job_contexts import JobContexts
from tests.simulate.history import run_history
from tests.simulate.hostile import DAY
from tests.simulate.test_histories import batches
from tests.simulate.violation import ViolationError

FEW, SEEDS, MANY = 12, 300, 5_000
KNOWN = {
    159: "a forged pod that no node has counts as leaving, and a plain pod is nominated for the room that it never had",
    238: "a job is suspended, a forged pod of its could not be deleted, and its place is given away in the same pass",
}
"""Histories in which a rule does not hold yet, with what goes wrong: each must go on failing until it is mended."""


@pytest.mark.parametrize(
    "seeds",
    [
        *batches(0, FEW, 6, pytest.mark.simulation),
        *batches(FEW, SEEDS, 24, pytest.mark.simulation, pytest.mark.extended),
        *batches(SEEDS, MANY, 100, pytest.mark.long),
    ],
)
def test_a_hostile_team_keeps_no_gpu_from_who_is_entitled_to_it(seeds):
    for seed in seeds:
        if seed not in KNOWN:
            run_history(seed, hostile=True)


@pytest.mark.simulation
@pytest.mark.extended
@pytest.mark.parametrize("seed", KNOWN)
def test_known_violations_still_occur(seed):
    with pytest.raises(ViolationError):
        run_history(seed, hostile=True)


def _wants_pods_as_it_can_be_read(obs: Observation) -> bool:
    over = obs.status.finished or obs.is_in_backoff or obs.job.needs_edit
    return obs.job.spec is not None and not obs.job.spec.suspend and not over


def _instead(where: Any, name: str, work: Any) -> Callable[[], Any]:
    return lambda: patch.object(where, name, work)


MUTANTS: dict[str, tuple[int, Callable[[], Any]]] = {
    "pods of jobs that are over have no claim": (1, _instead(observed_jobs, "unwanted_pods", lambda _seen: ())),
    "a grace of a day is a day": (0, _instead(JobContexts, "grace_ceiling", lambda _all, _namespace: DAY)),
    "a node is kept for as long as a pod was made to take": (14, _instead(Nominator, "_grace_seconds", lambda *_: DAY)),
    "deleted pods that no node has count": (21, _instead(ledger, "_will_never_run", lambda _pod: False)),
}
BEYOND = {
    "who cannot be read has no claim": (
        28,
        _instead(Observation, "wants_pods", property(_wants_pods_as_it_can_be_read)),
    )
}
"""Those that only show beyond the first histories."""


@pytest.mark.simulation
@pytest.mark.parametrize("mutant", [*MUTANTS, *(pytest.param(name, marks=pytest.mark.extended) for name in BEYOND)])
def test_an_operator_that_lets_it_is_caught(mutant):
    seed, broken = {**MUTANTS, **BEYOND}[mutant]
    with broken(), pytest.raises(ViolationError):
        run_history(seed, hostile=True)
