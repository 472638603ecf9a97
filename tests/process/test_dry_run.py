"""Before pods are evicted for a job, dry runs ask the API server about the job's pods. Some answers do not count."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from elastic_operator.build.request import BuildSettings
from elastic_operator.cluster import objects
from elastic_operator.cluster.errors import ApiError, Forbidden, PodRefused, Unreachable, api_error
from elastic_operator.cluster.store import Store
from elastic_operator.loop.reclaim.dry_run import DryRunner, DryRunQuestion, summed_pod
from elastic_operator.plan.facts.decisions import NewPods, Slot
from elastic_operator.plan.facts.job import Job
from tests.api.jobs import make_container, make_template
from tests.plan.jobs import make_job, make_spec

GPU = "nvidia.com/gpu"


class Server:
    """A ResourceQuota of so many GPUs (and pods), of which some are used."""

    def __init__(self, used: int, limit: int, *, pods: tuple[int, int] = (0, 1000)) -> None:
        self.used, self.limit, self.pods = used, limit, pods
        self.asked: list[int] = []

    async def post(self, path: str, body: Any, *, params: Any) -> Any:
        """The answer to a dry run."""
        assert (path, params["dryRun"]) == ("/api/v1/namespaces/team-a/pods", "All")
        asked = sum(int(one["resources"]["limits"][GPU]) for one in body["spec"]["containers"])
        self.asked.append(asked)
        if self.pods[0] + 1 > self.pods[1]:
            told = f"requested: pods=1, used: pods={self.pods[0]}, limited: pods={self.pods[1]}"
            raise Forbidden(f"exceeded quota: few, {told}", status=403)
        if self.used + asked > self.limit:
            raise Forbidden(f"exceeded quota: gpus, requested: {GPU}={asked}", status=403)
        return body


class Services:
    """No Service is made yet."""

    services: Store[objects.Service] = Store(now=lambda: 0.0)


def job_of(gpus: int = 1) -> Job:
    """A job whose pods ask for so many GPUs each."""
    return make_job(
        spec=make_spec(template=make_template(make_container(resources={"limits": {GPU: gpus}, "requests": {}})))
    )


def pod_of(gpus: int) -> objects.Pod:
    """A pod on its way out."""
    resources = {"limits": {GPU: str(gpus)}, "requests": {GPU: str(gpus)}}
    meta = {"name": "old", "namespace": "default", "uid": "old", "resourceVersion": "1"}
    return objects.decode(
        {"metadata": meta, "spec": {"containers": [{"name": "a", "resources": resources}]}}, objects.Pod
    )


def creates(count: int) -> NewPods:
    """A master and workers."""
    slots = (Slot("worker" if i else "master", max(0, i - 1), None, True) for i in range(count))
    return NewPods(tuple(slots), 1, (1, 8))


async def ask(server: Server, question: DryRunQuestion) -> None:
    await DryRunner(server, Services(), BuildSettings("", "")).ask(question)  # type: ignore[arg-type]


async def test_one_pod_is_one_request_and_several_are_two():
    server = Server(0, 8)
    await ask(server, DryRunQuestion(job_of(2), creates(1)))
    assert server.asked == [2]
    await ask(server, DryRunQuestion(job_of(2), creates(4)))
    assert server.asked == [2, 2, 8]


async def test_a_quota_that_takes_each_but_not_all_refuses_them():
    with pytest.raises(PodRefused, match="exceeded quota"):
        await ask(Server(1, 8), DryRunQuestion(job_of(2), creates(4)))


async def test_pods_of_other_jobs_that_were_asked_about_before_come_before():
    other = (job_of(1), Counter(["master", "worker"]))
    await ask(Server(5, 8), DryRunQuestion(job_of(1), creates(1), besides=(other,)))
    with pytest.raises(PodRefused, match="exceeded quota"):
        await ask(Server(6, 8), DryRunQuestion(job_of(1), creates(1), besides=(other,)))


@pytest.mark.parametrize(("leaving", "fits"), [((4, 4), True), ((4, 3), False), ((), False), ((16,), True)])
async def test_leaving_pods_of_the_namespace_are_subtracted(leaving: tuple[int, ...], fits: bool):
    question = DryRunQuestion(job_of(2), creates(4), leaving=lambda: map(pod_of, leaving))
    if fits:
        await ask(Server(8, 8), question)
        return
    with pytest.raises(PodRefused, match="exceeded quota"):
        await ask(Server(8, 8), question)


@pytest.mark.parametrize(("limit", "fits"), [(4, True), (3, False)])
async def test_a_quota_on_the_number_of_pods_counts_leaving_pods(limit: int, fits: bool):
    question = DryRunQuestion(job_of(1), creates(4), leaving=lambda: [pod_of(1)] * 3)
    server = Server(0, 100, pods=(3, limit))
    if fits:
        await ask(server, question)
        return
    with pytest.raises(PodRefused, match="exceeded quota"):
        await ask(server, question)


@pytest.mark.parametrize("error", [Unreachable("no answer"), ApiError("busy", status=429)])
async def test_no_answer_is_no_refusal(error: Exception):
    class Silent(Server):
        async def post(self, *_: Any, **__: Any) -> Any:
            raise error

    with pytest.raises(type(error)):
        await ask(Silent(0, 8), DryRunQuestion(job_of(1), creates(2), leaving=lambda: [pod_of(1)]))


def job_with_a_master_of_its_own() -> Job:
    """A job with two templates, so that each is asked about."""
    container = make_container(resources={"limits": {GPU: 1}, "requests": {}})
    spec = make_spec(template=make_template(container), master={"template": make_template(container)})
    return make_job(spec=spec)


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        pytest.param(Forbidden("violates PodSecurity", status=403), PodRefused, id="refused"),
        pytest.param(Unreachable("no answer"), Unreachable, id="no answer"),
    ],
)
async def test_worker_dry_run_counts_if_terminating_pods_explain_the_masters(error, raised):
    class Second(Server):
        async def post(self, path: str, body: Any, *, params: Any) -> Any:
            if len(self.asked) == 1:
                self.asked.append(0)
                raise error
            return await super().post(path, body, params=params)

    question = DryRunQuestion(job_with_a_master_of_its_own(), creates(2), leaving=lambda: [pod_of(8)])
    with pytest.raises(raised):
        await ask(Second(8, 8), question)


@pytest.mark.parametrize("status", [401, 429, 500, 503, 504])
async def test_no_answer_about_all_pods_is_no_acceptance(status: int):
    class SilentAboutAll(Server):
        async def post(self, path: str, body: Any, *, params: Any) -> Any:
            answer = await super().post(path, body, params=params)
            if len(self.asked) == 2:
                raise api_error(status, b'{"message": "busy"}')
            return answer

    with pytest.raises(ApiError, match="busy"):
        await ask(SilentAboutAll(0, 8), DryRunQuestion(job_of(1), creates(2)))


async def test_that_all_pods_as_one_are_too_large_for_something_else_than_a_quota_does_not_count():
    class Limited(Server):
        async def post(self, path: str, body: Any, *, params: Any) -> Any:
            answer = await super().post(path, body, params=params)
            if len(self.asked) == 2:
                raise Forbidden("maximum cpu usage per Pod is 2", status=403)
            return answer

    await ask(Limited(0, 8), DryRunQuestion(job_of(1), creates(2)))


def test_all_as_one_have_one_container_and_no_limit_below_its_request():
    manifest = {
        "metadata": {},
        "spec": {"containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "c"}], "nodeName": "n"},
    }
    one = summed_pod(manifest, {"cpu": 1500, GPU: 3, "memory": -5}, {"cpu": 1000, GPU: 2})
    [container] = one["spec"]["containers"]
    assert container["resources"] == {
        "requests": {"cpu": "1500m", GPU: "3", "memory": "0"},
        "limits": {"cpu": "1500m", GPU: "3"},
    }
    assert "initContainers" not in one["spec"]
