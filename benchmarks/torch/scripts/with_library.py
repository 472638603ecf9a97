# mypy: disable-error-code="import-not-found, no-untyped-call"
"""Trains with the library. --checkpoint is a folder here.

    torchrun --standalone --nproc-per-node=2 with_library.py --processes 2 --digits digits.csv.gz

A micro-batch is the share of one of --processes in a batch, so that each process computes as much at once as in ddp.py.
"""

import argparse

import torch
import training
from journal import Journal
from torch import nn
from torch.utils.data import Dataset, default_collate

import elastic_worker as elastic


def main() -> None:
    options = training.parse_options()
    job = elastic.init(checkpoints=options.checkpoint)
    trained, tested = training.make_data(options)
    model = job.wrap(training.make_model(options))
    optimizer = training.make_optimizer(model, options)
    micro_batch = options.batch_size // options.processes
    data = elastic.Sampler(len(trained), global_batch=options.batch_size, micro_batch=micro_batch, drop_last=True)
    state = job.state(model=model, optimizer=optimizer, data=data)
    job.restore(state)
    train(job, state, model, trained, tested, options)


def train(
    job: elastic.Job,
    state: elastic.State,
    model: nn.Module,
    trained: Dataset,
    tested: Dataset,
    options: argparse.Namespace,
) -> None:
    loader = job.loader(trained, num_workers=training.WORKERS, pin_memory=torch.cuda.is_available())
    journal = Journal(options.journal, rank=job.rank, world_size=job.world_size, model=model)
    images = len(trained) // options.batch_size * options.batch_size
    for epoch in job.epochs(options.epochs):
        with journal.epoch(images=images):
            model.train()
            for batch in job.batches(state.data, loader):
                with job.step(state) as step:
                    for micro in batch.micro:
                        inputs, labels = (each.to(job.device, non_blocking=True) for each in micro.data)
                        step.backward(nn.functional.cross_entropy(model(inputs), labels) * micro.weight)
                    step.update()
        counts = evaluate(job, model, tested)
        journal.counts["all-reduce"] = counts.tolist()
        if job.rank == 0:
            training.say(epoch, job.world_size, counts)
        if options.checkpoint is not None:
            job.checkpoint(state)
    if job.rank == 0:
        alone = training.evaluate(model, training.make_loader(tested, options.batch_size), device=job.device, amp=False)
        journal.counts["one device"] = alone.tolist()
    journal.write()


@torch.no_grad()  # type: ignore[untyped-decorator]
def evaluate(job: elastic.Job, model: nn.Module, tested: Dataset) -> torch.Tensor:
    """The sums of training.evaluate, over all ranks."""
    evaluation = job.eval_batches(tested)
    model.eval()
    for batch in evaluation:
        if batch.indices:
            images, labels = default_collate([tested[index] for index in batch.indices])
            sums = training.count(training.bare(model), images.to(job.device), labels.to(job.device), amp=False)
            evaluation.add(**dict(zip(("right", "images", "loss"), sums, strict=True)))
    result = evaluation.result
    return torch.tensor([result["right"], result["images"], result["loss"]], dtype=torch.float64)


if __name__ == "__main__":
    main()
