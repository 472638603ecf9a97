"""Splits a script for bash into statements, and these into words exactly as written.

It does not run or expand anything. Here-documents, quotes and continued lines stay whole; an `if`, a loop, a function
or a group is one statement with its content.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from elastic_client.convert.converted import ConvertError

MOST_LINES = 400
"""The most lines of a text in quotes. Each line reads it again, and an unclosed one is the rest of the script."""
NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_HEREDOC = re.compile(r"<<(-?)\s*(?:'([^']+)'|\"([^\"]+)\"|\\?([A-Za-z_][\w.]*))")
_WORD = (
    r"""(?:[^\s'"`\\;|&()<>$]|\\[^\n]|'[^']*'|"(?:\\.|[^"\\])*"|`[^`]*`"""
    r"""|\$\((?:[^()]|\([^()]*\))*\)|\$\{[^}]*\}|\$)+"""
)
_TOKEN = re.compile(
    rf"(?P<space>(?:[^\S\n]|\\\n)+)|(?P<comment>#[^\n]*)|(?P<redirect>\d*[<>][<>&|]*-?|&>>?)|(?P<word>{_WORD})|(?P<sign>.)",
    re.DOTALL,
)
_ASSIGNMENT = re.compile(rf"(?:export\s+)?({NAME})=(.*)", re.DOTALL)
_OPENS = {"if", "for", "while", "until", "case", "{", "select"}
_CLOSES = {"fi", "done", "esac", "}"}


@dataclass(frozen=True, slots=True)
class Word:
    """A word as written, quotes and variables included, and its place in its statement."""

    text: str
    start: int
    end: int

    @property
    def is_sign(self) -> bool:
        """Whether it is a sign such as `;`, `|`, `2>&` or the end of a line, and no word of the command."""
        return re.fullmatch(r"\d*[<>].*|[;&|()\n].*", self.text) is not None

    @property
    def value(self) -> str | None:
        """The word's value in the shell; None if that depends on variables, commands or files."""
        if re.search(r"[$`*?\[\]~{}]", re.sub(r"'[^']*'|\\\n", "", self.text)):
            return None
        try:
            parts = shlex.split(self.text)
        except ValueError:
            return None
        return parts[0] if len(parts) == 1 else "" if not parts else None


@dataclass(frozen=True, slots=True)
class Statement:
    """A part of the script that can be kept or removed alone; `line` is the number of its first line, from 1."""

    text: str
    line: int

    def words(self) -> list[Word]:
        """The words of a simple command; signs such as `&` and `>` are words of their own, comments are none."""
        found = []
        for match in _TOKEN.finditer(self.text):
            if match["comment"] and (match.start() == 0 or self.text[match.start() - 1].isspace()):
                continue
            if match["space"] is None and not match["comment"]:
                found.append(Word(match[0], match.start(), match.end()))
        return found

    @property
    def is_command(self) -> bool:
        """Whether it is a command: neither empty nor a comment."""
        text = self.text.strip()
        return bool(text) and not all(line.lstrip().startswith("#") for line in text.splitlines())

    def assignment(self) -> tuple[str, Word | None] | None:
        """The variable and the word if the statement only sets a variable; the word is None for a list. Else None."""
        found = _ASSIGNMENT.fullmatch(self.text.strip())
        if not found:
            return None
        rest = Statement(found[2], self.line)
        words = rest.words()
        if found[2].startswith("("):
            return found[1], None
        return (found[1], words[0] if words else Word("''", 0, 0)) if len(words) <= 1 else None


def statements(script: str) -> Iterator[Statement]:
    """The script's statements, one after another; together they are the whole script."""
    lines = script.splitlines()
    at = 0
    while at < len(lines):
        end = _end(lines, at)
        yield Statement("\n".join(lines[at:end]), at + 1)
        at = end


def variables(text: str) -> set[str]:
    """The names of the variables that a text refers to."""
    return set(re.findall(rf"\$\{{?[#!]?({NAME})", text))


def _end(lines: Sequence[str], start: int) -> int:
    """The number of the line after the statement that begins with line `start`."""
    at, depth = start, 0
    while at < len(lines):
        text = lines[at]
        at += 1
        begun = at
        while at < len(lines) and (text.endswith("\\") or _is_open(text)):
            if at - begun == MOST_LINES:
                raise ConvertError(
                    f"line {begun}: {lines[begun - 1].strip()}: a quote or bracket is open for more than {MOST_LINES}"
                    " lines: close it, or write a here-document"
                )
            text += "\n" + lines[at]
            at += 1
        for end, is_indented in _heredocs(text):
            while at < len(lines) and (lines[at].lstrip("\t") if is_indented else lines[at]) != end:
                at += 1
            at += 1
        depth += _depth(text)
        if depth <= 0:
            break
    return min(at, len(lines))


def _is_open(text: str) -> bool:
    """Whether a quote or a list in brackets continues in the next line."""
    if text.lstrip().startswith("#"):
        return False
    bare = re.sub(r"\\.|'[^']*'|\"(?:\\.|[^\"\\])*\"", "", text, flags=re.DOTALL)
    bare = re.sub(r"(^|\s)#.*", "", bare)
    return "'" in bare or '"' in bare or (bare.count("(") > bare.count(")") and "case" not in bare)


def _heredocs(text: str) -> Iterator[tuple[str, bool]]:
    """The last lines of the here-documents that begin in a line, and whether tabs may stand before them."""
    bare = re.sub(r"(^|\s)#.*", "", text) if text.lstrip().startswith("#") else text.replace("<<<", "   ")
    for dash, *names in _HEREDOC.findall(bare):
        yield next(name for name in names if name), bool(dash)


def _depth(text: str) -> int:
    """How many more groups begin than end in a line."""
    depth, is_first = 0, True
    for word in Statement(text, 0).words():
        if is_first and word.text in _OPENS:
            depth += 1
        elif is_first and word.text in _CLOSES:
            depth -= 1
        is_first = word.text in (";", "&", "|", "(", ")", "then", "do", "else", "{") or "\n" in word.text
    return depth
