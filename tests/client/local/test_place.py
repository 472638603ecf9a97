"""A run is found by its name while it lives, and no longer."""

from __future__ import annotations

import subprocess
import sys

import pytest

from elastic_client.exits import ClientError, Code
from elastic_client.local.place import Run, Sizes, find, folder, held, only, read_sizes, write_sizes

SIZES = Sizes(1, 4)
HOLD_AND_DIE = """\
import os, sys
from pathlib import Path
from elastic_client.local.place import Run, Sizes, held
with held(Run("toy", os.getpid()), Sizes(1, 4), at=Path(sys.argv[1])):
    os.kill(os.getpid(), 9)
"""


def test_a_run_is_found_while_it_lives(tmp_path):
    run = Run("toy", 7, room=2, gpus_each=1)
    with held(run, SIZES, at=tmp_path):
        assert find("toy", at=tmp_path) == only("3", at=tmp_path) == run
        assert find("other", at=tmp_path) is None
    assert find("toy", at=tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_two_runs_cannot_have_one_name(tmp_path):
    with (
        held(Run("toy", 7), SIZES, at=tmp_path),
        pytest.raises(ClientError, match="--name toy: process 7 is a run of that name: write another") as refused,
        held(Run("toy", 8), Sizes(2, 2), at=tmp_path),
    ):
        raise AssertionError
    assert refused.value.code == Code.USAGE


def test_the_refused_run_leaves_the_other_as_it_is(tmp_path):
    with held(Run("toy", 7), SIZES, at=tmp_path):
        with pytest.raises(ClientError), held(Run("toy", 8), Sizes(2, 2), at=tmp_path):
            raise AssertionError
        assert find("toy", at=tmp_path) == Run("toy", 7)
        assert read_sizes("toy", at=tmp_path) == SIZES


@pytest.mark.processes
def test_a_run_that_was_killed_counts_as_none_and_its_name_is_free(tmp_path):
    done = subprocess.run([sys.executable, "-c", HOLD_AND_DIE, str(tmp_path)], check=False, timeout=60)
    assert done.returncode == -9
    assert (tmp_path / "toy.json").exists()
    assert find("toy", at=tmp_path) is None
    with held(Run("toy", 8), SIZES, at=tmp_path):
        assert find("toy", at=tmp_path) == Run("toy", 8)


def test_a_new_size_replaces_the_one_before(tmp_path):
    with held(Run("toy", 7), SIZES, at=tmp_path):
        write_sizes("toy", Sizes(2, 3), at=tmp_path)
        assert read_sizes("toy", at=tmp_path) == Sizes(2, 3)


def test_without_a_name_the_only_run_is_meant(tmp_path):
    with pytest.raises(ClientError, match=r"JOB: nothing trains here by `run --local`.* `scale toy 3`") as none:
        only("3", at=tmp_path)
    assert none.value.code == Code.NOT_FOUND
    with (
        held(Run("toy", 7), SIZES, at=tmp_path),
        held(Run("other", 8), SIZES, at=tmp_path),
        pytest.raises(ClientError, match="JOB: several train here: there are other, toy; write one before 3"),
    ):
        only("3", at=tmp_path)


def test_the_files_are_the_users_own(tmp_path):
    assert folder({"XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)}) == tmp_path / "elastic-pytorch"
    gone = str(tmp_path / "gone")
    assert str(folder({"XDG_RUNTIME_DIR": gone, "HOME": str(tmp_path)})) == f"{tmp_path}/.cache/elastic-pytorch/runs"
    at = tmp_path / "new"
    with held(Run("toy", 7), SIZES, at=at):
        assert at.stat().st_mode & 0o777 == 0o700
