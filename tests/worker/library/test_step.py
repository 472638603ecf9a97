"""What becomes of a step in whose body a pod is lost."""

import pytest
import torch

from elastic_worker.library.collectives import GivenUpError
from elastic_worker.library.ddp import ElasticDDP
from elastic_worker.library.sampler import MicroBatch, Sampler
from elastic_worker.library.state import State
from elastic_worker.library.step import Step, StepError


class OneBatch:
    """The job of a process that has lost a peer, in its only batch."""

    world_size, may_change_in_place, micro = 1, True, MicroBatch([0], 1.0, True, 0, is_weighed=True)

    def __init__(self):
        self.done = []

    def commit(self, *_):
        self.done.append("committed")

    def note_aborted(self):
        self.done.append("undone")

    def has_lost_a_peer(self):
        return True

    def begin_step(self, step):
        """Nobody is told."""

    def end_step(self):
        """Nobody is told."""

    def check_group(self):
        """It is there."""

    def collectives_begun(self):
        return None


def lose_a_pod_after(*stepped, within=()):
    """What the job was told: the optimizers of these names have stepped, and others had begun to."""
    models = {name: ElasticDDP(torch.nn.Linear(1, 1)) for name in ("one", "other")}
    optimizers = {f"of_{name}": torch.optim.SGD(model.parameters(), lr=1.0) for name, model in models.items()}
    state = State({**models, **optimizers, "data": Sampler(1, global_batch=1, micro_batch=1)})
    job = OneBatch()
    with Step(job, state) as step:
        for model in models.values():
            model.use_alone()
        step.backward(sum(model(torch.ones(1, 1)).sum() for model in models.values()))
        for name in (*stepped, *within):
            step.begin_update(name)
        for name in stepped:
            step.end_update(name)
        raise GivenUpError("the group was aborted")
    assert step.committed == (job.done == ["committed"])
    return job.done


def test_a_batch_of_which_nothing_was_applied_comes_again():
    assert lose_a_pod_after() == ["undone"]


def test_a_batch_that_all_optimizers_have_applied_counts():
    assert lose_a_pod_after("of_one", "of_other") == ["committed"]


@pytest.mark.parametrize(("stepped", "within"), [(["of_one"], []), ([], ["of_one"]), (["of_one"], ["of_other"])])
def test_half_a_batch_neither_counts_nor_comes_again(stepped, within):
    with pytest.raises(StepError, match=r"of_one \(SGD\).* had begun\)") as raised:
        lose_a_pod_after(*stepped, within=within)
    assert "from another one or from the newest checkpoint" in str(raised.value)
    assert "run your own collectives before the first one steps" in str(raised.value)
