"""Folders of code."""

from __future__ import annotations

from pathlib import Path

from elastic_client.code.folder import Code, File


def make_folder(at: Path, **files: str) -> Path:
    """A folder with these files, `__` for `/` and `_py` for `.py`: `pkg__helper_py` is pkg/helper.py."""
    for name, text in files.items():
        path = at / name.replace("__", "/").replace("_py", ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return at


def make_code(*paths: str, name: str = "proj") -> Code:
    """Code with these files."""
    return Code(name, tuple(File(path, path.encode()) for path in sorted(paths or ("train.py",))))
