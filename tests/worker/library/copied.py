"""Models with buffers, and how much of them is copied for a step."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from elastic_worker.library.rollback import Rollback

COPIES = {"aten::clone", "aten::copy_"}


class Copied(TorchDispatchMode):
    """Counts the elements that are copied."""

    def __init__(self):
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.name().split(".")[0]
        if name in COPIES:
            self.elements += args[0].numel()
        elif name == "aten::_foreach_copy_":
            self.elements += sum(each.numel() for each in args[0])
        return function(*args, **(kwargs or {}))


class Masked(torch.nn.Module):
    """A constant, and something to write to."""

    def __init__(self, values=(1.0, 2.0)):
        super().__init__()
        self.register_buffer("mask", torch.tensor(values))
        self.register_buffer("nothing", None)


def network():
    """What is written to in each step, and what never is: 1,000 elements of it."""
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(4), Masked([1.0] * 1000))
    return model, Rollback(model)


def step(kept, write=lambda: None):
    """One that counts; the elements that were copied for it."""
    with Copied() as copied:
        kept.begin()
    write()
    kept.end()
    return copied.elements


def bits(model):
    return {name: (id(each), each.tolist()) for name, each in model.named_buffers()}


def test_what_no_step_writes_to_is_not_copied_again_and_batchnorms_statistics_are():
    model, kept = network()
    copied = [step(kept, lambda: model[0](torch.randn(8, 4))) for _ in range(6)]
    assert copied == [1009, 1009, 9, 9, 9, 9]
    model[1].mask.mul_(2)
    copied = [step(kept, lambda: model[0](torch.randn(8, 4))) for _ in range(3)]
    assert copied == [1009, 1009, 9]
    kept.forget()
    assert step(kept) == 1009
