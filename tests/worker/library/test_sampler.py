"""Every sample once per epoch, whatever the world does; and what the world must not change."""

import json
import os
import subprocess
import sys
import tracemalloc
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import IterableDataset, TensorDataset

from elastic_worker.library import shuffle
from elastic_worker.library.sampler import Sampler, SamplerError

sizes = st.tuples(st.integers(1, 300), st.integers(1, 12), st.integers(1, 6))
"""Samples, samples per micro-batch, micro-batches per global batch."""
worlds = st.lists(st.tuples(st.integers(1, 40), st.booleans()), min_size=1, max_size=60)
"""The world at each attempt of a global batch, and whether the attempt is aborted."""


def make_sampler(length=100, *, micro=4, micros=4, **others):
    return Sampler(length, global_batch=micro * micros, micro_batch=micro, **others)


def shares_of(sampler, world):
    """Those of all ranks, or an empty list at the end of the epoch."""
    shares = [sampler.share(rank, world) for rank in range(world)]
    assert len({share is None for share in shares}) == 1
    return [] if shares[0] is None else shares


def run_epoch(sampler, attempts):
    """The micro-batches of each committed global batch, in the order of the ranks; attempts come round and round."""
    batches, number = [], 0
    while shares := shares_of(sampler, attempts[number % len(attempts)][0]):
        aborted = attempts[number % len(attempts)][1] and number < len(attempts)
        number += 1
        if not aborted:
            batches.append([micro for share in shares if not share.is_dummy for micro in share.micro])
            sampler.commit(shares[-1])
    return batches


def indices_of(batches):
    return [index for batch in batches for micro in batch for index in micro.indices]


@given(sizes, worlds, st.booleans(), st.integers(0, 3))
def test_every_sample_is_committed_once_per_epoch_whatever_the_worlds_and_aborts(size, attempts, shuffle, epoch):
    length, micro, micros = size
    sampler = make_sampler(length, micro=micro, micros=micros, shuffle=shuffle, seed=5)
    for _ in range(epoch):
        sampler.next_epoch()
    assert Counter(indices_of(run_epoch(sampler, attempts))) == Counter(range(length))
    assert (sampler.cursor, sampler.batches_left(), sampler.share(0, 1)) == (length, 0, None)


@given(sizes, worlds)
def test_drop_last_leaves_out_the_tail_and_nothing_else(size, attempts):
    length, micro, micros = size
    length += micro * micros
    dropped = indices_of(run_epoch(make_sampler(length, micro=micro, micros=micros, drop_last=True), attempts))
    everything = indices_of(run_epoch(make_sampler(length, micro=micro, micros=micros), [(1, False)]))
    assert dropped == everything[: length - length % (micro * micros)]


@given(sizes, worlds)
def test_batches_shapes_weights_and_seeds_do_not_depend_on_the_world(size, attempts):
    length, micro, micros = size
    alone = run_epoch(make_sampler(length, micro=micro, micros=micros), [(1, False)])
    many = run_epoch(make_sampler(length, micro=micro, micros=micros), attempts)

    def seen(batches):
        return [[(m.indices, m.weight, m.seed) for m in batch] for batch in batches]

    assert seen(many) == seen(alone)
    shapes = [len(m.indices) for batch in alone for m in batch]
    assert set(shapes[:-1]) <= {micro}
    assert 1 <= shapes[-1] <= micro
    seeds = [m.seed for batch in alone for m in batch]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)


@given(sizes, st.integers(1, 40), st.integers(0, 5))
def test_shares_partition_the_global_batch_evenly_with_weights_that_sum_to_one(size, world, ahead):
    length, micro, micros = size
    sampler = make_sampler(length, micro=micro, micros=micros)
    shares = [sampler.peek(rank, world, ahead) for rank in range(world)]
    if ahead >= sampler.batches_left():
        assert shares == [None] * world
        return
    counts = [0 if share.is_dummy else len(share.micro) for share in shares]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] - counts[-1] <= 1
    assert sum(m.weight for share in shares for m in share.micro) == pytest.approx(1)
    real = [m for share in shares if not share.is_dummy for m in share.micro]
    assert sum(len(m.indices) for m in real) == len({i for m in real for i in m.indices}) == shares[0].samples
    for share in shares:
        assert [m.last for m in share.micro] == [False] * (len(share.micro) - 1) + [True]
        assert share.first == ahead * micro * micros


