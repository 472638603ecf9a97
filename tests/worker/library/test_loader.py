"""What the loader yields with real worker processes, and that these stay when the world changes."""

import gc
import multiprocessing
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter

import numpy
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset

from elastic_worker.library.loader import Loader
from elastic_worker.library.sampler import Sampler, SamplerError
from tests.kit.proc import children_of, is_running
from tests.kit.wait import until

WAIT_SECONDS = 60


@pytest.fixture(autouse=True)
def no_loader_is_left():
    """An error from a worker process keeps its loader in a cycle: it would end in some other test."""
    yield
    gc.collect()


class Numbers(Dataset):
    """A sample is its number, the process that fetched it, and what was drawn at random for it."""

    def __init__(self, length=50):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        drawn = (float(torch.rand(())), random.random(), float(numpy.random.random()))
        return index, os.getpid(), drawn


class AtOnce(Numbers):
    def __getitems__(self, indices):
        return [(index, os.getpid(), tuple(indices)) for index in indices]


class Broken(Numbers):
    """Sample 17 cannot be read."""

    def __getitem__(self, index):
        if index == 17:
            raise ValueError("sample 17 is torn")
        return super().__getitem__(index)


class Gated(Numbers):
    """Notes which samples are asked for; each waits for a gate."""

    def __init__(self, length, gate, asked):
        super().__init__(length)
        self.gate, self.asked = gate, asked

    def __getitem__(self, index):
        with self.asked.get_lock():
            self.asked[index] += 1
        assert self.gate.wait(WAIT_SECONDS)
        return super().__getitem__(index)


def make_sampler(length=50, *, micro=3, micros=4, **others):
    return Sampler(length, global_batch=micro * micros, micro_batch=micro, **others)


def make_loader(dataset, sampler=None, **others):
    return Loader(dataset, sampler or make_sampler(len(dataset)), **{"collate_fn": list, **others})


def indices_of(share):
    return [index for micro in share.micro for index, *_ in micro.data]


def pids_of(share):
    return {pid for micro in share.micro for _, pid, _ in micro.data}


def run_epoch(loaders, sampler_of, world):
    """All ranks of a world in turn; yields each global batch's shares."""
    iterators = [loader.shares(rank, world) for rank, loader in enumerate(loaders[:world])]
    for shares in zip(*iterators, strict=True):
        yield shares
        for rank in range(world):
            sampler_of[rank].commit(shares[rank])


def wait_for_end(pids):
    until("the end of all", lambda: not any(map(is_running, pids)), seconds=WAIT_SECONDS)


@pytest.mark.parametrize("workers", [0, 2])
def test_data_are_the_samples_of_the_share_to_the_last_partial_batch(workers):
    sampler = make_sampler()
    loader = make_loader(Numbers(), sampler, num_workers=workers)
    for _ in range(2):
        sizes, seen = [], Counter()
        for share in loader.shares(0, 1):
            assert [indices_of(share)] == [[i for micro in share.micro for i in micro.indices]]
            assert pids_of(share) == {os.getpid()} if workers == 0 else os.getpid() not in pids_of(share)
            sizes.append([len(micro.data) for micro in share.micro])
            seen.update(indices_of(share))
            sampler.commit(share)
        assert sizes == [[3, 3, 3, 3]] * 4 + [[2]]
        assert seen == Counter(range(50))
        sampler.next_epoch()


@pytest.mark.parametrize("workers", [0, 2])
def test_samples_come_once_and_workers_stay_when_the_world_changes_and_shares_are_aborted(workers):
    sampler, others = make_sampler(200), []
    loader = make_loader(Numbers(200), sampler, num_workers=workers)
    seen, pids = Counter(), set()
    for attempt in range(1000):
        rank, world = attempt % 2, 1 + attempt % 7
        rank = min(rank, world - 1)
        iterator = loader.shares(rank, world)
        for _ in range(attempt % 3):
            share = next(iterator, None)
            if share is None:
                break
            pids |= pids_of(share)
            if attempt % 5 == 4:
                break  # aborted: it comes again, in other shares
            if not share.is_dummy:
                seen.update(indices_of(share))
            peers = [sampler.share(peer, world) for peer in range(world) if peer != rank]
            others += [i for peer in peers if not peer.is_dummy for micro in peer.micro for i in micro.indices]
            sampler.commit(share)
        if sampler.batches_left() == 0:
            break
    assert seen + Counter(others) == Counter(range(200))
    assert len(seen) > 40
    assert len(pids) == max(1, workers)


