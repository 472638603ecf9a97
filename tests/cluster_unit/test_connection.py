"""Where the API server is and who we are, from the files that say so."""

from __future__ import annotations

import asyncio
import ssl
from asyncio.sslproto import SSLProtocol
from pathlib import Path

import pytest
import yaml
from kubernetes.config import ConfigException

from elastic_operator.cluster import connection as reading
from elastic_operator.cluster.connection import load_connection
from elastic_operator.cluster.sockets import TLS_BUFFER, use_small_tls_buffers


def some_authority() -> str:
    return ssl.DER_cert_to_PEM_cert(ssl.create_default_context().get_ca_certs(binary_form=True)[0])


def write_kubeconfig(path: Path, *, cluster: dict | None = None, user: dict | None = None) -> str:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "main",
        "contexts": [
            {"name": "main", "context": {"cluster": "c", "user": "u"}},
            {"name": "other", "context": {"cluster": "d", "user": "u"}},
        ],
        "clusters": [
            {"name": "c", "cluster": {"server": "http://127.0.0.1:1", **(cluster or {})}},
            {"name": "d", "cluster": {"server": "http://127.0.0.1:2/"}},
        ],
        "users": [{"name": "u", "user": user or {}}],
    }
    path.write_text(yaml.safe_dump(config))
    return str(path)


async def test_a_kubeconfig_says_where_and_who(tmp_path):
    connection = load_connection(write_kubeconfig(tmp_path / "config", user={"token": "secret"}))
    assert connection.base_url == "http://127.0.0.1:1"
    assert connection.tls is None
    assert await connection.credentials.header() == "Bearer secret"


async def test_another_context_may_be_named(tmp_path):
    connection = load_connection(write_kubeconfig(tmp_path / "config"), context="other")
    assert connection.base_url == "http://127.0.0.1:2"
    assert await connection.credentials.header() is None


async def test_an_exec_plug_in_is_asked_for_the_token(tmp_path):
    plug_in = tmp_path / "plug-in"
    credential = '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "t"}}'
    plug_in.write_text(f"#!/bin/sh\necho '{credential}'\n")
    plug_in.chmod(0o755)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plug_in), "args": []}}
    connection = load_connection(write_kubeconfig(tmp_path / "config", user=user))
    assert await connection.credentials.header() == "Bearer t"


def test_certificates_are_checked_unless_the_kubeconfig_says_otherwise(tmp_path):
    strict = load_connection(write_kubeconfig(tmp_path / "a", cluster={"server": "https://127.0.0.1:1"}))
    assert strict.tls is not None
    assert (strict.tls.verify_mode, strict.tls.check_hostname) == (ssl.CERT_REQUIRED, True)
    lax = {"server": "https://127.0.0.1:1", "insecure-skip-tls-verify": True, "tls-server-name": "kubernetes"}
    connection = load_connection(write_kubeconfig(tmp_path / "b", cluster=lax))
    assert connection.tls is not None
    assert connection.tls.verify_mode == ssl.CERT_NONE
    assert connection.server_hostname == "kubernetes"


async def test_inside_a_pod_the_service_account_s_token_is_read_from_its_file_each_time(tmp_path, monkeypatch):
    token, ca = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("one\n")
    ca.write_text(some_authority())
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "1")
    monkeypatch.setattr(reading, "SERVICE_ACCOUNT", tmp_path)
    connection = load_connection()
    assert connection.base_url == "https://127.0.0.1:1"
    assert connection.tls is not None
    assert (connection.tls.verify_mode, connection.tls.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert len(connection.tls.get_ca_certs()) == 1
    assert await connection.credentials.header() == "Bearer one"
    token.write_text("two\n")
    connection.credentials.refused()
    assert await connection.credentials.header() == "Bearer two"


def test_the_address_of_a_cluster_may_be_of_ipv6(tmp_path, monkeypatch):
    (tmp_path / "ca.crt").write_text(some_authority())
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(reading, "SERVICE_ACCOUNT", tmp_path)
    assert load_connection().base_url == "https://[fd00::1]:443"


def test_a_pod_without_a_service_account_is_told_which_file_is_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(reading, "SERVICE_ACCOUNT", tmp_path)
    with pytest.raises(OSError, match=r"ca\.crt"):
        load_connection()


def test_a_kubeconfig_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(ConfigException):
        load_connection(str(tmp_path / "missing"))


async def test_a_tls_connection_receives_little_at_once(monkeypatch):
    monkeypatch.setattr(SSLProtocol, "max_size", SSLProtocol.max_size)
    use_small_tls_buffers()
    loop, context = asyncio.get_running_loop(), ssl.create_default_context()
    protocol = SSLProtocol(loop, asyncio.Protocol(), context, None, call_connection_made=False)
    assert len(protocol.get_buffer(-1)) == TLS_BUFFER
    protocol._get_app_transport().abort()