@given(sizes, st.integers(1, 40))
def test_the_weights_give_the_gradient_of_one_process(size, world):
    """For a loss that is the mean over its samples, here of the sample's number."""
    length, micro, micros = size
    sampler = make_sampler(length, micro=micro, micros=micros)
    while shares := shares_of(sampler, world):
        every = [m for share in shares for m in share.micro]
        whole = [i for share in shares if not share.is_dummy for m in share.micro for i in m.indices]
        assert sum(m.weight * sum(m.indices) / len(m.indices) for m in every) == pytest.approx(sum(whole) / len(whole))
        sampler.commit(shares[0])


def test_a_rank_without_samples_gets_one_real_sample_of_weight_zero():
    sampler = make_sampler(10, micro=4, micros=2)
    assert [sampler.share(rank, 5).is_dummy for rank in range(5)] == [False, False, True, True, True]
    dummy = sampler.share(4, 5)
    (micro,) = dummy.micro
    assert (len(micro.indices), micro.weight, micro.last, dummy.samples) == (4, 0.0, True, 8)
    assert micro.indices == sampler.share(0, 5).micro[0].indices
    assert micro.indices[0] in range(10)
    assert [sampler.idle_ranks(world) for world in (1, 2, 3, 5)] == [0, 0, 1, 3]


@given(sizes, st.integers(1, 40))
def test_even_shares_have_as_many_micro_batches_and_no_other_samples_or_weights(size, world):
    length, micro, micros = size
    plain, even = (make_sampler(length, micro=micro, micros=micros) for _ in range(2))
    even.even_shares = True
    while shares := shares_of(plain, world):
        padded = shares_of(even, world)
        assert len({len(share.micro) for share in padded}) == 1
        for share, more in zip(shares, padded, strict=True):
            count = 0 if share.is_dummy else len(share.micro)
            counted, rest = more.micro[:count], more.micro[count:]
            assert [m.indices for m in counted] == [m.indices for m in share.micro[:count]]
            assert {m.weight for m in rest} <= {0.0}
            assert {tuple(m.indices) for m in rest} <= {tuple(shares[0].micro[0].indices)}
            assert [m.last for m in more.micro].index(True) == len(more.micro) - 1
            assert more.is_dummy == share.is_dummy
        plain.commit(shares[0])
        even.commit(padded[0])


def test_the_state_can_be_saved_as_json_and_taken_over_with_other_batch_sizes():
    for committed in range(5):
        sampler = make_sampler(50, micro=4, micros=3, seed=9)
        sampler.next_epoch()
        done = []
        for _ in range(committed):
            share = sampler.share(0, 1)
            done += [i for m in share.micro for i in m.indices]
            sampler.commit(share)
        other = make_sampler(50, micro=5, micros=2, seed=9)
        other.load_state_dict(json.loads(json.dumps(sampler.state_dict())))
        assert (other.epoch, other.cursor) == (1, min(12 * committed, 50))
        assert sorted(done + indices_of(run_epoch(other, [(3, False)]))) == list(range(50))


@pytest.mark.parametrize(("name", "value"), [("length", 51), ("seed", 1), ("shuffle", False)])
def test_a_state_of_another_order_is_refused_and_nothing_changes(name, value):
    sampler = make_sampler(**{"length": 50, "seed": 0, "shuffle": True, name: value})
    sampler.next_epoch()
    mine = make_sampler(50)
    with pytest.raises(SamplerError, match=rf"saved with {name}={value!r}, but this Sampler has {name}=.*Make the"):
        mine.load_state_dict(sampler.state_dict())
    assert (mine.epoch, mine.cursor) == (0, 0)