@pytest.mark.parametrize("workers", [0, 2])
def test_what_a_worker_draws_for_a_sample_does_not_depend_on_the_world(workers):
    def drawn(world):
        samplers = [make_sampler(30) for _ in range(world)]
        loaders = [make_loader(Numbers(30), sampler, num_workers=workers) for sampler in samplers]
        values = {}
        for shares in run_epoch(loaders, samplers, world):
            for share in shares:
                if not share.is_dummy:
                    values |= {index: rest for micro in share.micro for index, _, rest in micro.data}
        return values

    alone = drawn(1)
    assert drawn(3 if workers == 0 else 2) == alone
    assert len(alone) == 30
    assert all(len({values[column] for values in alone.values()}) == 30 for column in range(3))


def test_workers_draw_what_the_process_itself_would():
    def first(**others):
        loader = make_loader(Numbers(), **others)
        return [[(i, drawn) for i, _, drawn in micro.data] for micro in next(loader.shares(0, 1)).micro]

    assert first() == first(num_workers=2) == first(num_workers=1, prefetch_factor=1)


@pytest.mark.parametrize("workers", [0, 1])
def test_fetching_changes_nothing_that_the_script_draws(workers):
    def draw():
        return float(torch.rand(())), random.random(), float(numpy.random.random())

    torch.manual_seed(4), random.seed(4), numpy.random.seed(4)
    expected = [draw() for _ in range(3)]
    torch.manual_seed(4), random.seed(4), numpy.random.seed(4)
    loader = make_loader(Numbers(), num_workers=workers)
    drawn = []
    for _ in range(3):
        next(loader.shares(0, 2))
        drawn.append(draw())
    assert drawn == expected


def test_what_was_fetched_for_nothing_is_not_waited_for():
    """Of a slow data set, a dropped iteration costs what a worker is at, not all that it was asked for."""
    gate, asked = multiprocessing.Event(), multiprocessing.Array("i", 60)
    sampler = make_sampler(60, micro=1, micros=4, shuffle=False)
    loader = make_loader(Gated(60, gate, asked), sampler, num_workers=1, prefetch_factor=8)
    loader.shares(0, 1)
    while not sum(asked):
        time.sleep(0.01)
    opener = threading.Timer(0.5, gate.set)
    opener.start()
    share = next(loader.shares(1, 2))
    opener.join()
    assert indices_of(share) == [2, 3]
    assert asked[0] == 1
    assert asked[1] == 0


def test_a_data_set_may_hand_out_a_micro_batch_at_once():
    for workers in (0, 1):
        share = next(make_loader(AtOnce(), num_workers=workers).shares(0, 1))
        assert [{together for _, _, together in micro.data} for micro in share.micro] == [
            {tuple(micro.indices)} for micro in share.micro
        ]


def test_samples_are_collated_as_dataloader_does_unless_told_otherwise():
    share = next(make_loader(Numbers(), collate_fn=None).shares(0, 1))
    index, _, drawn = share.micro[0].data
    assert torch.equal(index, torch.tensor(share.micro[0].indices))
    assert len(drawn) == 3


def test_a_rank_without_samples_gets_one_to_run():
    share = next(make_loader(Numbers(), num_workers=1).shares(5, 6))
    assert share.is_dummy
    assert [(len(micro.data), micro.weight) for micro in share.micro] == [(len(share.micro[0].indices), 0.0)]


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_of_the_data_set_reaches_the_script_and_does_no_harm_to_the_next_iteration(workers):
    sampler = make_sampler(50, shuffle=False)
    loader = make_loader(Broken(), sampler, num_workers=workers)
    iterator = loader.shares(0, 1)
    first = next(iterator)
    sampler.commit(first)
    with pytest.raises(ValueError, match="sample 17 is torn"):
        next(iterator)
    again = loader.shares(1, 2)
    with pytest.raises(ValueError, match="sample 17 is torn"):
        next(loader.shares(0, 2))
    with pytest.raises(RuntimeError, match="called again"):
        next(again)
    share = next(loader.shares(1, 2))
    assert indices_of(share) == [18, 19, 20, 21, 22, 23]
    if workers:
        assert pids_of(share) <= pids_of(first)


def test_going_on_without_a_commit_or_with_an_old_iterator_is_an_error():
    sampler = make_sampler()
    loader = make_loader(Numbers(), sampler)
    old = loader.shares(0, 1)
    share = next(old)
    with pytest.raises(SamplerError, match="at sample 12 of epoch 0, the sampler at 0 of epoch 0: commit each share"):
        next(old)
    old, new = loader.shares(0, 1), loader.shares(0, 2)
    with pytest.raises(RuntimeError, match="has been called again"):
        next(old)
    sampler.commit(share)
    with pytest.raises(SamplerError, match="call shares"):
        next(new)
    with pytest.raises(SamplerError, match="rank=2 is not in a world of 2"):
        loader.shares(2, 2)


