"""A node: namespaces, containerd, kubelet, kube-proxy, the GPU device plugin, and the agent of network policies.

Its disk is a folder of the cluster, so a killed node still has its images after a restart, as a real machine does.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from devcluster import (
    cgroups,
    control_plane,
    kubeletdisks,
    names,
    network,
    node_files,
    nodedisks,
    pki,
    processes,
    shell,
    torchtree,
)
from devcluster.api import Api, wait_until
from devcluster.binaries import Programs
from devcluster.errors import DevclusterError
from devcluster.names import Layout
from devcluster.progress import Progress
from devcluster.settings import Settings

CONTAINERD = "containerd"
KUBELET = "kubelet"
KUBE_PROXY = "kube-proxy"
DEVICE_PLUGIN = "device-plugin"
POLICY_AGENT = "policy-agent"
PROGRAMS = (CONTAINERD, KUBELET, KUBE_PROXY, DEVICE_PLUGIN)
# Programs of this package.
PYTHON_PROGRAMS = (DEVICE_PLUGIN, POLICY_AGENT)
MOUNT_POINTS = (*node_files.MOUNTS.values(), node_files.KUBELET_FOLDER)
GPU = "nvidia.com/gpu"
CONTAINERD_SECONDS = 20.0


def programs_of(settings: Settings) -> tuple[str, ...]:
    """The programs that run on each node."""
    return (*PROGRAMS, POLICY_AGENT) if settings.network_policies else PROGRAMS


def parts(node: str, settings: Settings) -> list[str]:
    """The parts of a node, its anchor included."""
    return [f"{node}/{part}" for part in ("anchor", *programs_of(settings))]


def join(layout: Layout, settings: Settings, programs: Programs, node: str, *, disk: Path | None) -> None:
    """Make a new node and start it, with the images of a ready-made disk. Returns before it is Ready."""
    nodedisks.copy(disk, layout.node(node) / "containerd")
    _start(layout, settings, programs, node)


def _start(layout: Layout, settings: Settings, programs: Programs, node: str) -> None:
    _write_files(layout, node)
    _start_machine(layout, node)
    start_part(layout, settings, programs, f"{node}/{CONTAINERD}")
    start_part(layout, settings, programs, f"{node}/{KUBE_PROXY}")
    if settings.network_policies:
        start_part(layout, settings, programs, f"{node}/{POLICY_AGENT}")
    _wait_for_containerd(layout, node)
    start_part(layout, settings, programs, f"{node}/{DEVICE_PLUGIN}")
    start_part(layout, settings, programs, f"{node}/{KUBELET}")


def restart(layout: Layout, settings: Settings, programs: Programs, node: str) -> None:
    """Switch a node off, if it is on, and on. Returns before it is Ready."""
    kill(layout, node)
    for folder in node_files.LOST_AT_RESTART:
        shutil.rmtree(layout.node(node) / folder)
    _start(layout, settings, programs, node)


def kill(layout: Layout, node: str) -> None:
    """Switch a node off: all its processes end at once, in containers too, and so do its namespaces and link."""
    processes.kill_all(lambda: pids(layout, node))
    cgroups.remove(layout.cgroup(node))


def pids(layout: Layout, node: str) -> list[int]:
    """All processes of a node, those in containers included."""
    return sorted({process.pid for process in processes.find(layout, node)} | set(cgroups.pids(layout.cgroup(node))))


def start_part(layout: Layout, settings: Settings, programs: Programs, part: str) -> None:
    """Start n1/kubelet or another part of a node that is on, unless the part already runs."""
    node, program = part.split("/")
    anchor = network.anchor(layout, node)
    command = _command(layout, settings, programs, node=node, program=program)
    env = {"PYTHONPATH": str(control_plane.PACKAGE_PARENT)} if program in PYTHON_PROGRAMS else {}
    processes.start(layout, part, command, inside=anchor, env=env)


def load_image(layout: Layout, node: str, archive: Path) -> None:
    """Put the images of an archive on a node, unpacked."""
    network.inside(network.anchor(layout, node), "ctr", "--namespace", "k8s.io", "images", "import", str(archive))


def remove_image(layout: Layout, node: str, ref: str) -> None:
    """Remove an image from a node, under all its names; its containers continue."""
    ctr = ("ctr", "--namespace", "k8s.io", "images")
    anchor = network.anchor(layout, node)
    listed = [line.split() for line in network.inside(anchor, *ctr, "list").splitlines()]
    digest = {name: content for name, _, content, *_ in listed}
    if ref not in digest:
        raise DevclusterError(f"image={ref!r}: node {node} has no such image; it has: {', '.join(sorted(digest))}")
    network.inside(anchor, *ctr, "remove", *(name for name in digest if digest[name] == digest[ref]))


def sick_file(layout: Layout, node: str) -> Path:
    """The file that lists the GPUs the device plugin reports as unhealthy."""
    return _files(layout, node) / "sick-gpus"


def ready_nodes(api: Api, *, gpus: int) -> set[str]:
    """Nodes that are Ready and offer at least `gpus` healthy GPUs."""
    return {
        item["metadata"]["name"]
        for item in api.get("/api/v1/nodes")["items"]
        if any(c["type"] == "Ready" and c["status"] == "True" for c in item["status"].get("conditions", []))
        and int(item["status"].get("allocatable", {}).get(GPU, 0)) >= gpus
        and not any(taint["key"].startswith("node.kubernetes.io/not-ready") for taint in item["spec"].get("taints", []))
    }


def _files(layout: Layout, node: str) -> Path:
    return layout.node(node) / "files"


def _command(layout: Layout, settings: Settings, programs: Programs, *, node: str, program: str) -> list[str]:
    files = _files(layout, node)
    if program == CONTAINERD:
        return ["containerd", "--config", str(files / "containerd.toml")]
    if program == KUBE_PROXY:
        return [programs[KUBE_PROXY], f"--config={files / 'kube-proxy.json'}"]
    if program == DEVICE_PLUGIN:
        return _device_plugin(layout, settings, node)
    if program == POLICY_AGENT:
        return _policy_agent(layout, node)
    assert program == KUBELET, program
    return [
        programs[KUBELET],
        f"--config={files / 'kubelet.json'}",
        f"--kubeconfig={control_plane.kubeconfig_of(layout, node)}",
        f"--hostname-override={node}",
        f"--node-ip={names.node_address(names.node_number(node))}",
        f"--root-dir={node_files.KUBELET_FOLDER}",
    ]


def _device_plugin(layout: Layout, settings: Settings, node: str) -> list[str]:
    command = [sys.executable, "-m", "devcluster.device_plugin", "--count", str(settings.gpus), "--prefix", node]
    command += ["--sick-file", str(sick_file(layout, node))]
    if settings.torch_tree:
        command += ["--torch", str(torchtree.ensure(Progress(quiet=True), tree=settings.torch_tree))]
    return command


def _policy_agent(layout: Layout, node: str) -> list[str]:
    command = [sys.executable, "-m", "devcluster.policy_agent", "--node", node]
    return [*command, "--server", control_plane.INTERNAL_URL, "--pki", str(layout.pki)]


def _start_machine(layout: Layout, node: str) -> None:
    cgroups.make(layout.cgroup(node))
    kubeletdisks.ensure(layout, node)
    network.start_node_network(layout, node, mount_script=_files(layout, node) / "mounts.sh")


def _write_files(layout: Layout, node: str) -> None:
    disk, files = layout.node(node), _files(layout, node)
    for folder in (*node_files.MOUNTS, "files"):
        (disk / folder).mkdir(parents=True, exist_ok=True)
    _write_certificates(layout, node, files)
    cni = node_files.cni_config(names.node_number(node))
    proxy = node_files.proxy_config(node, kubeconfig=control_plane.kubeconfig_of(layout, "kube-proxy"))
    (files / "mounts.sh").write_text(node_files.mount_script(disk))
    (files / "containerd.toml").write_text(node_files.CONTAINERD_CONFIG)
    (files / "kubelet.json").write_text(json.dumps(node_files.kubelet_config(layout, node, files=files), indent=1))
    (files / "kube-proxy.json").write_text(json.dumps(proxy, indent=1))
    (files / "resolv.conf").touch()
    (disk / "cni-config" / "10-pods.conflist").write_text(json.dumps(cni, indent=1))


def _write_certificates(layout: Layout, node: str, files: Path) -> None:
    authority = pki.pair(layout.pki, "ca")
    subject = {"common_name": f"system:node:{node}", "organization": "system:nodes"}
    address = names.node_address(names.node_number(node))
    client = pki.issue(authority, files, "client", **subject)
    pki.issue(authority, files, "serving", **subject, serves=(node, address))
    control_plane.write_kubeconfig(layout, node, client)


def _wait_for_containerd(layout: Layout, node: str) -> None:
    anchor = network.anchor(layout, node)
    log = layout.logs / f"{node}-{CONTAINERD}.log"
    wait_until(
        lambda: shell.try_run("nsenter", "--target", str(anchor), "--net", "--mount", "ctr", "version"),
        seconds=CONTAINERD_SECONDS,
        what=f"containerd of {node}",
        explain=lambda: processes.last_words(log),
    )
