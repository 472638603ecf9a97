"""Fingerprints of weights."""

import itertools
from types import SimpleNamespace

import pytest
import torch
from torch import distributed as dist

from elastic_worker.library import replicas
from elastic_worker.library.replicas import Comparison, DivergedError, fingerprint

KINDS = [torch.float64, torch.float32, torch.bfloat16, torch.uint8, torch.bool, torch.complex64, torch.complex128]


def tensors():
    """Of each dtype one whose bytes are whole words, one whose are not, one with gaps, one in the middle of another."""
    made = []
    for kind in KINDS:
        whole = torch.arange(8).reshape(2, 4).to(kind)
        made += [whole.clone(), whole[:1, :3].clone(), whole[:, 1:3], whole[1]]
    return [*made, torch.zeros(0), torch.tensor(3.0)]


def test_equal_weights_have_one_fingerprint_however_they_lie_in_memory():
    assert fingerprint(tensors()) == fingerprint(each.clone() for each in tensors())
    assert fingerprint([]) == 0


def test_one_flipped_bit_anywhere_is_another_fingerprint():
    usual = fingerprint(tensors())
    for number, tensor in enumerate(tensors()):
        for place, bit in itertools.product(range(tensor.numel() * tensor.element_size()), (0, 7)):
            changed = [each.clone(memory_format=torch.contiguous_format) for each in tensors()]
            changed[number].reshape(-1).view(torch.uint8)[place] ^= 1 << bit
            assert fingerprint(changed) != usual, (number, place, bit)


class ComparedRanks:
    """Ranks of one group, which tell a number at each step that they are compared after."""

    def __init__(self, world):
        self.store = dist.HashStore()
        self.ranks = [(Comparison(100), self._formed(rank, world)) for rank in range(world)]

    def _formed(self, rank, world):
        return SimpleNamespace(name="1", store=self.store, rank=rank, world=world)

    def step(self, step, *marks):
        """None for a rank that tells nothing; the errors of those that raise."""
        errors = []
        for (comparison, formed), mark in zip(self.ranks, marks, strict=True):
            try:
                if mark is not None:
                    comparison.compare(formed, mark, step=step)
            except DivergedError as error:
                errors.append(str(error))
        return errors


def test_all_ranks_learn_at_the_next_comparison_which_one_differed(monkeypatch):
    monkeypatch.setattr(replicas, "READ_SECONDS", 0.0)
    one, other = 1 << 62, (1 << 62) + (1 << 50)
    group = ComparedRanks(3)
    assert group.step(100, one, one, one) == []
    assert group.step(200, one, one, other) == []
    errors = group.step(300, one, one, one)
    assert len(errors) == 3
    assert all(
        "step 200: rank 2 (" in error and "than ranks 0, 1, sometime since step 100" in error for error in errors
    )


def test_a_rank_of_a_release_that_compares_nothing_keeps_nobody_waiting():
    group = ComparedRanks(2)
    assert [group.step(step, 1 << 40, None) for step in (100, 200, 300)] == [[], [], []]


@pytest.mark.parametrize("world", [2, 3])
def test_the_store_does_not_grow(world):
    group, sizes = ComparedRanks(world), []
    for step in range(100, 1100, 100):
        assert group.step(step, *[1 << 40] * world) == []
        sizes.append(group.store.num_keys())
    assert len(set(sizes[2:])) == 1
