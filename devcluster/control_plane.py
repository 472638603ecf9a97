"""The control plane: etcd, API server, controller manager and scheduler in a namespace, and the forwarder to it.

Each part can be restarted alone; its command follows from the cluster's layout and settings only.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from devcluster import names, network, pki, processes
from devcluster.binaries import Programs
from devcluster.names import Layout
from devcluster.settings import Settings

ETCD = f"{network.CONTROL_PLANE}/etcd"
API_SERVER = f"{network.CONTROL_PLANE}/apiserver"
CONTROLLER_MANAGER = f"{network.CONTROL_PLANE}/controller-manager"
SCHEDULER = f"{network.CONTROL_PLANE}/scheduler"
FORWARDER = f"{network.CONTROL_PLANE}/forwarder"
# The parts in the order of their start. The clients end at once if the API server does not know them yet.
SERVERS = (ETCD, API_SERVER, FORWARDER)
CLIENTS = (CONTROLLER_MANAGER, SCHEDULER)
PARTS = (*SERVERS, *CLIENTS)

ETCD_URL = "http://127.0.0.1:2379"
INTERNAL_URL = f"https://{names.BRIDGE_ADDRESS}:{names.API_PORT}"
PACKAGE_PARENT = Path(__file__).parent.parent
# With the default of 20 requests a second, a hundred new nodes would wait for half a minute.
UNTHROTTLED = ("--kube-api-qps=500", "--kube-api-burst=500")


def write_pki(layout: Layout, settings: Settings) -> None:
    """Every key, certificate and kubeconfig of the control plane and of kube-proxy. Nodes get theirs when they join."""
    folder = layout.pki
    folder.mkdir(parents=True, exist_ok=True)
    authority = pki.create_authority(folder, "ca")
    front_proxy = pki.create_authority(folder, "front-proxy-ca")
    pki.create_signing_key(folder, "service-accounts")
    service = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
    addresses = ("localhost", "127.0.0.1", names.API_SERVICE_ADDRESS, names.BRIDGE_ADDRESS)
    pki.issue(authority, folder, "apiserver", common_name="kube-apiserver", serves=(*service, *addresses))
    pki.issue(front_proxy, folder, "front-proxy-client", common_name="front-proxy-client")
    pki.issue(
        authority, folder, "apiserver-to-kubelet", common_name="apiserver-to-kubelet", organization="system:masters"
    )
    admin = pki.issue(authority, folder, "admin", common_name="admin", organization="system:masters")
    for name in ("kube-controller-manager", "kube-scheduler", "kube-proxy"):
        client = pki.issue(authority, folder, name, common_name=f"system:{name}")
        write_kubeconfig(layout, name, client)
    pki.write_kubeconfig(
        layout.kubeconfig,
        server=f"https://127.0.0.1:{settings.port}",
        authority=authority,
        client=admin,
        context=f"elastic-pytorch-{layout.name}",
    )


def write_kubeconfig(layout: Layout, name: str, client: pki.Pair) -> None:
    """Write the kubeconfig NAME of a program inside the cluster's network."""
    pki.write_kubeconfig(
        kubeconfig_of(layout, name),
        server=INTERNAL_URL,
        authority=pki.pair(layout.pki, "ca"),
        client=client,
        context=layout.name,
    )


def kubeconfig_of(layout: Layout, name: str) -> Path:
    """The path of a program's kubeconfig."""
    return layout.pki / f"{name}.kubeconfig"


def start(layout: Layout, settings: Settings, programs: Programs, *, part: str) -> None:
    """Start one part, unless it already runs."""
    anchor = network.anchor(layout, network.CONTROL_PLANE)
    if part == FORWARDER:
        command = [sys.executable, "-m", "devcluster.forwarder", str(settings.port), str(anchor)]
        processes.start(layout, part, command, env={"PYTHONPATH": str(PACKAGE_PARENT)})
        return
    processes.start(layout, part, _command(layout, settings, programs, part=part), inside=anchor)


