"""A cluster that was up, with a pod that ran, leaves the machine as it was: after `down`, and after a crash."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from devcluster import cluster, processes
from devcluster.cluster import Cluster
from devcluster.progress import Progress
from tests.devcluster.machine import differences, look
from tests.devcluster.pods import apply, make_pod, wait_running

NAME = "leaves-nothing"
OTHER = "goes-on"
PANIC = Path("/proc/sys/kernel/panic")
"""Seconds until the kernel reboots after a panic; every kubelet writes it."""

pytestmark = [pytest.mark.extended, pytest.mark.cluster, pytest.mark.alone, pytest.mark.timeout(180)]


def bring_up():
    return Cluster.up(NAME, nodes=1, gpus=1, torch_tree="", network_policies=True, progress=Progress(quiet=True))


@pytest.fixture(autouse=True)
def no_remains():
    cluster.take_down(NAME, progress=Progress(quiet=True))
    yield
    for name in (NAME, OTHER):
        cluster.take_down(name, progress=Progress(quiet=True))


def test_down_leaves_nothing():
    before = look(NAME)
    own = bring_up()
    apply(own, make_pod())
    wait_running(own, "pod")
    changed = differences(before, look(NAME))
    # Otherwise the comparison would see nothing whatever was left.
    assert {"marked_processes", "namespaces", "cgroups"} <= changed.keys()
    own.down(progress=Progress(quiet=True))
    assert differences(before, look(NAME)) == {}


@pytest.fixture
def unlike_a_kubelet() -> Iterator[str]:
    """The value of PANIC before the test's cluster: one that no kubelet writes. A machine that is itself a node of a
    cluster has a kubelet's already."""
    was = PANIC.read_text()
    PANIC.write_text("7")
    yield "7"
    PANIC.write_text(was)


def test_settings_are_restored_with_the_last_nodes_though_an_empty_control_plane_remains(unlike_a_kubelet):
    others = [mark for mark in processes.marks().values() if mark.split("/")[1] != "control-plane"]
    with Cluster.up(OTHER, nodes=0, torch_tree="", progress=Progress(quiet=True)):
        own = bring_up()
        apply(own, make_pod())
        wait_running(own, "pod")
        assert PANIC.read_text().strip() != unlike_a_kubelet
        own.down(progress=Progress(quiet=True))
        given_back = PANIC.read_text().strip() == unlike_a_kubelet
        assert given_back is not bool(others), f"other nodes that need the settings: {others}"


def test_the_next_down_cleans_up_after_a_crash_that_lost_half_of_the_cluster_and_its_record():
    before = look(NAME)
    own = bring_up()
    killed = [p.pid for p in processes.find(own.layout) if p.part in ("control-plane/apiserver", "n1/kubelet")]
    processes.send(killed, signal.SIGKILL)
    own.layout.state_file.unlink()
    cluster.take_down(NAME, progress=Progress(quiet=True))
    assert differences(before, look(NAME)) == {}
