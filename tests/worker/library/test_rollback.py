"""Buffers of a step that was aborted, and what is copied for the case."""

import pytest
import torch

from elastic_worker.library import rollback
from elastic_worker.library.ddp import ElasticDDP
from elastic_worker.library.rollback import Rollback, RollbackError
from tests.worker.library import processes
from tests.worker.library.copied import Masked, bits, network, step


def write_in_place(module):
    module.mask.mul_(2)


def replace(module):
    module.mask = module.mask * 2


def replace_and_write(module):
    write_in_place(module)
    replace(module)
    write_in_place(module)


def write_through_data(module):
    module.mask.data.mul_(2)


def write_through_numpy(module):
    module.mask.numpy()[0] -= 3


def give_a_shape_of_its_own(module):
    module.mask = torch.cat([module.mask, module.mask])


def give_other_memory(module):
    module.mask.data = torch.cat([module.mask, module.mask])


def fill_the_empty_one(module):
    module.nothing = torch.ones(1)


WRITES = [
    write_in_place,
    replace,
    replace_and_write,
    write_through_data,
    write_through_numpy,
    give_a_shape_of_its_own,
    give_other_memory,
    fill_the_empty_one,
]


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("counted", [0, 1, 2, 5])
def test_an_aborted_step_is_undone_whatever_wrote_in_it(write, counted):
    """In place, by another object, or behind torch's back, in each step."""
    module = Masked()
    kept = Rollback(module)
    for _ in range(counted):
        step(kept, lambda: write(module))
    for _ in range(2):
        before = bits(module)
        kept.begin()
        write(module)
        kept.undo()
        assert bits(module) == before
    kept.begin()
    write(module)
    kept.end()
    assert bits(module) != before


@pytest.mark.parametrize("write", WRITES[:3])
def test_a_first_counted_write_after_many_steps_is_undone(write):
    module = Masked()
    kept = Rollback(module)
    for _ in range(50):
        step(kept)
    before = bits(module)
    kept.begin()
    write(module)
    kept.undo()
    assert bits(module) == before


def test_statistics_that_are_frozen_at_first_are_undone_in_the_first_step_that_trains_them():
    model, kept = network()
    for _ in range(50):
        step(kept, lambda: model.eval()[0](torch.randn(8, 4)))
    before = bits(model)
    kept.begin()
    model.train()[0](torch.randn(8, 4))
    assert bits(model) != before
    kept.undo()
    assert bits(model) == before


@pytest.mark.parametrize("write", [write_through_data, write_through_numpy])
@pytest.mark.parametrize("when", ["in the step", "before it"])
def test_a_write_that_was_not_counted_is_an_error_where_nobody_knows_when_it_was(write, when):
    module = Masked()
    kept = Rollback(module)
    for _ in range(50):
        step(kept)
    if when == "before it":
        step(kept, lambda: write(module))
    kept.begin()
    if when == "in the step":
        write(module)
    with pytest.raises(RollbackError, match=r"buffer 'mask' of Masked was written .*module\.mask\.copy_"):
        kept.undo()


def test_a_write_that_was_not_counted_is_found_a_hundred_steps_later_and_known_from_then_on():
    module = Masked()
    kept = Rollback(module)
    for _ in range(50):
        step(kept)
    for _ in range(rollback.COMPARE_EVERY - 50):
        step(kept, lambda: write_through_data(module))
    before = bits(module)
    kept.begin()
    write_through_data(module)
    kept.undo()
    assert bits(module) == before


@pytest.mark.parametrize(
    "values",
    [
        torch.zeros(0),
        torch.tensor(3),
        torch.tensor([True, False]),
        torch.tensor([1 + 2j]),
        torch.tensor([1 + 2j]).conj(),
        torch.ones(3).to_sparse(),
        torch.ones(1).expand(4),
        torch.ones(4, 4).t()[1:],
    ],
    ids=str,
)
def test_buffers_of_every_kind_are_kept(values):
    module = Masked()
    module.mask = values
    kept = Rollback(module)
    for _ in range(3):
        step(kept)
    kept.begin()
    module.mask = module.mask * 1
    kept.undo()
    assert module.mask is values


def test_a_module_that_came_later_is_kept_from_the_next_step_on():
    model, kept = network()
    step(kept)
    model.append(Masked())
    step(kept)
    kept.begin()
    write_in_place(model[2])
    kept.undo()
    assert model[2].mask.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_model_is_undone_too(backend):
    model, kept = network()
    compiled = torch.compile(model[0], backend=backend)
    for _ in range(5):
        step(kept, lambda: compiled(torch.randn(8, 4)))
        before = bits(model)
        kept.begin()
        compiled(torch.randn(8, 4))
        kept.undo()
        assert bits(model) == before


def test_a_wrapped_models_buffers_are_kept_through_groups():
    model = ElasticDDP(torch.nn.BatchNorm1d(4))
    model.use_alone()
    model.rollback.begin()
    before = bits(model.module)
    model(torch.randn(8, 4))
    model.rollback.undo()
    assert bits(model.module) == before


def test_the_broadcast_of_buffers_is_no_write_of_constants_and_undone_with_the_step():
    told = processes.run(
        f"\n        sys.path.append({str(processes.ROOT)!r})"
        """
        from elastic_worker.library.ddp import ElasticDDP
        from tests.worker.library.copied import bits, network, step
        torch.manual_seed(rank)
        formed = form("one", rank, 2)
        groups.install(formed)
        module, _ = network()
        model = ElasticDDP(torch.nn.Sequential(torch.nn.Linear(4, 4), module[0]))
        model.module.register_buffer("mask", torch.ones(1000))
        model.regroup(formed)
        def train():
            model(torch.randn(8, 4)).sum().backward()
        copied = [step(model.rollback, train) for _ in range(6)]
        def undone():
            before = bits(model.module)
            model.rollback.begin()
            train()
            model.rollback.undo()
            return bits(model.module) == before
        trained = [undone() for _ in range(2)]
        frozen = []
        model.eval()  # the broadcast still comes, and rank 1 has other statistics when it does
        for _ in range(4):
            step(model.rollback, train)
            frozen.append(undone())
        tell(copied=copied, undone=trained + frozen)
        """,
        2,
    )
    assert [one["copied"] for one in told] == [[1009, 1009, 9, 9, 9, 9]] * 2
    assert all(all(one["undone"]) for one in told), told