def test_a_state_whose_order_this_torch_does_not_make_is_refused_within_an_epoch():
    sampler = make_sampler(50)
    sampler.commit(sampler.share(0, 1))
    state = {**sampler.state_dict(), "order": 1}
    with pytest.raises(SamplerError, match=r"shuffles epoch 0 in another order.*cursor=16"):
        make_sampler(50).load_state_dict(state)
    make_sampler(50).load_state_dict({**state, "cursor": 0})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cursor": 51}, "cursor=51 is beyond its length=50"),
        ({"cursor": -1}, "cursor of the state=-1 must be 0 or more"),
        ({"epoch": "1"}, "epoch of the state='1' is a str"),
    ],
)
def test_an_impossible_state_is_refused(change, message):
    with pytest.raises(SamplerError, match=message):
        make_sampler(50).load_state_dict({**make_sampler(50).state_dict(), **change})
    with pytest.raises(SamplerError, match=f"has no {next(iter(change))}: it was not made by"):
        make_sampler(50).load_state_dict({k: v for k, v in make_sampler(50).state_dict().items() if k not in change})


def test_a_share_is_committed_once_in_its_turn():
    sampler = make_sampler(40, micro=4, micros=2)
    now, later = sampler.share(1, 3), sampler.peek(1, 3, 1)
    with pytest.raises(SamplerError, match=r"of 8 samples from 8 on in epoch 0, but the next batch is of 8 from 0"):
        sampler.commit(later)
    sampler.commit(now)
    with pytest.raises(SamplerError, match="commit each global batch once"):
        sampler.commit(now)
    sampler.commit(later)
    sampler.next_epoch()
    with pytest.raises(SamplerError, match=r"in epoch 0, but the next batch .* epoch 1"):
        sampler.commit(now)
    assert (sampler.epoch, sampler.cursor) == (1, 0)


def test_epochs_and_seeds_have_orders_of_their_own():
    def order(seed, epoch):
        sampler = make_sampler(50, micro=50, micros=1, seed=seed)
        for _ in range(epoch):
            sampler.next_epoch()
        return tuple(sampler.share(0, 1).micro[0].indices)

    orders = [order(seed, epoch) for seed in range(4) for epoch in range(4)]
    assert len(set(orders)) == 16
    assert order(2, 3) == order(2, 3)
    assert make_sampler(6, micro=6, micros=1, shuffle=False).share(0, 1).micro[0].indices == [0, 1, 2, 3, 4, 5]


def test_order_and_seeds_are_the_same_in_every_process():
    code = (
        "from elastic_worker.library.sampler import Sampler; s = Sampler(99, global_batch=8, micro_batch=4, seed=3);"
        "print([(m.indices, m.seed) for m in s.share(0, 1).micro])"
    )
    path = os.pathsep.join(sys.path)
    told = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": salt},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout.strip()
        for salt in ("1", "2")
    }
    sampler = Sampler(99, global_batch=8, micro_batch=4, seed=3)
    assert told == {str([(m.indices, m.seed) for m in sampler.share(0, 1).micro])}


def test_the_order_draws_nothing_from_the_global_generator():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    make_sampler(1000).share(0, 1)
    assert torch.equal(before, torch.get_rng_state())


def test_a_billion_samples_take_no_memory():
    sampler = make_sampler(10**9, micro=32, micros=8)
    with Made() as made:  # which imports much of torch
        sampler.share(1, 4)
        tracemalloc.start()
        for _ in range(200):
            sampler.commit(sampler.share(1, 4))
        sampler.state_dict()
        sampler.next_epoch()
        sampler.share(0, 4)
        lists = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert 0 < made.most <= shuffle.WINDOW
    assert lists < 2**20


class Made(TorchDispatchMode):
    """The elements of the largest tensor that torch makes."""

    def __init__(self):
        super().__init__()
        self.most = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        if isinstance(made, torch.Tensor):
            self.most = max(self.most, made.numel())
        return made


