"""The real kopf against a server in memory: it is given no list, and passes on all that its watch shows."""

from __future__ import annotations

import asyncio
import gc
import ssl
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import kopf
import pytest
from aiohttp import web

from devcluster import pki
from elastic_api.job import GROUP, KIND, PLURAL, VERSION
from elastic_operator import kopf_host
from elastic_operator.cluster.reflector import in_namespace
from elastic_operator.job_informer import JOBS, NO_JOB
from elastic_operator.kopf_host import EndlessPauses, run_kopf
from tests.cluster_unit.fake_api import FakeApi, connection_to, json, serving
from tests.kit.tasks import running
from tests.kit.wait import until_async

pytestmark = pytest.mark.processes
"""kopf has a thread and an event loop of its own, and virtual time has only one."""

JOBS_OF_A = in_namespace(JOBS, "a")
OURS = {"name": PLURAL, "singularName": "", "namespaced": True, "kind": KIND, "verbs": ["list", "watch", "patch"]}
KNOWN = [
    {"name": name, "singularName": "", "namespaced": namespaced, "kind": kind, "verbs": ["list", "watch", "create"]}
    for name, kind, namespaced in (("namespaces", "Namespace", False), ("events", "Event", True))
]
"""kopf waits until it knows these."""
GROUP_VERSION = {"groupVersion": f"{GROUP}/{VERSION}", "version": VERSION}
DISCOVERY: dict[str, Any] = {
    "/api": {"versions": ["v1"]},
    "/api/v1": {"resources": KNOWN},
    "/apis": {"groups": [{"name": GROUP, "versions": [GROUP_VERSION], "preferredVersion": GROUP_VERSION}]},
    f"/apis/{GROUP}/{VERSION}": {"resources": [OURS]},
}
WAIT_SECONDS = 30


class Told(list[tuple[str | None, Any]]):
    """Keeps what it is told, in place of an informer."""

    def __init__(self, *namespaces: str) -> None:
        super().__init__()
        self.namespaces = namespaces

    def take_event(self, type: str | None, job: dict[str, Any]) -> None:
        self.append((type, job))

    def take_list(self) -> None:
        self.append(("a list", {}))

    def take_answer(self, namespace: str) -> None:
        self.append(("an answer", namespace))


async def discovered(request: web.Request) -> web.Response:
    """What kopf asks of a server before it watches."""
    return json(DISCOVERY[request.path])


@pytest.mark.parametrize("namespaces", [(), ("a",)])
async def test_kopf_is_given_no_job_by_its_list_and_passes_on_what_its_watch_shows(api: FakeApi, namespaces):
    """As Python objects, 2,500 jobs of one list took 100 MB, which were not all given back."""
    api.always["GET"] = discovered
    api.put(f"{JOBS_OF_A}/before", {"spec": {}})
    told = Told(*namespaces)
    async with running(run_kopf(connection_to(api), told)):
        await until_async("a watch", lambda: len(told) > 1, seconds=WAIT_SECONDS, report=lambda: (told, api.seen))
        after = api.put(f"{JOBS_OF_A}/after", {"spec": {"minReplicas": 2}})
        await until_async("the job", lambda: len(told) > 2, seconds=WAIT_SECONDS, report=lambda: (told, api.seen))
    lists = [query for verb, _, query, _ in api.seen if verb == "LIST"]
    assert [query | NO_JOB == query for query in lists] == [True]
    assert told[:2] == [("a list", {}), ("an answer", "".join(namespaces))]
    ((type_, job),) = told[2:]
    assert (type_, job["metadata"], job["spec"]) == ("ADDED", after["metadata"], after["spec"])


