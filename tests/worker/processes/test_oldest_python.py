"""The worker runs on Python 3.9, whatever this machine has."""

import ast
from pathlib import Path

import pytest

import elastic_worker

FILES = sorted(Path(elastic_worker.__file__).parent.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(FILES[0].parent)) for path in FILES])
def test_a_file_is_python_3_9(path):
    tree = ast.parse(path.read_text(), str(path), feature_version=(3, 9))
    assert not list(_newer(tree))


def _newer(tree: ast.AST):
    """What 3.9 would parse but not run, or not mean."""
    annotations = _annotations(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and node not in annotations and ast.unparse(node).endswith(" | None"):
            yield f"line {node.lineno}: {ast.unparse(node)} is no type there"
        if isinstance(node, ast.Name) and node.id == "get_type_hints":
            yield f"line {node.lineno}: it cannot read `X | None` there"
        if isinstance(node, ast.ExceptHandler) and node.type is not None:
            for kind in ast.walk(node.type):
                if isinstance(kind, ast.Name) and kind.id == "TimeoutError":
                    yield f"line {node.lineno}: asyncio's time-outs are asyncio.TimeoutError there, another class"
        if isinstance(node, ast.Call):
            names = {keyword.arg for keyword in node.keywords}
            called = ast.unparse(node.func)
            if ("strict" in names and called == "zip") or ("slots" in names and called.endswith("dataclass")):
                yield f"line {node.lineno}: {called} takes no such argument there"
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("asyncio.timeout", "asyncio.TaskGroup"):
            yield f"line {node.lineno}: there is no {ast.unparse(node)} there"
        if isinstance(node, ast.ImportFrom) and node.module in ("enum", "datetime"):
            for alias in node.names:
                if alias.name in ("StrEnum", "UTC"):
                    yield f"line {node.lineno}: there is no {alias.name} there"


def _annotations(tree: ast.AST) -> set[ast.AST]:
    """All that is never run."""
    fields = ("annotation", "returns")
    found = (getattr(node, name, None) for node in ast.walk(tree) for name in fields)
    return {each for annotation in found if annotation is not None for each in ast.walk(annotation)}
