"""What an administrator has and does: a client with all rights, and definitions that are installed."""

from __future__ import annotations

import ssl
from pathlib import Path

import httpx
import kubernetes.client
import kubernetes.config

from elastic_api.definition import Definition

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def client_of(kubeconfig: Path) -> httpx.Client:
    """An HTTP client with the rights of that kubeconfig's user; it is to be closed."""
    config = kubernetes.client.Configuration()
    kubernetes.config.load_kube_config(str(kubeconfig), client_configuration=config)
    context = ssl.create_default_context(cafile=config.ssl_ca_cert)
    if config.cert_file:
        context.load_cert_chain(config.cert_file, config.key_file)
    headers = {"Authorization": config.api_key["authorization"]} if config.api_key else {}
    return httpx.Client(base_url=config.host, verify=context, headers=headers, timeout=30, trust_env=False)


def install(api: httpx.Client, definition: Definition) -> httpx.Response:
    """The answer to the definition's being applied; what it defines is served some time later."""
    return api.patch(
        f"{DEFINITIONS}/{definition.name}",
        content=definition.text(),
        params={"fieldManager": "tests", "force": "true", "fieldValidation": "Strict"},
        headers={"Content-Type": "application/apply-patch+yaml"},
    )
