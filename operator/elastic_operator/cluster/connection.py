"""The address of the API server and the identity of this process, from a kubeconfig or from inside a pod.

The official client reads kubeconfigs, because they have many forms, exec plug-ins among them (3); a pod's own files are
read here (174). The session gets an address, a TLS context, and an Authorization header that is renewed in time.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kubernetes.client import Configuration

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The folder in which the kubelet puts a pod's credentials for the API server."""
TOKEN_SECONDS = 60.0
"""Service account tokens are rotated well before they end. client-go, too, reads them once a minute."""


@dataclass(slots=True)
class Credentials:
    """The Authorization header, read again at most once a minute. `read` may block (a file, an exec plug-in).

    It belongs to one event loop; another loop needs a connection of its own.
    """

    read: Callable[[], str | None]
    _header: str | None = None
    _read_at: float = float("-inf")
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def header(self) -> str | None:
        """The header's value, or None if TLS client certificates (or nothing) identify this process."""
        async with self._lock:
            if time.monotonic() - self._read_at >= TOKEN_SECONDS:
                self._header = await asyncio.to_thread(self.read)
                self._read_at = time.monotonic()
            return self._header

    def refused(self) -> None:
        """Note that the server did not accept the header: it is read again before the next request."""
        self._read_at = float("-inf")


@dataclass(frozen=True, slots=True)
class Connection:
    """An API server. `tls` is None for plain HTTP; `server_hostname` overrides the name its certificate must have."""

    base_url: str
    credentials: Credentials
    tls: ssl.SSLContext | None = None
    server_hostname: str | None = None


def load_connection(kubeconfig: str | None = None, *, context: str | None = None) -> Connection:
    """The connection of `kubeconfig`, else of the pod that this runs in, else of `$KUBECONFIG` or `~/.kube/config`.

    Blocks: it reads files and may run the exec plug-in that the kubeconfig names.

    Raises:
        kubernetes.config.ConfigException: there is no kubeconfig, or it cannot be read.
        OSError: the pod has no service account.
    """
    host = os.environ.get("KUBERNETES_SERVICE_HOST")
    if kubeconfig is None and context is None and host:
        return _in_cluster(host, os.environ["KUBERNETES_SERVICE_PORT"])
    return _of_kubeconfig(kubeconfig, context)


def _in_cluster(host: str, port: str) -> Connection:
    token, authority = SERVICE_ACCOUNT / "token", SERVICE_ACCOUNT / "ca.crt"
    return Connection(
        base_url=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        credentials=Credentials(lambda: f"Bearer {token.read_text().strip()}"),
        tls=ssl.create_default_context(cadata=authority.read_text()),
    )


def _of_kubeconfig(file: str | None, context: str | None) -> Connection:
    # Not imported in a pod: that client and its dependencies take 16 MB (174).
    from kubernetes.client import Configuration
    from kubernetes.config import kube_config

    configuration = Configuration()
    kube_config.load_kube_config(  # type: ignore[no-untyped-call]
        config_file=file, context=context, client_configuration=configuration, persist_config=False
    )
    return Connection(
        base_url=configuration.host.rstrip("/"),
        credentials=Credentials(lambda: configuration.get_api_key_with_prefix("BearerToken")),
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
