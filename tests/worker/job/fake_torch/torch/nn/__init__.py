"""One kind of layer, y = W x, whose gradient is that of the sum of what it gives."""

import itertools

from torch import Tensor, randn


class Linear:
    def __init__(self, width, height, *, bias=True):
        self.weight = randn(height, width)
        self.bias = Tensor([0.0] * height, (height,)) if bias else None

    def parameters(self):
        return [self.weight] if self.bias is None else [self.weight, self.bias]

    def state_dict(self):
        return {"weight": self.weight, **({} if self.bias is None else {"bias": self.bias})}

    def __call__(self, batch):
        rows, width = batch.shape
        height = self.weight.shape[0]
        vectors, weights = batched(batch.values, width), batched(self.weight.values, width)
        offsets = [0.0] * height if self.bias is None else self.bias.values
        given = [
            sum(map(float.__mul__, vector, line)) + offset
            for vector in vectors
            for line, offset in zip(weights, offsets, strict=True)
        ]

        def of_sum():
            add_to_gradient(self.weight, [*map(sum, zip(*vectors, strict=True))] * height)
            if self.bias is not None:
                add_to_gradient(self.bias, [float(rows)] * height)

        return Tensor(given, (rows, height), of_sum=of_sum)


def batched(values, width):
    return [values[start : start + width] for start in range(0, len(values), width)]


def add_to_gradient(parameter, values):
    before = itertools.repeat(0.0) if parameter.grad is None else parameter.grad.values
    parameter.grad = Tensor(map(float.__add__, values, before), parameter.shape)


from torch.nn import parallel as parallel  # noqa: E402  # it needs this module
