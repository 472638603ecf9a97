"""docs/reliability.md: each row names a test that is there, and each fault that was asked for has a row."""

from __future__ import annotations

import ast
from functools import cache

import pytest

from tests.docs.reliability import FILE, HEADS, REPOSITORY, commands, rows

PAGE = FILE.read_text()
ROWS = rows(PAGE)
MARKS = {
    "tests/cluster/": "",
    "tests/network/": "",
    "tests/apiserver/": "¹",
    "tests/worker/": "²",
    "tests/build/": "²",
    "tests/simulate/": "³",
    "tests/virtual/": "³",
}
"""Where a row's test is, and how the row says so."""
ASKED_FOR = (
    "a node is powered off, and on again",
    "a node comes and goes",
    "a GPU is sick",
    "the kubelet restarts",
    "containerd is killed",
    "the disk of a node is full",
    "a node loses the image",
    "DNS does not answer",
    "the network between two nodes is cut",
    "the API server stalls during a reclaim",
    "the leader is killed during a change of size",
    "etcd's history is compacted",
    "etcd is restored from an older backup",
    "the operator is upgraded during a change of size",
    "two installations by mistake",
    "the clock of a node is wrong",
    "pods are deleted by hand, in any order",
    "a job is deleted without its pods",
    "a namespace is deleted with jobs in it",
)
"""First words of rows that are tests on real kubelets; of two installations nothing is asked of a kubelet."""


@cache
def names_in(path: str) -> set[str]:
    """The names of the tests in a file."""
    tree = ast.parse((REPOSITORY / path).read_text())
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.fault)
def test_each_row_says_all_there_is_to_say_and_names_a_test_that_is_there(row):
    assert len(row.cells) == len(HEADS)
    assert all(row.cells[:3] + row.cells[4:]), "only what was lost may be empty, where there was nothing to lose"
    name, path, mark = row.test
    assert name in names_in(path)
    assert mark == next(mark for folder, mark in MARKS.items() if path.startswith(folder))


@pytest.mark.processes
def test_each_row_names_the_command_that_runs_its_test():
    wanted = commands(ROWS)
    wrong = [row.fault for row in ROWS if row.cells[5] != wanted[row.key]]
    assert not wrong, "renew the column: python -m tests.docs.reliability"


def test_no_fault_stands_there_twice():
    faults = [row.fault for row in ROWS if not row.fault.startswith("...")]
    assert len(faults) == len(set(faults))


@pytest.mark.parametrize("fault", ASKED_FOR)
def test_each_fault_that_was_asked_for_has_a_row_of_a_test_on_the_real_cluster(fault):
    found = [row for row in ROWS if row.fault.startswith(fault)]
    assert found, f"no row begins with {fault!r}"
    assert all(row.test[2] == "" or fault == "two installations by mistake" for row in found)


@pytest.mark.parametrize("path", sorted(REPOSITORY.glob("tests/cluster/test_faults_*.py")), ids=lambda path: path.name)
def test_each_test_of_a_fault_has_a_row(path):
    shown = {row.test[0] for row in ROWS}
    assert names_in(str(path.relative_to(REPOSITORY))) <= shown


def test_the_half_hour_has_its_place_and_the_command_that_renews_it():
    begin, end = PAGE.index("<!-- soak: begin -->"), PAGE.index("<!-- soak: end -->")
    assert begin < end
    assert 'make soak MINUTES=30 ARGS="--seed 1 --seed 2 --seed 3 --report"' in PAGE[:begin]
