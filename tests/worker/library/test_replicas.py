"""Fingerprints of weights."""

import itertools

import torch

from elastic_worker.library.replicas import fingerprint

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
