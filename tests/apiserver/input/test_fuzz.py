"""Whatever somebody posts: the operator lives, says of each stored job what becomes of it, and serves the others."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.apiserver.input.pool import Canary, conditions_of
from tests.apiserver.input.strategies import fuzzed_jobs
from tests.apiserver.jobs_api import Jobs
from tests.apiserver.operators import Operator, Operators, eventually

pytestmark = pytest.mark.apiserver

BATCH = 50
POSTERS = 4
LABEL = "fuzzed"
SETTLED_SECONDS = 120.0
SHOWN = 3
TROUBLE = ("Traceback", "pass failed", "could not be carried out", "cannot read a job")
"""What the operator logs when it met something that it was not made for."""


@pytest.mark.timeout(3000)
@pytest.mark.parametrize(
    "count", [50, pytest.param(500, marks=pytest.mark.extended), pytest.param(2000, marks=pytest.mark.long)]
)
def test_no_job_crashes_the_operator_or_stalls_another(operators: Operators, jobs: Jobs, canary: Canary, count: int):
    operator = operators.start()
    canary.start()
    stored = 0
    for batch in batches(made(count)):
        names = post(jobs, batch)
        stored += len(names)
        await_explained(jobs, names, batch)
        canary.check()
        assert_untroubled(operator)
        remove(jobs)
    eventually("nothing to be left", lambda: not left_over(jobs, canary), report=lambda: left_over(jobs, canary))
    canary.check()
    assert_untroubled(operator)
    assert count / 10 < stored < count, "the jobs should be of both kinds, stored and refused"


def made(count: int) -> list[dict[str, Any]]:
    """So many jobs at random."""
    jobs: list[dict[str, Any]] = []

    @settings(
        max_examples=count,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(fuzzed_jobs())
    def take(job: dict[str, Any]) -> None:
        jobs.append(job)

    take()
    return jobs


def batches(made: Sequence[dict[str, Any]]) -> Iterator[dict[str, dict[str, Any]]]:
    """The jobs by name, some at a time."""
    named = [
        (f"fuzz-{n}", {**job, "metadata": {"name": f"fuzz-{n}", "labels": {LABEL: "1"}}}) for n, job in enumerate(made)
    ]
    for start in range(0, len(named), BATCH):
        yield dict(named[start : start + BATCH])


def post(jobs: Jobs, batch: dict[str, dict[str, Any]]) -> list[str]:
    """Names of those that the API server stores. Every other one is posted by a client that asks for no strictness."""

    def create(numbered: tuple[int, str]) -> str:
        number, name = numbered
        answer = jobs.create(batch[name], validation="Strict" if number % 2 else "Ignore")
        assert answer.is_success or answer.status_code in (400, 422), (answer.text, batch[name])
        return name if answer.is_success else ""

    with ThreadPoolExecutor(POSTERS) as posters:
        return list(filter(None, posters.map(create, enumerate(batch))))


def await_explained(jobs: Jobs, names: Sequence[str], batch: dict[str, dict[str, Any]]) -> None:
    """Wait until each job that is still there says in words what becomes of it."""

    def unexplained() -> list[str]:
        ready = conditions_of(jobs, "Ready")
        return [name for name in names if name in ready and not (ready[name] and ready[name]["message"])]

    def report() -> str:
        ready, open_ = conditions_of(jobs, "Ready"), unexplained()
        shown = "\n".join(f"{ready.get(name)} {json.dumps(batch[name])}" for name in open_[:SHOWN])
        return f"{len(open_)} jobs, such as\n{shown}"

    eventually("an explanation for every job", lambda: not unexplained(), seconds=SETTLED_SECONDS, report=report)


def assert_untroubled(operator: Operator) -> None:
    """It runs and met nothing that it was not made for."""
    assert operator.lives, operator.text()[-3000:]
    text = operator.text()
    assert [sign for sign in TROUBLE if sign in text] == [], text[-5000:]


def remove(jobs: Jobs) -> None:
    """Delete the fuzzed jobs, and what they own with them."""
    options = {"labelSelector": f"{LABEL}=1", "propagationPolicy": "Background"}
    jobs.api.delete(jobs.path, params=options).raise_for_status()


def left_over(jobs: Jobs, canary: Canary) -> list[str]:
    """Pods, Services and slices that are not the canary's."""
    core, discovery = "/api/v1/namespaces", "/apis/discovery.k8s.io/v1/namespaces"
    kinds = [
        f"{root}/{jobs.namespace}/{kind}"
        for root, kind in ((core, "pods"), (core, "services"), (discovery, "endpointslices"))
    ]
    names = [item["metadata"]["name"] for kind in kinds for item in jobs.api.get(kind).json()["items"]]
    return [name for name in names if not name.startswith(canary.name)]
