"""llms.txt: a summary of this project and an index of its pages, for programs that read (llmstxt.org).

All of it is derived: title and summary from README.md, kinds and order of pages from the index docs/README.md, and each
page's line from its own title and first sentence.
"""

from __future__ import annotations

import re
from pathlib import Path

from generate.helm import ROOT

PATH = Path("llms.txt")
README = Path("README.md")
INDEX = Path("docs/README.md")

_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
_ASIDE = re.compile(r" \(\[[^]]*\]\([^)]*\)\)")
_PAGE = re.compile(r"\]\(([^)#]+\.md)\)")
_SENTENCE = re.compile(r".+?(?:[.?!](?=\s|$)|:(?=$)|$)")
_NO_PROSE = re.compile(r"[#|!<>-]|\* |```")


def text() -> str:
    """The file."""
    title, paragraph = _read(README)
    parts = [f"# {title}", f"> {paragraph}"]
    for section in (ROOT / INDEX).read_text().split("\n## ")[1:]:
        heading = section.partition("\n")[0].partition(":")[0]
        parts.append(f"## {heading}\n\n" + "\n".join(_line(path) for path in _pages(section)))
    return "\n\n".join(parts) + "\n"


def first_sentence(paragraph: str) -> str:
    """What the paragraph begins with, as in `The rest goes.`; a colon at its end becomes a full stop."""
    match = _SENTENCE.match(paragraph)
    assert match is not None, paragraph
    return re.sub(r":$", ".", match[0])


def _line(path: Path) -> str:
    title, paragraph = _read(path)
    return f"- [{title}]({path}): {first_sentence(paragraph)}"


def _pages(section: str) -> list[Path]:
    """The first page that each item of the index links."""
    linked = (_PAGE.search(line) for line in section.splitlines() if line.startswith("* "))
    found = [(ROOT / INDEX.parent / link[1]).resolve().relative_to(ROOT.resolve()) for link in linked if link]
    return list(dict.fromkeys(found))


def _read(path: Path) -> tuple[str, str]:
    """Title and first paragraph of a page, without links and bold type."""
    prose = re.sub(r"^```.*?^```$", "", (ROOT / path).read_text(), flags=re.DOTALL | re.MULTILINE)
    title = re.search(r"^# (.+)$", prose, flags=re.MULTILINE)
    blocks = (" ".join(block.split()) for block in re.split(r"\n\s*\n|^#.*$|^<!--.*$", prose, flags=re.MULTILINE))
    paragraph = next((one for one in blocks if one and not _NO_PROSE.match(one)), "")
    assert title is not None, f"{path}: needs a title"
    assert paragraph, f"{path}: needs a first paragraph"
    return title[1].replace("`", ""), _LINK.sub(r"\1", _ASIDE.sub("", paragraph)).replace("**", "")
