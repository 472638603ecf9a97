"""What Prometheus reads of the real operator: series come with jobs and policies, and end with them."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.apiserver.faults.lab import World, elastic_job
from tests.apiserver.jobs_api import accepted
from tests.apiserver.operators import Operator, Operators, eventually
from tests.apiserver.policies_api import Policies, quota
from tests.metrics.stats import of, parse

pytestmark = pytest.mark.apiserver


@dataclass(frozen=True, slots=True)
class Scraped:
    """What an operator tells."""

    operator: Operator

    def read(self) -> dict[tuple[str, ...], float]:
        """All samples; none before it listens."""
        answer = self.operator.get("/metrics")
        return parse(answer.raise_for_status().content) if answer is not None else {}

    def value(self, *key: str) -> float | None:
        return self.read().get(key)

    def wait(self, what: str, *key: str, at_least: float = 1) -> float:
        """Until that sample is so much; its value."""
        return eventually(what, lambda: (v := self.value(*key)) is not None and v >= at_least and v, report=self.read)


def test_a_jobs_series_tell_its_life_and_end_with_it(operators: Operators, policies: Policies, world: World) -> None:
    policies.create("a", namespaces=[world.jobs.namespace], flavors=quota(2))
    scraped = Scraped(operators.start())
    scraped.wait("a leader", "leader")
    own, policy = ("job_name=toy", f"namespace={world.jobs.namespace}"), f"policy={policies.name('a')}"
    world.start(elastic_job(big=3))
    world.wait_settled("toy", 3)
    scraped.wait("its pods", "job_pods", *own, "state=running", at_least=3)
    found = scraped.read()
    assert found["job_info", "job_name=toy", "mode=Torchrun", own[1], policy] == 1
    assert found["queue_wait_seconds_count",] == 1
    accepted(world.jobs.patch("toy", {"spec": {"maxReplicas": 2}}))
    scraped.wait("a resize", "resizes_total", "direction=down", "reason=ScaledDown")
    scraped.wait("the job's own count", "job_resizes_total", *own)
    scraped.wait("its GPUs", "quota_gpus", "flavor=default", "kind=used", policy, at_least=2)
    world.delete_pod("toy-worker-0")
    scraped.wait("a loss", "restarts_total", "cause=loss")
    scraped.wait(
        "a time that goes on", "job_time_seconds_total", "job_name=toy", "kind=productive", own[1], at_least=0.1
    )
    world.delete_job("toy")
    eventually("the end of its series", lambda: not any(own[0] in key for key in scraped.read()), report=scraped.read)
    policies.delete("a")
    eventually("the end of the policy's series", lambda: of(scraped.read(), "quota_gpus") == {}, report=scraped.read)
    assert scraped.value("restarts_total", "cause=loss") == 1


@pytest.mark.extended
def test_only_the_one_that_leads_tells_of_jobs_and_both_tell_who_they_are(operators: Operators, world: World) -> None:
    first = Scraped(operators.start())
    first.wait("a leader", "leader")
    second = Scraped(operators.start())
    world.start(elastic_job(big=2))
    first.wait("the job", "jobs", "status=Running")
    found = eventually("a second one", second.read)
    assert [key for key in found if key[0].startswith(("job", "quota_"))] == []
    assert (found["leader",], len(of(found, "build_info")), len(of(first.read(), "build_info"))) == (0, 1, 1)
    first.operator.stop()
    second.wait("the job", "jobs", "status=Running")
