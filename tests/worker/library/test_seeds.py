"""The random numbers of a micro-batch are its own."""

import random
import subprocess
import sys
from contextlib import suppress

import numpy
import torch

from elastic_worker.library.sampler import MicroBatch
from elastic_worker.library.seeds import kept_on_cpu, seed_for, stable_hash


def micro(seed):
    return MicroBatch([0], 1.0, True, seed)


def draw():
    """One number from each generator."""
    return float(torch.rand(())), float(numpy.random.random()), random.random()


def test_the_same_micro_batch_draws_the_same_and_another_one_does_not():
    drawn = {}
    for seed in (1, 2, 2**63 - 1, 1):
        seed_for(micro(seed))
        drawn.setdefault(seed, set()).add((draw(), draw()))
    assert [len(of_seed) for of_seed in drawn.values()] == [1, 1, 1]
    for column in range(3):
        assert len({of_first[column] for of_seed in drawn.values() for of_first, _ in of_seed}) == 3


def test_dropout_follows_the_micro_batch():
    def dropped():
        seed_for(micro(7))
        return torch.nn.functional.dropout(torch.ones(100), 0.5)

    first = dropped()
    torch.rand(10)
    assert torch.equal(first, dropped())


def test_what_is_drawn_within_leaves_the_generators_as_they_were():
    seed_for(micro(3))
    expected = draw()
    seed_for(micro(3))
    within = []
    with suppress(ZeroDivisionError), kept_on_cpu():
        seed_for(micro(4))
        within.append(draw())
        raise ZeroDivisionError
    assert draw() == expected
    assert within[0] != expected


def test_numpy_is_seeded_before_it_was_ever_drawn_from():
    """NumPy 2 imports its generators lazily: they were not there yet when the first micro-batch was seeded."""
    code = (
        "import numpy; from types import SimpleNamespace; from elastic_worker.library.seeds import seed_for\n"
        "seed_for(SimpleNamespace(seed=5)); first = numpy.random.random()\n"
        "seed_for(SimpleNamespace(seed=5)); print(first == numpy.random.random())"
    )
    assert run(code).split() == ["True"]


def test_neither_numpy_nor_cuda_is_woken_up():
    code = (
        "import sys; sys.modules['numpy'] = None\n"  # an image without it: imports fail
        "import warnings; warnings.simplefilter('ignore')\n"
        "import torch; from types import SimpleNamespace; from elastic_worker.library.seeds import *\n"
        "seed_for(SimpleNamespace(seed=5)); first = torch.rand(3)\n"
        "with kept_on_cpu(): seed_for(SimpleNamespace(seed=5)); assert torch.equal(first, torch.rand(3))\n"
        "print(torch.cuda.is_initialized(), sys.modules.get('numpy'), 'numpy.random' in sys.modules)"
    )
    assert run(code).split() == ["False", "None", "False"]


def run(code):
    """What a new process prints."""
    told = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": ":".join(sys.path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    return told.stdout


def test_hashes_are_63_bits_and_differ_by_purpose_and_number():
    values = {stable_hash(purpose, a, b) for purpose in ("x", "y") for a in range(20) for b in range(20)}
    assert len(values) == 800
    assert max(values) < 2**63
    assert stable_hash("x", 1, 12) != stable_hash("x", 11, 2)


def test_the_hash_stays_as_it_is_since_checkpoints_rely_on_it():
    """The upper 63 bits of `printf micro/0/1/2 | b2sum -l 64`."""
    assert stable_hash("micro", 0, 1, 2) == 0x2979_D92C_B9AD_D2E7 >> 1
