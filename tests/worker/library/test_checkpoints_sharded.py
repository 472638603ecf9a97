"""Two real ranks: shards saved together and read into other shards; and one rank that saves alone beside another."""

import json
import re

import pytest
import torch

from elastic_worker.library.checkpoints import Checkpoints
from tests.worker.disk import small_disk
from tests.worker.library import processes

WORLD = 2
LIMIT_SECONDS = 120

RANK = """
    from torch.distributed.device_mesh import init_device_mesh
    from elastic_worker.library import manifest
    from elastic_worker.library.checkpoints import CheckpointError, Checkpoints
    try:
        from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    except ImportError:
        from torch.distributed._tensor import Replicate, Shard, distribute_tensor

    dist.init_process_group("gloo", init_method=f"file://{folder}.rendezvous", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    whole = torch.arange(22.0).reshape(11, 2)

    def state(tensor, placement, **more):
        return {"model": {"w": distribute_tensor(tensor, mesh, [placement]), "b": torch.full((3,), 7.0)}, **more}

    told = {}
    checkpoints, world = Checkpoints(folder, keep=9), dist.group.WORLD
    checkpoints.save(state(whole, Shard(0), step=4, tuple=(1, None)), step=4, order=(1, 0), wait=True, group=world)
    told["files"] = sorted(json.load(open(f"{folder}/step-4/manifest.json"))["files"])

    read, digest_of = [], manifest.digest_of
    manifest.digest_of = lambda file: read.append(file.name) or digest_of(file)
    found = checkpoints.newest(world)
    told["found"], told["read"] = found.path.name, sorted(read)
    manifest.digest_of = digest_of
    for name, placement in (("rows", Shard(0)), ("columns", Shard(1)), ("copies", Replicate())):
        template = state(torch.zeros(11, 2), placement)
        loaded = checkpoints.load(found, template)
        same = loaded["model"]["w"] is template["model"]["w"] and loaded["tuple"] == (1, None)
        told[name] = [same, torch.equal(template["model"]["w"].full_tensor(), whole), loaded["model"]["b"].tolist()]

    checkpoints.save(state(whole, Shard(0)), step=5, order=(1, 0))
    checkpoints._join()
    told["without group"] = checkpoints.problem

    if rank == 0:
        checkpoints.save({"alone": torch.ones(3)}, step=6, order=(1, 0), wait=True)
    dist.barrier()

    bad = {"bad": lambda: 0} if rank == 1 else {}
    checkpoints.save(state(whole, Shard(0), **bad), step=7, order=(1, 0), group=world)
    told["bad rank"] = checkpoints.problem
    checkpoints.save(state(whole, Shard(0)), step=8, order=(0, 0), group=world)
    told["cut off"] = checkpoints.problem

    full = Checkpoints(small)
    full.save(state(torch.ones(4_000_000), Shard(0)), step=9, order=(1, 0), group=world)
    told["full"] = full.problem
    full.save(state(torch.ones(1_000), Shard(0)), step=9, order=(1, 0), group=world, wait=True)
    told["then"] = [full.problem, full.last_step]

    checkpoints.save(state(whole + 1, Shard(0)), step=10, order=(1, 0), group=world, wait=True)
    checkpoints.save(state(whole + 2, Shard(0)), step=10, order=(1, 0), group=world, wait=True)
    told["last"] = checkpoints.last_step

    torn = Checkpoints(f"{folder}-torn")
    for step in (1, 2):
        torn.save(state(whole + step, Shard(0)), step=step, order=(1, 0), group=world, wait=True)
    told["torn"] = []
    for step in (2, 1):
        if rank == 0:
            open(f"{folder}-torn/step-{step}/__1_0.distcp", "r+b").write(b"torn")
        dist.barrier()
        try:
            told["torn"].append(torn.newest(world).path.name)
        except CheckpointError as error:
            told["torn"].append(str(error))
    tell(**told)
    dist.barrier()
    dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """The folder that two ranks have saved to, and what each of them tells."""
    place = tmp_path_factory.mktemp("sharded")
    folder = place / "checkpoints"
    with small_disk(place / "small", "8m") as small:
        folders = f"    folder, small = {str(folder)!r}, {str(small)!r}"
        yield folder, processes.run(folders + RANK, WORLD, seconds=LIMIT_SECONDS)


def test_each_rank_writes_its_shards_and_all_are_in_the_manifest(ranks):
    _, told = ranks
    expected = [".metadata", "__0_0.distcp", "__1_0.distcp", "structure.pickle"]
    assert [rank["files"] for rank in told] == [expected] * WORLD


def test_shards_are_read_into_other_shards(ranks):
    _, told = ranks
    for name in ("rows", "columns", "copies"):
        assert [rank[name] for rank in told] == [[True, True, [7.0] * 3]] * WORLD


def test_each_file_is_checked_by_one_rank(ranks):
    _, told = ranks
    assert [rank["found"] for rank in told] == ["step-4"] * WORLD
    assert [rank["read"] for rank in told] == [[".metadata", "__0_0.distcp", "structure.pickle"], ["__1_0.distcp"]]


def test_what_one_rank_finds_torn_is_passed_over_by_all(ranks):
    _, told = ranks
    assert told[0]["torn"] == told[1]["torn"]
    assert told[0]["torn"][0] == "step-1"
    assert "step-1: __1_0.distcp has checksum" in told[0]["torn"][1]


def test_one_process_reads_what_two_have_saved(ranks):
    folder, _ = ranks
    checkpoints = Checkpoints(folder)
    found = checkpoints.newest()
    loaded = checkpoints.load(found)
    assert found.step == 10
    assert json.loads((found.path / "manifest.json").read_text())["world"] == WORLD
    assert torch.equal(loaded["model"]["w"], torch.arange(22.0).reshape(11, 2) + 1)
    assert type(loaded["model"]["w"]) is torch.Tensor


def test_one_rank_of_two_saves_alone(ranks):
    folder, told = ranks
    assert (folder / "step-6" / "manifest.json").exists()
    assert [rank["last"] for rank in told] == [10] * WORLD


def test_shards_without_a_group_are_refused(ranks):
    for rank in ranks[1]:
        assert "model/w is sharded over several ranks: all of them must save together" in rank["without group"]


def test_what_fails_on_one_rank_is_told_on_all(ranks):
    _, told = ranks
    for name, why in (
        ("bad rank", "step 7 was not saved: on rank 1: state/bad (function) cannot be pickled"),
        ("cut off", "step 8 was not saved: a newer master (epoch 1) has written here; this one (epoch 0) is cut off"),
    ):
        assert [rank[name][: len(why)] for rank in told] == [why] * WORLD
    assert told[0]["full"] == told[1]["full"]
    assert re.match(r"step 9 was not saved: on rank [01]: no space left in .*small: make room", told[0]["full"])
    assert [rank["then"] for rank in told] == [["", 9]] * WORLD
