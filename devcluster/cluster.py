"""The cluster as one object: bring it up, break it, load images, take it down.

    with Cluster.up(name="tests", nodes=2, gpus=4) as cluster:
        cluster.kubeconfig            # a path; any Kubernetes client takes it
        cluster.load_image(archive)   # an OCI archive, onto every node
        cluster.node("n1").kill()     # as if the machine lost its power
        cluster.node("n1").restart()
        cluster.part("apiserver").freeze()
        cluster.add_fake_nodes(100)   # played by KWOK, for scale

`Cluster.up(name="crd-tests", nodes=0)` is a control plane only; it returns when the API server is ready, while its
controllers may still be starting (a new namespace gets its service account a little later). A cluster that is up
already is used unchanged; one that is incomplete or has other settings is recreated. The cluster outlives the process
that started it; `Cluster.attach(name)` finds it again.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

from devcluster import (
    binaries,
    cache,
    cgroups,
    control_plane,
    etcd,
    fakenodes,
    hostchanges,
    images,
    machine,
    names,
    network,
    node,
    nodedisks,
    processes,
    projectimage,
    settings,
    torchtree,
    volumes,
)
from devcluster.api import Api, wait_until
from devcluster.binaries import Programs
from devcluster.errors import DevclusterError
from devcluster.faults import NodeFaults, PartFaults
from devcluster.names import Layout
from devcluster.progress import Progress
from devcluster.settings import Settings

READY_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running cluster."""

    layout: Layout
    settings: Settings
    programs: Programs
    api: Api

    @classmethod
    def up(
        cls,
        name: str = names.DEFAULT_NAME,
        *,
        nodes: int = 2,
        gpus: int = 4,
        torch_tree: str = torchtree.DEFAULT_TREE,
        kubernetes: str = binaries.DEFAULT_KUBERNETES,
        network_policies: bool = False,
        targets: Sequence[str] = (),
        api_server_flags: Sequence[str] = (),
        controller_manager_flags: Sequence[str] = (),
        scheduler_flags: Sequence[str] = (),
        progress: Progress | None = None,
    ) -> Cluster:
        """Bring the cluster `name` up, with `nodes` nodes of `gpus` GPUs each; return when nodes and GPUs are ready.

        The nodes have the images of these `targets` of the Dockerfile, the base image and pause, built if missing.
        `torch_tree` names the tree in tools/torch/ that pods with GPUs see, "" for none; `kubernetes` is a release of
        `binaries.KUBERNETES`. `network_policies` says whether these are enforced. The flags are added to those of the
        control plane's programs. Raises DevclusterError if the machine cannot run the cluster.
        """
        progress = progress or Progress()
        layout = Layout(names.check_name(name))
        wanted = Settings(
            nodes=nodes,
            gpus=gpus,
            torch_tree=torch_tree,
            kubernetes=kubernetes,
            network_policies=network_policies,
            api_server_flags=tuple(api_server_flags),
            controller_manager_flags=tuple(controller_manager_flags),
            scheduler_flags=tuple(scheduler_flags),
        )
        machine.ensure(progress)
        cache.check_room(*(cache.ROOM_GIGABYTES if nodes else ("bin",)))
        programs = binaries.ensure(progress, release=kubernetes)
        archives = [projectimage.build(progress, target=target) for target in targets]
        with cache.lock(f"cluster-{name}"):
            if _runs_as(layout, wanted):
                progress.say(f"cluster {name} is up already")
                running_cluster = cls.attach(name)
                for archive in archives:
                    running_cluster.load_image(archive, progress=progress)
                return running_cluster
            if layout.state_file.exists():
                why = "is stopped or has other settings"
                progress.say(f"cluster {name} {why}: it is deleted with all its jobs and recreated")
            _take_down(layout, progress)
            return _bring_up(layout, wanted, programs, archives, progress)

    @classmethod
    def attach(cls, name: str = names.DEFAULT_NAME) -> Cluster:
        """The running cluster `name`. Raises DevclusterError if there is none."""
        layout = Layout(names.check_name(name))
        found = settings.load(layout)
        programs = binaries.ensure(Progress(), release=found.kubernetes)
        return cls(layout, found, programs, Api.connect(port=found.port, pki_folder=layout.pki))

    def down(self, *, progress: Progress | None = None) -> None:
        """Take the cluster down: see `take_down`."""
        take_down(self.layout.name, progress=progress)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig, to https://127.0.0.1:PORT."""
        return self.layout.kubeconfig

    @property
    def kubectl(self) -> str:
        """The kubectl program of the cluster's version."""
        return self.programs["kubectl"]

    def node(self, name: str) -> NodeFaults:
        """The node n1, n2, ..., with methods to break and repair it: see `NodeFaults`."""
        if name not in self.settings.node_names():
            known = ", ".join(self.settings.node_names()) or "none"
            raise DevclusterError(f"node={name!r}: cluster {self.layout.name!r} has no such node (it has: {known})")
        return NodeFaults(self.layout, self.settings, self.programs, name)

    def part(self, name: str) -> PartFaults:
        """The faults of etcd, apiserver, controller-manager, scheduler, kwok, or NODE/PROGRAM, such as n1/kubelet."""
        return PartFaults.named(self.layout, self.settings, self.programs, name)

    def compact(self) -> int:
        """Compact etcd's history: see `etcd.compact`."""
        return etcd.compact(self.layout)

    def back_up(self, folder: Path) -> None:
        """Copy etcd's present content to a new folder. etcd is down meanwhile, for less than a second."""
        server = self.part("etcd")
        server.kill()
        shutil.copytree(control_plane.etcd_data(self.layout), folder)
        server.restart()
        _wait_for_api_server(self.layout, self.api)

    def restore(self, backup: Path) -> None:
        """Restore the whole cluster from such a copy: the control plane and all kubelets are restarted.

        The kubelets stop first. Otherwise they report the ends of pods that were deleted since the copy, and a pod of a
        Deployment that has ended stays in the cluster.
        """
        kubelets = [self.part(f"{name}/kubelet") for name in self.settings.node_names()]
        parts = [self.part(part.partition("/")[2]) for part in control_plane.PARTS]
        for part in (*kubelets, *reversed(parts)):
            part.kill()
        shutil.rmtree(control_plane.etcd_data(self.layout))
        shutil.copytree(backup, control_plane.etcd_data(self.layout))
        for part in parts[: len(control_plane.SERVERS)]:
            part.restart()
        _wait_for_api_server(self.layout, self.api)
        for part in parts[len(control_plane.SERVERS) :]:
            part.restart()
        for kubelet in kubelets:
            kubelet.restart()

    def add_fake_nodes(
        self,
        count: int,
        *,
        gpus: int = 8,
        prefix: str = "k",
        labels: Mapping[str, str] | None = None,
        lease_seconds: int = fakenodes.LEASE_SECONDS,
        progress: Progress | None = None,
    ) -> list[str]:
        """Add `count` nodes simulated by KWOK, PREFIX1 and so on; return their names once they are Ready."""
        return fakenodes.add(
            self.api,
            self.layout,
            count=count,
            gpus=gpus,
            prefix=prefix,
            labels=labels or {},
            lease_seconds=lease_seconds,
            progress=progress or Progress(),
        )

    def load_image(self, archive: Path, *, progress: Progress | None = None) -> None:
        """Put the images of an archive (OCI or docker) on every node, unless they are there.

        Names must be full: docker.io/local/x:1.
        """
        if self._loaded(archive) == nodedisks.identity(archive):
            return
        with (progress or Progress()).step(f"loading {archive.name} onto the nodes"), ThreadPoolExecutor() as pool:
            list(pool.map(lambda name: node.load_image(self.layout, name, archive), self.settings.node_names()))
        self._set_loaded(archive)

    def _loaded(self, archive: Path) -> str:
        """The identity of the last loaded archive with this file name; "" for none."""
        try:
            return (self.layout.loaded / archive.name).read_text()
        except FileNotFoundError:
            return ""

    def _set_loaded(self, archive: Path) -> None:
        self.layout.loaded.mkdir(exist_ok=True)
        (self.layout.loaded / archive.name).write_text(nodedisks.identity(archive))

    def shared_claim(self, namespace: str, *, name: str = "checkpoints") -> None:
        """Give `namespace` (made if missing) a ReadWriteMany claim `name` that all nodes share: see `volumes`."""
        volumes.shared_claim(self.api, self.layout, namespace=namespace, name=name)

    def offer_volumes(self, count: int = 8) -> None:
        """Offer that many empty volumes for claims that name no class: see `volumes`."""
        volumes.offer(self.api, self.layout, count=count)

    def wait_ready(self, nodes: Iterable[str] | None = None, *, seconds: float = READY_SECONDS) -> None:
        """Wait until the nodes (all by default) are Ready with all their GPUs healthy."""
        wanted = set(self.settings.node_names() if nodes is None else nodes)
        wait_until(
            lambda: wanted <= node.ready_nodes(self.api, gpus=self.settings.gpus),
            seconds=seconds,
            what=f"nodes {', '.join(sorted(wanted))} to be Ready with {self.settings.gpus} GPUs",
            explain=lambda: f"Logs are in {self.layout.logs}",
        )


