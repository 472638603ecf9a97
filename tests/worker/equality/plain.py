"""The same training in plain torch: one process, no wrapper, no library but for the order of the samples."""

from contextlib import nullcontext

import torch
from torch import nn

from elastic_worker.library.sampler import Sampler
from tests.worker.equality import models


def train(
    name,
    *,
    epochs,
    length,
    batch,
    micro,
    drop_last=False,
    clip=None,
    schedule=False,
    scaler=False,
    autocast=False,
    magnify=1.0,
    whole=True,
    counted=None,
):
    """The model at the end. With `whole` each global batch goes through it at once, else in its micro-batches.

    Only the first `counted` micro-batches of a global batch count for running statistics; all if it is None.
    """
    model = models.build([name])[name]
    optimizer = models.optimizer_of(model)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, models.factor) if schedule else None
    scales = models.scaler() if scaler else None
    rows = models.samples(length)
    data = Sampler(length, global_batch=batch, micro_batch=micro, seed=7, drop_last=drop_last)
    for _ in range(epochs):
        while (share := data.share(0, 1)) is not None:
            for indices, weight, seed in _cut(share, whole=whole):
                torch.manual_seed(seed)
                if counted is not None:
                    first = next(i for i, each in enumerate(share.micro) if each.indices == indices)
                    _count(model, yes=first < counted(len(share.micro)))
                with torch.autocast("cpu", dtype=torch.bfloat16) if autocast else nullcontext():
                    loss = models.loss_of(model, rows[indices]) * weight * magnify
                (loss if scales is None else scales.scale(loss)).backward()
            _update(model, optimizer, scheduler, scales, clip)
            data.commit(share)
        data.next_epoch()
    return model


def _cut(share, *, whole):
    if whole:
        return [([index for each in share.micro for index in each.indices], 1.0, 0)]
    return [(each.indices, each.weight, each.seed) for each in share.micro]


def _count(model, *, yes):
    for part in model.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            part.momentum = 0.1 if yes else 0.0


def _update(model, optimizer, scheduler, scales, clip):
    if clip is not None:
        if scales is not None:
            scales.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
    if scales is None:
        optimizer.step()
    else:
        scales.step(optimizer)
        scales.update()
    if scheduler is not None:
        scheduler.step()
    optimizer.zero_grad()
