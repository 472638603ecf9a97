# mypy: disable-error-code="import-not-found, no-untyped-call"
"""The measured training script with the library: the model and pace of train.py.

See toy.py for the command line; it has no checkpoints by default. A global batch is four micro-batches of 64, dealt to
all processes. A step is written down with the group's generation, with `step` (how many batches have counted so far)
and `tries` (how often this process began it).
"""

import torch
import toy

import elastic_worker as elastic

MICRO_BATCH = 64
GLOBAL_BATCH = 4 * MICRO_BATCH
FOREVER = 1_000_000


def main() -> None:
    options = toy.options(save_every=0)
    job = elastic.init(checkpoints=options.folder / "checkpoints" if options.save_every else None)
    model = job.wrap(toy.Model(options.megabytes))
    optimizer = toy.optimizer_of(model)
    data = elastic.Sampler(toy.STEPS * GLOBAL_BATCH, global_batch=GLOBAL_BATCH, micro_batch=MICRO_BATCH)
    state = job.state(model=model, optimizer=optimizer, data=data)
    job.restore(state)
    steps, tries = toy.Steps(options.folder), 0
    for epoch in job.epochs(FOREVER):
        for batch in job.batches(state.data):
            tries += 1
            with job.step(state) as step:
                for micro in batch.micro:
                    step.backward(model(torch.randn(len(micro.indices), toy.WIDTH)).square().mean() * micro.weight)
                step.update()
                toy.work(options)
            if step.committed:
                place = {"rank": job.rank, "world": job.world_size, "generation": job.generation}
                steps.write(step=job.step_count, tries=tries, **place)
                tries = 0
        if options.save_every and epoch % options.save_every == 0:
            job.checkpoint(state, wait=True)  # so that its writing is not measured


if __name__ == "__main__":
    main()
