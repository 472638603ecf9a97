"""The tests that do not run for each change are run often enough."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.kit import parts
from tests.kit.parts import COMMITS, Green, Part

CLUSTER = Part("cluster", ("tests/cluster",), ("operator", "worker"))
DASHBOARD = Part("dashboard", ("tests/cluster/test_dashboard.py",), ("generate",))


def green(minutes: float = 1.0, commit: str = "abc") -> Green:
    return Green(commit, "2026-03-01", 1, minutes)


def test_no_part_has_moved_on_too_far():
    if not (parts.ROOT / ".git").exists():
        pytest.skip("not a checkout of git: there is no history to compare with")
    known = parts.greens()
    changed = {part.name: parts.commits_since(known.get(part.name), part) for part in parts.load()}
    assert not parts.stale(changed)


@pytest.mark.parametrize("part", parts.load(), ids=lambda part: part.name)
def test_what_a_part_names_is_there(part):
    gone = [path for path in (*part.tests, *part.code) if not (parts.ROOT / path).exists()]
    assert not gone


def test_only_known_parts_are_recorded():
    assert set(parts.greens()) <= {part.name for part in parts.load()}


def test_a_file_belongs_to_the_part_that_names_it_most_exactly():
    found = [
        parts.part_of(path, [CLUSTER, DASHBOARD])
        for path in ("tests/cluster/test_toy.py", "tests/cluster/test_dashboard.py", "tests/clusters/test_a.py")
    ]
    assert found == ["cluster", "dashboard", None]


def test_changed_parts_are_run_longest_unseen_first_as_long_as_there_is_time():
    known = {"a": green(20), "b": green(20), "c": green(5), "d": green(1)}
    changed = {"a": 1, "b": 3, "c": 2, "d": 0, "never": None}
    assert parts.chosen(changed, known, minutes=30) == ["never", "b", "c"]


def test_a_part_is_stale_after_ten_commits_or_when_never_seen():
    words = parts.stale({"fresh": COMMITS - 1, "old": COMMITS, "never": None})
    assert [line.split("'")[1] for line in words] == ["old", "never"]


def git(root: Path, *words: str) -> str:
    settings = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    return subprocess.run(["git", *settings, *words], cwd=root, capture_output=True, text=True, check=True).stdout


def commit(root: Path, path: str) -> str:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    with (root / path).open("a") as file:
        file.write("changed\n")
    git(root, "add", "-A")
    git(root, "commit", "-qm", path)
    return git(root, "rev-parse", "HEAD").strip()


def test_only_commits_to_its_code_and_tests_count(tmp_path):
    git(tmp_path, "init", "-q")
    seen = green(commit=commit(tmp_path, "operator/a.py"))
    assert parts.commits_since(seen, CLUSTER, root=tmp_path) == 0
    for path in ("docs/a.md", "operator/a.py", "tests/cluster/test_a.py", "tests/plan/test_a.py"):
        commit(tmp_path, path)
    assert parts.commits_since(seen, CLUSTER, root=tmp_path) == 2
    assert parts.commits_since(green(commit="0" * 40), CLUSTER, root=tmp_path) is None
    assert parts.commits_since(None, CLUSTER, root=tmp_path) is None


def test_a_run_of_a_part_leaves_out_the_tests_of_another_below_its_folder(pytester: pytest.Pytester, request):
    pytester.makeconftest(
        "from tests.kit import parts\n"
        "WHOLE = parts.Part('cluster', ('tests/cluster',), ())\n"
        "INSIDE = parts.Part('install', ('tests/cluster/test_b.py',), ())\n"
        "parts.load = lambda: [WHOLE, INSIDE]\n"
        "def pytest_collection_modifyitems(config, items):\n"
        "    parts.select(config, items, ['cluster'])\n"
    )
    pytester.makeini(f"[pytest]\npythonpath = {request.config.rootpath}")
    folder = pytester.mkdir("tests") / "cluster"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"test_{name}.py").write_text(f"def test_{name}():\n    pass\n")
    result = pytester.runpytest_subprocess("-v", "-p", "no:randomly", "--rootdir", pytester.path)
    result.assert_outcomes(passed=1, deselected=1)
    result.stdout.fnmatch_lines(["*test_a*PASSED*"])
