"""Only tests with a real-time mark wait for a real clock, or read one.

Each other test of this run is judged by its source, and by that of the functions of `tests` that it uses. Code on a
virtual loop may read the clock and wait, since both are the loop's. But `time.sleep` blocks the loop.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import textwrap
import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from tests.kit import retry, virtual_time

REAL = {*retry.REAL, "alone"}
NEVER = {time.sleep: "time.sleep"}
CLOCKS = {
    time.monotonic: "time.monotonic",
    time.perf_counter: "time.perf_counter",
    asyncio.sleep: "asyncio.sleep",
    asyncio.timeout: "asyncio.timeout",
    asyncio.wait_for: "asyncio.wait_for",
}


def test_only_tests_that_are_marked_wait_for_real_time(request: pytest.FixtureRequest):
    items = [item for item in request.session.items if not REAL & {mark.name for mark in item.iter_markers()}]
    tests = {item.function: item for item in items if isinstance(item, pytest.Function)}
    found = {item.nodeid.partition("[")[0]: told for item in tests.values() if (told := real_time_of(item))}
    told = "\n".join(f"{test}: {', '.join(uses)}" for test, uses in sorted(found.items()))
    assert not found, f"give it virtual time (tests/kit/loops.py) or one of the marks {sorted(REAL)}:\n{told}"


def real_time_of(test: pytest.Function) -> list[str]:
    """The functions of real time that the test uses, and where."""
    fixtures = [defined[-1].func for defined in test._fixtureinfo.name2fixturedefs.values()]
    seen: set[Any] = set()
    used = {what: where for part in (test.function, *fixtures) for what, where in all_used(part, seen)}
    banned = NEVER if is_virtual(test, used) else NEVER | CLOCKS
    return [f"{banned[what]} in {where}" for what, where in used.items() if what in banned]


def is_virtual(test: pytest.Function, used: dict[Any, str]) -> bool:
    """Whether its loop is virtual: the folder's loop, or one that the test makes."""
    if any(getattr(thing, "__module__", "") == virtual_time.__name__ for thing in used):
        return True
    loops = test.ihook.pytest_asyncio_loop_factories(config=test.config, item=test)
    return inspect.iscoroutinefunction(test.function) and virtual_time.VirtualLoop in (loops or {}).values()


def all_used(thing: Any, seen: set[Any]) -> Iterator[tuple[Any, str]]:
    """The names that a function or class of `tests` uses, directly or through others of `tests`; and where."""
    if thing in seen or not thing.__module__.startswith("tests."):
        return
    seen.add(thing)
    for used in uses(thing):
        yield used, f"{thing.__module__}.{thing.__qualname__}"
        if inspect.isfunction(used) or inspect.isclass(used):
            yield from all_used(used, seen)


@cache
def uses(thing: Any) -> list[Callable[..., Any]]:
    """The functions and classes that its source names, except a sleep of no time."""
    try:
        source = textwrap.dedent(inspect.getsource(thing))
    except OSError:
        return []  # made at run time, without source
    known, nodes = vars(inspect.getmodule(thing)), list(ast.walk(ast.parse(source)))
    turns = {node.func for node in nodes if isinstance(node, ast.Call) and [*map(ast.unparse, node.args)] == ["0"]}
    found = (resolved(node, known) for node in nodes if node not in turns)
    return [each for each in found if inspect.isroutine(each) or inspect.isclass(each)]


def resolved(node: ast.AST, known: dict[str, Any]) -> Any:
    """The object of `name` or `module.name`; None for any other node."""
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        module = known.get(node.value.id)
        return getattr(module, node.attr, None) if inspect.ismodule(module) else None
    return None
