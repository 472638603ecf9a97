"""What is saved comes back bit for bit, with its types; and the folder is kept as promised."""

import collections
import datetime
import enum
import json
import logging
import math
import os
import pathlib
import pickle
import types
from decimal import Decimal

import numpy
import pytest
import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from elastic_worker.library.checkpoint_save import SaveAttempt
from elastic_worker.library.checkpoint_values import UnknownNameError, find
from elastic_worker.library.checkpoints import CheckpointError, Checkpoints

ORDER = (1, 0)
Pair = collections.namedtuple("Pair", "left right")
Side = enum.Enum("Side", "LEFT RIGHT")


@pytest.fixture
def tmp_path(tmp_path):
    """A folder in one of the test's own: masters leave their notes beside the checkpoints, too (109)."""
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    return folder


def trained(*, width=3, steps=3):
    """A model and an optimizer with a state."""
    torch.manual_seed(steps)
    model = torch.nn.Sequential(torch.nn.Linear(4, width), torch.nn.BatchNorm1d(width))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(steps):
        model(torch.randn(5, 4)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model, optimizer


def assert_same(left, right):
    """Types, keys and their order, bits."""
    assert type(left) is type(right)
    if isinstance(left, torch.Tensor):
        assert (left.dtype, left.shape) == (right.dtype, right.shape)
        assert torch.equal(bits(left), bits(right))
    elif isinstance(left, dict):
        assert [*left] == [*right]
        for key in left:
            assert_same(left[key], right[key])
    elif isinstance(left, (list, tuple)):
        assert len(left) == len(right)
        for one, other in zip(left, right):  # noqa: B905  # their lengths are compared above
            assert_same(one, other)
    elif isinstance(left, float) and math.isnan(left):
        assert math.isnan(right)
    else:
        assert left == right


def bits(tensor):
    """Of each element: NaN equals itself, and 0.0 is not -0.0."""
    return tensor.detach().clone(memory_format=torch.contiguous_format).reshape(-1).view(torch.uint8)


def saved(folder, state, **more):
    """The state after a round trip through the folder."""
    Checkpoints(folder).save(state, step=1, order=ORDER, wait=True, **more)
    checkpoints = Checkpoints(folder)
    return checkpoints.load(checkpoints.newest())


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    "state",
    [
        {
            "rng": torch.get_rng_state(),
            "empty": torch.empty(0),
            "gap": torch.empty(3, 0, 2),
            "scalar": torch.tensor(3.5),
        },
        {"half": torch.randn(5).bfloat16(), "double": torch.randn(5).double(), "flags": torch.tensor([True, False])},
        {"strange": torch.tensor([math.nan, -0.0, math.inf]), "complex": torch.randn(3, dtype=torch.complex64)},
        {"turned": torch.randn(4, 6).t(), "every other": torch.randn(9)[::2], "expanded": torch.randn(1).expand(7)},
        {"nhwc": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)},
        {1: torch.ones(1), "1": torch.zeros(1), (1, "a"): torch.ones(2), None: torch.zeros(2), 2.5: 3},
        {
            "a": {"b": torch.ones(1)},
            "a/b": torch.zeros(1),
            "a.b": torch.ones(2),
            "#0": torch.ones(3),
            "": torch.ones(4),
        },
        {
            "values": (1, 2.5, None, "text", b"bytes", True, math.nan, {"x"}, 10**40),
            "list": [[], (), {}, [torch.ones(1)]],
        },
        {"ordered": collections.OrderedDict(b=torch.ones(1), a=2), "pair": Pair(torch.ones(2), [1]), "side": Side.LEFT},
        {"numpy": [numpy.float64(2.5), numpy.arange(5).tolist(), numpy.random.RandomState(1).get_state()[0]]},
        {"dtype": torch.bfloat16, "size": torch.Size([2, 3]), "device": torch.device("cpu"), "layout": torch.strided},
        {"when": datetime.timedelta(seconds=3), "where": pathlib.Path("/a"), "span": range(3), "number": Decimal("2")},
        {"sparse": torch.eye(3).to_sparse().coalesce().indices(), "default": collections.defaultdict(int, a=1)},
        [torch.ones(2), {"x": torch.zeros(1)}],
        {},
    ],
    ids=lambda state: " ".join(map(str, state))[:40],
)
def test_every_kind_of_state_comes_back_as_it_was(tmp_path, state):
    torch.serialization.add_safe_globals([Pair, Side])
    assert_same(state, saved(tmp_path, state))


