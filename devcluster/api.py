"""The few requests to the API server that the cluster itself needs; tests have their own client."""

from __future__ import annotations

import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

from devcluster.errors import DevclusterError

POLL_SECONDS = 0.05
REQUEST_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Api:
    """A client with the administrator's certificate."""

    server: str
    context: ssl.SSLContext

    @classmethod
    def connect(cls, *, port: int, pki_folder: Path) -> Api:
        """A client of the API server at a loopback port; nothing is sent yet."""
        return cls.of(f"https://127.0.0.1:{port}", pki_folder=pki_folder)

    @classmethod
    def of(cls, server: str, *, pki_folder: Path) -> Api:
        """A client of the API server at a URL."""
        context = ssl.create_default_context(cafile=str(pki_folder / "ca.crt"))
        context.load_cert_chain(pki_folder / "admin.crt", pki_folder / "admin.key")
        return cls(server=server, context=context)

    def get(self, path: str) -> Any:
        """The object or list at `path`, None if it does not exist."""
        try:
            return json.loads(self._send("GET", path, None))
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise

    def watch(self, path: str, *, resource_version: str, seconds: int) -> Iterator[Any]:
        """The events of the list at `path` after one of its versions, for some seconds."""
        query = f"?watch=1&resourceVersion={resource_version}&timeoutSeconds={seconds}"
        with self._open("GET", path + query, None, seconds=seconds + REQUEST_SECONDS) as answer:
            yield from map(json.loads, answer)

    def create(self, path: str, body: Mapping[str, Any]) -> None:
        """Create an object in the collection `path`; an existing object of that name stays unchanged."""
        try:
            self._send("POST", path, json.dumps(body).encode())
        except urllib.error.HTTPError as error:
            if error.code != 409:
                raise DevclusterError(f"POST {path}: {error.read().decode(errors='replace')}") from error

    def delete(self, path: str) -> None:
        """Delete the object at `path` and wait until it is removed. A missing object is no error."""
        try:
            self._send("DELETE", path, None)
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
        wait_until(lambda: self.get(path) is None, seconds=REQUEST_SECONDS, what=f"{path} to be gone")

    def is_ready(self, *, seconds: float = REQUEST_SECONDS) -> bool:
        """Whether the API server reports within `seconds` that it is ready."""
        try:
            return self._send("GET", "/readyz", None, seconds=seconds) == b"ok"
        except OSError:
            return False

    def _send(self, method: str, path: str, body: bytes | None, *, seconds: float = REQUEST_SECONDS) -> bytes:
        with self._open(method, path, body, seconds=seconds) as answer:
            return answer.read()

    def _open(self, method: str, path: str, body: bytes | None, *, seconds: float) -> HTTPResponse:
        request = urllib.request.Request(self.server + path, data=body, method=method)
        request.add_header("Content-Type", "application/json")
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=self.context)
        )
        answer = opener.open(request, timeout=seconds)
        assert isinstance(answer, HTTPResponse)
        return answer


def wait_until(
    holds: Callable[[], bool], *, seconds: float, what: str, explain: Callable[[], str] = lambda: ""
) -> None:
    """Poll until `holds()`; an API server that does not answer counts as no. Raises DevclusterError after `seconds`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if holds():
                return
        except OSError:
            pass
        time.sleep(POLL_SECONDS)
    raise DevclusterError(f"waited {seconds:.0f} s for {what} in vain. {explain()}".rstrip())