def take_down(name: str, *, progress: Progress | None = None) -> None:
    """Remove the cluster `name`, also after a crash: processes, namespaces, links, mounts, cgroups, files.

    Kernel settings are restored with the last cluster. The logs stay until the next cluster of this name.
    """
    machine.check()
    layout = Layout(names.check_name(name))
    with cache.lock(f"cluster-{name}"):
        _take_down(layout, progress or Progress())


def running() -> list[str]:
    """The names of the clusters that have processes."""
    return sorted({mark.split("/")[0] for mark in processes.marks().values()})


def _runs_as(layout: Layout, wanted: Settings) -> bool:
    if not layout.state_file.exists():
        return False
    found = settings.load(layout)
    if replace(found, port=0) != wanted:
        return False
    parts = [*control_plane.PARTS, *(part for name in wanted.node_names() for part in node.parts(name, wanted))]
    running_parts = {process.part for process in processes.find(layout) if process.leads}
    return set(parts) <= running_parts and Api.connect(port=found.port, pki_folder=layout.pki).is_ready()


def _bring_up(
    layout: Layout, wanted: Settings, programs: Programs, archives: Sequence[Path], progress: Progress
) -> Cluster:
    on_disk: list[Path] = []
    if wanted.nodes:
        on_disk = [images.pause(progress), images.base(progress).archive, *archives]
        if wanted.gpus and wanted.torch_tree:
            torchtree.ensure(progress, tree=wanted.torch_tree)
    disk = nodedisks.ensure(progress, on_disk)
    shutil.rmtree(layout.folder, ignore_errors=True)
    found = replace(wanted, port=machine.free_port(layout.name))
    settings.save(layout, found)
    network.start_control_plane_network(layout)
    if found.nodes:
        hostchanges.acquire(layout.name, folders=node.MOUNT_POINTS)
    with progress.step(f"starting the control plane of {layout.name} (etcd, API server, controllers, scheduler)"):
        api = _start_control_plane(layout, found, programs)
    cluster = Cluster(layout, found, programs, api)
    for archive in on_disk:
        cluster._set_loaded(archive)
    if found.nodes:
        with progress.step(f"starting {found.nodes} nodes with {found.gpus} GPUs each (waiting until they are Ready)"):
            with ThreadPoolExecutor() as pool:
                join = [pool.submit(node.join, layout, found, programs, name, disk=disk) for name in found.node_names()]
                for future in join:
                    future.result()
            cluster.wait_ready()
            _wait_for_service_account(api)
    return cluster