def test_an_epoch_that_began_under_the_old_order_ends_under_it_with_each_sample_once():
    """The state that a release without `order_kind` has saved; the next epoch has the new order."""
    before = make_sampler(50, micro=4, micros=2, seed=9)
    before.choose_order(shuffle.RANDPERM)
    done = []
    for _ in range(3):
        share = before.share(0, 1)
        done += [i for m in share.micro for i in m.indices]
        before.commit(share)
    assert done == shuffle.randperm(50, 9, 0)[:24].tolist()
    state = {name: value for name, value in before.state_dict().items() if name != "order_kind"}
    now = make_sampler(50, micro=5, micros=2, seed=9)
    now.load_state_dict(state)
    now.choose_order(shuffle.KEYED)
    assert sorted(done + indices_of(run_epoch(now, [(3, True), (2, False)]))) == list(range(50))
    now.next_epoch()
    order = indices_of(run_epoch(now, [(2, False)]))
    assert order == shuffle.KeyedOrder(50, 9, 1).samples(0, 50)
    assert order != shuffle.randperm(50, 9, 1).tolist()


def test_the_order_changes_only_where_nothing_of_the_epoch_is_committed():
    sampler = make_sampler(50)
    sampler.choose_order(shuffle.RANDPERM)
    assert sampler.order_kind == shuffle.RANDPERM
    sampler.commit(sampler.share(0, 1))
    for kind in (shuffle.KEYED, shuffle.RANDPERM, shuffle.KEYED):
        sampler.choose_order(kind)
        assert sampler.order_kind == shuffle.RANDPERM
    sampler.next_epoch()
    assert sampler.order_kind == shuffle.KEYED


def test_a_state_of_an_order_that_a_later_release_made_is_refused():
    with pytest.raises(SamplerError, match="order_kind=3, by a later release"):
        make_sampler(50).load_state_dict({**make_sampler(50).state_dict(), "order_kind": 3})


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(3))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"length": 0}, "length=0 must be 1 or more"),
        ({"length": -3}, "length=-3 must be 1 or more"),
        ({"length": 2.5}, "length is a float, not a number: pass len"),
        ({"length": True}, "length=True is a bool"),
        ({"length": Stream()}, r"IterableDataset \(Stream\).*exactly once.*pass len\(dataset\)"),
        ({"length": iter([1])}, r"pass len\(dataset\).*exactly once"),
        ({"length": TensorDataset(torch.zeros(3))}, r"length is a TensorDataset, not a number: pass len\(dataset\)"),
        ({"global_batch": 0}, "global_batch=0 must be 1 or more"),
        ({"global_batch": "8"}, "global_batch='8' is a str: it must be a whole number"),
        ({"micro_batch": -1}, "micro_batch=-1 must be 1 or more"),
        ({"micro_batch": 1.0}, "micro_batch=1.0 is a float"),
        ({"micro_batch": None}, "micro_batch is missing"),
        ({"micro_batch": 9}, "use micro_batch=8, or global_batch=9"),
        ({"micro_batch": 3}, "use micro_batch=2, or global_batch=9"),
        ({"seed": "0"}, "seed='0' is a str"),
        ({"length": 7, "drop_last": True}, "drop_last=True leaves nothing of 7 samples .* at most 7"),
    ],
)
def test_a_wrong_argument_is_named_with_what_to_write_instead(arguments, message):
    with pytest.raises(SamplerError, match=message):
        Sampler(**{"length": 100, "global_batch": 8, "micro_batch": 4, **arguments})


@pytest.mark.parametrize(("rank", "world"), [(2, 2), (-1, 2), (0, 0), (0, -1), (0, 1.5), ("0", 1)])
def test_a_rank_outside_of_the_world_is_refused(rank, world):
    with pytest.raises(SamplerError, match=r"rank|world"):
        make_sampler().share(rank, world)
