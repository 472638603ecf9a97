"""Each load of the benchmark does to the operator what it is said to do."""

from __future__ import annotations

import asyncio

from benchmarks.passes.loads import Load, foreign_pods, large_templates, queued_jobs, running_jobs
from benchmarks.passes.measure import Operator


def after_a_pass(load: Load) -> Operator:
    """An operator that has made one pass, and all that it had begun then."""

    async def main() -> Operator:
        operator = Operator(load)
        assert operator.controller is not None
        operator.controller.run_pass()
        await asyncio.gather(*operator.controller.reconciler.dispatcher._busy.values())
        return operator

    return asyncio.run(main())


def test_queued_jobs_are_told_that_they_wait_and_get_no_pod():
    operator = after_a_pass(queued_jobs(5, nodes=2))
    said = [{one["type"]: one["reason"] for one in job.status.unpack()["conditions"]} for job in operator.stores.jobs]
    assert [one["FullSize"] for one in said] == ["InsufficientNodes"] * 5
    assert len(operator.stores.pods) == 2
    assert len(operator.times.passes) == 1


def test_for_waiting_pods_borrowed_gpus_are_given_back():
    operator = after_a_pass(foreign_pods(5, nodes=4))
    nominated = [pod for pod in operator.stores.pods if pod.status.nominated_node_name]
    assert len(nominated) == 4, "one on each node at a time"
    assert len(operator.stores.pods) == 4 * 8 + 5 - 4


def test_pods_of_a_large_template_are_made():
    operator = after_a_pass(large_templates(16))
    assert len(operator.stores.pods) == 16


def test_of_jobs_that_run_a_pass_looks_only_at_those_that_something_has_touched(monkeypatch):
    async def main() -> list[list[str]]:
        operator = Operator(running_jobs(20))
        assert operator.controller is not None
        jobs, looked_at = operator.controller.view.reader.jobs, []
        read = jobs.job
        monkeypatch.setattr(jobs, "job", lambda body, *how: looked_at.append(body.metadata.name) or read(body, *how))

        async def one_pass() -> list[str]:
            looked_at.clear()
            operator.controller.run_pass()
            await asyncio.gather(*operator.controller.reconciler.dispatcher._busy.values())
            return sorted(looked_at)

        first = await one_pass()
        while await one_pass():
            continue
        lost = next(pod for pod in operator.stores.pods if pod.metadata.name == "running-7-worker-1")
        operator.stores.pods.observe_deleted(lost.metadata.uid)
        return [first, await one_pass()]

    first, after_a_loss = asyncio.run(main())
    assert len(first) == 20
    assert after_a_loss == ["running-7"]
