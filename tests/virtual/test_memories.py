"""docs/internals.md has a row for each memory between passes."""

from __future__ import annotations

import dis
import gc
import re
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import is_dataclass
from types import FunctionType
from typing import Any
from weakref import WeakValueDictionary, ref

import msgspec

from elastic_operator.cluster.store import Store
from elastic_operator.memory import Changes, DelayQueue, KeyedCache, LastSeen, SingleCache, Turns
from elastic_operator.plan.allocation.allocate import Allocator
from elastic_operator.plan.allocation.pass_state import PassState
from elastic_operator.plan.allocation.result import Allocation
from elastic_operator.read.sums import PodIndex
from tests.docs.pages import text
from tests.plan.allocate.world import make_inputs, make_job, make_node, make_team
from tests.simulate.test_forgotten import things_in
from tests.virtual.actions import job, nodes
from tests.virtual.world import ProcessWorld, run_world

MODULES = re.compile(r"elastic_operator\.((?:cluster|loop|plan|pods|read|upkeep)\.(?!facts\.).*|quarantine)")
"""The modules with memories; `plan/facts/` has values only."""
WITH_THE_ALLOCATION = "plan/allocation/"
"""What these modules remember ends with the state of the allocation, so a row names the module only."""
MEMORIES = (
    dict,
    set,
    frozenset,
    list,
    deque,
    WeakValueDictionary,
    KeyedCache,
    SingleCache,
    LastSeen,
    Turns,
    PodIndex,
    DelayQueue,
    Changes,
)
"""Types whose objects can remember; of tuples, those that a method replaces. The one `DirtySet` is in a table of its
own.
"""
OF_ONE_PASS = (PassState, Allocation)
"""Each pass makes new ones, so a row names their modules, and nothing in them has a row."""
NOT_LISTED = {
    ("cluster/lease.py", "_lease"): "the memories of watches, the lease and the clock",
    ("cluster/lease.py", "revisions"): "the memories of watches, the lease and the clock",
    ("cluster/lease.py", "handed_over"): "the memories of watches, the lease and the clock",
    ("cluster/reflector.py", "_params"): "a setting",
    ("cluster/store.py", "_listeners"): "parts of the process",
    ("cluster/write_queue.py", "_waiting"): "requests in flight",
    ("loop/reclaim/dry_runs.py", "_running"): "tasks in flight",
    ("loop/reclaim/nominator.py", "_writing"): "tasks in flight",
    ("loop/writes/dispatch.py", "_busy"): "tasks in flight",
    ("pods/failure_logs.py", "_reading"): "tasks in flight",
    ("pods/fair_semaphore.py", "_held"): "requests in flight",
    ("pods/fair_semaphore.py", "_waiting"): "requests in flight",
    ("read/foreign/foreign_pods.py", "expired"): "a value of one pass",
    ("read/foreign/foreign_pods.py", "renewable"): "a value of one pass",
    ("read/foreign/whole_gangs.py", "_in_this_pass"): "a value of one pass",
    ("read/pod_priority.py", "_ours"): "a setting",
}
"""The exceptions that the page names at its beginning, by module and attribute."""


def attributes_of(thing: Any) -> Iterator[tuple[str, Any]]:
    """The attributes of an object of the operator that is no immutable value."""
    kind = type(thing)
    is_value = is_dataclass(kind) and kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
    if is_value or isinstance(thing, (tuple, msgspec.Struct, *MEMORIES)):
        return
    slots = [name for one in kind.__mro__ for name in getattr(one, "__slots__", ())]
    for name in (*getattr(thing, "__dict__", {}), *slots):
        yield name, getattr(thing, name, None)


def is_memory(thing: Any, name: str, value: Any) -> bool:
    """Whether the attribute of that name remembers something."""
    return isinstance(value, MEMORIES) or (isinstance(value, tuple) and name in replaced_by(type(thing)))


