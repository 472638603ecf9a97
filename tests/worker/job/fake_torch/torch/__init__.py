"""As much of torch as a launcher, its warm parent and a plain training script meet, in plain Python and loaded at once.

What the launcher depends on is as in torch: where processes meet, that a lost peer ends a collective with an error,
that a handler of the script's waits for a collective's end, which optimizer steps are told of, and what a checkpoint
looks like while it is written. `tests/worker/job/test_fake_torch.py` asks both the same.
"""

import math
import pickle
import random
import zipfile
from array import array

from torch import compiler as compiler
from torch import cuda as cuda

__version__ = "0.fake"
default_generator = random.Random()
_threads = 1


class Tensor:
    """Numbers, of float64; `of_sum` is what `backward` of their sum does."""

    def __init__(self, values, shape, *, of_sum=None):
        self.values, self.shape, self.of_sum = array("d", values), tuple(shape), of_sum
        self.grad = None

    def sum(self):
        return Tensor([math.fsum(self.values)], (), of_sum=self.of_sum)

    def backward(self):
        self.of_sum()

    def item(self):
        (value,) = self.values
        return value

    def tolist(self):
        """Of one dimension, whatever the shape."""
        return self.values.tolist()


def tensor(values):
    return Tensor(values, (len(values),))


def ones(*shape):
    return Tensor([1.0] * math.prod(shape), shape)


def randn(*shape):
    return Tensor([default_generator.gauss(0, 1) for _ in range(math.prod(shape))], shape)


def set_num_threads(number):
    global _threads
    _threads = number


def get_num_threads():
    return _threads


def save(what, file):
    """A zip, as torch's: the table of contents comes last, and a file that is cut has none."""
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(what))


def load(file):
    try:
        with zipfile.ZipFile(file) as archive:
            return pickle.loads(archive.read("archive/data.pkl"))
    except zipfile.BadZipFile as error:
        raise RuntimeError(f"PytorchStreamReader failed reading zip archive: {error}") from None


from torch import distributed as distributed  # noqa: E402  # they need tensors
from torch import nn as nn  # noqa: E402
from torch import optim as optim  # noqa: E402
