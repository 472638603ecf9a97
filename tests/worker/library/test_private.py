"""What the worker uses of torch without torch's promise stands in one list, is there, and is tried before it is used.

To be run with each torch: ELASTIC_TORCH_TREE=oldest.
"""

import ast
from pathlib import Path

import pytest
import torch
from torch import distributed as dist
from torch.nn.parallel import distributed as torch_ddp

import elastic_worker
from elastic_worker.library import private, trial

PACKAGE = Path(elastic_worker.__file__).parent
OF_PYTHON = {"_asdict", "_current_frames", "_exit", "_run_module_as_main", "_process_counter", "_resource_tracker"} | {
    "_getframe",
    "_fd",  # of multiprocessing's resource tracker
    "_pid",
}
OF_LIGHTNING = {"_combined_loader", "_data_fetcher"}
"""A known limit, with the version they were tried with (docs/limits.md)."""
NAMED_IN_FILES = PACKAGE / "library" / "checkpoint_values.py"
"""Has names that may stand in a checkpoint, and uses none that does not."""


@pytest.mark.parametrize("what", [private.GROUPS, private.OTHERS], ids=["groups", "others"])
def test_this_torch_has_all_of_it(what):
    assert private.lacking(what) == ""


@pytest.mark.skipif(not dist.is_nccl_available(), reason="needs a torch with NCCL")
def test_this_torch_has_what_nccl_needs():
    assert private.lacking(private.OF_NCCL) == ""


def test_what_objects_of_a_class_keep_is_there_where_the_class_declares_it():
    kept = (("torch.nn:Module._buffers",), ("torch.nn:Module._gone",))
    assert private.lacking(kept) == "this torch has no torch.nn:Module._gone"


def test_nothing_else_is_used():
    """Private names on anything but `self`, and in strings, by all modules of the worker."""
    listed = set(private.names()) | OF_PYTHON | OF_LIGHTNING
    nodes = {path: list(ast.walk(ast.parse(path.read_text()))) for path in PACKAGE.rglob("*.py")}
    ours = {path: {name for node in each for name in made_by(node)} for path, each in nodes.items()}
    used = {(path, name) for path, each in nodes.items() for node in each for name in asked_by(node)}
    others = {(path.name, name) for path, name in used if path != NAMED_IN_FILES and name not in listed | ours[path]}
    assert others == set()
    assert {name for _, name in used} & set(private.names()) > {"_world", "_register_backend", "_sync_module_states"}
    inherited = {name for each in nodes.values() for node in each for name in inherited_by(node)}
    assert "_sync_buffers" in inherited
    assert inherited <= listed


def made_by(node):
    """Names of our own."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    if isinstance(node, ast.Attribute) and is_self(node.value):
        yield node.attr


def asked_by(node):
    """Private names that somebody else may have made."""
    name = ""
    if isinstance(node, ast.Attribute) and not is_self(node.value):
        name = node.attr
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
        name = node.value
    if name.strip("_") and name.startswith("_") and not name.startswith("__"):
        yield name


def inherited_by(node):
    """Private names that a base class has made, whatever is made of the same name here."""
    if isinstance(node, ast.Attribute) and ast.unparse(node).startswith("super()._") and not node.attr.startswith("__"):
        yield node.attr


def is_self(node):
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def test_each_of_the_list_is_used():
    said = "".join(path.read_text() for path in PACKAGE.rglob("*.py") if path.name != "private.py")
    places = [place for places in (*private.GROUPS, *private.OTHERS, *private.OF_NCCL) for place in places]
    last = {place.rpartition(".")[2].rpartition(":")[2] for place in places}
    # torch leaves what it is told there in the module, under a name that is asked for.
    assert {name for name in last if name not in said} == {"_set_params_and_buffers_to_ignore_for_model"}


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (dist.distributed_c10d, "_update_default_pg"),
        (torch_ddp, "_sync_module_states"),
        (dist, "Reducer"),
        (torch, "_foreach_copy_"),
    ],
)
def test_what_a_torch_to_come_has_no_more_is_named_and_nothing_is_tried(monkeypatch, owner, name):
    monkeypatch.delattr(owner, name)
    monkeypatch.setattr(trial, "_try", None)
    told = trial.self_test()
    assert told.startswith("this torch has no ")
    assert name in told


def test_a_model_that_learns_nothing_in_its_second_group_is_found(monkeypatch):
    regroup, groups = trial.ElasticDDP.regroup, []

    def forget_the_bias(model, formed, **how):
        model.module.bias.requires_grad_(not groups)
        groups.append(formed)
        regroup(model, formed, **how)

    monkeypatch.setattr(trial.ElasticDDP, "regroup", forget_the_bias)
    assert "has the gradients [[[1.0, 1.0]], None]" in trial.self_test()
    assert not dist.is_initialized()


def test_the_trial_draws_no_random_numbers():
    before = torch.get_rng_state()
    assert trial.self_test() == ""
    assert torch.equal(before, torch.get_rng_state())