def test_a_model_and_its_optimizer_come_back_bit_for_bit_and_train_on_alike(tmp_path):
    model, optimizer = trained()
    loaded = saved(tmp_path, {"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    assert_same({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, loaded)
    assert loaded["model"]._metadata == model.state_dict()._metadata

    again, its_optimizer = trained(steps=1)
    again.load_state_dict(loaded["model"])
    its_optimizer.load_state_dict(loaded["optimizer"])
    for one, its in ((model, optimizer), (again, its_optimizer)):
        torch.manual_seed(5)
        one(torch.randn(5, 4)).square().sum().backward()
        its.step()
    assert_same(model.state_dict(), again.state_dict())


def test_tensors_that_share_memory_come_back_equal(tmp_path):
    weight = torch.nn.Parameter(torch.randn(4, 3))
    loaded = saved(tmp_path, {"embedding": weight, "head": weight, "row": weight.detach()[2], "twice": weight.detach()})
    for name in ("embedding", "head", "twice"):
        assert torch.equal(loaded[name], weight)
    assert torch.equal(loaded["row"], weight[2])


def test_a_tensor_inside_an_object_is_saved(tmp_path):
    holder = types.SimpleNamespace(tensor=torch.arange(5))
    assert torch.equal(saved(tmp_path, {"sampler": holder})["sampler"].tensor, torch.arange(5))


class Custom:
    def __init__(self, value):
        self.value = value


def test_a_class_of_the_script_is_refused_when_saved_unless_torch_knows_that_it_is_safe(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    with pytest.raises(CheckpointError, match=r"state/sampler \(Custom\).*add_safe_globals\(\[Custom\]\)"):
        checkpoints.save({"sampler": Custom(3)}, step=1, order=ORDER, wait=True)
    torch.serialization.add_safe_globals([Custom])
    try:
        assert saved(tmp_path, {"sampler": Custom(3)})["sampler"].value == 3
    finally:
        torch.serialization.clear_safe_globals()
    with pytest.raises(CheckpointError, match="is not taken from a checkpoint, as its code would run"):
        checkpoints.load(checkpoints.newest())


def test_a_pickle_that_somebody_else_has_put_there_runs_no_code(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "run"),)

    checkpoints = Checkpoints(tmp_path / "folder")
    checkpoints.save({"w": torch.ones(1)}, step=1, order=ORDER, wait=True)
    found = checkpoints.newest()
    (found.path / "structure.pickle").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(CheckpointError, match=f"{os.mkdir.__module__}.mkdir is not taken from a checkpoint"):
        checkpoints.load(found)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("torch._utils", "_rebuild_tensor.__builtins__.get"),
        ("torch._utils", "_rebuild_device_tensor_from_numpy.__code__.replace"),
        ("numpy.dtypes", "Float64DType.__init_subclass__.DType"),
    ],
)
def test_a_name_that_is_allowed_leads_to_no_other(module, name):
    with pytest.raises(UnknownNameError, match=f"{module}.{name} is not taken from a checkpoint"):
        find(module, name)


def test_the_state_of_the_call_is_saved_whatever_happens_to_it_afterwards(tmp_path):
    state = {"weights": torch.zeros(1_000_000), "history": [1]}
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(state, step=1, order=ORDER)
    state["weights"].add_(1)
    state["history"].append(2)
    checkpoints.wait()
    loaded = checkpoints.load(checkpoints.newest())
    assert not loaded["weights"].any()
    assert loaded["history"] == [1]


