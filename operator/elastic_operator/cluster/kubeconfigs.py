"""The connection that a kubeconfig describes. The official client reads it (3).

A process in a pod does not import this module: that client and its dependencies take 16 MB (174).
"""

from __future__ import annotations

import ssl

from kubernetes.client import Configuration
from kubernetes.config import kube_config

from elastic_operator.cluster.connection import Connection, Credentials


def connection_of(file: str | None, context: str | None) -> Connection:
    """The connection of this file; without a file, of `$KUBECONFIG` or `~/.kube/config`.

    Blocks: it reads files and may run the exec plug-in that the kubeconfig names. Raises
    kubernetes.config.ConfigException if there is none, or it cannot be read.
    """
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
