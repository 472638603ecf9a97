"""The proxy itself: what the tests of this folder rely on."""

from __future__ import annotations

import gc
import json
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from tests.apiserver.faults.proxy import Proxy
from tests.apiserver.operators import eventually
from tests.kit.requests import CutOff, Request

pytestmark = pytest.mark.apiserver

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def client(proxy: Proxy) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=proxy.url, timeout=5, trust_env=False) as client:
        yield client


@pytest.fixture
def name(api: httpx.Client) -> Iterator[str]:
    """A config map's name; it is deleted afterwards."""
    name = f"proxy-{time.monotonic_ns()}"
    yield name
    api.delete(f"{CONFIG_MAPS}/{name}")


def test_requests_pass_and_are_logged(proxy: Proxy, client: httpx.Client, name: str) -> None:
    assert client.post(CONFIG_MAPS, json={"metadata": {"name": name}}).status_code == 201
    assert client.get(f"{CONFIG_MAPS}/{name}").json()["metadata"]["name"] == name
    assert [(str(e.request), e.status) for e in proxy.log] == [
        (f"POST {CONFIG_MAPS}", 201),
        (f"GET {CONFIG_MAPS}/{name}", 200),
    ]


def test_so_many_matching_requests_are_refused(proxy: Proxy, client: httpx.Client) -> None:
    proxy.answer(429, where=lambda request: request.path == "/api", times=2)
    statuses = [client.get(path).status_code for path in ("/api", "/version", "/api", "/api")]
    assert statuses == [429, 200, 429, 200]
    proxy.answer(503)
    assert client.get("/version").json()["reason"] == "ServiceUnavailable"


def test_swallowed_requests_get_no_answer(proxy: Proxy, client: httpx.Client) -> None:
    proxy.swallow()
    with pytest.raises(httpx.ReadTimeout):
        client.get("/version", timeout=0.5)
    proxy.heal()
    assert client.get("/version").is_success


def watch(client: httpx.Client, name: str, revision: str) -> Iterator[dict]:
    """Events of one config map: the cluster makes some of its own."""
    query = {
        "watch": "true",
        "fieldSelector": f"metadata.name={name}",
        "resourceVersion": revision,
        "timeoutSeconds": "4",
    }
    with client.stream("GET", CONFIG_MAPS, params=query) as answer:
        for line in answer.iter_lines():
            yield json.loads(line)


def test_a_watch_brings_events_until_they_are_swallowed(
    proxy: Proxy, client: httpx.Client, api: httpx.Client, name: str
) -> None:
    events = watch(client, name, api.get(CONFIG_MAPS).json()["metadata"]["resourceVersion"])
    api.post(CONFIG_MAPS, json={"metadata": {"name": name}}).raise_for_status()
    assert next(events)["object"]["metadata"]["name"] == name
    proxy.swallow()
    api.delete(f"{CONFIG_MAPS}/{name}").raise_for_status()
    with pytest.raises(httpx.ReadTimeout):
        next(events)


def test_watches_end_with_an_error_and_can_be_opened_again(
    proxy: Proxy, client: httpx.Client, api: httpx.Client, name: str
) -> None:
    old = api.get(CONFIG_MAPS).json()["metadata"]["resourceVersion"]
    events = watch(client, name, old)
    made = api.post(CONFIG_MAPS, json={"metadata": {"name": name}}).raise_for_status().json()
    assert next(events)["type"] == "ADDED"
    proxy.end_watches(410)
    ended = next(events)
    assert (ended["type"], ended["object"]["code"]) == ("ERROR", 410)
    api.delete(f"{CONFIG_MAPS}/{name}").raise_for_status()
    assert next(watch(client, name, made["metadata"]["resourceVersion"]))["type"] == "DELETED"


def test_hooks_stand_before_and_after_what_the_api_server_does(
    proxy: Proxy, client: httpx.Client, api: httpx.Client, name: str
) -> None:
    def cut(*_: object) -> None:
        raise CutOff

    def exists() -> bool:
        return api.get(f"{CONFIG_MAPS}/{name}").is_success

    proxy.before = cut
    with pytest.raises(httpx.TransportError):
        client.post(CONFIG_MAPS, json={"metadata": {"name": name}})
    assert not exists()
    proxy.before, proxy.after = lambda _: None, cut
    with pytest.raises(httpx.TransportError):
        client.post(CONFIG_MAPS, json={"metadata": {"name": name}})
    assert exists()


def test_a_filter_changes_headers_and_bodies(proxy: Proxy, client: httpx.Client) -> None:
    class Shouting(type(proxy.filter)):
        def headers(self, request: Request, headers: dict[str, str]) -> None:
            headers["Date"] = f"for {request.path}"

        def body(self, request: Request, data: bytes) -> bytes:  # noqa: ARG002
            return data.upper()

    proxy.filter = Shouting()
    answer = client.get("/version")
    assert answer.headers["Date"] == "for /version"
    assert "MAJOR" in answer.json()


def test_a_client_that_goes_ends_its_watch(proxy: Proxy, client: httpx.Client, api: httpx.Client) -> None:
    revision = api.get(CONFIG_MAPS).json()["metadata"]["resourceVersion"]
    with client.stream("GET", CONFIG_MAPS, params={"watch": "true", "resourceVersion": revision}):
        eventually("the watch", lambda: proxy.open_watches() == 1)
    eventually("its end", lambda: proxy.open_watches() == 0)


@pytest.mark.parametrize("seconds", [0.0, 0.005, 0.05])
def test_a_proxy_that_ends_leaves_no_connection(kubeconfig: Path, api: httpx.Client, seconds: float) -> None:
    revision = api.get(CONFIG_MAPS).json()["metadata"]["resourceVersion"]
    query = {"watch": "true", "resourceVersion": revision}

    def ask(params: dict[str, str]) -> None:
        with suppress(httpx.HTTPError), httpx.Client(base_url=proxy.url, timeout=5, trust_env=False) as client:
            client.get(CONFIG_MAPS, params=params)

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with Proxy.of(kubeconfig) as proxy, ThreadPoolExecutor() as threads:
            for params in (query, query, {}, {}, {}):
                threads.submit(ask, params)
            time.sleep(seconds)
            proxy.cut()
        gc.collect()
    assert [str(one.message) for one in said if one.category is ResourceWarning] == []
