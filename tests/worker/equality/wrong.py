"""Uses the library in a wrong way: wrong.py FOLDER CASE. FOLDER/error-RANK gets what that raised, as KIND: TEXT."""

import enum
import os
import sys
import time
from pathlib import Path

import torch
from torch import nn

import elastic_worker as elastic

FOLDER, RANK, WORLD = Path(sys.argv[1]), os.environ["RANK"], int(os.environ["WORLD_SIZE"])
BATCH, MICRO = 8, 4


def job_and_state(*, length=32, width=4, checkpoints=None, compare_every=100, **more):
    job = elastic.init(checkpoints=checkpoints, compare_every=compare_every)
    model = job.wrap(nn.Linear(width, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = elastic.Sampler(length, global_batch=BATCH, micro_batch=MICRO)
    return job, job.state(model=model, optimizer=optimizer, data=data, **more)


def restored(**how):
    job, state = job_and_state(**how)
    job.restore(state)
    return job, state


def backward(step, state, batch, *, most=None, called=None):
    """Of `called`, or of the model that was wrapped."""
    for number, micro in enumerate(batch.micro):
        if number == most:
            break
        step.backward((called or state.objects["model"])(torch.ones(1, 4)).sum() * micro.weight)


def train(job, state, *, change=lambda _: None, **how):
    """All steps of an epoch; after each of them `change(state)`."""
    for batch in job.batches(state.data):
        with job.step(state) as step:
            backward(step, state, batch, **how)
            step.update()
        change(state)


def saved():
    """Two checkpoints, of steps 1 and 2."""
    job, state = restored(checkpoints=FOLDER / "checkpoints")
    for batch in job.batches(state.data):
        with job.step(state) as step:
            backward(step, state, batch)
            step.update()
        job.checkpoint(state, wait=True)
        if state.step == 2:
            return


def another_data_set():
    saved()
    restored(length=33, checkpoints=FOLDER / "checkpoints")


def another_model():
    saved()
    restored(width=5, checkpoints=FOLDER / "checkpoints")


def another_object():
    saved()
    restored(scheduler=nn.Linear(1, 1), checkpoints=FOLDER / "checkpoints")


def all_torn():
    saved()
    for file in (FOLDER / "checkpoints").glob("step-*/*"):
        os.truncate(file, file.stat().st_size // 2)
    restored(checkpoints=FOLDER / "checkpoints")


def newest_torn():
    """No error: the one before is taken."""
    saved()
    for file in (FOLDER / "checkpoints").glob("step-2/*"):
        os.truncate(file, file.stat().st_size // 2)
    _, state = restored(checkpoints=FOLDER / "checkpoints")
    raise RuntimeError(f"went on from step {state.step}")


def iterable_data_set():
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(range(8))

    elastic.Sampler(Stream(), global_batch=BATCH, micro_batch=MICRO)


def iterable_data_set_in_an_evaluation():
    job, _ = restored()
    job.eval_batches(iter(range(8)))


def group_of_one():
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)


def zero_redundancy_optimizer():
    from torch.distributed.optim import ZeroRedundancyOptimizer

    group_of_one()
    job = elastic.init()
    model = job.wrap(nn.Linear(4, 1))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.SGD, lr=0.1)
    job.state(model=model, optimizer=optimizer, data=elastic.Sampler(32, global_batch=BATCH, micro_batch=MICRO))


def a_wrapped_model():
    group_of_one()
    elastic.init().wrap(nn.parallel.DistributedDataParallel(nn.Linear(4, 1)))


def a_model_of_tensor_parallelism():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    group_of_one()
    model = nn.Sequential(nn.Linear(4, 4))
    parallelize_module(model, init_device_mesh("cpu", (1,)), {"0": ColwiseParallel()})
    elastic.init().wrap(model)


def an_option_of_ddp_that_is_the_jobs():
    elastic.init().wrap(nn.Linear(4, 1), process_group=None)


def an_option_that_needs_as_many_micro_batches_on_all_ranks():
    elastic.init().wrap(nn.Linear(4, 1), static_graph=True)


def a_hook_with_a_state_that_newcomers_lack():
    job, state = job_and_state()
    state.objects["model"].register_comm_hook({"error": 0.0}, allreduce)
    job.restore(state)


def allreduce(state: object, bucket):  # noqa: ARG001 (as torch calls it)
    return torch.distributed.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda all: all.value()[0])


def a_model_that_is_not_wrapped():
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = elastic.Sampler(32, global_batch=BATCH, micro_batch=MICRO)
    elastic.init().state(model=model, optimizer=optimizer, data=data)


def a_parameter_of_no_model():
    job_and_state(second=torch.optim.SGD([nn.Parameter(torch.ones(3))], lr=0.1))


def the_bare_model_is_called():
    job, state = restored()
    train(job, state, called=state.objects["model"].module)


def a_loss_without_its_weight():
    job, state = restored()
    for batch in job.batches(state.data):
        with job.step(state) as step:
            for _ in batch.micro:
                step.backward(state.objects["model"](torch.ones(1, 4)).sum())


def a_backward_after_an_optimizers_step():
    job, state = restored()
    for batch in job.batches(state.data):
        with job.step(state) as step:
            backward(step, state, batch)
            state.objects["optimizer"].step()
            step.backward(state.objects["model"](torch.ones(1, 4)).sum())


def an_optimizer_that_communicates():
    class Sharing(torch.optim.SGD):
        def step(self, closure=None):
            super().step(closure)
            for group in self.param_groups:
                for parameter in group["params"]:
                    torch.distributed.broadcast(parameter.data, 0)

    job = elastic.init()
    model = job.wrap(nn.Linear(4, 1))
    data = elastic.Sampler(32, global_batch=BATCH, micro_batch=MICRO)
    state = job.state(model=model, muon=Sharing(model.parameters(), lr=0.1), data=data)
    job.restore(state)
    train(job, state)


def a_rank_with_other_weights():
    job, state = job_and_state(compare_every=2)
    job.restore(state)

    def change(state):
        if job.rank == 2 and state.step == 1:
            with torch.no_grad():
                state.objects["model"].module.weight[0, 1] += 1e-6

    train(job, state, change=change)


def a_step_without_update():
    job, state = restored()
    for batch in job.batches(state.data):
        with job.step(state) as step:
            backward(step, state, batch)


def a_batch_that_is_not_applied():
    job, state = restored()
    for _ in job.batches(state.data):
        pass


def a_step_outside_of_batches():
    job, state = restored()
    with job.step(state):
        pass


def a_step_in_a_step():
    job, state = restored()
    for _ in job.batches(state.data):
        with job.step(state), job.step(state):
            pass


def update_too_early():
    job, state = restored()
    for batch in job.batches(state.data):
        with job.step(state) as step:
            backward(step, state, batch, most=1)
            step.update()


def own_optimizer_step_too_early():
    job, state = restored()
    for batch in job.batches(state.data):
        with job.step(state) as step:
            backward(step, state, batch, most=1)
            state.objects["optimizer"].step()


def rank_before_restore():
    job, _ = job_and_state()
    print(job.rank)


def batches_before_restore():
    job, state = job_and_state()
    next(job.batches(state.data))


def epochs_before_restore():
    job, _ = job_and_state()
    next(job.epochs(1))


def a_model_called_before_restore():
    _, state = job_and_state()
    state.objects["model"](torch.ones(1, 4))


def no_sampler():
    elastic.init().state(model=nn.Linear(1, 1))


def two_samplers():
    elastic.init().state(
        one=elastic.Sampler(8, global_batch=8, micro_batch=8), two=elastic.Sampler(8, global_batch=8, micro_batch=8)
    )


def an_object_without_state():
    job_and_state(history=[])


class Average(nn.Linear):
    def get_extra_state(self):
        return {"mode": self.mode}


class Mode(enum.Enum):
    FAST = 1


def a_state_that_no_checkpoint_takes(mode=Mode.FAST):
    average = Average(1, 1)
    average.mode = mode
    restored(average=average, checkpoints=FOLDER / "checkpoints")


def a_state_that_nobody_could_read_again():
    a_state_that_no_checkpoint_takes(mode=...)  # is pickled as a name alone


def another_sampler_in_batches():
    job, _ = restored()
    next(job.batches(elastic.Sampler(32, global_batch=BATCH, micro_batch=MICRO)))


def another_state_in_step():
    job, _ = restored()
    job.step(job_and_state()[1])


def a_checkpoint_without_a_folder():
    job, state = restored()
    job.checkpoint(state)


def keep_none():
    elastic.init(checkpoints=FOLDER, keep=0)


def no_master_address():
    os.environ.update(WORLD_SIZE="2", RANK="0")
    del os.environ["MASTER_ADDR"]
    elastic.init()


def no_master_address_under_srun():
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR"):
        del os.environ[name]
    os.environ.update(SLURM_PROCID="1", SLURM_NTASKS="2", SLURM_LOCALID="1")
    elastic.init()


def a_rank_that_is_no_number():
    os.environ["RANK"] = "one"
    elastic.init()


def a_rank_beyond_the_world():
    os.environ.update(RANK="2", WORLD_SIZE="2")
    elastic.init()


def a_result_before_the_end():
    job, _ = restored()
    print(job.eval_batches(8).result)


if __name__ == "__main__":
    try:
        globals()[sys.argv[2]]()
    except Exception as error:  # noqa: BLE001 (whatever it is, it is what the test wants to see)
        (FOLDER / f"error-{RANK}").write_text(f"{type(error).__name__}: {error}")
        # A rank that ends takes its connections with it: the others find their own error first.
        ranks, until = range(WORLD), time.monotonic() + 30
        while not all((FOLDER / f"error-{rank}").exists() for rank in ranks) and time.monotonic() < until:
            time.sleep(0.05)
