"""Reads the input of all tools, and refuses it: one line for each mistake, with what to write instead."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

STDIN = "-"


class InputError(ValueError):
    """Unusable input: one line for each mistake."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = tuple(lines)
        super().__init__("\n".join(self.lines))


def read_text(name: str) -> str:
    """The text of that file, or of the standard input for `-`. Raises InputError."""
    try:
        data = sys.stdin.buffer.read() if name == STDIN else Path(name).read_bytes()
    except OSError as error:
        raise InputError([f"{name}: cannot be read: {error.strerror}; name a file, or - for the input"]) from None
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InputError([f"{name}: is not UTF-8 text: byte {error.start}; write it in UTF-8"]) from None


def read_json(name: str) -> Any:
    """The content of that JSON file. Raises InputError."""
    text = read_text(name)
    try:
        return json.loads(text, parse_constant=_no_such_number)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise InputError([f"{name}: is not JSON: {where}: {error.msg}; write one JSON object"]) from None
    except ValueError as error:
        raise InputError([f"{name}: is not JSON: {error}; write one JSON object"]) from None
    except RecursionError:
        raise InputError([f"{name}: is nested too deeply; write one JSON object of a few levels"]) from None


def write_json(value: object) -> str:
    """Indented JSON with a newline at its end."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def write_text(name: str, text: str) -> None:
    """Write the file of that name. Raises InputError."""
    try:
        Path(name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError([f"{name}: cannot be written: {error.strerror}; name another file"]) from None


def _no_such_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number of JSON")
