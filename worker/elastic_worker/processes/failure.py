"""The error file of a training process, in the format of torch's `record`: the launcher reads why the process failed.

A script whose main function is decorated with `record` writes the file itself. For all other scripts it is written
here.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

ENV_ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
LIMIT_CHARACTERS = 12_000
"""Limit of message and traceback together. With JSON's escapes the file usually stays below 16 KiB."""
MESSAGE_CHARACTERS = 2_000
READ_LIMIT_BYTES = 4 << 20
OURS = str(Path(__file__).parent) + os.sep


def install_hook() -> None:
    """Install a `sys.excepthook` that prints an uncaught exception without our frames and writes it to the error file.

    The interpreter ends as it would without the hook, and the script's hook is still called. Call this while an
    exception is being handled, before raising it again.
    """
    print_exception = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        trace = without_ours(trace)
        error = error.with_traceback(trace)
        write(os.environ, error)
        print_exception(kind, error, trace)

    sys.excepthook = hook


def without_ours(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from the user's first frame on; None if all frames are of this package."""
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(OURS):
        trace = trace.tb_next
    return trace


def write(environ: Mapping[str, str], error: BaseException) -> None:
    """Write the error file for an exception, unless there is one already.

    Raises nothing if the file cannot be written: a full disk must not hide the error itself.
    """
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    write_message(environ, f"{type(error).__name__}: {error}", trace=trace)


def write_message(environ: Mapping[str, str], message: str, *, trace: str = "") -> None:
    """Write the error file with this message, for an end without an exception, unless there is one already."""
    path = environ.get(ENV_ERROR_FILE, "")
    if not path or Path(path).exists():
        return
    message = cut(message, MESSAGE_CHARACTERS)
    callstack = cut(trace, LIMIT_CHARACTERS - len(message))
    extra = {"py_callstack": callstack, "timestamp": str(int(time.time()))}
    try:
        with Path(path).open("w", encoding="utf-8", errors="backslashreplace") as file:
            json.dump({"message": {"message": message, "extraInfo": extra}}, file, ensure_ascii=False)
    except OSError as problem:
        print(f"elastic-pytorch: no error file: {problem}", file=sys.stderr)


def read(path: Path, *, exit_code: int) -> dict[str, Any] | None:
    """Read `message`, `traceback` and `exitCode` from the error file; None if it is missing or unreadable."""
    try:
        with path.open("rb") as file:
            error = json.loads(file.read(READ_LIMIT_BYTES))
        error = error["message"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not isinstance(error, dict):
        error = {"message": error}
    extra = error.get("extraInfo")
    callstack = extra.get("py_callstack", "") if isinstance(extra, dict) else ""
    message = cut(str(error.get("message", "")), MESSAGE_CHARACTERS)
    return {
        "message": message,
        "traceback": cut(str(callstack), LIMIT_CHARACTERS - len(message)),
        "exitCode": exit_code,
    }


def cut(text: str, limit: int) -> str:
    """The last `limit` characters of the text, since an error's reason is at its end."""
    mark = "[...] "
    return text if len(text) <= limit else mark + text[len(text) - limit + len(mark) :]