def _command(layout: Layout, settings: Settings, programs: Programs, *, part: str) -> Sequence[str]:
    if part == ETCD:
        return _etcd(layout, programs)
    if part == API_SERVER:
        return [*_api_server(layout, programs), *settings.api_server_flags]
    if part == CONTROLLER_MANAGER:
        return [*_controller_manager(layout, programs), *settings.controller_manager_flags]
    assert part == SCHEDULER, part
    return [*_scheduler(layout, programs), *settings.scheduler_flags]


def _etcd(layout: Layout, programs: Programs) -> list[str]:
    return [
        programs["etcd"],
        "--name=etcd",
        f"--data-dir={etcd_data(layout)}",
        f"--listen-client-urls={ETCD_URL}",
        f"--advertise-client-urls={ETCD_URL}",
        "--listen-peer-urls=http://127.0.0.1:2380",
        # The data is not needed after the cluster. A killed etcd loses nothing; only a crashed machine would.
        "--unsafe-no-fsync",
    ]


def etcd_data(layout: Layout) -> Path:
    """The folder in which etcd keeps all of the cluster's objects."""
    return layout.folder / "etcd"


def _api_server(layout: Layout, programs: Programs) -> list[str]:
    folder = layout.pki
    return [
        programs["kube-apiserver"],
        f"--etcd-servers={ETCD_URL}",
        f"--secure-port={names.API_PORT}",
        "--bind-address=0.0.0.0",
        f"--advertise-address={names.BRIDGE_ADDRESS}",
        f"--tls-cert-file={folder / 'apiserver.crt'}",
        f"--tls-private-key-file={folder / 'apiserver.key'}",
        f"--client-ca-file={folder / 'ca.crt'}",
        f"--kubelet-client-certificate={folder / 'apiserver-to-kubelet.crt'}",
        f"--kubelet-client-key={folder / 'apiserver-to-kubelet.key'}",
        f"--kubelet-certificate-authority={folder / 'ca.crt'}",
        "--kubelet-preferred-address-types=InternalIP,Hostname",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={folder / 'service-accounts.pub'}",
        f"--service-account-signing-key-file={folder / 'service-accounts.key'}",
        f"--service-cluster-ip-range={names.SERVICE_CIDR}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--requestheader-client-ca-file={folder / 'front-proxy-ca.crt'}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-username-headers=X-Remote-User",
        f"--proxy-client-cert-file={folder / 'front-proxy-client.crt'}",
        f"--proxy-client-key-file={folder / 'front-proxy-client.key'}",
        # No kube-proxy runs beside the API server: it must find the pods of webhooks itself.
        "--enable-aggregator-routing=true",
        "--allow-privileged=true",
        "--profiling=false",
    ]


def _controller_manager(layout: Layout, programs: Programs) -> list[str]:
    folder = layout.pki
    return [
        programs["kube-controller-manager"],
        *_kubeconfig_flags(layout, "kube-controller-manager"),
        "--bind-address=127.0.0.1",
        "--leader-elect=false",
        f"--root-ca-file={folder / 'ca.crt'}",
        f"--service-account-private-key-file={folder / 'service-accounts.key'}",
        "--use-service-account-credentials=true",
        f"--cluster-signing-cert-file={folder / 'ca.crt'}",
        f"--cluster-signing-key-file={folder / 'ca.key'}",
        f"--service-cluster-ip-range={names.SERVICE_CIDR}",
        f"--cluster-cidr={names.POD_CIDR}",
        "--allocate-node-cidrs=false",
        # A lost node is noticed within seconds instead of the default minute, so that tests need not wait.
        "--node-monitor-grace-period=12s",
        "--node-monitor-period=2s",
        *UNTHROTTLED,
    ]


def _scheduler(layout: Layout, programs: Programs) -> list[str]:
    return [
        programs["kube-scheduler"],
        *_kubeconfig_flags(layout, "kube-scheduler"),
        "--bind-address=127.0.0.1",
        "--leader-elect=false",
        *UNTHROTTLED,
    ]


def _kubeconfig_flags(layout: Layout, name: str) -> list[str]:
    kubeconfig = kubeconfig_of(layout, name)
    flags = ("--kubeconfig", "--authentication-kubeconfig", "--authorization-kubeconfig")
    return [f"{flag}={kubeconfig}" for flag in flags]