def test_workers_end_with_their_loader():
    loader = make_loader(Numbers(), num_workers=2)
    iterator = loader.shares(0, 1)
    pids = pids_of(next(iterator))
    assert len(pids) == 2
    del loader, iterator
    wait_for_end(pids)


def test_a_killed_process_ends_its_connections_though_workers_inherited_them():
    """Within a second or so; without care they last until the workers look after their parent, every 5 s."""
    code = f"""
import os, socket, sys, time
sys.path[:] = {sys.path!r}
from elastic_worker.library.loader import Loader
from elastic_worker.library.sampler import Sampler
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
loader = Loader(range(50), Sampler(50, global_batch=4, micro_batch=1), num_workers=2)
next(loader.shares(0, 1))
connection.sendall(b"x")
time.sleep({WAIT_SECONDS})
"""
    with socket_server() as server:
        process = subprocess.Popen([sys.executable, "-c", code, str(server.getsockname()[1])])
        connection, _ = server.accept()
        with connection:
            connection.settimeout(WAIT_SECONDS)
            assert connection.recv(1) == b"x"
            workers = children_of(process.pid)
            assert len(workers) >= 2
            process.send_signal(signal.SIGKILL)
            process.wait(WAIT_SECONDS)
            connection.settimeout(3)  # less than the 5 s
            assert connection.recv(1) == b""
    wait_for_end(workers)


def socket_server():
    server = socket.create_server(("127.0.0.1", 0))
    server.settimeout(WAIT_SECONDS)
    return server


def test_workers_that_a_thread_started_outlive_it():
    """To the kernel that thread is their parent, whose end they must not take for the process's."""
    sampler = make_sampler()
    loader = make_loader(Numbers(), sampler, num_workers=2)
    begun = []
    thread = threading.Thread(target=lambda: begun.append(loader.shares(0, 1)))
    thread.start()
    thread.join()
    pids = set()
    for share in begun[0]:
        pids |= pids_of(share)
        sampler.commit(share)
    assert sampler.cursor == 50
    assert len(pids) == 2


def test_workers_can_be_started_in_another_way_and_run_what_they_are_told_first(tmp_path):
    """From a script, as the main module must be one that a new process can import."""
    script = tmp_path / "script.py"
    script.write_text(
        """
import pathlib, sys
from elastic_worker.library.loader import Loader
from elastic_worker.library.sampler import Sampler

def note(worker):
    pathlib.Path(sys.argv[0]).with_name(f"worker-{worker}").touch()

if __name__ == "__main__":
    sampler = Sampler(20, global_batch=4, micro_batch=2)
    loader = Loader(range(20), sampler, num_workers=2, multiprocessing_context="spawn", worker_init_fn=note, timeout=50)
    seen = []
    for world in (1, 2, 1):
        for share in loader.shares(0, world):
            for micro in share.micro:
                assert micro.data.tolist() == micro.indices
            sampler.commit(share)
            seen.append(share.samples)
            if len(seen) in (1, 3):
                break
    print(sum(seen))
"""
    )
    told = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert told.stdout.split() == ["20"], told.stderr
    assert {path.name for path in tmp_path.glob("worker-*")} == {"worker-0", "worker-1"}


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(3))


@pytest.mark.parametrize(
    ("dataset", "others", "error", "message"),
    [
        (Stream(), {}, TypeError, "Stream cannot be asked for samples by number.*use a data set with __getitem__"),
        (iter([1]), {}, TypeError, "cannot be asked for samples by number"),
        (Numbers(49), {}, SamplerError, r"has 49 samples, the sampler has length=50: make it with Sampler\(49"),
        (Numbers(), {"batch_size": 8}, TypeError, "takes no batch_size: the sampler's micro_batch"),
        (Numbers(), {"shuffle": True}, TypeError, "takes no shuffle: the sampler shuffles"),
        (Numbers(), {"drop_last": True}, TypeError, "takes no drop_last"),
        (Numbers(), {"batch_sampler": []}, TypeError, "takes no batch_sampler"),
        (Numbers(), {"persistent_workers": False}, TypeError, "its workers always stay"),
        (Numbers(), {"num_worker": 2}, TypeError, "Loader has no argument num_worker"),
    ],
)
def test_what_cannot_be_done_is_refused_with_the_reason(dataset, others, error, message):
    with pytest.raises(error, match=message):
        Loader(dataset, make_sampler(50), **others)
