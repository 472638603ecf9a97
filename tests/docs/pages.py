"""The pages of this repository as data: blocks of code, links, headings. Pure text work."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
NAMES = (
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "examples/README.md",
    *sorted(f"examples/{path.parent.name}/README.md" for path in (REPOSITORY / "examples").glob("*/README.md")),
    "charts/elastic-pytorch/README.md",
    *sorted(f"docs/{path.name}" for path in (REPOSITORY / "docs").glob("*.md")),
)
SHELL = ("sh", "bash", "")
"""Languages of blocks in which commands stand; a block without a language holds commands, too."""

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\(([^()\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """A block of code of a page."""

    page: str
    language: str
    text: str

    @property
    def first_line(self) -> str:
        """By which a block is told from the others of its page."""
        return self.text.partition("\n")[0]

    @property
    def commands(self) -> list[str]:
        """Its lines; one that ends with a backslash goes on in the next."""
        return [line for line in self.text.replace("\\\n", " ").splitlines() if line and not line.startswith("#")]


@cache
def text(page: str) -> str:
    """The whole page."""
    return (REPOSITORY / page).read_text()


@cache
def blocks(page: str, *languages: str) -> tuple[Block, ...]:
    """The page's blocks in these languages."""
    found = (Block(page, language, block) for language, block in _BLOCK.findall(text(page)))
    return tuple(block for block in found if block.language in languages)


def commands(page: str) -> list[str]:
    """All commands of the page that are to be run as they stand."""
    return [command for block in blocks(page, "sh") for command in block.commands]


def inline(page: str) -> list[str]:
    """What stands in backticks within the page's sentences."""
    return _INLINE.findall(_BLOCK.sub("", text(page)))


def links(page: str) -> list[str]:
    """Where the page's links lead to."""
    return _LINK.findall(_INLINE.sub("", _BLOCK.sub("", text(page))))


@cache
def anchors(page: str) -> frozenset[str]:
    """What can be linked to within the page: headings, as GitHub writes them; a second one of a name gets a number."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in _HEADING.findall(_BLOCK.sub("", text(page))):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return frozenset(found)
