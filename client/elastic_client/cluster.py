"""Sends requests to the API server. kr8s gives credentials and connection; every failure becomes a `ClientError`.

It uses plain paths, not kr8s' objects: lists are requested as the server's tables, which need a fraction of the bytes
of 1,000 jobs, and a request that is answered with 403 must not be repeated four times. kr8s is imported only when a
command connects, because the import is slow.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import ssl
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from elastic_client.exits import ClientError, Code
from elastic_client.refusals import refusal
from elastic_client.words import near, printable

if TYPE_CHECKING:
    import httpcore
    import httpx
    from kr8s.asyncio import Api

Object = dict[str, Any]

JSON = "application/json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
"""The media type of tables: the server makes rows with the columns of the definition."""
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
"""A patch that merges lists by their keys. The API server knows such keys for the kinds of Kubernetes only."""

LOGIN_SECONDS = 120
"""The time limit of a credential plugin, which may wait for the user's login in a browser."""
CLOSING_TURNS = 5
"""The number of turns of the event loop that a closed connection needs to end."""
ANSWER_SECONDS = 15
"""The time limit for connecting, and for each pause within an answer."""
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True, slots=True)
class Place:
    """The cluster and namespace that the user names; absent parts are read from the kubeconfig."""

    namespace: str | None = None
    context: str | None = None
    kubeconfig: str | None = None

    @property
    def flags(self) -> str:
        """The flags that the user's next command needs, too, as in ` -n team-a`; `""` for none."""
        given = {"-n": self.namespace, "--context": self.context, "--kubeconfig": self.kubeconfig}
        return "".join(f" {flag} {shlex.quote(value)}" for flag, value in given.items() if value)


class ConnectionLostError(ClientError):
    """The connection broke within an answer."""


class Cluster:
    """One API server, with the user's rights. Commands work in `namespace`."""

    def __init__(self, api: Api, *, namespace: str, context: str, flags: str = "") -> None:
        self._api = api
        self._flags = flags
        self.namespace = namespace
        self.context = context
        self.server: str = api.auth.server

    def command(self, words: str) -> str:
        """The user's next command, for the same place: `kubectl elastic why toy -n team-a`."""
        return f"`kubectl elastic {words}{self._flags}`"

    async def get(self, path: str, *, accept: str = JSON, **params: str | int) -> Object:
        """The answer to GET `path`, as JSON. Raises ClientError for every failure."""
        return await self._json("GET", path, headers={"Accept": accept}, params=params)

    async def patch(self, path: str, change: Mapping[str, Any], *, kind: str = MERGE_PATCH, **params: str) -> Object:
        """The object after a patch of that kind. Raises ClientError, REFUSED for a field that would be wrong.

        Raises ConflictError if `change` names another resourceVersion than the object's.
        """
        headers = {"Content-Type": kind}
        return await self._json("PATCH", path, headers=headers, content=json.dumps(change), params=params)

    async def post(self, path: str, body: Mapping[str, Any], **params: str) -> Object:
        """The object that was created. Raises ClientError, REFUSED for a wrong field."""
        return await self._json("POST", path, content=json.dumps(body), params=params)

    async def delete(self, path: str, *, preconditions: Mapping[str, str] | None = None) -> Object:
        """Delete an object, if it is still the same one. Raises ClientError, NOT_FOUND if it does not exist."""
        options = {"content": json.dumps({"preconditions": preconditions})} if preconditions else {}
        return await self._json("DELETE", path, **options)

    @asynccontextmanager
    async def lines(
        self, path: str, *, pause_seconds: float | None, accept: str = "*/*", **params: str | int
    ) -> AsyncIterator[AsyncIterator[str]]:
        """The lines of an answer as they arrive, with at most `pause_seconds` between them; None: without a limit."""
        import httpx

        timeout = httpx.Timeout(ANSWER_SECONDS, read=pause_seconds)
        headers = {"Accept": accept}
        async with (
            self._answer("GET", path, stream=True, params=params, headers=headers, timeout=timeout) as answer,
            aclosing(_split(answer)) as lines,
        ):
            yield lines

    async def _json(self, method: str, path: str, **request: Any) -> Object:
        async with self._answer(method, path, **request) as answer:
            try:
                body: Object = answer.json()
            except ValueError:
                message = f"{self.server} does not answer as an API server: check the address in your kubeconfig"
                raise ClientError(Code.UNREACHABLE, message) from None
            return body

    @asynccontextmanager
    async def _answer(self, method: str, path: str, **request: Any) -> AsyncIterator[httpx.Response]:
        """A successful answer. Only after a 401 kr8s logs in again and repeats the request."""
        with _network_errors(self.server):
            async with self._call(method, path, **request, raise_for_status=False) as answer:
                if answer.status_code != 401:
                    await self._refuse_errors(answer, path)
                    yield answer
                    return
            await self._api.reauthenticate()
            async with self._call(method, path, **request, raise_for_status=False) as answer:
                await self._refuse_errors(answer, path)
                yield answer

    async def _refuse_errors(self, answer: httpx.Response, path: str) -> None:
        if answer.is_error:
            raise refusal(answer.status_code, await answer.aread(), path, server=self.server)

    def _call(self, method: str, path: str, **request: Any) -> AbstractAsyncContextManager[httpx.Response]:
        base, _, rest = _quoted(path).lstrip("/").partition("/")
        extensions = {"trace": _Connecting()}
        return self._api.call_api(method, version="", base=f"/{base}", url=rest, extensions=extensions, **request)


