"""What nodes change on the machine is kept while any cluster needs it, whoever comes or goes at the same moment."""

import contextlib
import json
import os
import subprocess
import threading
import time

import pytest

from devcluster import cache, hostchanges, processes
from tests.devcluster.pods import wait_for

LEAVES, COMES = "leaves", "comes"

pytestmark = pytest.mark.processes


@pytest.fixture(autouse=True)
def record_of_its_own(tmp_path, monkeypatch):
    """No setting of the machine is read or written: another test's cluster may be changing them."""
    monkeypatch.setattr(hostchanges, "FILE", tmp_path / "run" / "host.json")
    monkeypatch.setattr(hostchanges, "SYSCTLS", ())


@contextlib.contextmanager
def process_of(cluster):
    """A process that carries the mark of `cluster`, as each of its parts does."""
    with subprocess.Popen(["sleep", "infinity"], env=os.environ | {processes.MARK: f"{cluster}/part"}) as process:
        try:
            wait_for("the process to carry its mark", lambda: process.pid in processes.marks())
            yield
        finally:
            process.kill()


def test_folders_are_there_until_the_last_cluster_has_gone(tmp_path):
    folder = tmp_path / "var" / "lib"
    with process_of(LEAVES), process_of(COMES):
        hostchanges.acquire(LEAVES, folders=[folder])
        hostchanges.acquire(COMES, folders=[folder])
        hostchanges.release(LEAVES)
        assert folder.is_dir()
        hostchanges.release(COMES)
    assert not folder.parent.exists()
    assert not hostchanges.FILE.exists()


@pytest.mark.parametrize(("was", "meanwhile"), [("128", "1024"), ("8192", "8192")])
def test_a_limit_is_raised_if_it_is_lower_and_given_back_by_the_last_cluster(tmp_path, monkeypatch, was, meanwhile):
    name = "fs/inotify/max_user_instances"
    monkeypatch.setattr(hostchanges, "KERNEL", tmp_path)
    monkeypatch.setattr(hostchanges, "SYSCTLS", (name,))
    limit = tmp_path / name
    limit.parent.mkdir(parents=True)
    limit.write_text(f"{was}\n")
    with process_of(LEAVES), process_of(COMES):
        hostchanges.acquire(LEAVES, folders=[])
        hostchanges.acquire(COMES, folders=[])
        hostchanges.release(LEAVES)
        assert limit.read_text().strip() == meanwhile
        hostchanges.release(COMES)
    assert limit.read_text().strip() == was


def test_a_cluster_that_a_crash_left_without_a_process_does_not_count(tmp_path):
    folder = tmp_path / "var"
    with process_of(LEAVES):
        with process_of(COMES):
            hostchanges.acquire(COMES, folders=[folder])
        hostchanges.acquire(LEAVES, folders=[folder])
        hostchanges.release(LEAVES)
    assert not folder.exists()


def test_a_cluster_that_comes_while_another_leaves_keeps_its_folders(tmp_path):
    folder = tmp_path / "var"
    with process_of(LEAVES), contextlib.ExitStack() as processes_that_come:
        hostchanges.acquire(LEAVES, folders=[folder])
        leaving = threading.Thread(target=hostchanges.release, args=[LEAVES])
        with cache.lock(hostchanges.LOCK):
            leaving.start()
            time.sleep(0.2)  # what it looks at without the lock, it has seen by now
            processes_that_come.enter_context(process_of(COMES))
            record = json.loads(hostchanges.FILE.read_text())
            hostchanges.FILE.write_text(json.dumps(record | {"clusters": [COMES, LEAVES]}))
        leaving.join()
        assert folder.is_dir()
        assert json.loads(hostchanges.FILE.read_text())["clusters"] == [COMES]


def test_a_cluster_counts_only_from_its_first_process_on(tmp_path):
    with pytest.raises(AssertionError, match=COMES):
        hostchanges.acquire(COMES, folders=[tmp_path / "var"])
    assert not (tmp_path / "var").exists()
