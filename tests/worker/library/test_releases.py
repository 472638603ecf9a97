"""What all pods of a group know, where some are of an older release."""

import threading
from types import SimpleNamespace

import pytest
from torch import distributed as dist

from elastic_worker.library import releases
from elastic_worker.library.releases import KEYED_ORDER


def group(world):
    """One rank's view each."""
    store = dist.HashStore()
    return [SimpleNamespace(store=store, world=world, announced=set()) for _ in range(world)]


def test_something_new_is_known_when_all_have_told_and_nobody_counts_twice():
    ranks = group(3)
    for rank in ranks[:2]:
        releases.announce(rank)
        releases.announce(rank)
        assert not releases.all_know(rank, KEYED_ORDER)
    releases.announce(ranks[2])
    assert all(releases.all_know(rank, KEYED_ORDER) for rank in ranks)


def test_all_agree_on_what_all_know():
    answers, ranks = [], group(3)
    threads = [
        threading.Thread(target=lambda rank=rank: answers.append(releases.agree(rank, KEYED_ORDER))) for rank in ranks
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [True] * 3


@pytest.mark.parametrize("late", [False, True])
def test_with_a_pod_of_an_older_release_or_one_that_is_late_all_answer_no(monkeypatch, late):
    monkeypatch.setattr(releases, "WAIT_SECONDS", 0.0)
    ranks = group(2)
    assert not releases.agree(ranks[0], KEYED_ORDER)
    if late:
        assert not releases.agree(ranks[1], KEYED_ORDER)
        assert releases.all_know(ranks[1], KEYED_ORDER)