@pytest.fixture
def _uncollected() -> Iterator[None]:
    """The garbage collector does not run."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_uncollected")
async def test_kopf_keeps_nothing_of_the_jobs_that_it_has_passed_on(api: FakeApi):
    """Its views of an object refer to each other, so what they show stays until a collection of all garbage (182)."""
    api.always["GET"] = discovered
    spec, status, fields, labels = ({name: ["large"]} for name in ("a-spec", "a-status", "managed-fields", "a-label"))
    metadata = {"managedFields": [{"fieldsV1": fields}], "labels": labels}
    job = {"metadata": metadata, "spec": spec, "status": status}
    told = Told()
    told.take_event = lambda type, job: told.append((type, dict.fromkeys(job)))

    async with running(run_kopf(connection_to(api), told)):
        await until_async("a watch", lambda: len(told) > 1, seconds=WAIT_SECONDS, report=lambda: (told, api.seen))
        for edit in range(20):
            api.put(f"{JOBS_OF_A}/toy", job)
            await until_async("it", partial(_has, told, edit + 3), seconds=WAIT_SECONDS, report=lambda: api.seen)
        names = {*spec, *status, *fields, *labels}
        found = Counter(name for one in gc.get_objects() if type(one) is dict for name in names & one.keys())
    assert all({"metadata", "spec", "status"} <= job.keys() for _, job in told[2:])
    assert max(found.values()) <= 3, f"after 20 events: {found}"  # the test's own, and those that are on their way


async def test_kopf_has_no_task_of_a_job_for_long(api: FakeApi):
    """When many jobs start, these would be hundreds, and the memory that they leave behind is not given back (182)."""
    api.always["GET"] = discovered
    told, jobs = Told(), 40
    async with running(run_kopf(connection_to(api), told)):
        await until_async("a watch", lambda: len(told) > 1, seconds=WAIT_SECONDS, report=lambda: (told, api.seen))
        for number in range(jobs):
            api.put(f"{JOBS_OF_A}/toy-{number}", {"spec": {}})
        await until_async("all", partial(_has, told, jobs + 2), seconds=WAIT_SECONDS, report=lambda: api.seen)
        await until_async("no task of a job", lambda: not _workers(), seconds=WAIT_SECONDS, report=_workers)
    default = kopf.OperatorSettings().queueing.idle_timeout
    assert kopf_host.kopf_settings().queueing.idle_timeout <= default / 10


def _workers() -> list[str]:
    # not isinstance: it reads __class__, and a lazy object of torch warns of that
    tasks = [one for one in gc.get_objects() if issubclass(type(one), asyncio.Task) and not one.done()]
    return [task.get_name() for task in tasks if task.get_name().startswith("worker for")]


def _has(told: Told, count: int) -> bool:
    return len(told) >= count


async def test_each_watch_of_kopf_that_goes_on_is_told(api: FakeApi, monkeypatch: pytest.MonkeyPatch):
    """The server answers, so no job has changed of which kopf has not heard (172)."""
    monkeypatch.setattr(kopf_host, "WATCH_SECONDS", 1)
    api.always["GET"] = discovered
    told = Told()
    async with running(run_kopf(connection_to(api), told)):
        await until_async("watches", lambda: len(told) > 3, seconds=WAIT_SECONDS, report=lambda: (told, api.seen))
    assert told[:4] == [("a list", {}), *[("an answer", "")] * 3]


async def test_kopf_asks_a_server_whose_certificate_has_the_name_that_the_kubeconfig_sets(tmp_path: Path):
    """As behind a tunnel: the certificate has neither the address nor the name that is connected to."""
    authority = pki.create_authority(tmp_path, "authority")
    pair = pki.issue(authority, tmp_path, "server", common_name="server", serves=["kubernetes"])
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pair.certificate_file, pair.key_file)
    async with serving(tls) as api:
        api.always["GET"] = discovered
        trusted = ssl.create_default_context(cafile=str(authority.certificate_file))
        connection = replace(connection_to(api), tls=trusted, server_hostname="kubernetes")
        async with running(run_kopf(connection, Told())):
            await until_async("a watch", lambda: api.requests["WATCH"], seconds=WAIT_SECONDS, report=lambda: api.seen)


def test_each_request_of_kopf_is_repeated_without_end_after_growing_pauses():
    pauses = EndlessPauses()
    first, second = list(islice(pauses, 50)), list(islice(pauses, 50))
    assert all(later > 1.5 * earlier for earlier, later in pairwise(first[:6]))
    assert max(first) <= 36
    assert second[0] < 1
    assert first != second
