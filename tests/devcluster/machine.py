"""What a cluster could leave behind on the machine, taken down as plain data that two moments can be compared by.

What carries another cluster's name is left out: other clusters may come and go meanwhile.
"""

import contextlib
import subprocess
from dataclasses import dataclass
from pathlib import Path

from devcluster import cgroups, node, processes

CGROUP_PREFIX = "elastic-pytorch-"
WATCHED_SYSCTLS = (
    "fs/inotify",
    "kernel/keys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "net/bridge",
    "net/ipv4/conf/all",
    "net/ipv4/conf/default",
    "net/ipv4/ip_forward",
    "net/netfilter/nf_conntrack_max",
    "net/netfilter/nf_conntrack_tcp_timeout_close_wait",
    "net/netfilter/nf_conntrack_tcp_timeout_established",
    "vm",
)
# These count, or can only be written.
UNSTEADY_SYSCTLS = ("vm/stat_refresh", "vm/compact_memory", "vm/drop_caches")


@dataclass(frozen=True)
class Machine:
    """The machine at one moment, as far as a cluster could change it."""

    marked_processes: frozenset[int]
    namespaces: frozenset[str]
    links: frozenset[str]
    routes: frozenset[str]
    packet_filter: str
    mounts: frozenset[str]
    loops: frozenset[str]
    cgroups: frozenset[str]
    sysctls: dict[str, str]
    mount_points: frozenset[str]


def look(name):
    """The machine as cluster `name` could have changed it."""
    others = other_clusters(name)
    return Machine(
        marked_processes=frozenset(pid for pid, mark in processes.marks().items() if mark.startswith(f"{name}/")),
        namespaces=namespaces(others),
        links=frozenset(path.name for path in Path("/sys/class/net").iterdir()),
        routes=frozenset(output("ip", "route", "show", "table", "all").splitlines()),
        packet_filter=output("nft", "list", "ruleset"),
        mounts=frozenset(Path("/proc/self/mountinfo").read_text().splitlines()),
        loops=frozenset(line for line in output("losetup", "--all").splitlines() if f"/clusters/{name}/" in line),
        cgroups=frozenset(folder for folder in cgroup_folders() if not folder.startswith(tuple(others))),
        sysctls=sysctls(),
        mount_points=frozenset(path for path in node.MOUNT_POINTS if Path(path).exists()),
    )


def other_clusters(name):
    """Beginnings of the cgroup names of all other clusters that run."""
    running = {mark.split("/")[0] for mark in processes.marks().values()}
    return [f"{CGROUP_PREFIX}{other}-n" for other in running - {name}]


def namespaces(others):
    """Every network and mount namespace that some process is in, other clusters' left out."""
    found = set()
    marks = processes.marks()
    mine = {pid for pid, mark in marks.items() if f"{CGROUP_PREFIX}{mark.split('/')[0]}-n" not in others}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or (int(entry.name) in marks and int(entry.name) not in mine):
            continue
        with contextlib.suppress(OSError):
            if not any(f"/{other}" in (entry / "cgroup").read_text() for other in others):
                found |= {str((entry / "ns" / kind).readlink()) for kind in ("net", "mnt")}
    return frozenset(found)


def cgroup_folders():
    """Names of our cgroups below the root of each hierarchy, and the hierarchy's: the same name in two is two."""
    hierarchies = cgroups.hierarchies(Path("/proc/self/mounts").read_text())
    for hierarchy in hierarchies:
        for folder in hierarchy.root.iterdir():
            if folder.is_dir():
                yield f"{folder.name} in {hierarchy.root}"


def sysctls():
    """Settings of the kernel that could be changed by a kubelet or a kube-proxy."""
    found = {}
    for watched in WATCHED_SYSCTLS:
        path = Path("/proc/sys") / watched
        for file in path.rglob("*") if path.is_dir() else [path]:
            name = str(file.relative_to("/proc/sys"))
            if file.is_file() and name not in UNSTEADY_SYSCTLS:
                with contextlib.suppress(OSError):
                    found[name] = file.read_text()
    return found


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def differences(before, after):
    """What is not as it was: name of the thing -> what has come and what has gone. Empty when all is as before."""
    found = {}
    for thing in Machine.__dataclass_fields__:
        was, now = getattr(before, thing), getattr(after, thing)
        if was != now:
            found[thing] = describe(was, now)
    return found


def describe(was, now):
    if isinstance(was, frozenset):
        return {"come": sorted(map(str, now - was)), "gone": sorted(map(str, was - now))}
    if isinstance(was, dict):
        return {name: (was.get(name), now.get(name)) for name in {*was, *now} if was.get(name) != now.get(name)}
    return {"was": was, "now": now}
