# mypy: disable-error-code="import-not-found, no-untyped-call"
"""The training of plain.py with the library: one micro-batch per rank. See toy.Pace for the command line."""

import torch
import toy

import elastic_worker as elastic


def main() -> None:
    job = elastic.init()
    model = job.wrap(toy.make_model())
    optimizer = torch.optim.AdamW(model.parameters())
    samples = toy.make_samples()
    data = elastic.Sampler(len(samples), global_batch=toy.BATCH * toy.WORLD, micro_batch=toy.BATCH)
    state = job.state(model=model, optimizer=optimizer, data=data)
    job.restore(state)
    train(job, state, model, samples)


def train(job: elastic.Job, state: elastic.State, model: torch.nn.Module, samples: torch.Tensor) -> None:
    pace = toy.Pace()
    for _ in job.epochs(1_000_000):
        for batch in job.batches(state.data):
            with job.step(state) as step:
                for micro in batch.micro:
                    loss = toy.loss_of(model, samples[micro.indices]) * micro.weight
                    step.backward(loss)
                step.update(loss=loss)
            if pace.is_over():
                return


if __name__ == "__main__":
    main()