class _Connecting:
    """Closes a request's connection if its TLS handshake is cancelled; httpcore does that for errors only.

    Not used if the kubeconfig has a `tls-server-name`.
    """

    _stream: httpcore.AsyncNetworkStream | None = None

    async def __call__(self, event: str, info: Mapping[str, Any]) -> None:
        """Handle an event of httpcore's extension `trace`."""
        if event == "connection.connect_tcp.complete":
            self._stream = info["return_value"]
        elif event.endswith(".start_tls.failed") and self._stream is not None:
            await self._stream.aclose()


def _quoted(path: str) -> str:
    """The path for a URL. The text of a segment is neither a query nor a fragment.

    A path without its last segment would be the path of the whole list, and servers read `..` as another path.
    """
    assert not {"", ".", ".."} & set(path.split("/")[1:]), f"no segment may be empty or dots: {path}"
    return quote(path)


@asynccontextmanager
async def connected(place: Place) -> AsyncIterator[Cluster]:
    """The cluster that the user names. Raises ClientError, UNREACHABLE if there is no connection to it."""
    if place.namespace and not _NAMESPACE.fullmatch(place.namespace):
        raise ClientError(Code.USAGE, f"-n {place.namespace!r}: write the name of a namespace, such as team-a")
    async with AsyncExitStack() as stack:
        _keep_keys_together(stack)
        api = await _logged_in(place)
        stack.push_async_callback(_close, api)
        namespace = place.namespace or _namespace(api, place)
        if not (isinstance(namespace, str) and _NAMESPACE.fullmatch(namespace)):
            raise ClientError(Code.UNREACHABLE, f"the kubeconfig names the namespace {namespace!r}: name another by -n")
        yield Cluster(api, namespace=namespace, context=api.auth.active_context, flags=place.flags)


async def _close(api: Api) -> None:
    """Close kr8s' connections, which it would leave open until the end of the process."""
    if api._session is not None:
        await api._session.aclose()
        for _ in range(CLOSING_TURNS):
            await asyncio.sleep(0)


def _keep_keys_together(stack: AsyncExitStack) -> None:
    """Put kr8s' temporary files with a kubeconfig's keys into one folder, which is removed when the command ends."""
    previous = tempfile.tempdir
    tempfile.tempdir = stack.enter_context(tempfile.TemporaryDirectory(prefix="kubectl-elastic-"))
    stack.callback(setattr, tempfile, "tempdir", previous)


