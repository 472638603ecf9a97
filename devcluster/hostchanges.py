"""Changes of the machine that nodes need, counted per cluster and reverted with the last cluster that has nodes.

These are kernel settings (those that kubelet and kube-proxy write, and a limit that several clusters would reach), and
folders that serve as mount points. A file in /run records the former state. A restart of the machine resets its
settings, and removes the file.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from devcluster import cache, processes

FILE = Path("/run/elastic-pytorch/host.json")
LOCK = "host-changes"
KERNEL = Path("/proc/sys")
# Of the 128 inotify instances that root has, a control plane takes 11, a node 8, and a pod may take some.
AT_LEAST = {"fs/inotify/max_user_instances": 1024}
SYSCTLS = (
    *AT_LEAST,
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "net/ipv4/ip_forward",
    "net/netfilter/nf_conntrack_max",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)


@dataclass(slots=True)
class HostChanges:
    """The state before the first cluster, and the present clusters."""

    boot: str
    sysctls: dict[str, str] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)
    clusters: list[str] = field(default_factory=list)


def acquire(cluster: str, *, folders: Sequence[str]) -> None:
    """Remember settings and raise limits if this is the first cluster with nodes; make the folders that are missing.

    The cluster must have a process by now. A cluster without one counts as left by a crash, and another cluster's
    release would remove its folders.
    """
    with _open_record() as record:
        assert cluster in _alive(), cluster
        if not record.clusters:
            record.sysctls = _read_sysctls()
            _raise_limits(record)
        record.clusters = sorted({*record.clusters, cluster})
        for folder in folders:
            record.folders += _make_folder(Path(folder))


def release(cluster: str) -> None:
    """Revert everything when no cluster with nodes is left. A cluster without any process does not count."""
    if not FILE.exists():
        return
    with _open_record() as record:
        alive = _alive()
        record.clusters = [name for name in record.clusters if name != cluster and name in alive]
        if not record.clusters:
            _give_settings_back(record)
            _give_folders_back(record)


def _alive() -> set[str]:
    return {mark.split("/")[0] for mark in processes.marks().values()}


def _give_settings_back(record: HostChanges) -> None:
    for name, value in record.sysctls.items():
        path = KERNEL / name
        if path.exists() and path.read_text().strip() != value:
            path.write_text(value)


def _give_folders_back(record: HostChanges) -> None:
    for folder in sorted(record.folders, key=len, reverse=True):
        # A folder that another program uses by now must stay.
        with contextlib.suppress(OSError):
            Path(folder).rmdir()


def _read_sysctls() -> dict[str, str]:
    paths = {name: KERNEL / name for name in SYSCTLS}
    return {name: path.read_text().strip() for name, path in paths.items() if path.exists()}


def _raise_limits(record: HostChanges) -> None:
    for name, least in AT_LEAST.items():
        if int(record.sysctls.get(name, least)) < least:
            (KERNEL / name).write_text(str(least))


def _make_folder(folder: Path) -> list[str]:
    made = []
    for path in (*reversed(folder.parents), folder):
        if not path.exists():
            path.mkdir()
            made.append(str(path))
    return made


@contextmanager
def _open_record() -> Iterator[HostChanges]:
    with cache.lock(LOCK):
        record = _load()
        yield record
        if record.clusters:
            FILE.parent.mkdir(exist_ok=True)
            FILE.write_text(json.dumps(asdict(record), indent=1))
        elif FILE.exists():
            FILE.unlink()
            FILE.parent.rmdir()


def _load() -> HostChanges:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    try:
        record = HostChanges(**json.loads(FILE.read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return HostChanges(boot=boot)
    return record if record.boot == boot else HostChanges(boot=boot)
