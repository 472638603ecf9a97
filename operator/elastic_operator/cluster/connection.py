"""Where the API server is and how this process proves its identity, from a kubeconfig or from inside a pod.

The official client reads the configuration, because kubeconfigs have many forms, exec plug-ins among them (3). The
session gets only what it needs: an address, a TLS context, and an Authorization header that is renewed in time.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kubernetes.client import Configuration
from kubernetes.config import incluster_config, kube_config

TOKEN_SECONDS = 60.0
"""Service account tokens are rotated well before they end. client-go, too, reads them once a minute."""


@dataclass(slots=True)
class Credentials:
    """The Authorization header, read again at most once a minute. `read` may block (a file, an exec plug-in).

    It belongs to one event loop; another loop needs a connection of its own.
    """

    read: Callable[[], str | None]
    _header: str | None = None
    _read_at: float = field(default=float("-inf"))
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def header(self) -> str | None:
        """The header's value, or None if TLS client certificates (or nothing) identify this process."""
        if time.monotonic() - self._read_at < TOKEN_SECONDS:
            return self._header
        async with self._lock:
            if time.monotonic() - self._read_at >= TOKEN_SECONDS:
                self._header = await asyncio.to_thread(self.read)
                self._read_at = time.monotonic()
        return self._header

    def refused(self) -> None:
        """The server did not accept the header: read it again before the next request."""
        self._read_at = float("-inf")


@dataclass(frozen=True, slots=True)
class Connection:
    """An API server. `tls` is None for plain HTTP; `server_hostname` overrides the name its certificate must have."""

    base_url: str
    credentials: Credentials
    tls: ssl.SSLContext | None = None
    server_hostname: str | None = None


def load_connection(kubeconfig: str | None = None, *, context: str | None = None) -> Connection:
    """The connection that `kubeconfig` describes, else the pod this runs in, else `$KUBECONFIG` or `~/.kube/config`.

    Blocks: it reads files and may run the exec plug-in that the kubeconfig names.

    Raises:
        kubernetes.config.ConfigException: there is none of these, or it cannot be read.
    """
    if kubeconfig is None and context is None and os.environ.get(incluster_config.SERVICE_HOST_ENV_NAME):
        return _in_cluster()
    configuration = Configuration()
    kube_config.load_kube_config(  # type: ignore[no-untyped-call]
        config_file=kubeconfig, context=context, client_configuration=configuration, persist_config=False
    )
    return _connection(configuration, lambda: configuration.get_api_key_with_prefix("BearerToken"))


def _in_cluster() -> Connection:
    configuration = Configuration()
    incluster_config.load_incluster_config(  # type: ignore[no-untyped-call]
        client_configuration=configuration, try_refresh_token=False
    )
    token = Path(incluster_config.SERVICE_TOKEN_FILENAME)
    return _connection(configuration, lambda: f"Bearer {token.read_text().strip()}")


def _connection(configuration: Configuration, read: Callable[[], str | None]) -> Connection:
    return Connection(
        base_url=configuration.host.rstrip("/"),
        credentials=Credentials(read),
        tls=_tls(configuration) if configuration.host.startswith("https") else None,
        server_hostname=configuration.tls_server_name,
    )


def _tls(configuration: Configuration) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