async def _logged_in(place: Place) -> Api:
    from kr8s.asyncio import Api

    if place.kubeconfig and not Path(place.kubeconfig).is_file():
        raise ClientError(Code.UNREACHABLE, f"--kubeconfig {place.kubeconfig}: there is no such file")
    # kr8s' factory requests the server's version without a time limit, and warns about releases that it was not tested
    # with. We find the namespace ourselves: kr8s reads the current context's, even if there is no current context.
    api = Api(kubeconfig=place.kubeconfig, context=place.context, namespace="default", bypass_factory=True)
    try:
        async with asyncio.timeout(LOGIN_SECONDS):
            await api.auth
    except TimeoutError:
        raise ClientError(Code.UNREACHABLE, f"the login took longer than {LOGIN_SECONDS} s: try again") from None
    except Exception as error:  # noqa: BLE001 - kr8s reads a kubeconfig without checking it
        raise ClientError(Code.UNREACHABLE, _no_way(error, api, place)) from None
    config = getattr(api.auth, "kubeconfig", None)
    if config is not None and not place.context and not config.current_context:  # kr8s takes the first one
        raise ClientError(Code.UNREACHABLE, _no_current_context(api))
    api.timeout = ANSWER_SECONDS
    return api


def _no_current_context(api: Api) -> str:
    message = "the kubeconfig has no current context: name one by --context"
    try:
        hint = near("", [context["name"] for context in api.auth.kubeconfig.contexts], lead="it has: ")
    except (KeyError, TypeError):  # kr8s reads a kubeconfig without checking it
        return message
    return f"{message}; {hint}" if hint else message


def _no_way(error: Exception, api: Api, place: Place) -> str:
    """The mistake in the kubeconfig, as far as it is known."""
    if place.context and "No such context" in str(error):
        names = [context["name"] for context in api.auth.kubeconfig.contexts]
        hint = near(place.context, names, lead="it has: ") or "it has none"
        return f"--context {place.context}: the kubeconfig has no such context; {hint}"
    if isinstance(error, KeyError) and error.args == ("current-context",):
        return _no_current_context(api)
    if (path := _not_utf8(place)) is not None:
        return f"the kubeconfig {path}: must be text in UTF-8"
    if "Unable to find valid credentials" in str(error):
        return "there is no kubeconfig: set KUBECONFIG, write ~/.kube/config, or name one by --kubeconfig"
    message = " ".join(printable(f"{type(error).__name__}: {error}").split())[:300]
    return f"the kubeconfig cannot be used: {message}; try `kubectl version` with the same one"


def _not_utf8(place: Place) -> str | None:
    """Whether a kubeconfig is not text: kr8s treats such a file as absent."""
    for path in (place.kubeconfig or os.environ.get("KUBECONFIG", "~/.kube/config")).split(os.pathsep):
        try:
            Path(path).expanduser().read_text(encoding="utf-8")
        except UnicodeDecodeError:
            return path
        except OSError:
            continue
    return None


def _namespace(api: Api, place: Place) -> str:
    """The namespace of the context in use. kr8s would read the current context's, even with --context."""
    config = getattr(api.auth, "kubeconfig", None)
    if config is not None and api.auth.active_context:
        named: str = config.get_context(place.context or api.auth.active_context).get("namespace") or "default"
        return named
    return _NAMESPACE_FILE.read_text().strip() if _NAMESPACE_FILE.exists() else "default"


async def _split(answer: httpx.Response) -> AsyncGenerator[str]:
    """Split at newlines only: httpx also splits at carriage returns, which progress bars print."""
    rest = b""
    async for chunk in answer.aiter_bytes():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line.decode(errors="replace")
    if rest:
        yield rest.decode(errors="replace")


@contextmanager
def _network_errors(server: str) -> Iterator[None]:
    """Errors between this client and the server, as one line."""
    import httpx
    from kr8s import APITimeoutError

    try:
        yield
    except (httpx.RemoteProtocolError, httpx.ReadError) as error:
        message = f"the connection to {server} broke: {printable(str(error)) or type(error).__name__}; try again"
        raise ConnectionLostError(Code.UNREACHABLE, message) from None
    except BrokenPipeError:  # the reader of our output has ended; httpx has other errors for connections
        raise
    except (APITimeoutError, httpx.TimeoutException):
        message = f"{server} did not answer within {ANSWER_SECONDS} s"
    except (httpx.TransportError, ssl.SSLError, OSError) as error:
        message = f"{server} cannot be reached: {printable(str(error)) or type(error).__name__}"
    else:
        return
    raise ClientError(Code.UNREACHABLE, f"{message}. Check the network, or name another cluster by --context") from None