def test_saving_again_uses_the_same_host_memory(tmp_path, monkeypatch):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save({"a": torch.zeros(10), "b": torch.zeros(3)}, step=1, order=ORDER, wait=True)
    allocated = []
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *args, **kwargs: allocated.append(args) or empty(*args, **kwargs))
    checkpoints.save({"a": torch.ones(10), "b": torch.ones(3)}, step=2, order=ORDER, wait=True)
    assert allocated == []
    checkpoints.save({"a": torch.ones(10), "b": torch.ones(4)}, step=3, order=ORDER, wait=True)
    assert allocated == [((4,),)]


def test_a_save_while_one_is_under_way_waits_for_it(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=5)
    for step in range(4):
        checkpoints.save({"w": torch.full((500_000,), step)}, step=step, order=ORDER)
    checkpoints.wait()
    assert names(tmp_path) == ["latest", "step-0", "step-1", "step-2", "step-3"]
    for step in range(4):
        found = Checkpoints(tmp_path).newest()
        assert (found.step, found.path.name) == (3 - step, f"step-{3 - step}")
        assert (checkpoints.load(found)["w"] == 3 - step).all()
        found.path.rename(tmp_path / f"gone-{step}")


def test_the_newest_ones_are_kept(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step in (90, 100, 110, 1000):
        checkpoints.save({"step": step}, step=step, order=ORDER, wait=True)
    assert names(tmp_path) == ["latest", "step-1000", "step-110"]
    assert json.loads((tmp_path / "latest").read_text()) == {"folder": "step-1000", "step": 1000, "order": [1, 0]}
    with pytest.raises(ValueError, match="keep is 0"):
        Checkpoints(tmp_path, keep=0)


def test_what_is_told_of_a_checkpoint(tmp_path):
    checkpoints = Checkpoints(tmp_path / "made" / "by us")
    assert (checkpoints.last_step, checkpoints.problem) == (None, "")
    checkpoints.save({"w": torch.ones(2)}, step=7, order=(4, 2), meta={"samples": 12}, wait=True)
    assert checkpoints.last_step == 7
    assert checkpoints.durable_seconds >= checkpoints.staged_seconds > 0

    found = Checkpoints(tmp_path / "made" / "by us").newest()
    assert (found.step, found.order, found.meta) == (7, (4, 2), {"samples": 12})
    manifest = json.loads((found.path / "manifest.json").read_text())
    assert (manifest["torch"], manifest["world"]) == (torch.__version__, 1)
    assert {*manifest["files"], "manifest.json"} == {*names(found.path)}


def test_a_step_that_is_there_is_not_written_again(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save({"w": torch.ones(2)}, step=7, order=ORDER, wait=True)
    before = (tmp_path / "step-7" / "manifest.json").stat()
    checkpoints.save({"w": torch.zeros(2)}, step=7, order=ORDER, wait=True)
    after = (tmp_path / "step-7" / "manifest.json").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert checkpoints.last_step == 7
    assert names(tmp_path) == ["latest", "step-7"]


@pytest.mark.parametrize(
    ("state", "meta", "told"),
    [
        ({"scheduler": {"lr": [1, lambda step: step]}}, {}, "state/scheduler/lr/#1 (function) cannot be pickled"),
        ({"w": torch.empty(3, device="meta")}, {}, "step 2 was not saved"),
        ({"w": 1}, {"now": object()}, "not JSON serializable"),
    ],
)
def test_what_cannot_be_saved_is_told_and_training_goes_on(tmp_path, caplog, state, meta, told):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save({"w": 1}, step=1, order=ORDER, wait=True)
    checkpoints.save(state, step=2, order=ORDER, meta=meta)
    with pytest.raises(CheckpointError) as raised:
        checkpoints.wait()
    assert told in str(raised.value)
    assert checkpoints.problem == str(raised.value)
    assert [record.levelname for record in caplog.records if "failed" in record.message] == ["WARNING"]
    assert checkpoints.last_step == 1
    assert names(tmp_path) == ["latest", "step-1"]

    checkpoints.save({"w": 2}, step=3, order=ORDER, wait=True)
    assert checkpoints.problem == ""


@pytest.mark.parametrize("newer", [(3, 0), (2, 6)])
def test_who_is_cut_off_is_refused(tmp_path, newer):
    old, new = Checkpoints(tmp_path), Checkpoints(tmp_path)
    old.save({"w": 1}, step=10, order=(2, 5), wait=True)
    new.save({"w": 2}, step=11, order=newer, wait=True)
    with pytest.raises(CheckpointError, match="is cut off"):
        old.save({"w": 1}, step=12, order=(2, 5), wait=True)
    if newer == (3, 0):
        assert "a newer master (epoch 3) has written here; this one (epoch 2) is cut off" in old.problem
    assert names(tmp_path) == ["latest", "step-10", "step-11"]

    (tmp_path / "latest").unlink()  # the manifests say the same
    with pytest.raises(CheckpointError, match="is cut off"):
        old.save({"w": 1}, step=12, order=(2, 5), wait=True)


def test_a_later_master_writes_a_step_again_that_an_earlier_one_has_written(tmp_path):
    """Both save the same steps, as at the ends of epochs; the later one's are those that count."""
    old, new = Checkpoints(tmp_path), Checkpoints(tmp_path)
    for step in (1000, 1100):
        old.save({"w": 1}, step=step, order=(1, 5), wait=True)
    new.save({"w": 2}, step=1100, order=(2, 6), wait=True)
    found = new.newest()
    assert (found.order, new.load(found)) == ((2, 6), {"w": 2})
    with pytest.raises(CheckpointError, match=r"this one \(epoch 1\) is cut off"):
        old.save({"w": 1}, step=1200, order=(1, 5), wait=True)
    assert names(tmp_path) == ["latest", "step-1000", "step-1100"]


def test_the_newest_is_the_later_master_s_although_an_earlier_one_has_got_further(tmp_path):
    old, new = Checkpoints(tmp_path), Checkpoints(tmp_path)
    for step in (1000, 1200):
        old.save({"w": 1}, step=step, order=(1, 5), wait=True)
    new.save({"w": 2}, step=1100, order=(2, 6), wait=True)
    assert new.newest().step == 1100
    assert names(tmp_path) == ["latest", "step-1100", "step-1200"]
    Checkpoints(tmp_path, keep=1).save({"w": 2}, step=1150, order=(2, 6), wait=True)
    assert names(tmp_path) == ["latest", "step-1150"]


def test_a_later_master_that_has_written_nothing_yet_keeps_an_earlier_one_from_writing(tmp_path):
    old, new = Checkpoints(tmp_path), Checkpoints(tmp_path)
    old.begin("job", epoch=1)
    old.save({"w": 1}, step=1000, order=(1, 5), wait=True)
    new.begin("job", epoch=2)
    with pytest.raises(CheckpointError, match=r"this one \(epoch 1\) is cut off"):
        old.save({"w": 1}, step=1100, order=(1, 5), wait=True)
    Checkpoints(tmp_path).begin("another job", epoch=3)
    new.save({"w": 2}, step=1100, order=(2, 6), wait=True)
    assert new.newest().order == (2, 6)


def test_a_group_that_a_later_master_takes_over_meanwhile_may_write(tmp_path):
    """Its epoch is there when it starts, and moments later the group's processes hear that they are its."""
    masters = iter([1, 1, *[2] * 1000])
    checkpoints, new = Checkpoints(tmp_path), Checkpoints(tmp_path)
    checkpoints.begin("job", epoch=1, obeyed=lambda: next(masters))
    new.begin("job", epoch=2)
    checkpoints.save({"w": 1}, step=1000, order=(1, 5), wait=True)
    assert checkpoints.newest().step == 1000


def test_who_is_overtaken_while_writing_does_not_publish(tmp_path, monkeypatch):
    """As an old master that was cut off in the middle of a save, and comes back."""
    complete = SaveAttempt.complete

    def complete_late(*arguments):
        monkeypatch.undo()
        assert names(tmp_path) == ["latest", "step-1", "step-9.2-0.tmp"]
        Checkpoints(tmp_path).save({"w": 2}, step=2, order=(3, 0), wait=True)
        return complete(*arguments)

    old = Checkpoints(tmp_path)
    old.save({"w": 1}, step=1, order=(2, 0), wait=True)
    monkeypatch.setattr(SaveAttempt, "complete", complete_late)
    with pytest.raises(CheckpointError):
        old.save({"w": 1}, step=9, order=(2, 0), wait=True)
    why = "a newer master (epoch 3) has written here; this one (epoch 2) is cut off"
    assert old.problem == f"step 9 was not saved: {why}"
    assert names(tmp_path) == ["latest", "step-1", "step-2"]


def test_only_what_older_or_equal_attempts_left_is_removed(tmp_path):
    for name in ("step-3.1-0.tmp", "step-4.2-0.tmp", "step-4.2-1.tmp", "old-1.1-9.tmp"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__0_0.distcp").write_bytes(b"half")
    Checkpoints(tmp_path).save({"w": 1}, step=5, order=(2, 0), wait=True)
    assert names(tmp_path) == ["latest", "step-4.2-1.tmp", "step-5"]


def test_parts_with_a_template_are_read_into_its_tensors(tmp_path):
    model, optimizer = trained()
    checkpoints = Checkpoints(tmp_path)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}
    checkpoints.save(state, step=1, order=ORDER, wait=True)

    again, its_optimizer = trained(steps=0)
    template = {"model": again.state_dict(), "optimizer": its_optimizer.state_dict(), "epoch": 0}
    loaded = checkpoints.load(checkpoints.newest(), template)
    assert_same(state, loaded)
    assert_same(model.state_dict(), again.state_dict())


def test_another_model_is_refused_with_the_keys_that_differ(tmp_path):
    model, _ = trained(width=3)
    other = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.LayerNorm(5))
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save({"model": model.state_dict()}, step=1, order=ORDER, wait=True)
    before = [parameter.clone() for parameter in other.parameters()]
    with pytest.raises(CheckpointError) as raised:
        checkpoints.load(checkpoints.newest(), {"model": other.state_dict()})
    told = str(raised.value)
    assert "model/0.bias: (3,) there, (5,) here; model/0.weight: (3, 4) there, (5, 4) here" in told
    assert "and 4 more" in told
    assert "choose another folder" in told
    assert all(map(torch.equal, before, other.parameters()))

    with pytest.raises(CheckpointError, match=r"network/0\.weight: missing there, \(3, 4\) here"):
        checkpoints.load(checkpoints.newest(), {"network": {"0.weight": model[0].weight}})


def test_the_other_tools_of_torch_can_read_it(tmp_path):
    model, _ = trained()
    checkpoints = Checkpoints(tmp_path / "folder")
    checkpoints.save({"model": model.state_dict()}, step=1, order=ORDER, wait=True)
    dcp_to_torch_save(checkpoints.newest().path, tmp_path / "file.pt")
    flat = torch.load(tmp_path / "file.pt", weights_only=True)
    there = {f"model/{name}": tensor for name, tensor in model.state_dict().items()}
    assert_same(dict(sorted(there.items())), dict(sorted(flat.items())))


def test_nothing_there_is_no_checkpoint(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    assert Checkpoints(tmp_path).newest() is None
    assert Checkpoints(tmp_path / "not there").newest() is None
    assert caplog.records == []
