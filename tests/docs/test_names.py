"""What stands in backticks in docstrings, comments and pages is the name of something that is there.

A docstring or comment may name what its own file uses, and what any file defines: a module, class, function, attribute
or constant, a literal without spaces, a word of a CRD, the chart or a manifest. It may not name a parameter or a
variable of another file: the old name of a renamed one would often pass. A page may name all of these.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import REPOSITORY, inline

NAME = re.compile(r"([A-Za-z_][\w.]*\w|[A-Za-z_])(?:\(\))?")
COMMENT = re.compile(r"(?<![\"'])# .*")
IN_BACKTICKS = re.compile(r"`([^`\n]+)`")
PREFIXES = ("elastic_pytorch_", "elastic_worker_", "process_")
"""Of metrics; test_pages.py looks for each of ours in docs/metrics.md."""
CODE = (
    "api",
    "client",
    "operator",
    "worker",
    "generate",
    "release",
    "devcluster",
    "examples",
    "benchmarks",
    "demo",
    "tests/worker/job",
)
OTHER_FILES = (
    "Makefile",
    "pyproject.toml",
    "charts/**/*.yaml",
    "crds/*.yaml",
    "manifests/*.yaml",
    "examples/**/*.yaml",
)
OF_OTHERS = {
    *("blockOwnerDeletion", "NamespaceTerminating", "SchedulerError", "AssumePod", "connectFullMesh"),
    *(
        "RendezvousStoreInfo",
        "init_process_group",
        "destroy_process_group",
        "fully_shard",
        "add_safe_globals",
        "compile",
    ),
    *(
        "num_batches_tracked",
        "num_train_epochs",
        "ignore_data_skip",
        "save_steps",
        "ckpt_path",
        "spawn",
        "serialization",
    ),
    *("model_copy", "add_subparsers", "socket_factory", "srun", "head"),
}
"""Names of Kubernetes, torch and its trainers, pydantic, argparse, aiohttp, Slurm and the shell that no code of ours
uses.
"""
PAGES = ("ARCHITECTURE.md", "CONTRIBUTING.md", "docs/internals.md", "docs/decisions.md")
"""The pages for developers. Those for users name the fields, settings and metrics that test_pages.py looks for, and
many names of other programs.
"""


@dataclass(frozen=True)
class Source:
    """A file of Python: its texts for readers, the names that its code uses, and those that it defines."""

    texts: tuple[str, ...]
    used: frozenset[str]
    defined: frozenset[str]


def _docstrings(tree: ast.AST) -> Iterator[ast.Constant]:
    """Strings that are statements."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str()) as constant):
                yield constant


def _used(tree: ast.AST) -> Iterator[str]:
    """What the code mentions."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)):
                yield name
            case ast.alias(name=name, asname=other):
                yield from (*name.split("."), other or "")
            case ast.ImportFrom(module=str(name)):
                yield from name.split(".")


def _defined(tree: ast.AST, texts: Iterable[str]) -> Iterator[str]:
    """What another file's docstring may name."""
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case ast.Constant(value=str(literal)) if literal not in texts and not re.search(r"\s", literal):
                yield from re.findall(r"\w+", literal)
        match node:
            case ast.Module(body=body) | ast.ClassDef(body=body):
                yield from (name.id for line in body for name in _targets(line))


def _targets(statement: ast.stmt) -> Iterator[ast.Name]:
    """The names to which the statement assigns."""
    match statement:
        case ast.Assign(targets=targets):
            yield from (name for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))
        case ast.AnnAssign(target=ast.Name() as name):
            yield name


def _source(path: Path) -> Source:
    code = path.read_text()
    tree = ast.parse(code)
    docstrings = frozenset(constant.value for constant in _docstrings(tree))
    return Source(
        texts=(*docstrings, *COMMENT.findall(code)),
        used=frozenset(_used(tree)),
        defined=frozenset(_defined(tree, docstrings)),
    )


@cache
def sources() -> dict[Path, Source]:
    """By path. Tests are not among them, because helpers of tests have names of their own (`Refusal`)."""
    return {path: _source(path) for folder in CODE for path in (REPOSITORY / folder).rglob("*.py")}


@cache
def known() -> frozenset[str]:
    """What a text of any file may name."""
    others = (path for pattern in OTHER_FILES for path in REPOSITORY.glob(pattern))
    return frozenset(
        {
            *OF_OTHERS,
            *sys.stdlib_module_names,
            *(path.stem for path in (REPOSITORY / "tests").rglob("*.py")),
            *("md", "py", "mp"),
            *(part for path in sources() for part in path.relative_to(REPOSITORY).with_suffix("").parts),
            *(name for source in sources().values() for name in source.defined),
            *(word for path in others for word in re.findall(r"\w+", path.read_text())),
        }
    )


def unknown(told: Iterable[str], names: frozenset[str]) -> list[str]:
    """What stands there like a name, and is none."""
    found = {match[1] for words in told if (match := NAME.fullmatch(words))}
    return sorted(n for n in found if not n.startswith(PREFIXES) and not names.issuperset(n.split(".")))


@pytest.mark.parametrize("folder", ["operator", "api", "worker/elastic_worker"])
def test_each_name_in_a_docstring_or_comment_is_there(folder):
    wrong = {
        str(path.relative_to(REPOSITORY)): names
        for path, source in sources().items()
        if path.is_relative_to(REPOSITORY / folder)
        for told in [[name for words in source.texts for name in IN_BACKTICKS.findall(words)]]
        if (names := unknown(told, known() | source.used))
    }
    assert wrong == {}


@pytest.mark.parametrize("page", PAGES)
def test_each_name_on_a_page_is_there(page):
    used = frozenset(name for source in sources().values() for name in source.used)
    assert unknown(inline(page), known() | used) == []
