"""Small models, their data and their loss: the same for scripts that use the library and for plain torch."""

import torch
from torch import nn

WIDTH = 16


def mlp():
    """No random numbers, no statistics: its gradients are the same however the batch is cut."""
    return nn.Sequential(nn.Linear(WIDTH, 32), nn.Tanh(), nn.Linear(32, WIDTH))


def conv():
    """Two convolutions on 4 x 4 pixels."""
    return nn.Sequential(
        nn.Unflatten(1, (1, 4, 4)),
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32, WIDTH),
    )


def norm():
    """Batch statistics over samples and pixels, and over samples alone.

    No biases before them: their gradients would be rounding errors, of which the optimizer makes steps.
    """
    return nn.Sequential(
        nn.Unflatten(1, (1, 4, 4)),
        nn.Conv2d(1, 4, 3, padding=1, bias=False),
        nn.BatchNorm2d(4),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(64, 24, bias=False),
        nn.BatchNorm1d(24),
        nn.Linear(24, WIDTH),
    )


def dropout():
    """Random numbers in each forward pass."""
    return nn.Sequential(nn.Linear(WIDTH, 32), nn.Tanh(), nn.Dropout(0.3), nn.Linear(32, WIDTH))


MODELS = {"mlp": mlp, "conv": conv, "norm": norm, "dropout": dropout}


def build(names):
    """The models of these names, each with the parameters that it always begins with; `mlp32` is `mlp` in fp32."""
    models = {}
    for name in names:
        torch.manual_seed(11)
        dtype = torch.float32 if name.endswith("32") else torch.float64
        models[name] = MODELS[name.removesuffix("32")]().to(dtype)
    return models


def samples(length):
    """The samples, a row each: (length, WIDTH)."""
    return torch.randn(length, WIDTH, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def loss_of(model, rows):
    """The mean loss over the rows: the model learns each row, shifted by one."""
    rows = rows.to(next(model.parameters()).dtype)
    return (model(rows) - rows.roll(1, 1)).square().mean()


def optimizer_of(model):
    """An optimizer with state."""
    return torch.optim.AdamW(model.parameters(), lr=0.01)


def factor(step):
    """The factor of the learning rate, which differs in each step."""
    return 1 / (1 + step / 50)


def scaler():
    """At its first scale gradients that are not small overflow; later it grows now and then."""
    return torch.amp.GradScaler("cpu", init_scale=2.0**127, backoff_factor=2.0**-20, growth_interval=7)