def _start_control_plane(layout: Layout, found: Settings, programs: Programs) -> Api:
    control_plane.write_pki(layout, found)
    for part in control_plane.SERVERS:
        control_plane.start(layout, found, programs, part=part)
    api = Api.connect(port=found.port, pki_folder=layout.pki)
    _wait_for_api_server(layout, api)
    for part in control_plane.CLIENTS:
        control_plane.start(layout, found, programs, part=part)
    return api


def _wait_for_api_server(layout: Layout, api: Api) -> None:
    log = layout.logs / "control-plane-apiserver.log"
    wait_until(api.is_ready, seconds=READY_SECONDS, what="the API server", explain=lambda: processes.last_words(log))


def _wait_for_service_account(api: Api) -> None:
    """Wait for the service account, without which no pod can be created."""
    wait_until(
        lambda: api.get("/api/v1/namespaces/default/serviceaccounts/default") is not None,
        seconds=READY_SECONDS,
        what="the controller manager to make the default service account",
    )


def _take_down(layout: Layout, progress: Progress) -> None:
    if processes.find(layout) or layout.state_file.exists():
        with progress.step(f"taking down cluster {layout.name}"):
            _remove(layout)
    hostchanges.release(layout.name)


def _remove(layout: Layout) -> None:
    nodes = [path.name for path in (layout.folder / "nodes").iterdir()] if (layout.folder / "nodes").exists() else []
    for name in nodes:
        node.kill(layout, name)
    processes.kill_all(lambda: [process.pid for process in processes.find(layout)])
    for name in nodes:
        cgroups.remove(layout.cgroup(name))
    for path in layout.folder.iterdir():
        if path != layout.logs:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