def replaced_by(kind: type) -> set[str]:
    """The attributes that the methods of a class set, apart from its constructor."""
    methods = [one for base in kind.__mro__ for one in vars(base).values() if isinstance(one, FunctionType)]
    steps = (step for one in methods if one.__name__ != "__init__" for step in dis.get_instructions(one))
    return {step.argval for step in steps if step.opname == "STORE_ATTR"}


def memories_of(process: Any) -> dict[str, set[str]]:
    """The attributes with memories of all objects that hang on the process, by module (`read/nodes.py`)."""
    found, seen, left = defaultdict[str, set[str]](set), {id(process): process}, [process]
    while left:
        thing = left.pop()
        if module := MODULES.fullmatch(type(thing).__module__):
            path = module[1].replace(".", "/") + ".py"
            found[path] |= {name for name, value in attributes_of(thing) if is_memory(thing, name, value)}
        if isinstance(thing, OF_ONE_PASS):
            continue
        inside = list(thing) if isinstance(thing, Store) else []
        for inner in (*inside, *(inner for _, inner in things_in(thing))):
            if id(inner) not in seen:
                seen[id(inner)] = inner
                left.append(inner)
    return {path: names for path, names in found.items() if names}


def rows() -> list[str]:
    """The rows of all tables of the page."""
    return [line for line in text("docs/internals.md").splitlines() if line.startswith("| ")]


def missing(path: str, names: set[str], rows: list[str]) -> list[str]:
    """The memories of the module that have no row."""
    ours = [row for row in rows if f"`{path}`" in row]
    if path.startswith(WITH_THE_ALLOCATION) or len(names) == 1:
        return [] if ours else [path]
    return sorted(f"{path}: {name}" for name in names if not any(f"`{name}`" in row for row in ours))


def test_each_memory_between_passes_has_a_row() -> None:
    """A row names the module; if the module has several memories, its rows name each attribute."""
    found: dict[str, set[str]] = {}

    async def scenario(world: ProcessWorld) -> None:
        nodes(2, 4)(world)
        replica = world.start()
        job(small=2, big=8)(world)
        await world.until("a job that has everything", lambda: world.settled("toy", 8), seconds=10)
        found.update(memories_of(replica.process))

    run_world(1, scenario)
    assert {place for place in NOT_LISTED if place[1] not in found.get(place[0], ())} == set(), "gone from the code"
    listed = {path: {name for name in names if (path, name) not in NOT_LISTED} for path, names in found.items()}
    assert [lack for path, names in sorted(listed.items()) if names for lack in missing(path, names, rows())] == []


def test_an_allocation_takes_nothing_that_is_of_one_pass_into_the_next() -> None:
    jobs = (make_job("new", 2, team="a"), make_job("low", 1, 4, team="b", on="n1 n1 n1 n1"))
    inputs = make_inputs((make_node("n1", 4),), jobs, teams=(make_team("a", 4), make_team("b")))
    allocator = Allocator()
    first = allocator.allocate(inputs)
    assert first["new"].victim_jobs, "it has a grant that was read, victims and findings"
    of_first = [ref(first), ref(first._state.this_pass), ref(first._state.victims), ref(first._explainer)]
    del first
    allocator.allocate(inputs)
    gc.collect()
    assert [one() for one in of_first] == [None] * 4


def test_a_tuple_that_a_method_replaces_is_a_memory() -> None:
    class Last:
        def __init__(self) -> None:
            self.seen, self.setting = (), ()

        def note(self, *seen: int) -> None:
            self.seen = seen

    last = Last()
    assert [is_memory(last, name, value) for name, value in attributes_of(last)] == [True, False]


def test_a_memory_without_a_row_is_found() -> None:
    table = ["| `read/one.py` | x |", "| `read/two.py`: `_a` | x |"]
    assert missing("read/one.py", {"_a"}, table) == []
    assert missing("read/other.py", {"_a"}, table) == ["read/other.py"]
    assert missing("read/two.py", {"_a", "_b"}, table) == ["read/two.py: _b"]
