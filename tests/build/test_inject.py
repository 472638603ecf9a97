"""What the init container does: the package in a folder, from which any python runs it."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import elastic_worker
from elastic_worker import inject

PACKAGE = Path(elastic_worker.__file__).parent
SHOW = "import sys; from elastic_worker import contract; print(contract.__file__, *sys.argv[1:])"


def files(folder: Path) -> dict[str, bytes]:
    """The files below a folder by relative path, without byte code."""
    found = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def test_the_whole_package_is_copied_and_everybody_may_read_it(tmp_path):
    before = os.umask(0o077)
    try:
        inject.inject(tmp_path)
    finally:
        os.umask(before)
    assert files(tmp_path / "elastic_worker") == files(PACKAGE)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["__main__.py", "elastic_worker"]
    for path in tmp_path.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) in ((0o755,) if path.is_dir() else (0o644, 0o755)), path


def test_the_folder_runs_the_package_with_its_arguments(tmp_path):
    inject.inject(tmp_path)
    (tmp_path / "elastic_worker" / "__main__.py").write_text(SHOW)
    command = [sys.executable, "-E", "-S", str(tmp_path), "--", "train.py", "--lr"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/").stdout.split()
    assert shown == [str(tmp_path / "elastic_worker" / "contract.py"), "--", "train.py", "--lr"]


def test_a_second_run_replaces_what_the_first_left(tmp_path):
    inject.inject(tmp_path)
    (tmp_path / "elastic_worker" / "contract.py").write_text("broken")
    (tmp_path / "elastic_worker" / "old.py").write_text("")
    inject.inject(tmp_path)
    assert files(tmp_path / "elastic_worker") == files(PACKAGE)


def test_inject_runs_as_a_module_and_says_when_it_cannot_write(tmp_path):
    command = [sys.executable, "-m", "elastic_worker.inject"]
    assert subprocess.run([*command, str(tmp_path)], check=False).returncode == 0
    assert (tmp_path / "__main__.py").exists()
    gone = subprocess.run([*command, str(tmp_path / "gone")], capture_output=True, text=True, check=False)
    assert gone.returncode != 0
    assert "FileNotFoundError" in gone.stderr
