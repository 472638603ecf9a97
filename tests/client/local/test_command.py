"""The flags of `run --local`, and `scale` beside it, as they are typed."""

from __future__ import annotations

import pytest

from elastic_client.exits import Code
from elastic_client.local.place import Run, Sizes, folder, held, read_sizes


@pytest.fixture(autouse=True)
def own_runs(tmp_path, monkeypatch):
    """No run of the machine's is seen. The script lies in the working directory."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()


REFUSED = [
    (("--dry-run", "--local"), "--dry-run: --local makes nothing in a cluster; leave one of the two out"),
    (("--checkpoint-path", "c.pt"), "--checkpoint-path c.pt: only for a run on this machine: add --local"),
    (("--python", "python3"), "--python python3: only for a run on this machine: add --local"),
    (("--local", "--code", "/nowhere"), "--code /nowhere: is no folder: write the one with your script"),
    (("--local", "--port", "80"), "Invalid value for '--port'"),
    (("--local", "--python", "python9"), "--python: no python can train: python9: there is no such program"),
]


@pytest.mark.parametrize(("flags", "told"), REFUSED)
def test_a_wrong_flag_is_one_line(elastic, flags, told):
    ended = elastic("run", "-i", "image", *flags, "--", "train.py")
    assert ended.code == Code.USAGE
    assert told in ended.line


def test_a_script_that_is_not_there_starts_no_pod(elastic, tmp_path):
    ended = elastic("run", "--local", "--", "trian.py")
    assert ended.code == Code.USAGE
    assert f"-- trian.py: there is no such file in {tmp_path}; write the path of your script" in ended.line
    (tmp_path / "src").mkdir()
    (tmp_path / "train.py").touch()
    ended = elastic("run", "--local", "--code", "src", "--", "train.py")
    assert f"there is no such file in {tmp_path / 'src'}; write the path of your script" in ended.line


SCALED = [
    (("toy", "3"), Sizes(1, 3), "run toy on this machine may have 1 to 3 pods (before: 1 to 4)"),
    (("toy", "2:8"), Sizes(2, 8), "run toy on this machine may have 2 to 8 pods (before: 1 to 4)"),
    (("3",), Sizes(1, 3), "run toy on this machine may have 1 to 3 pods (before: 1 to 4)"),
    (("2:2",), Sizes(2, 2), "run toy on this machine may have 2 pods (before: 1 to 4)"),
]


@pytest.mark.parametrize(("words", "sizes", "told"), SCALED)
def test_scale_changes_what_the_run_is_to_have(elastic, words, sizes, told):
    with held(Run("toy", 7), Sizes(1, 4), at=folder()):
        ended = elastic("scale", *words)
        assert (ended.code, ended.out.strip()) == (Code.DONE, told)
        assert read_sizes("toy", at=folder()) == sizes


def test_scale_says_where_there_are_gpus_for_fewer(elastic):
    with held(Run("toy", 7, room=2, gpus_each=1), Sizes(1, 2), at=folder()):
        assert elastic("scale", "8").out.strip().endswith("; there are GPUs for 2")
        ended = elastic("scale", "4:8")
        assert ended.code == Code.USAGE
        assert "SIZE 4:8: 4 pods of 1 GPU each need 4 GPUs, and this machine has room for 2 such pods" in ended.line


WRONG = [
    (("toy", "1"), "SIZE 1: run toy has 2 pods at least; write 1:1 to lower both bounds"),
    (("toy", "many"), "SIZE 'many': write 2:8 for 2 to 8 pods, or 4 for at most 4"),
    (("toy",), "SIZE: write how many pods, as in `scale toy 4`"),
    (("2-8",), "SIZE '2-8': write 2:8 for 2 to 8 pods, or 4 for at most 4"),
    (("toy", "3", "-o", "json"), "--output json: run toy on this machine is no object"),
]


@pytest.mark.parametrize(("words", "told"), WRONG)
def test_a_wrong_size_is_one_line_and_changes_nothing(elastic, words, told):
    with held(Run("toy", 7), Sizes(2, 4), at=folder()):
        ended = elastic("scale", *words)
        assert ended.code == Code.USAGE
        assert told in ended.line
        assert read_sizes("toy", at=folder()) == Sizes(2, 4)


def test_scale_of_a_run_that_has_ended_says_that_neither_a_run_nor_a_cluster_is_there(elastic):
    ended = elastic("scale", "toy", "3")
    assert ended.code == Code.UNREACHABLE
    assert "no run of this machine is named 'toy', and no cluster can be reached: there is no kubeconfig" in ended.line


CLUSTER = [("other", "3"), ("toy", "3", "-n", "team-a"), ("toy", "3", "--context", "c")]


@pytest.mark.parametrize("words", CLUSTER)
def test_another_name_or_place_means_a_job_of_the_cluster(elastic, words):
    with held(Run("toy", 7), Sizes(1, 4), at=folder()):
        assert elastic("scale", *words).code == Code.UNREACHABLE
        assert read_sizes("toy", at=folder()) == Sizes(1, 4)


def test_a_size_alone_means_a_run_on_this_machine(elastic):
    ended = elastic("scale", "3")
    assert ended.code == Code.NOT_FOUND
    assert "nothing trains here by `run --local`" in ended.line
    assert "`scale toy 3`" in ended.line
