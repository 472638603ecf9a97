"""What the ranks of a group ask its store for until they are connected."""

import pytest
from torch import distributed as dist

from elastic_worker.library.gathering import Gathering
from tests.worker.library import processes

SCRIPT = """
import collections

asked, meet = collections.Counter(), forming._meet

class Counted(dist.Store):
    def __init__(self, store):
        super().__init__()
        self.store = store

    def set(self, key, value):
        asked["set"] += 1
        self.store.set(key, value)

    def get(self, key):
        asked["get"] += 1
        return self.store.get(key)

    def wait(self, keys, timeout):
        asked["wait"] += 1
        self.store.wait(list(keys), timeout)

    def multi_get(self, keys):
        asked["multi_get"] += 1
        return self.store.multi_get(list(keys))

    def set_timeout(self, timeout):
        self.store.set_timeout(timeout)

forming._meet = lambda *where: Counted(meet(*where))
formed = form("one", rank, WORLD)
tensor = torch.full((1,), float(rank))
formed.group.allreduce([tensor]).wait()
tell(asked=asked, sum=float(tensor))
"""


@pytest.mark.parametrize("world", [2, 5])
def test_a_rank_asks_as_often_however_many_ranks_there_are(world):
    told = processes.run(SCRIPT.replace("WORLD", str(world)), world)
    assert [one["sum"] for one in told] == [float(sum(range(world)))] * world
    assert [one["asked"] for one in told] == [{"set": 2, "multi_get": 2}] * world


def test_what_only_one_tells_is_asked_of_nobody_else():
    store = dist.HashStore()
    Gathering(store, 3).set("the first", b"\x00word")
    assert Gathering(store, 3).get("the first") == b"\x00word"
